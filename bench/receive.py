"""Receive: what taking one message in costs among few and many lanes, for one caller and for many at once."""

import asyncio
import time
from collections.abc import AsyncIterator

from bench import raw
from bench.spread import Spread, beside, ms
from bench.stage import Stage, hub_of, inbound, scattered
from bench.table import Line, line

CALLERS = 64
_LANES = (10, 10_000, 100_000)


async def run(stage: Stage) -> AsyncIterator[Line]:
    first: Spread | None = None
    for lanes in (_LANES[0], *(stage.size(n) for n in _LANES[1:])):
        size = f"{lanes:,} lanes"
        ours, floor, rate = await _measure(stage, lanes)
        first = first or ours
        yield line("receive p50", size, ms(ours.p50), "ms", floor=ms(floor.p50), most=2)
        yield line("receive p95", size, ms(ours.p95), "ms", floor=ms(floor.p95))
        if ours is not first:
            yield line(
                "receive p50, flat",
                size,
                ms(ours.p50),
                "ms",
                against=ms(first.p50),
                most=1.5,
                what="10 lanes",
            )
        yield line(
            f"receive, {CALLERS} callers",
            size,
            rate,
            "/s",
            floor=1 / floor.mean,
            against=1 / ours.mean,
            least=2,
            what="one caller",
        )


async def _measure(stage: Stage, lanes: int) -> tuple[Spread, Spread, float]:
    place, filled = await stage.lanes(lanes)
    pick = scattered(filled)
    floor = stage.floor(place)

    def bare(n: int) -> None:
        _, found = pick(n)
        floor.write(raw.receive(raw.values(found.lane, found.session, found.owner)))

    async with hub_of(place) as (hub, _):
        run = time.monotonic_ns()
        ours, plain = await beside(
            stage.count(2000), lambda n: hub.receive(inbound(pick(n)[0], f"{run}-{n}")), bare
        )
        floor.close()

        async def caller(first: int, count: int) -> None:
            for n in range(first, first + count):
                await hub.receive(inbound(pick(n)[0], f"{run}-many-{n}"))

        each = stage.count(8000) // CALLERS
        began = time.perf_counter()
        await asyncio.gather(*(caller(c * each, each) for c in range(CALLERS)))
        return ours, plain, CALLERS * each / (time.perf_counter() - began)
