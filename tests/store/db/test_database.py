import asyncio
import threading
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import ANN, Store, a_session, after, at_time, quiet
from tests.conftest import Open

from keryx.core import changes
from keryx.core.clock import from_micros, to_micros
from keryx.core.errors import Conflict, Invalid, StoreBroken, StoreDamaged, Unavailable
from keryx.core.ids import DEFAULT_PROFILE
from keryx.store import changes as changes_store
from keryx.store import inbox, sessions
from keryx.store.db import Database, Transaction, maybe_micros, maybe_moment
from keryx.testing import START_TIME


def move(tx: Transaction, name: str) -> None:
    inbox.set_cursor(at_time(tx, START_TIME), name, "x")


def names(tx: Transaction) -> set[str]:
    return {str(row[0]) for row in tx.rows("select name from cursors")}


async def test_a_unit_that_raises_changes_nothing(store: Store) -> None:
    class Oops(Exception):
        pass

    def fail(tx: Transaction) -> None:
        a_session(tx)
        raise Oops

    with pytest.raises(Oops):
        await store.write(fail)
    assert (await store.read(lambda tx: tx.row("select count(*) from sessions"))) in [(0,), [0]]


@pytest.mark.parametrize("keys", [0, 1, 7])
async def test_many_units_at_once_are_all_kept_and_answered(database: Database, keys: int) -> None:
    stores = [Store(database, key=str(n)) for n in range(keys)] or [Store(database)]

    def unit(tx: Transaction, n: int) -> int:
        move(tx, str(n))
        if n % 10 == 7:
            raise ValueError(n)
        return n

    outcomes = await asyncio.gather(
        *(stores[n % len(stores)].write(unit, n) for n in range(100)), return_exceptions=True
    )
    failed = {n for n, outcome in enumerate(outcomes) if isinstance(outcome, ValueError)}
    assert failed == {n for n in range(100) if n % 10 == 7}
    assert [o for o in outcomes if isinstance(o, int)] == [n for n in range(100) if n % 10 != 7]
    assert await stores[0].read(names) == {str(n) for n in range(100) if n % 10 != 7}


@pytest.mark.parametrize("key", ["", "here"])
async def test_a_statement_that_fails_in_one_unit_does_not_harm_the_others(
    database: Database, key: str
) -> None:
    store = Store(database, key=key)

    def broken(tx: Transaction) -> None:
        move(tx, "broken")
        tx.run("insert into nowhere (a) values (1)")

    outcomes = await asyncio.gather(
        *(store.write(move, str(n)) for n in range(5)),
        store.write(broken),
        *(store.write(move, str(n)) for n in range(5, 10)),
        return_exceptions=True,
    )
    assert [type(o) for o in outcomes if o is not None] == [StoreDamaged]
    assert await store.read(names) == {str(n) for n in range(10)}


async def test_a_broken_rule_of_the_schema_is_an_error_of_ours(store: Store) -> None:
    def orphan(tx: Transaction) -> None:
        tx.run("insert into aliases (profile, alias, session) values ('p', 'a', 'no such session')")

    with pytest.raises((Conflict, StoreBroken)):
        await store.write(orphan)


async def test_text_that_cannot_be_kept_is_refused_with_advice(
    store: Store, subtests: pytest.Subtests
) -> None:
    for text in ["half \ud800", "\udc00"]:
        with subtests.test(ascii(text)):
            with pytest.raises(Invalid, match="remove them"):
                await store.at(START_TIME).write(inbox.set_cursor, text, "x")
            with pytest.raises(Invalid, match="remove them"):
                await store.read(inbox.get_cursor, text)


async def test_a_read_sees_one_snapshot_whatever_is_written_meanwhile(store: Store) -> None:
    looked, written = threading.Event(), threading.Event()

    def look_twice(tx: Transaction) -> tuple[set[str], set[str]]:
        first = names(tx)
        looked.set()
        assert written.wait(10)
        return first, names(tx)

    await store.write(move, "before")
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(store.read(look_twice))
        assert await asyncio.to_thread(looked.wait, 10)
        await store.write(move, "meanwhile")
        written.set()
    assert reading.result() == ({"before"}, {"before"})


