import pytest
from tests.builders import NOW, ODD_TEXTS, Store, a_running_turn

from keryx.core.changes import Kind, Piece
from keryx.core.messages import Reasoning, Text
from keryx.store import changes, drafts, feed


async def test_a_draft_grows_in_pieces(store: Store) -> None:
    turn = await store.write(a_running_turn)
    await store.write(drafts.grow, turn, [Reasoning("hm")], now=NOW)
    await store.write(drafts.grow, turn, [Text("a"), Text("b")], now=NOW)
    assert await store.read(drafts.pieces, turn.id) == [
        Piece(1, "hm", thought=True),
        Piece(2, "a"),
        Piece(3, "b"),
    ]


async def test_followers_get_each_piece_with_its_text(store: Store) -> None:
    turn = await store.write(a_running_turn)
    cursor = await store.read(changes.head)
    await store.write(drafts.grow, turn, [Text("a"), Reasoning("b")], now=NOW)
    found = await store.read(feed.after, cursor)
    assert [(c.kind, c.turn, c.piece) for c in found] == [
        (Kind.DRAFT, turn.id, Piece(1, "a")),
        (Kind.DRAFT, turn.id, Piece(2, "b", thought=True)),
    ]


async def test_taking_a_draft_joins_its_pieces_and_empties_it(store: Store) -> None:
    turn = await store.write(a_running_turn)
    pieces = [Reasoning("hm "), Reasoning("well"), Text("a"), Text("b"), Reasoning("", "{}"), Text("c")]
    await store.write(drafts.grow, turn, pieces, now=NOW)
    taken = await store.write(drafts.take, turn.id)
    assert taken == (Reasoning("hm well"), Text("ab"), Reasoning("", "{}"), Text("c"))
    assert await store.read(drafts.pieces, turn.id) == []
    assert await store.write(drafts.take, turn.id) == ()


async def test_numbers_go_on_after_a_draft_was_taken(store: Store) -> None:
    turn = await store.write(a_running_turn)
    await store.write(drafts.grow, turn, [Text("a")], now=NOW)
    await store.write(drafts.take, turn.id)
    cursor = await store.read(changes.head)
    await store.write(drafts.grow, turn, [Text("b")], now=NOW)
    (change,) = await store.read(feed.after, cursor)
    assert change.piece == Piece(2, "b")


async def test_any_text_survives_in_a_draft(store: Store, subtests: pytest.Subtests) -> None:
    for text in ODD_TEXTS:
        with subtests.test(ascii(text)):
            turn = await store.write(a_running_turn)
            await store.write(drafts.grow, turn, [Text(text), Reasoning(text, text)], now=NOW)
            assert [piece.text for piece in await store.read(drafts.pieces, turn.id)] == [text, text]
            assert await store.write(drafts.take, turn.id) == (Text(text), Reasoning(text, text))
