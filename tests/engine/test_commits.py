"""A fault before and after every labelled commit: it is whole or it is not there, the store is in order, and what was
asked for can be asked for again."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from tests.builders import Store, a_turn
from tests.engine import test_faults
from tests.engine.conftest import Begin
from tests.engine.support import labels
from tests.engine.support.fault_recorder import FaultRecorder, Rows, changed, rows
from tests.engine.support.hub_setup import HubSetup, fresh
from tests.engine.support.hub_writes import EACH, FIRST, HUB_WRITES, Act, come_and_go
from tests.engine.support.node_writes import SWEEP_WRITES, TURN_WRITES, Unreliable
from tests.engine.world import AT_ONCE, FAKE, SECONDS, World

from keryx.core.errors import Conflict, Invalid, NotFound, Retryable
from keryx.core.turns import TurnState
from keryx.engine.hub import Hub
from keryx.engine.loops.feed import Feed
from keryx.store import workers
from keryx.store.admin.copy import copy_store
from keryx.store.admin.verify import verify
from keryx.store.db import Database, Engine
from keryx.store.db.sqlite import SqliteDatabase
from keryx.testing import CrashingDatabase, DatabaseFault, FakeClock, FaultTiming

COPY = "copy"
DEREGISTER = "workers.remove"
# Only PostgreSQL keeps its index in the store.
OF_POSTGRES = frozenset({"search.put", "search.analyse"})
# It leaves no rows, and without it the index is slower for a while; nobody makes up for it but PostgreSQL itself.
WITHOUT_ROWS = frozenset({"search.analyse"})
# What a repetition may change: the feed, the count of codes that were not good or not any more, and who is there.
BESIDES = frozenset({"changes", "guesses", "workers"})
# Struck by tests of their own: tests/importers/test_kills.py, the storm of the relay in
# tests/faults/platform_storm.py, tests/engine/loops/test_thread_titles.py, tests/engine/loops/test_push_notifications.py,
# tests/watch/test_faults.py, and those of frameworks: tests/integrations/test_faults.py and tests/integrations/test_adk.py.
KILLED_ELSEWHERE = ("adk.", "graph.", "import.", "push.", "pushes.", "relay.", "threads.", "watch.")
# Writes of a node that starts. It also announces its start, and stores when it did, if the last time was long ago.
STARTS = frozenset({"rules.publish", "turns.gather", "notices.restart"})

NODE_WRITES = {**SWEEP_WRITES, **TURN_WRITES}
NOUNS: dict[str, list[str]] = {}
for verb in HUB_WRITES:
    NOUNS.setdefault(verb.partition(".")[0] if "." in verb else "session", []).append(verb)


async def seen(database: Database) -> Rows:
    return await database.read("rows", rows)


async def again(act: Act) -> None:
    """Do it once more: it is done, or it says that it was done already."""
    with suppress(Conflict, Invalid, NotFound):
        await act()


def test_every_label_has_its_case() -> None:
    cases = {*HUB_WRITES, *NODE_WRITES, *test_faults.WRITES, DEREGISTER, COPY}
    assert {label for label in labels.written() if not label.startswith(KILLED_ELSEWHERE)} == cases


@pytest.mark.parametrize("label", HUB_WRITES)
async def test_a_verb_that_is_struck_is_done_whole_or_not_at_all(
    database: Database, clock: FakeClock, label: str
) -> None:
    if label in OF_POSTGRES and database.engine is Engine.SQLITE:
        pytest.skip("the index is no part of this store")
    recorder = FaultRecorder(database)
    hub = Hub(recorder, policy=AT_ONCE, feed=Feed(recorder, clock, on_blocked=lambda: None))
    setup = HubSetup(recorder, hub, clock)
    for when in FaultTiming:
        act = await HUB_WRITES[label](setup)
        fault = recorder.strike(label, when)
        with pytest.raises(Retryable):
            await act()
        assert fault.hits == 1
        found = await recorder.look()
        assert not changed(found, recorder.before if when is FaultTiming.BEFORE else recorder.after)
        if when is FaultTiming.BEFORE or label in FIRST:
            await act()
        done = await seen(database)
        assert label in WITHOUT_ROWS or changed(recorder.before, done)
        await again(act)
        besides = BESIDES | {"cursors"} if label in STARTS else BESIDES
        assert label in EACH or not changed(done, await seen(database)) - besides
    assert await verify(database) == []
    hub.close()


@pytest.mark.parametrize("noun", NOUNS)
async def test_verbs_that_fail_for_a_while_are_in_nobodys_way(
    begin: Begin, database: Database, clock: FakeClock, noun: str
) -> None:
    recorder = FaultRecorder(database)
    world = await begin(database=recorder)
    setup = HubSetup(recorder, world.hub, clock)
    for label, when in product(NOUNS[noun], FaultTiming):
        if label in OF_POSTGRES and database.engine is Engine.SQLITE:
            continue
        await recorder.quiet()
        act = await HUB_WRITES[label](setup)
        await recorder.quiet()
        fault = recorder.strike(label, when, sticky=True)
        with pytest.raises(Retryable):
            await act()
        await recorder.look()
        if when is FaultTiming.BEFORE and label not in WITHOUT_ROWS:
            with pytest.raises(Retryable):
                await act()
        assert (await world.ask("are you there?", user=fresh(), chat=fresh())).state is TurnState.DONE
        fault.clear()
        await (act() if when is FaultTiming.BEFORE else again(act))
        world.node.check()
    assert await verify(database) == []


async def wait(
    world: World, recorder: FaultRecorder, step: float, condition: Callable[[], Awaitable[bool]]
) -> None:
    """Let time pass, a step whenever nothing is left to do, until something is so."""
    async with asyncio.timeout(SECONDS):
        await recorder.quiet()
        while not await condition():
            world.advance(step)
            await recorder.quiet()


@pytest.mark.faults
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "sticky"])
@pytest.mark.parametrize("label", NODE_WRITES)
async def test_a_chore_that_is_struck_is_done_in_the_end(
    begin: Begin, database: Database, label: str, sticky: bool
) -> None:
    recorder, case = FaultRecorder(database), NODE_WRITES[label]
    platform = case.adapter(FAKE, capabilities=case.able, limit=case.limit)
    world = await begin(
        database=recorder,
        adapters=[platform],
        agent=case.agent,
        policy=case.policy,
        hooks={"hook": Unreliable()},
    )
    world.fake = platform
    for when in FaultTiming:
        await recorder.quiet()  # or a sweep that is under way would do the work before it is struck
        work = await case.begin(world)
        await recorder.quiet()
        fault = recorder.strike(label, when, sticky=sticky)

        async def struck(times: int = 1, fault: DatabaseFault = fault) -> bool:
            return fault.hits >= times

        await work.cause()
        await wait(world, recorder, case.step, struck)
        found = await recorder.look()
        assert not changed(found, recorder.before if when is FaultTiming.BEFORE else recorder.after)
        assert when is FaultTiming.BEFORE or changed(recorder.before, found)
        if sticky:
            if case.retried and when is FaultTiming.BEFORE:
                await wait(world, recorder, case.step, partial(struck, 2))
            assert (await world.ask("are you there?", user=fresh(), chat=fresh())).state is TurnState.DONE
            fault.clear()
        await wait(world, recorder, case.step, partial(database.read, "done", work.done))
        world.node.check()
    # What waits to hear of a commit that was made tries once more.
    world.advance(case.step)
    await recorder.quiet()
    unmarked = [(p.delivery, p.number) for p in platform.sent_parts if not p.again]
    assert len(unmarked) == len(set(unmarked))
    assert await verify(database) == []


@pytest.mark.parametrize("when", FaultTiming)
async def test_a_node_that_cannot_say_good_bye_ends_and_is_forgotten(
    begin: Begin, database: Database, clock: FakeClock, when: FaultTiming
) -> None:
    recorder = FaultRecorder(database)
    world = await begin(database=recorder)
    await recorder.quiet()
    fault = recorder.strike(DEREGISTER, when)
    await come_and_go(recorder, clock)
    assert fault.hits
    assert not changed(
        await recorder.look(), recorder.before if when is FaultTiming.BEFORE else recorder.after
    )
    world.advance(timedelta(days=2))
    gone = partial(database.read, "workers", lambda tx: len(workers.list_all(tx)) == 1)
    await wait(world, recorder, 5, gone)
    assert (await world.ask("are you there?")).state is TurnState.DONE


@pytest.mark.parametrize("when", FaultTiming)
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "sticky"])
async def test_a_copy_that_is_struck_is_made_again_in_an_empty_store(
    store: Store, tmp_path: Path, when: FaultTiming, sticky: bool
) -> None:
    await store.write(a_turn)
    before = await seen(store.database)
    async with SqliteDatabase(tmp_path / "struck.db") as inner:
        fault = DatabaseFault(COPY, when, nth=3, sticky=sticky)
        with pytest.raises(Retryable):
            await copy_store(store.database, CrashingDatabase(inner, fault))
        assert fault.hits == 1
        with pytest.raises(Conflict, match="is not empty"):
            await copy_store(store.database, inner)
    async with SqliteDatabase(tmp_path / "new.db") as fresh_one:
        await copy_store(store.database, fresh_one)
        assert await verify(fresh_one) == []
    assert await seen(store.database) == before
