"""Followers: what they cost while nothing happens, and how soon each sees what was committed."""

import asyncio
import time
from collections.abc import AsyncIterator

import anyio

from bench import fill
from bench.node import node
from bench.spread import Spread, ms, spread
from bench.stage import OPEN, Place, Stage, inbound
from bench.table import Line, line, none_of
from keryx.core.changes import ChangeKind
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, Cursor
from keryx.core.sessions import Viewer
from keryx.engine.hub import Hub
from keryx.engine.loops.feed import Feed
from keryx.store.db.metrics import MeteredDatabase
from keryx.timing import SystemClock

_VIEWER = Viewer(DEFAULT_PROFILE, OPERATOR)
_IDLE_SECONDS = 3.0
_JOIN_SECONDS = 1.0


async def run(stage: Stage) -> AsyncIterator[Line]:
    place, _ = await stage.filled("followers", lambda db: fill.lanes_with_sessions(db, 10))
    seconds = 0.5 if stage.quick else _IDLE_SECONDS
    for followers in (1, 50, stage.size(1000)):
        joining, idle, delays = await _followed(place, followers, seconds, rounds=stage.count(400) // 4)
        size = f"{followers:,} followers"
        yield line("queries to join", size, joining, "")
        yield none_of(f"queries in {seconds:g} s of silence", size, idle)
        yield line("commit to follower p50", size, ms(delays.p50), "ms")
        yield line("commit to follower p95", size, ms(delays.p95), "ms")
    yield line("queries of an idle node", f"{seconds:g} s", await _idle_node(stage.place(), seconds), "")


async def _followed(place: Place, followers: int, seconds: float, *, rounds: int) -> tuple[int, int, Spread]:
    """The queries while everybody joins, those in a silence after it, and the delays of messages after that."""
    clock = SystemClock()
    joining = idle = 0
    delays: list[float] = []
    async with place.database() as database, anyio.create_task_group() as group:
        feed = Feed(database, clock)
        hub = Hub(database, policy=OPEN, feed=feed)
        cursor = await hub.head_cursor()
        group.start_soon(feed.run)
        seen: asyncio.Queue[float] = asyncio.Queue()
        for _ in range(followers):
            group.start_soon(_follow, hub, cursor, seen)
        start = _queries(database)
        await _message(hub, seen, followers)
        await asyncio.sleep(_JOIN_SECONDS)
        before = _queries(database)
        joining = before - start
        await asyncio.sleep(seconds)
        idle = _queries(database) - before
        for _ in range(rounds):
            delays += await _message(hub, seen, followers)
        group.cancel_scope.cancel()
    return joining, idle, spread(delays)


async def _follow(hub: Hub, cursor: Cursor, seen: asyncio.Queue[float]) -> None:
    async for change in hub.follow(_VIEWER, cursor):
        if change.kind is ChangeKind.MESSAGE:
            seen.put_nowait(time.perf_counter())


async def _message(hub: Hub, seen: asyncio.Queue[float], followers: int) -> list[float]:
    """Commit a message; gives how long after the commit was told each follower had it."""
    await hub.receive(inbound(0, time.monotonic_ns()))
    committed = time.perf_counter()
    return [await seen.get() - committed for _ in range(followers)]


async def _idle_node(place: Place, seconds: float) -> int:
    """Of a whole node: its heartbeat and its sweeps."""
    async with place.database() as database, node(database):
        await asyncio.sleep(seconds)
        before = _queries(database)
        await asyncio.sleep(seconds)
        return _queries(database) - before


def _queries(database: MeteredDatabase) -> int:
    return sum(meter.units for meter in database.meters.values())
