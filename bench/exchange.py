"""Exchange: from a message received to its answer sent, one at a time and many at once."""

import asyncio
import time
from collections.abc import AsyncIterator

from bench import fill, raw
from bench.node import NullAdapter, node
from bench.spread import beside, ms
from bench.stage import Stage, hub_of, inbound
from bench.table import Line, line
from keryx.engine.hub import Hub
from keryx.store.db.metrics import MeteredDatabase

CALLERS = 64
_LANES = 10_000
_FEW, _MANY = 10, 1000
_QUEUES = 8


async def run(stage: Stage) -> AsyncIterator[Line]:
    lanes = stage.size(_LANES)
    size = f"{lanes:,} lanes"
    # A store of its own: where messages were only received, their turns still wait and would be answered here.
    place, filled = await stage.filled("exchange", lambda db: fill.lanes_with_sessions(db, lanes))
    floor = stage.floor(place)

    def bare(n: int) -> None:
        found = filled[n % lanes]
        for statements in raw.exchange(raw.values(found.lane, found.session, found.owner)):
            floor.write(statements)

    async with place.database() as database, node(database) as (hub, adapter):
        count = stage.count(1000)
        before = _units(database)
        ours, plain = await beside(count, lambda n: _exchange(hub, adapter, n % lanes), bare)
        units = (_units(database) - before) / adapter.sent
        floor.close()
        yield line("exchange p50", size, ms(ours.p50), "ms", floor=ms(plain.p50), under=50)
        yield line("exchange p95", size, ms(ours.p95), "ms", floor=ms(plain.p95), under=200)
        yield line("units of work per exchange", size, units, "", floor=5)
        rate = await _sustained(hub, adapter, stage.count(6000), lanes)
        yield line(f"exchanges, {CALLERS} callers", size, rate, "/s", floor=1 / plain.mean)
    few = await _drained(stage, _FEW)
    yield line("answering what waits", f"{_FEW} a chat", few, "/s")
    many = stage.size(_MANY)
    rate = await _drained(stage, many)
    yield line(
        "answering what waits", f"{many:,} a chat", rate, "/s", against=few, least=0.5, what=f"{_FEW} a chat"
    )


async def _exchange(hub: Hub, adapter: NullAdapter, lane: int) -> None:
    answered = adapter.answer(lane)
    await hub.receive(inbound(lane, time.monotonic_ns()))
    await answered


async def _sustained(hub: Hub, adapter: NullAdapter, count: int, lanes: int) -> float:
    callers = min(CALLERS, lanes)
    each = count // callers

    async def caller(first: int) -> None:
        for n in range(each):
            await _exchange(hub, adapter, (first + n * callers) % lanes)

    began = time.perf_counter()
    await asyncio.gather(*(caller(c) for c in range(callers)))
    return callers * each / (time.perf_counter() - began)


async def _drained(stage: Stage, each: int) -> float:
    """Answers a second when a node begins and finds this many messages waiting in each of a few chats."""
    place = stage.place()
    async with hub_of(place) as (hub, _):
        for _ in range(each):
            await asyncio.gather(*(hub.receive(inbound(q, time.monotonic_ns() + q)) for q in range(_QUEUES)))
    async with place.database() as database, node(database) as (_, adapter):
        await adapter.reached(1)
        began = time.perf_counter()
        await adapter.reached(_QUEUES * each)
        return _QUEUES * each / (time.perf_counter() - began)


def _units(database: MeteredDatabase) -> int:
    """Units of work that came with exchanges; heartbeats and sweeps come with time."""
    return sum(
        m.units for label, m in database.meters.items() if label.startswith(("receive", "turn", "deliver"))
    )
