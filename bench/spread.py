"""Spread: how long a thing took, many times, and the same of its floor, taken in turns."""

import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

_WARM_UP = 0.1


class Spread(msgspec.Struct, frozen=True):
    """Seconds of each repetition, sorted."""

    times: list[float]

    @property
    def p50(self) -> float:
        return self.at(0.5)

    @property
    def p95(self) -> float:
        return self.at(0.95)

    @property
    def mean(self) -> float:
        return sum(self.times) / len(self.times)

    def at(self, share: float) -> float:
        return self.times[min(len(self.times) - 1, int(share * len(self.times)))]


def spread(times: Sequence[float]) -> Spread:
    return Spread(sorted(times))


async def beside(
    count: int, ours: Callable[[int], Awaitable[object]], *floors: Callable[[int], object]
) -> list[Spread]:
    """Time `ours` and each floor in turns, so that a noisy moment hits all of them. The first tenth is not counted."""
    times: list[list[float]] = [[] for _ in range(1 + len(floors))]
    warm = max(1, int(count * _WARM_UP))
    for n in range(warm + count):
        began = time.perf_counter()
        await ours(n)
        taken = [time.perf_counter() - began]
        for floor in floors:
            began = time.perf_counter()
            floor(n)
            taken.append(time.perf_counter() - began)
        if n >= warm:
            for kept, seconds in zip(times, taken, strict=True):
                kept.append(seconds)
    return [spread(t) for t in times]


def ms(seconds: float) -> float:
    return seconds * 1000
