"""Following: from a snapshot on, nothing is missed and nothing comes twice."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import psycopg
import pytest
from tests.builders import a_turn
from tests.engine.conftest import Begin
from tests.engine.world import FAKE, OPERATORS, SECONDS, Pause, World, viewer

from keryx.core.changes import Change, ChangeKind
from keryx.core.deliveries import Target
from keryx.core.errors import CursorExpired, Invalid
from keryx.core.ids import Cursor, SessionId
from keryx.core.messages import Role
from keryx.core.ports.agent import TextDelta
from keryx.core.turns import Turn, TurnState
from keryx.engine.loops.feed import MAX_RECENT_CHARS
from keryx.engine.loops.sweeps import RetentionSweep
from keryx.store import change_feed, changes, messages
from keryx.store.db import Engine, Transaction
from keryx.testing import ScriptedAgent


async def until(
    following: AsyncIterator[Change], *, session: SessionId | None = None, answers: int
) -> list[Change]:
    """The changes up to the one that tells of this many answers."""
    seen: list[Change] = []
    async with asyncio.timeout(SECONDS):
        async for change in following:
            seen.append(change)
            told = [c for c in seen if c.message and c.message.role is Role.ASSISTANT and c.note == "added"]
            if len(told) == answers:
                return seen
    raise AssertionError("the feed has ended")


def texts(seen: list[Change]) -> list[str]:
    return [c.message.text for c in seen if c.message and c.note == "added"]


async def test_a_follower_sees_an_exchange_in_the_order_it_was_written(world: World) -> None:
    cursor = await world.hub.head_cursor()
    await world.say("slow 2 a b")
    seen = await world.flow(until(world.hub.follow(OPERATORS, cursor), answers=1))
    kinds = [(c.kind, c.note) for c in seen if c.kind in (ChangeKind.MESSAGE, ChangeKind.TURN)]
    assert kinds[:3] == [
        (ChangeKind.MESSAGE, "added"),
        (ChangeKind.TURN, "queued"),
        (ChangeKind.TURN, "running"),
    ]
    assert texts(seen) == ["slow 2 a b", "a b"]
    assert len({c.cursor for c in seen}) == len(seen)


async def test_what_a_snapshot_shows_and_what_follows_make_the_whole(begin: Begin) -> None:
    """Live view and reload agree: the draft of the snapshot and the pieces after it are the answer."""
    pause = Pause()
    world = await begin(
        agent=ScriptedAgent([TextDelta("one "), pause, TextDelta("two "), TextDelta("three")])
    )
    said = await world.say("a")
    await world.drafted(said, "one ")
    snapshot = await world.open(said.session)
    following = world.hub.follow(OPERATORS, snapshot.cursor, session=said.session)
    pause.go_on()
    seen = await until(following, answers=1)
    live = "".join(p.text for p in snapshot.draft) + "".join(c.piece.text for c in seen if c.piece)
    assert "one two three".startswith(live) and texts(seen) == ["one two three"]


async def test_followers_that_begin_anywhere_miss_nothing_and_see_nothing_twice(world: World) -> None:
    """Snapshots are taken while eight chats talk; each one with what follows it is the whole conversation."""
    total = 40

    async def talk(chat: int) -> None:
        for n in range(total // 8):
            await world.ask(f"{chat}.{n}", chat=str(chat))

    async def follow() -> list[str]:
        known = await world.read(
            lambda tx: (
                changes.get_head(tx),
                [
                    m
                    for (s,) in tx.rows("select id from sessions")
                    for m in messages.list_after(tx, s, after=0)
                ],
            )
        )
        cursor, before = known
        had = [m.text for m in before if m.role is Role.ASSISTANT]
        if len(had) == total:
            return had
        seen = await until(world.hub.follow(OPERATORS, cursor), answers=total - len(had))
        return had + [c.message.text for c in seen if c.message and c.message.role is Role.ASSISTANT]

    async with asyncio.TaskGroup() as group:
        talking = [group.create_task(talk(chat)) for chat in range(8)]
        followers = [group.create_task(follow())]
        for _ in range(6):
            await asyncio.sleep(0.01)
            followers.append(group.create_task(follow()))
    assert all(t.done() for t in talking)
    expected = sorted(f"{chat}.{n}" for chat in range(8) for n in range(total // 8))
    for follower in followers:
        assert sorted(follower.result()) == expected


async def test_many_followers_see_the_same(world: World) -> None:
    cursor = await world.hub.head_cursor()
    tasks = [asyncio.create_task(until(world.hub.follow(OPERATORS, cursor), answers=3)) for _ in range(30)]
    for n in range(3):
        await world.ask(f"q{n}")
    seen = await asyncio.gather(*tasks)
    assert all(texts(s) == texts(seen[0]) for s in seen) and len(texts(seen[0])) == 6


async def test_a_follower_that_is_slow_misses_nothing(world: World) -> None:
    """More happens than the process keeps at hand; the rest is read from the store."""
    cursor = await world.hub.head_cursor()
    following = world.hub.follow(OPERATORS, cursor)
    await world.ask("first")
    first = await anext(aiter(following))

    def busy(tx: Transaction) -> None:
        for n in range(2_500):
            changes.note(tx, ChangeKind.SESSION, str(n), changes.Scope("default", "ann"), note="busy")

    await world.write(busy)
    await world.ask("last")
    seen = [first, *await until(following, answers=2)]
    assert [c.subject for c in seen if c.note == "busy"] == [str(n) for n in range(2_500)]
    assert texts(seen) == ["first", "first", "last", "last"]


async def test_long_messages_are_not_kept_in_memory_for_followers(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([TextDelta("short")]))
    cursor = await world.hub.head_cursor()
    long = [str(n) * (MAX_RECENT_CHARS // 4) for n in range(6)]
    for text in long:
        await world.ask(text)
    assert 0 < world.node.service.feed.recent_chars <= MAX_RECENT_CHARS
    seen = await until(world.hub.follow(OPERATORS, cursor), answers=6)
    assert texts(seen) == [said for text in long for said in (text, "short")]
    await world.ask("once more")
    following = world.hub.follow(OPERATORS, seen[-1].cursor)
    assert texts(await until(following, answers=1)) == ["once more", "short"]


async def test_a_follower_of_one_session_sees_no_other(world: World) -> None:
    turn = await world.ask("mine")
    cursor = await world.hub.head_cursor()
    await world.ask("other", chat="2")
    await world.ask("more")
    seen = await until(world.hub.follow(viewer("ann"), cursor, session=turn.session), answers=1)
    assert {c.session for c in seen} == {turn.session}


async def test_a_cursor_from_before_the_trim_is_refused_and_a_new_one_works(world: World) -> None:
    old = await world.hub.head_cursor()
    await world.ask("a")
    await world.node.stop()
    world.advance(timedelta(days=8))
    await RetentionSweep(world.database, world.clock, policy=world.policy).sweep()
    await world.start()
    with pytest.raises(CursorExpired):
        await anext(aiter(world.hub.follow(OPERATORS, old)))
    cursor = await world.hub.head_cursor()
    await world.ask("b")
    assert texts(await until(world.hub.follow(OPERATORS, cursor), answers=1)) == ["b", "b"]


async def test_a_node_that_slept_past_the_trim_goes_on_and_looks_for_what_it_missed(world: World) -> None:
    await world.ask("a")

    def missed(tx: Transaction) -> Turn:
        """Nobody reads of this turn, as if it came while this node slept for weeks."""
        turn = a_turn(tx, at=world.clock.now(), reply=Target(FAKE, chat="9"))
        changes.trim(tx, before=world.clock.now() + timedelta(days=8))
        return turn

    await world.settle(await world.write(missed))
    assert (await world.sent(2))[1:] == ["hello"]
    assert (await world.ask("b")).state is TurnState.DONE
    assert (await world.sent(3))[2:] == ["b"]


@pytest.mark.parametrize("text", ["", "x", "-1", "1.2.3", "9" * 40, "'"])
async def test_a_cursor_that_keryx_never_gave_is_refused(world: World, text: str) -> None:
    with pytest.raises((Invalid, CursorExpired)):
        await anext(aiter(world.hub.follow(OPERATORS, Cursor(text))))


@pytest.mark.engines(Engine.POSTGRES)
async def test_a_long_transaction_of_another_node_delays_the_view_but_no_answer(
    begin: Begin, postgres: str
) -> None:
    world = await begin()
    cursor = await world.hub.head_cursor()
    with psycopg.connect(postgres, application_name="keryx") as other:
        other.execute("select pg_current_xact_id()")
        await world.say("one")
        assert await world.sent(1) == ["one"]
        await world.node.stop()
        await world.start()
        await world.say("two")
        assert await world.sent(2) == ["one", "two"]
        following = asyncio.ensure_future(until(world.hub.follow(OPERATORS, cursor), answers=2))
        assert await world.read(change_feed.has_held_back)
        assert not following.done()
        other.rollback()
    assert texts(await following) == ["one", "one", "two", "two"]


@pytest.mark.engines(Engine.POSTGRES)
async def test_a_long_transaction_of_another_program_delays_nothing(
    begin: Begin, postgres: str, own_postgres: str
) -> None:
    world = await begin()
    with psycopg.connect(postgres) as here, psycopg.connect(own_postgres) as elsewhere:
        for other in (here, elsewhere):
            other.execute("select pg_current_xact_id()")
        cursor = await world.hub.head_cursor()
        await world.say("one")
        assert await world.sent(1) == ["one"]
        assert texts(await until(world.hub.follow(OPERATORS, cursor), answers=1)) == ["one", "one"]
        found = await world.hub.search(OPERATORS, "one")
        assert [hit.message.text for hit in found if hit.message] == ["one", "one"]
        await world.node.stop()
        await world.start()
        cursor = await world.hub.head_cursor()
        await world.say("two")
        assert texts(await until(world.hub.follow(OPERATORS, cursor), answers=1)) == ["two", "two"]
