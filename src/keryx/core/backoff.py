"""The delay before a retry, which grows with each failure in a row."""

import random
from collections.abc import Callable
from datetime import timedelta

import msgspec

_MAX_EXPONENT = 64


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    first: timedelta
    longest: timedelta
    # Each delay is this many times the one before it.
    factor: float = 2
    # The largest random change of a delay, as a share of it, to spread retries.
    jitter: float = 0

    def seconds(self, failures: int, *, chance: Callable[[], float] = random.random) -> float:
        """The delay after this many failures in a row, in seconds; `first` after one or none."""
        exponent = min(max(failures - 1, 0), _MAX_EXPONENT)
        delay = min(self.first.total_seconds() * self.factor**exponent, self.longest.total_seconds())
        return delay * (1 + self.jitter * (2 * chance() - 1)) if self.jitter else delay

    def delay(self, failures: int, *, chance: Callable[[], float] = random.random) -> timedelta:
        return timedelta(seconds=self.seconds(failures, chance=chance))
