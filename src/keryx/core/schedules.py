"""Schedules: when a job is due. How one is written, the moments it names, and what is made of those that were missed.

A fixed time of day that the clock skips comes at the end of the gap, and one that the clock shows twice comes once. Where
the minutes or the hours are written with `*`, every time that the clock really shows counts. All moments are UTC.
"""

import re
from bisect import bisect_right
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import product
from typing import TypeAlias, assert_never
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from keryx.core import zones
from keryx.core.errors import Invalid

ON_TIME = timedelta(minutes=1)
"""A run that is no later than this was not missed."""
SHORTEST = timedelta(minutes=1)
LONGEST = timedelta(days=3660)

_TICK = datetime.resolution
_DAY = timedelta(days=1)
_FAR = 40 * 366
_UNITS = {"w": timedelta(weeks=1), "d": _DAY, "h": timedelta(hours=1), "m": timedelta(minutes=1)}
_UNIT = r"(m|min|mins|minutes?|h|hours?|d|days?|w|weeks?)"
_EVERY = re.compile(rf"every\s+(?:(\d{{1,6}})\s*)?{_UNIT}\b", re.I)
_IN = re.compile(rf"(?:in\s+)?(\d{{1,6}})\s*{_UNIT}\b", re.I)
_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)?(?=\s|\Z)", re.I)
_CRON = re.compile(r"@[a-z]+|[*\d]\S*(?:\s+[*\dA-Za-z]\S*){4}", re.I)
_ZONE = re.compile(r"(?:UTC|[A-Z][A-Za-z_]+/[A-Z][A-Za-z_/+-]+)(?=\s|\Z)")
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_HOW = (
    "write 30m or in 2h (once), every 2h, 0 9 * * mon-fri (cron), @daily, or a time such as 2030-01-31T09:00"
)


class Once(msgspec.Struct, frozen=True, tag="once", tag_field="kind"):
    at: datetime


class Every(msgspec.Struct, frozen=True, tag="every", tag_field="kind"):
    """Each whole `span` after `since`, whatever the clocks on walls do."""

    span: timedelta
    since: datetime


class Cron(msgspec.Struct, frozen=True, tag="cron", tag_field="kind"):
    expression: str


Rule: TypeAlias = Once | Every | Cron


