import pytest

from keryx.store import cursors
from tests.builders import NOW, ODD_TEXTS, Store


async def test_a_cursor_is_unknown_until_it_moves(store: Store) -> None:
    assert await store.read(cursors.get, "telegram:bot") is None
    await store.write(cursors.move, "telegram:bot", "1", now=NOW)
    await store.write(cursors.move, "telegram:bot", "2", now=NOW)
    await store.write(cursors.move, "telegram:other", "9", now=NOW)
    assert await store.read(cursors.get, "telegram:bot") == "2"


@pytest.mark.parametrize("text", ["", *ODD_TEXTS])
async def test_a_platform_may_use_any_text_as_its_position(store: Store, text: str) -> None:
    await store.write(cursors.move, "matrix:bot", text, now=NOW)
    assert await store.read(cursors.get, "matrix:bot") == text
