"""Durations as people write them: one grammar for settings, command options, schedules and search filters."""

import re
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

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


def describe(value: timedelta) -> str:
    """Return a rounded value for a sentence: `90 seconds`, `10 minutes`."""
    seconds = value.total_seconds()
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"
