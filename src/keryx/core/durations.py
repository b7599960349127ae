"""Durations as people and servers write them: one grammar for settings, command options, schedules and search filters; and the delays before retries."""

import random
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from types import MappingProxyType

import msgspec

from keryx.core.texts import Phrase

_NAMES = {
    timedelta(days=365): ("y", "year", "years"),
    timedelta(weeks=1): ("w", "week", "weeks"),
    timedelta(days=1): ("d", "day", "days"),
    timedelta(hours=1): ("h", "hour", "hours"),
    timedelta(minutes=1): ("m", "min", "mins", "minute", "minutes"),
    timedelta(seconds=1): ("s", "sec", "secs", "second", "seconds"),
}
UNITS: Mapping[str, timedelta] = MappingProxyType(
    {name: size for size, names in _NAMES.items() for name in names}
)
_MAX_EXPONENT = 64
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\Z", re.IGNORECASE)
# A year is read but never written: `365d` cannot be mistaken for a calendar year.
_FORMAT_UNITS = ("w", "d", "h", "m", "s")


def parse(text: str, *, units: Mapping[str, timedelta] = UNITS) -> timedelta | None:
    """Read `15s`, `1.5h`, `10 minutes` or `2W`. Return `None` for any other text, and for more than a `timedelta` holds."""
    found = _DURATION.match(text.strip())
    size = units.get(found[2].lower()) if found else None
    if found is None or size is None:
        return None
    try:
        return size * float(found[1])
    except OverflowError:
        return None


def format_duration(value: timedelta) -> str:
    """Return `15s`, `10m`, `2h`, `7d` or `2w`: the largest unit that divides the value. `parse` reads it back."""
    for name in _FORMAT_UNITS:
        if value >= UNITS[name] and value % UNITS[name] == timedelta(0):
            return f"{value // UNITS[name]}{name}"
    whole, micros = divmod(value, UNITS["s"])
    return f"{whole}.{micros.microseconds:06}".rstrip("0").rstrip(".") + "s"


def describe(value: timedelta) -> Phrase:
    """Return a rounded value for a sentence: `90 seconds`, `10 minutes`, `24 hours`, `3 days`."""
    for key, size in (("duration.days", UNITS["d"]), ("duration.hours", UNITS["h"])):
        if value >= 2 * size and value % size == timedelta(0):
            return Phrase(key, count=value // size)
    seconds = value.total_seconds()
    if seconds >= 120:
        return Phrase("duration.minutes", count=round(seconds / 60))
    return Phrase("duration.seconds", count=round(seconds))


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """The delay before a retry, which grows with each failure in a row."""

    first: timedelta
    longest: timedelta
    # Each delay is this many times the one before it.
    factor: float = 2
    # The largest random change of a delay, as a share of it, to spread retries.
    jitter: float = 0

    def seconds(self, failures: int, *, chance: Callable[[], float] = random.random) -> float:
        """Return the delay after this many failures in a row, in seconds; `first` after one or none."""
        exponent = min(max(failures - 1, 0), _MAX_EXPONENT)
        delay = min(self.first.total_seconds() * self.factor**exponent, self.longest.total_seconds())
        return delay * (1 + self.jitter * (2 * chance() - 1)) if self.jitter else delay

    def delay(self, failures: int, *, chance: Callable[[], float] = random.random) -> timedelta:
        return timedelta(seconds=self.seconds(failures, chance=chance))


def parse_retry_after(headers: Mapping[str, str], *, now: datetime) -> timedelta | None:
    """Return the delay that a server asks for by `retry-after-ms` or `retry-after`, which is in seconds or a date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return timedelta(seconds=max(0.0, float(headers.get(name, "")) * unit))
        except (ValueError, OverflowError):
            continue
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(timedelta(0), moment - now)
