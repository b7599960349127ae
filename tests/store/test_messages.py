from typing import Any

import pytest
from tests.builders import ANN, ODD_TEXTS, Store, a_message, a_session, after, at_time

from keryx.core.changes import ChangeKind
from keryx.core.clock import to_micros
from keryx.core.errors import NotFound
from keryx.core.ids import SessionId, TurnId
from keryx.core.messages import (
    Audio,
    File,
    Image,
    Mark,
    Message,
    Notice,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    text_parts,
)
from keryx.core.sessions import Session
from keryx.store import change_feed, changes, messages, sessions
from keryx.store.db import Transaction
from keryx.testing import START_TIME

TURN = TurnId("t1")
OTHER = TurnId("t2")


def a_talk(tx: Transaction, length: int) -> Session:
    session = a_session(tx)
    for n in range(1, length + 1):
        a_message(tx, session.id, f"m{n}", at=after(n))
    return sessions.get(tx, session.id)


def texts(found: list[Message]) -> list[str]:
    return [message.text for message in found]


async def test_messages_are_numbered_from_one_and_counted(store: Store) -> None:
    session = await store.write(a_talk, 3)
    assert [m.seq for m in await store.read(messages.list_after, session.id, after=0)] == [1, 2, 3]
    assert (session.last_seq, session.messages, session.active_at) == (3, 3, after(3))


async def test_the_last_messages_are_read_in_windows(store: Store) -> None:
    session = await store.write(a_talk, 7)
    assert texts(await store.read(messages.list_latest, session.id, limit=3)) == ["m5", "m6", "m7"]
    assert texts(await store.read(messages.list_latest, session.id, limit=3, before=5)) == ["m2", "m3", "m4"]
    assert texts(await store.read(messages.list_latest, session.id, limit=3, before=2)) == ["m1"]
    assert await store.read(messages.list_latest, session.id, limit=3, before=1) == []


async def test_the_messages_after_a_number_are_read_in_order(store: Store) -> None:
    session = await store.write(a_talk, 5)
    assert texts(await store.read(messages.list_after, session.id, after=3)) == ["m4", "m5"]
    assert texts(await store.read(messages.list_after, session.id, after=1, limit=2)) == ["m2", "m3"]
    assert await store.read(messages.list_after, session.id, after=5) == []


async def test_a_message_keeps_everything_it_was_given(store: Store) -> None:
    session = await store.write(a_session)
    parts: tuple[Part, ...] = (
        Text("hi"),
        Image("media:1", "image/png", "x.png"),
        File("media:2"),
        Audio("media:3", transcript="said"),
        ToolCall("c", "run", '{"a": 1', repeatable=True),
        ToolResult("c", "run", "out", failed=True),
        Reasoning("why", '{"signed": 1}'),
        Notice("note", "reset"),
    )
    seq = await store.at(START_TIME).write(
        messages.append,
        session.id,
        Role.ASSISTANT,
        parts,
        turn=TURN,
        author="Ann",
        surface="gateway",
        platform_id="p:1",
        mark=Mark.LATE,
        observed=True,
        exact="raw",
    )
    assert await store.read(messages.get, session.id, seq) == Message(
        session=session.id,
        seq=1,
        role=Role.ASSISTANT,
        parts=parts,
        micros=to_micros(START_TIME),
        turn=TURN,
        author="Ann",
        surface="gateway",
        platform_id="p:1",
        mark=Mark.LATE,
        observed=True,
        exact="raw",
    )


async def test_each_detail_of_a_message_is_kept_among_plain_ones(store: Store) -> None:
    session = await store.write(a_session)
    details: list[dict[str, Any]] = [
        {"author": "Ann"},
        {"platform_id": "p:1"},
        {"mark": Mark.CANCELLED},
        {"observed": True},
        {"exact": "raw"},
        {"exact": ""},
    ]
    expected: list[Message] = []
    for n, detail in enumerate(details):
        for more in ({}, detail):
            seq = await store.at(START_TIME).write(
                messages.append, session.id, Role.USER, text_parts(f"word {n}"), **more
            )
            expected.append(
                Message(session.id, seq, Role.USER, text_parts(f"word {n}"), to_micros(START_TIME), **more)
            )
    assert await store.read(messages.list_after, session.id, after=0) == expected


async def test_any_text_survives_in_every_place_of_a_message(store: Store, subtests: pytest.Subtests) -> None:
    for text in ODD_TEXTS:
        with subtests.test(ascii(text)):
            session = await store.write(a_session)
            parts = (
                Text(text),
                ToolCall(text, text, text),
                ToolResult(text, text, text),
                Reasoning(text, text),
            )
            seq = await store.at(START_TIME).write(
                messages.append,
                session.id,
                Role.USER,
                parts,
                author=text,
                platform_id=text,
                exact=text,
            )
            alone = await store.read(messages.get, session.id, seq)
            (windowed,) = await store.read(messages.list_latest, session.id, limit=1)
            by_platform = await store.read(messages.find_by_platform_id, session.id, text)
            assert alone == windowed == by_platform
            assert (alone.parts, alone.author, alone.platform_id, alone.exact) == (parts, text, text, text)
            cursor = await store.read(changes.get_head)
            await store.at(START_TIME).write(messages.rewrite, alone, text_parts(text))
            (change,) = await store.read(change_feed.list_after, cursor)
            assert change.message and change.message.text == text


