import pytest
from tests.builders import ODD_TEXTS, Store

from keryx.store import inbox
from keryx.testing import START_TIME


async def test_a_cursor_is_unknown_until_it_moves(store: Store) -> None:
    assert await store.read(inbox.get_cursor, "telegram:bot") is None
    await store.at(START_TIME).write(inbox.set_cursor, "telegram:bot", "1")
    await store.at(START_TIME).write(inbox.set_cursor, "telegram:bot", "2")
    await store.at(START_TIME).write(inbox.set_cursor, "telegram:other", "9")
    assert await store.read(inbox.get_cursor, "telegram:bot") == "2"


async def test_a_platform_may_use_any_text_as_its_position(store: Store, subtests: pytest.Subtests) -> None:
    for text in ["", *ODD_TEXTS]:
        with subtests.test(ascii(text)):
            await store.at(START_TIME).write(inbox.set_cursor, "matrix:bot", text)
            assert await store.read(inbox.get_cursor, "matrix:bot") == text
