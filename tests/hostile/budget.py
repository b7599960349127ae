"""Measures the processor time of a parser over the corpus, and compares sizes to see how the time grows."""

import time
from collections.abc import Callable, Iterable

SMALL, LARGE = 4_000, 32_000
# Eight times the text may take this many times as long: about linear, with room for caches and a busy machine.
MAX_GROWTH = 20
# Shorter times than this say nothing about growth.
_NOISE_SECONDS = 0.05


def measure(work: Callable[[str], object], text: str) -> float:
    """Return the shortest processor time of this thread in up to three runs."""
    best = float("inf")
    for _ in range(3):
        started = time.thread_time()
        work(text)
        best = min(best, time.thread_time() - started)
        if best < _NOISE_SECONDS:
            break
    return best


def find_slow(
    work: Callable[[str], object],
    makers: Iterable[tuple[str, Callable[[int], str]]],
    *,
    milliseconds_per_kilobyte: float,
    sizes: tuple[int, int] = (SMALL, LARGE),
) -> list[str]:
    """Return a line for each text that takes too long for its size, or much longer when it grows."""
    slow: list[str] = []
    small, large = sizes
    for name, make in makers:
        text = make(large)
        spent = measure(work, text)
        allowed = _NOISE_SECONDS + len(text) / 1_000 * milliseconds_per_kilobyte / 1_000
        if spent > allowed:
            slow.append(f"{name}: {spent:.2f} s for {len(text)} characters, at most {allowed:.2f}")
        elif spent > _NOISE_SECONDS:
            growth = spent / max(measure(work, make(small)), 1e-6)
            if growth > MAX_GROWTH * (large / small) / 8:
                slow.append(f"{name}: {growth:.0f} times as long for {large // small} times the text")
    return slow
