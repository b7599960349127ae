"""Retry: how often and after which wait a request is sent again."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import msgspec


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """`tries` in all. The wait doubles from `first` to `most`; a provider may ask for up to `patience`."""

    tries: int = 5
    first: timedelta = timedelta(seconds=1)
    most: timedelta = timedelta(seconds=30)
    patience: timedelta = timedelta(minutes=2)

    def wait(
        self, tries: int, after: timedelta | None, chance: Callable[[], float] = random.random
    ) -> timedelta | None:
        """How long to wait after this many tries; `None` to give up."""
        if tries >= self.tries:
            return None
        if after is not None:
            return after if after <= self.patience else None
        # Many turns fail at the same moment, so each waits a little differently.
        return min(self.first * 2 ** (tries - 1), self.most) * (0.75 + chance() / 2)


def asked(milliseconds: str | None, seconds: str | None, *, now: datetime | None = None) -> timedelta | None:
    """The wait that a provider asks for by `retry-after-ms` and `retry-after`, the latter in seconds or as a date."""
    for text, unit in ((milliseconds, 0.001), (seconds, 1.0)):
        if text is None:
            continue
        try:
            return timedelta(seconds=max(0.0, float(text) * unit))
        except (ValueError, OverflowError):
            continue
    try:
        moment = parsedate_to_datetime(seconds or "")
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(timedelta(0), moment - (now or datetime.now(UTC)))