async def test_five_megabytes_survive(store: Store) -> None:
    session = await store.write(a_session)
    text = "x\x00é\ud800🙂" * 500_000
    await store.write(a_message, session.id, text)
    (found,) = await store.read(messages.list_latest, session.id, limit=1)
    assert found.text == text


async def test_an_unknown_session_takes_no_message(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.write(a_message, SessionId("none"))
    with pytest.raises(NotFound):
        await store.read(messages.get, SessionId("none"), 1)


async def test_the_messages_of_a_turn_are_found_and_can_be_given_to_another(store: Store) -> None:
    def arrange(tx: Transaction) -> Session:
        session = a_session(tx)
        for turn in (TURN, OTHER, TURN):
            messages.append(at_time(tx, START_TIME), session.id, Role.USER, text_parts(turn), turn=turn)
        return session

    session = await store.write(arrange)
    assert [m.seq for m in await store.read(messages.list_for_turn, session.id, TURN, first=1)] == [1, 3]
    await store.write(messages.reassign, session.id, old=OTHER, new=TURN, first=2)
    assert [m.seq for m in await store.read(messages.list_for_turn, session.id, TURN, first=1)] == [1, 2, 3]


async def test_an_edited_input_is_marked_and_told(store: Store) -> None:
    session = await store.write(a_session)
    message = await store.write(a_message, session.id, "helo")
    cursor = await store.read(changes.get_head)
    await store.at(after(1)).write(messages.rewrite, message, text_parts("hello"))
    edited = await store.read(messages.get, session.id, message.seq)
    assert (edited.text, edited.mark, edited.at) == ("hello", Mark.EDITED, START_TIME)
    (change,) = await store.read(change_feed.list_after, cursor)
    assert (change.kind, change.note, change.message) == (ChangeKind.MESSAGE, "edited", edited)
    assert change.owner == ANN


async def test_the_newest_message_with_an_id_of_its_platform_is_found(store: Store) -> None:
    session = await store.write(a_session)
    for text, platform_id in (("a", "1"), ("b", "2"), ("c", "1")):
        await store.at(START_TIME).write(
            messages.append, session.id, Role.USER, text_parts(text), platform_id=platform_id
        )
    found = await store.read(messages.find_by_platform_id, session.id, "1")
    assert found and found.text == "c"
    assert await store.read(messages.find_by_platform_id, session.id, "3") is None
    assert await store.read(messages.find_by_platform_id, session.id, "2", among=1) is None


def two_turns(tx: Transaction) -> Session:
    session = a_session(tx)
    for turn in (TURN, OTHER):
        messages.append(at_time(tx, START_TIME), session.id, Role.USER, text_parts(f"ask {turn}"), turn=turn)
        messages.append(
            at_time(tx, START_TIME), session.id, Role.ASSISTANT, text_parts(f"answer {turn}"), turn=turn
        )
    return session


async def undone(store: Store, session: Session) -> list[int]:
    return [m.undone for m in await store.read(messages.list_after, session.id, after=0)]


async def test_undo_marks_groups_that_are_restored_one_by_one(store: Store) -> None:
    session = await store.write(two_turns)
    for turn, first in ((OTHER, 3), (TURN, 1)):
        group = await store.write(sessions.next_undo_group, session.id)
        assert await store.write(messages.set_undone, session.id, turn, first=first, group=group) == 2
    assert await undone(store, session) == [2, 2, 1, 1]
    last = await store.read(messages.find_last_undo, session.id)
    assert last and last[0] == 2 and last[1] == 1
    assert await store.write(messages.restore, session.id, 2) == 2
    assert await undone(store, session) == [0, 0, 1, 1]
    assert await store.write(messages.restore, session.id, 1) == 2
    assert await store.read(messages.find_last_undo, session.id) is None


async def test_what_is_undone_already_is_not_undone_again(store: Store) -> None:
    session = await store.write(two_turns)
    assert await store.write(messages.set_undone, session.id, OTHER, first=3, group=1) == 2
    assert await store.write(messages.set_undone, session.id, OTHER, first=3, group=2) == 0


async def test_what_a_person_said_after_a_message_counts_while_it_stands(store: Store) -> None:
    session = await store.write(two_turns)
    assert await store.read(messages.has_user_message_after, session.id, 2)
    assert not await store.read(messages.has_user_message_after, session.id, 3)
    await store.write(messages.set_undone, session.id, OTHER, first=3, group=1)
    assert not await store.read(messages.has_user_message_after, session.id, 2)


async def test_a_copy_keeps_numbers_marks_and_undo_groups(store: Store) -> None:
    def arrange(tx: Transaction) -> tuple[Session, Session]:
        source, target = two_turns(tx), a_session(tx)
        messages.set_undone(tx, source.id, OTHER, first=3, group=1)
        assert messages.copy(tx, source=source.id, target=target.id, through=3) == 3
        return source, target

    source, target = await store.write(arrange)
    copied = await store.read(messages.list_after, target.id, after=0)
    original = await store.read(messages.list_after, source.id, after=0, limit=3)
    assert [(m.seq, m.parts, m.undone, m.turn) for m in copied] == [
        (m.seq, m.parts, m.undone, m.turn) for m in original
    ]