class Schedule(msgspec.Struct, frozen=True):
    """A rule, and the zone in which its times are meant and shown. One that exists is sound."""

    rule: Rule
    zone: str = "UTC"

    def __str__(self) -> str:
        match self.rule:
            case Once(at):
                return f"once, {self.shown(at)} {self.zone}"
            case Every(span):
                return f"every {_span(span)}"
            case Cron(expression):
                return f"{expression} {self.zone}"
            case _:
                assert_never(self.rule)

    def shown(self, moment: datetime) -> str:
        """A moment as the clock of the zone shows it."""
        return f"{zones.wall(moment, zones.named(self.zone)):%Y-%m-%d %H:%M}"


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about a job whose time has come: `run` it for this moment, or for none if all were missed;
    `following` is when it is due again, `None` for never."""

    run: datetime | None
    following: datetime | None


def parse(text: str, *, zone: str, now: datetime) -> Schedule:
    """Read a whole schedule. `Invalid` says what would be right: also for one that never comes, or has passed."""
    schedule, rest = split(text, zone=zone, now=now)
    if rest:
        raise Invalid(f"{rest[:40]!r} is too much in the schedule {text[:80]!r}: {_HOW}")
    return schedule


def split(text: str, *, zone: str, now: datetime) -> tuple[Schedule, str]:
    """Read the schedule at the beginning of a text, with the name of a zone behind it if there is one; gives it with the
    rest of the text. `zone` is meant where none is named."""
    zones.named(zone)
    words = text.strip()
    if words[:1] in ('"', "'", "`", "“"):
        quoted, _, rest = words[1:].partition("”" if words[0] == "“" else words[0])
        return parse(quoted, zone=zone, now=now), rest.strip()
    for pattern, read in ((_EVERY, _every), (_ISO, _at), (_IN, _in), (_CRON, _cron)):
        found = pattern.match(words)
        if found:
            zone, rest = _zoned(words[found.end() :].strip(), zone)
            return Schedule(read(found, zone, now), zone), rest
    raise Invalid(f"{words[:80]!r} does not begin with a schedule: {_HOW}")


def following(schedule: Schedule, after: datetime) -> datetime | None:
    """The first moment of a schedule strictly after another, `None` if there is none."""
    match schedule.rule:
        case Once(at):
            return at if at > after else None
        case Every(span, since):
            return since + max(1, (after - since) // span + 1) * span
        case Cron(expression):
            return _next(expression, zones.named(schedule.zone), after)
        case _:
            assert_never(schedule.rule)


def due(schedule: Schedule, *, at: datetime, now: datetime, window: timedelta) -> Due:
    """What follows for a job that was due `at` first. Of the moments that have passed, the last one is run if it is no
    older than `window`; the others are skipped."""
    first = at if now - at <= window else following(schedule, now - window - _TICK)
    run = _last(schedule, first, now) if first and first <= now else None
    return Due(run=run, following=following(schedule, now))


def _last(schedule: Schedule, first: datetime, now: datetime) -> datetime:
    """The last moment of a schedule up to now; `first` is one. Halves what is left, for there may be many between."""
    last, end = first, now
    while end - last >= SHORTEST:
        middle = last + (end - last) / 2
        found = following(schedule, middle)
        if found is not None and found <= now:
            last = found
        else:
            end = middle
    return last


def _zoned(rest: str, zone: str) -> tuple[str, str]:
    """The zone that a text begins with, and the text after it."""
    found = _ZONE.match(rest)
    if found is None:
        return zone, rest
    return zones.named(found[0]).key, rest[found.end() :].strip()


def _every(found: re.Match[str], zone: str, now: datetime) -> Rule:
    span = int(found[1] or 1) * _UNITS[found[2][0].lower()]
    if not SHORTEST <= span <= LONGEST:
        raise Invalid(f"every {_span(span)} is not possible: give at least a minute, at most ten years")
    return Every(span, now)


def _in(found: re.Match[str], zone: str, now: datetime) -> Rule:
    span = int(found[1]) * _UNITS[found[2][0].lower()]
    if not SHORTEST <= span <= LONGEST:
        raise Invalid(f"in {_span(span)} is not possible: give at least a minute, at most ten years")
    return Once(now + span)


def _at(found: re.Match[str], zone: str, now: datetime) -> Rule:
    try:
        given = datetime.fromisoformat(found[0].upper())
        at = given.astimezone(UTC) if given.tzinfo else zones.moment(given, zones.named(zone))
    except (ValueError, OverflowError) as exc:
        raise Invalid(
            f"{found[0]!r} is not a date and time: write it as 2030-01-31T09:00 or 2030-01-31T09:00+01:00"
        ) from exc
    if at <= now:
        raise Invalid(
            f"{found[0]} ({zone if not given.tzinfo else 'as given'}) has passed: give a later time"
        )
    return Once(at)


def _cron(found: re.Match[str], zone: str, now: datetime) -> Rule:
    expression = " ".join(found[0].split()).lower()
    if _next(expression, zones.named(zone), now) is None:
        raise Invalid(f"{expression!r} never comes: look at its days and months")
    return Cron(expression)


@lru_cache(maxsize=1000)
def _read(expression: str) -> tuple[CronSim, list[time], bool]:
    """A cron expression: what its days are, its times of day in order, and whether those are fixed."""
    fields = _NAMED.get(expression, expression).split()
    try:
        known = CronSim(" ".join(fields), datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as exc:
        raise Invalid(f"{expression!r} is not a cron schedule ({str(exc).lower()}): {_HOW}") from exc
    times = [time(h, m) for h, m in product(sorted(known.hours), sorted(known.minutes))]
    return known, times, not any(f.startswith("*") for f in fields[:2])


def _next(expression: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    known, times, fixed = _read(expression)

    def of(day: date) -> list[datetime]:
        folds = (0,) if fixed else (0, 1)
        found = (_first(day, times, zone, after, fold, fixed) for fold in folds)
        return [moment for moment in found if moment is not None]

    # A clock that was set back over midnight shows the day before once more, after the first minutes of the next.
    day = zones.wall(after, zone).date() - _DAY
    for _ in range(_FAR):
        if _fits(known, day) and (found := of(day)):
            return min(found + of(day + _DAY) if _fits(known, day + _DAY) else found)
        day += _DAY
    return None


def _fits(known: CronSim, day: date) -> bool:
    return day.month in known.months and known.match_day(day)


def _first(
    day: date, times: list[time], zone: ZoneInfo, after: datetime, fold: int, fixed: bool
) -> datetime | None:
    """The first moment of a day that lies after another."""

    def moment(at: time) -> datetime:
        return zones.moment(datetime.combine(day, at), zone, fold=fold)

    for at in times[bisect_right(times, after, key=moment) :]:
        if fixed or zones.wall(moment(at), zone) == datetime.combine(day, at):
            return moment(at)
    return None


def _span(span: timedelta) -> str:
    unit = next((u for u, size in _UNITS.items() if span % size == timedelta(0) and span >= size), "m")
    return f"{span // _UNITS[unit]}{unit}"
