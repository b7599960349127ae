import pytest
from tests.builders import NOW, ODD_TEXTS, Store

from keryx.store import cursors


async def test_a_cursor_is_unknown_until_it_moves(store: Store) -> None:
    assert await store.read(cursors.get, "telegram:bot") is None
    await store.write(cursors.move, "telegram:bot", "1", now=NOW)
    await store.write(cursors.move, "telegram:bot", "2", now=NOW)
    await store.write(cursors.move, "telegram:other", "9", now=NOW)
    assert await store.read(cursors.get, "telegram:bot") == "2"


async def test_a_platform_may_use_any_text_as_its_position(store: Store, subtests: pytest.Subtests) -> None:
    for text in ["", *ODD_TEXTS]:
        with subtests.test(ascii(text)):
            await store.write(cursors.move, "matrix:bot", text, now=NOW)
            assert await store.read(cursors.get, "matrix:bot") == text
