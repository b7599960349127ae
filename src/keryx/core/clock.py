"""The Clock interface, the stored form of times (microseconds since 1970, UTC), and local wall time."""

from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from keryx.core.errors import Invalid
from keryx.core.texts import Phrase

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)


def to_micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + _MICROSECOND * micros


def find_zone(name: str) -> ZoneInfo:
    """Return the zone of a name such as Europe/Berlin. Raise `Invalid` for an unknown name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as exc:
        raise Invalid(Phrase("schedule.zone_unknown", zone=repr(name))) from exc


def to_wall_time(moment: datetime, zone: ZoneInfo) -> datetime:
    """Return the local time of a zone, without the zone."""
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def from_wall_time(shown: datetime, zone: ZoneInfo, *, fold: int = 0) -> datetime:
    """Return the moment of a local time. A time that occurs twice means the first moment, with `fold=1` the second. A
    time that a change to summer time skips means the end of the gap, so the order of times is kept."""
    found = shown.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    return found if to_wall_time(found, zone) == shown else find_gap_end(shown, zone)


def find_gap_end(shown: datetime, zone: ZoneInfo) -> datetime:
    """Return the end of the gap that contains a skipped local time."""
    # With fold=1 the offset after the gap is used, so the result lies before the gap.
    before = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)
    beyond = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
    while beyond - before > _SECOND:
        middle = before + (beyond - before) // _SECOND // 2 * _SECOND
        if to_wall_time(middle, zone) < shown:
            before = middle
        else:
            beyond = middle
    return beyond


def describe_moment(moment: datetime, zone: str, *, now: datetime) -> str:
    """Return a moment for a sentence, in a zone: the time of the day, with the date if that is not today."""
    found = find_zone(zone or "UTC")
    shown = to_wall_time(moment, found)
    form = "%H:%M" if shown.date() == to_wall_time(now, found).date() else "%Y-%m-%d %H:%M"
    return f"{shown:{form}} ({found.key})"


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the time in UTC, aware. It may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for deadlines."""
        ...

    async def sleep(self, seconds: float) -> None: ...
