import pytest
from tests.builders import ODD_TEXTS, Store, a_running_turn

from keryx.core.changes import ChangeKind, DraftChunk
from keryx.core.messages import Reasoning, Text
from keryx.store import change_feed, changes, turns
from keryx.testing import START_TIME


async def test_a_draft_grows_in_pieces(store: Store) -> None:
    turn = await store.write(a_running_turn)
    await store.at(START_TIME).write(turns.append_draft, turn, [Reasoning("hm")])
    await store.at(START_TIME).write(turns.append_draft, turn, [Text("a"), Text("b")])
    assert await store.read(turns.list_draft_pieces, turn.id) == [
        DraftChunk(1, "hm", thought=True),
        DraftChunk(2, "a"),
        DraftChunk(3, "b"),
    ]


async def test_followers_get_each_piece_with_its_text(store: Store) -> None:
    turn = await store.write(a_running_turn)
    cursor = await store.read(changes.get_head)
    await store.at(START_TIME).write(turns.append_draft, turn, [Text("a"), Reasoning("b")])
    found = await store.read(change_feed.list_after, cursor)
    assert [(c.kind, c.turn, c.piece) for c in found] == [
        (ChangeKind.DRAFT, turn.id, DraftChunk(1, "a")),
        (ChangeKind.DRAFT, turn.id, DraftChunk(2, "b", thought=True)),
    ]


async def test_taking_a_draft_joins_its_pieces_and_empties_it(store: Store) -> None:
    turn = await store.write(a_running_turn)
    pieces = [Reasoning("hm "), Reasoning("well"), Text("a"), Text("b"), Reasoning("", "{}"), Text("c")]
    await store.at(START_TIME).write(turns.append_draft, turn, pieces)
    taken = await store.write(turns.take_draft, turn.id)
    assert taken == (Reasoning("hm well"), Text("ab"), Reasoning("", "{}"), Text("c"))
    assert await store.read(turns.list_draft_pieces, turn.id) == []
    assert await store.write(turns.take_draft, turn.id) == ()


async def test_numbers_go_on_after_a_draft_was_taken(store: Store) -> None:
    turn = await store.write(a_running_turn)
    await store.at(START_TIME).write(turns.append_draft, turn, [Text("a")])
    await store.write(turns.take_draft, turn.id)
    cursor = await store.read(changes.get_head)
    await store.at(START_TIME).write(turns.append_draft, turn, [Text("b")])
    (change,) = await store.read(change_feed.list_after, cursor)
    assert change.piece == DraftChunk(2, "b")


async def test_any_text_survives_in_a_draft(store: Store, subtests: pytest.Subtests) -> None:
    for text in ODD_TEXTS:
        with subtests.test(ascii(text)):
            turn = await store.write(a_running_turn)
            await store.at(START_TIME).write(turns.append_draft, turn, [Text(text), Reasoning(text, text)])
            assert [piece.text for piece in await store.read(turns.list_draft_pieces, turn.id)] == [
                text,
                text,
            ]
            assert await store.write(turns.take_draft, turn.id) == (Text(text), Reasoning(text, text))
