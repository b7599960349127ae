"""The Clock interface, the stored form of times (microseconds since 1970, UTC), and conversion between UTC and local wall time."""

from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from keryx.core.errors import Invalid

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)


def to_micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + _MICROSECOND * micros


def find_zone(name: str) -> ZoneInfo:
    """The zone of a name such as Europe/Berlin; `Invalid` for any other."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as exc:
        raise Invalid(f"{name!r} is not a known time zone: give a name such as Europe/Berlin") from exc


def to_wall_time(moment: datetime, zone: ZoneInfo) -> datetime:
    """What the clock shows, without a zone."""
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def from_wall_time(shown: datetime, zone: ZoneInfo, *, fold: int = 0) -> datetime:
    """When the clock shows a time: of two moments the first, or with `fold` the second. A time that the clock skips
    gives the end of the gap, so a later time never gives an earlier moment."""
    found = shown.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    return found if to_wall_time(found, zone) == shown else find_gap_end(shown, zone)


def find_gap_end(shown: datetime, zone: ZoneInfo) -> datetime:
    """The first moment after the gap in which a wall time was skipped."""
    # With fold=1 a skipped time is read by the offset after the gap, which gives a moment before it.
    before = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)
    beyond = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
    while beyond - before > _SECOND:
        middle = before + (beyond - before) // _SECOND // 2 * _SECOND
        if to_wall_time(middle, zone) < shown:
            before = middle
        else:
            beyond = middle
    return beyond


class Clock(Protocol):
    """`now` is aware UTC and may jump; `monotonic` never goes back and is what deadlines use."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...
