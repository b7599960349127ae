"""Receive: what taking one message in costs among few and many lanes, for one caller and for many at once."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import msgspec

from bench import raw
from bench.fill import Filled
from bench.floor import Floor
from bench.spread import Spread, ms, spread
from bench.stage import Stage, hub_of, inbound, scattered
from bench.table import Line, line
from keryx.engine.hub import Hub

CALLERS = 64
_LANES = (10, 10_000, 100_000)
_WARM_UP = 200


class Case(msgspec.Struct, frozen=True):
    """One store and its floor, open side by side with those of the other sizes."""

    lanes: int
    hub: Hub
    floor: Floor
    pick: Callable[[int], tuple[int, Filled]]
    ours: list[float] = []
    plain: list[float] = []

    async def once(self, n: int) -> None:
        index, found = self.pick(n)
        began = time.perf_counter()
        await self.hub.receive(inbound(index, time.monotonic_ns()))
        self.ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        self.floor.write(raw.receive(raw.values(found.lane, found.session, found.owner)))
        self.plain.append(time.perf_counter() - began)

    async def rate(self, count: int) -> float:
        """Messages per second of many callers, each waiting for its own."""
        each = count // CALLERS

        async def caller(name: int) -> None:
            for n in range(name * each, (name + 1) * each):
                index, _ = self.pick(n)
                await self.hub.receive(inbound(index, time.monotonic_ns(), reader=f"reader-{name}"))

        began = time.perf_counter()
        await asyncio.gather(*map(caller, range(CALLERS)))
        return CALLERS * each / (time.perf_counter() - began)


async def run(stage: Stage) -> AsyncIterator[Line]:
    """All sizes are measured in turns: a noisy moment must not look like the cost of a size."""
    async with AsyncExitStack() as stack:
        cases = [await _open(stack, stage, n) for n in (_LANES[0], *(stage.size(n) for n in _LANES[1:]))]
        count = stage.count(2000)
        for n in range(_WARM_UP + count):
            for case in cases:
                await case.once(n)
        measured = [(spread(c.ours[_WARM_UP:]), spread(c.plain[_WARM_UP:])) for c in cases]
        rates = [await case.rate(stage.count(8000)) for case in cases]
    first, _ = measured[0]
    for case, (ours, plain), rate in zip(cases, measured, rates, strict=True):
        for found in _lines(f"{case.lanes:,} lanes", ours, plain, first):
            yield found
        yield _crowd(f"{case.lanes:,} lanes", ours, plain, rate)


def _lines(size: str, ours: Spread, plain: Spread, first: Spread) -> list[Line]:
    lines = [
        line("receive p50", size, ms(ours.p50), "ms", floor=ms(plain.p50), most=2),
        line("receive p95", size, ms(ours.p95), "ms", floor=ms(plain.p95)),
    ]
    if ours is not first:
        flat = line(
            "receive p50, flat", size, ms(ours.p50), "ms", against=ms(first.p50), most=1.5, what="10 lanes"
        )
        lines.insert(2, flat)
    return lines


def _crowd(size: str, ours: Spread, plain: Spread, rate: float) -> Line:
    return line(
        f"receive, {CALLERS} callers",
        size,
        rate,
        "/s",
        floor=1 / plain.mean,
        against=1 / ours.mean,
        least=2,
        what="one caller",
    )


async def _open(stack: AsyncExitStack, stage: Stage, lanes: int) -> Case:
    place, filled = await stage.lanes(lanes)
    floor = stage.floor(place)
    stack.callback(floor.close)
    hub, _ = await stack.enter_async_context(hub_of(place))
    return Case(lanes, hub, floor, scattered(filled), [], [])
