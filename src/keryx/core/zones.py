"""Zones: what a clock on the wall shows at a moment, and at which moments it shows a time. Moments are aware UTC."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from keryx.core.errors import Invalid

_SECOND = timedelta(seconds=1)


def named(name: str) -> ZoneInfo:
    """The zone of a name such as Europe/Berlin; `Invalid` for any other."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as exc:
        raise Invalid(f"{name!r} is not a known time zone: give a name such as Europe/Berlin") from exc


def wall(moment: datetime, zone: ZoneInfo) -> datetime:
    """What the clock shows, without a zone."""
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def moment(shown: datetime, zone: ZoneInfo, *, fold: int = 0) -> datetime:
    """When the clock shows a time: of two moments the first, or with `fold` the second. A time that the clock skips
    gives the end of the gap, so a later time never gives an earlier moment."""
    found = shown.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    return found if wall(found, zone) == shown else gap_end(shown, zone)


def gap_end(shown: datetime, zone: ZoneInfo) -> datetime:
    """The first moment after the gap in which a wall time was skipped."""
    # With fold=1 a skipped time is read by the offset after the gap, which gives a moment before it.
    before = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)
    beyond = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
    while beyond - before > _SECOND:
        middle = before + (beyond - before) // _SECOND // 2 * _SECOND
        if wall(middle, zone) < shown:
            before = middle
        else:
            beyond = middle
    return beyond
