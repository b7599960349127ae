"""Measures the processor time of a parser over the corpus, and compares sizes to see how the time grows."""

import time
from collections.abc import Callable, Iterable

SMALL, LARGE = 2_000, 16_000
# Eight times the text may take this many times as long: about linear, with room for caches and a busy machine.
MAX_GROWTH = 24
# Shorter times than this say nothing about growth.
_NOISE_SECONDS = 0.05
_REPEATS = 3


def measure(work: Callable[[str], object], text: str) -> float:
    """Return the processor time of this thread."""
    started = time.thread_time()
    work(text)
    return time.thread_time() - started


def find_slow(
    work: Callable[[str], object],
    makers: Iterable[tuple[str, Callable[[int], str]]],
    *,
    milliseconds_per_kilobyte: float,
    sizes: tuple[int, int] = (SMALL, LARGE),
) -> list[str]:
    """Return a line for each text that takes too long for its size, or much longer when it grows. What seems slow is
    measured again, because a busy machine may be the reason."""
    slow: list[str] = []
    for name, make in makers:
        small, large = make(sizes[0]), make(sizes[1])
        allowed = _NOISE_SECONDS + len(large) / 1_000 * milliseconds_per_kilobyte / 1_000
        found = ""
        for _ in range(_REPEATS):
            found = _compare(work, small, large, allowed)
            if not found:
                break
        if found:
            slow.append(f"{name}: {found}")
    return slow


def _compare(work: Callable[[str], object], small: str, large: str, allowed: float) -> str:
    """Return what is wrong with the times for two sizes of a text, or nothing."""
    spent = measure(work, large)
    if spent > allowed:
        return f"{spent:.2f} s for {len(large)} characters, at most {allowed:.2f}"
    if spent > _NOISE_SECONDS:
        growth, ratio = spent / max(measure(work, small), 1e-6), len(large) / max(len(small), 1)
        if growth > MAX_GROWTH * ratio / 8:
            return f"{growth:.0f} times as long for {ratio:.0f} times the text"
    return ""