async def test_a_read_cannot_write(store: Store) -> None:
    with pytest.raises(StoreBroken):
        await store.read(move, "x")
    assert await store.read(names) == set()


async def test_a_write_is_seen_by_every_read_that_begins_after_it(opener: Open) -> None:
    one, two = Store(await opener()), Store(await opener())
    for n in range(10):
        await one.write(move, str(n))
        assert str(n) in await two.read(names)


async def test_two_nodes_write_to_one_store(opener: Open) -> None:
    nodes = [Store(await opener()) for _ in range(2)]
    await asyncio.gather(*(nodes[n % 2].write(move, str(n)) for n in range(60)))
    assert len(await nodes[0].read(names)) == 60


async def test_nodes_that_open_a_new_store_at_once_all_succeed(opener: Open) -> None:
    nodes = await asyncio.gather(*(opener() for _ in range(6)))
    await asyncio.gather(*(Store(node).write(move, str(n)) for n, node in enumerate(nodes)))
    assert len(await Store(nodes[0]).read(names)) == 6


async def test_a_task_that_was_cancelled_does_not_disturb_the_next(store: Store) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        begun.set()
        assert go_on.wait(10)
        move(tx, "slow")

    task = asyncio.create_task(store.write(slow))
    assert await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await store.write(move, "next")
    assert "next" in await store.read(names)


async def test_a_closed_store_says_so(opener: Open) -> None:
    database = await opener()
    await database.__aexit__(None, None, None)
    for call in (database.write, database.read):
        with pytest.raises(Unavailable, match="closed"):
            await call("test", names)
    # The fixture closes once more; that must be harmless.


async def test_a_commit_that_noted_a_change_wakes_those_who_wait(database: Database) -> None:
    seen = await quiet(database)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(database.wake.wait(seen))
        await Store(database).write(a_session)
    assert waiting.result() > seen


async def test_a_commit_without_a_change_in_the_feed_wakes_nobody(database: Database) -> None:
    seen = await quiet(database)
    await Store(database).write(move, "x")
    await asyncio.sleep(0.05)
    assert database.wake.count == seen


async def test_a_commit_of_another_node_wakes_those_who_wait(opener: Open) -> None:
    here, there = await opener(), await opener()
    for _ in range(3):
        seen = await quiet(here)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(here.wake.wait(seen))
            await asyncio.sleep(0)
            await Store(there).write(a_session)


async def test_a_wake_up_before_the_wait_is_not_missed(database: Database) -> None:
    seen = await quiet(database)
    await Store(database).write(a_session)
    async with asyncio.timeout(10):
        await database.wake.wait(seen)


async def test_a_failed_unit_wakes_nobody(database: Database) -> None:
    def fail(tx: Transaction) -> None:
        changes_store.note(tx, changes.ChangeKind.LANE, "x", changes_store.Scope(DEFAULT_PROFILE, ANN))
        raise ValueError

    seen = await quiet(database)
    with pytest.raises(ValueError):
        await Store(database).write(fail)
    await asyncio.sleep(0.05)
    assert database.wake.count == seen


async def test_a_lock_on_a_session_makes_units_wait_for_each_other(store: Store) -> None:
    session = await store.write(a_session)
    inside: list[int] = []

    def unit(tx: Transaction, n: int) -> None:
        sessions.lock(tx, session.id)
        inside.append(n)
        assert inside == [n]
        inside.remove(n)

    await asyncio.gather(*(store.write(unit, n) for n in range(12)))


def test_moments_are_kept_to_the_microsecond() -> None:
    for value in (START_TIME, after(0.000001), after(-(10**10)), after(123456.654321)):
        assert from_micros(to_micros(value)) == value
    assert maybe_moment(maybe_micros(None)) is None
    assert maybe_moment(maybe_micros(START_TIME)) == START_TIME


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_moment_of_any_year_is_kept(at: datetime) -> None:
    assert from_micros(to_micros(at)) == at
