"""Receive: what taking one message in costs among few and many lanes, for one caller and for many at once."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

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
_ROUNDS = 5


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

    async def seconds(self, callers: int, each: int, *, first: int) -> float:
        """What callers at once take for some messages each, every one waiting for its own."""

        async def caller(name: int) -> None:
            for n in range(first + name * each, first + (name + 1) * each):
                index, _ = self.pick(n)
                await self.hub.receive(inbound(index, time.monotonic_ns(), reader=f"reader-{name}"))

        began = time.perf_counter()
        await asyncio.gather(*map(caller, range(callers)))
        return time.perf_counter() - began


async def run(stage: Stage) -> AsyncIterator[Line]:
    """All sizes are measured in turns: a noisy moment must not look like the cost of a size."""
    async with AsyncExitStack() as stack:
        cases = [await _open(stack, stage, n) for n in (_LANES[0], *(stage.size(n) for n in _LANES[1:]))]
        count = stage.count(2000)
        for n in range(_WARM_UP + count):
            for case in cases:
                await case.once(n)
        measured = [(spread(c.ours[_WARM_UP:]), spread(c.plain[_WARM_UP:])) for c in cases]
        rates = await _rates(cases, alone=stage.count(1500), crowd=stage.count(8000))
    first, _ = measured[0]
    for case, (ours, plain), rate in zip(cases, measured, rates, strict=True):
        for found in _lines(f"{case.lanes:,} lanes", ours, plain, first):
            yield found
        yield _crowd(f"{case.lanes:,} lanes", plain, rate)


class Rates(NamedTuple):
    """Messages per second."""

    alone: float
    crowd: float


async def _rates(cases: Sequence[Case], *, alone: int, crowd: int) -> list[Rates]:
    """Of one caller and of many, in turns: their ratio must not tell how busy the machine was with other things."""
    few, each = max(1, alone // _ROUNDS), max(1, crowd // _ROUNDS // CALLERS)
    took = [[0.0, 0.0] for _ in cases]
    for turn in range(_ROUNDS):
        for case, times in zip(cases, took, strict=True):
            times[0] += await case.seconds(1, few, first=turn * few)
            times[1] += await case.seconds(CALLERS, each, first=turn * each * CALLERS)
    return [Rates(_ROUNDS * few / one, _ROUNDS * each * CALLERS / many) for one, many in took]


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


def _crowd(size: str, plain: Spread, rates: Rates) -> Line:
    return line(
        f"receive, {CALLERS} callers",
        size,
        rates.crowd,
        "/s",
        floor=1 / plain.mean,
        against=rates.alone,
        least=2,
        what="one caller",
    )


async def _open(stack: AsyncExitStack, stage: Stage, lanes: int) -> Case:
    place, filled = await stage.lanes(lanes)
    floor = stage.floor(place)
    stack.callback(floor.close)
    hub, _ = await stack.enter_async_context(hub_of(place))
    return Case(lanes, hub, floor, scattered(filled), [], [])
