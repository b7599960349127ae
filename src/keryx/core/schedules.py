"""Schedules of jobs: parsing, the next due time, and what happens to missed runs."""

import re
from bisect import bisect_right
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import product
from typing import TypeAlias, assert_never
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from keryx.core import clock, durations
from keryx.core.durations import format_duration
from keryx.core.errors import Invalid
from keryx.core.texts import Phrase

ON_TIME_TOLERANCE = timedelta(minutes=1)
"""A run with at most this delay counts as on time."""
SHORTEST_INTERVAL = timedelta(minutes=1)
LONGEST_INTERVAL = timedelta(days=3660)

_TICK = datetime.resolution
_DAY = timedelta(days=1)
_MOST_DAYS = 40 * 366
_UNIT = f"({'|'.join(name for name, size in durations.UNITS.items() if size >= SHORTEST_INTERVAL)})"
_EVERY = re.compile(rf"every\s+(?:(\d{{1,6}})\s*)?{_UNIT}\b", re.I)
_IN = re.compile(rf"(?:in\s+)?(\d{{1,6}})\s*{_UNIT}\b", re.I)
_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)?(?=\s|\Z)", re.I)
_CRON = re.compile(r"@[a-z]+|[*\d]\S*(?:\s+[*\dA-Za-z]\S*){4}", re.I)
# Words for dates: `tomorrow at nine`, `next monday at noon`, `every weekday at 8:30`, `in two hours`.
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAY = "|".join(f"{day[:3]}(?:{day[3:]})?" for day in _WEEKDAYS)
_CLOCK_TIME = (
    r"(?:(?P<noon>noon)|(?P<hour>\d{1,2})(?:[:.](?P<minute>\d\d))?|(?P<word>"
    rf"{'|'.join(_NUMBERS)}))(?:\s+o['’]?clock)?(?:\s*(?P<half>[ap])\.?m\b\.?)?(?![\w:])"
)
_AT = re.compile(
    rf"(?:(?:(?P<day>today|tomorrow)|(?:(?P<which>on|this|next)\s+)?(?P<weekday>{_WEEKDAY}))\s+(?:at\s+)?|at\s+){_CLOCK_TIME}",
    re.I,
)
_EVERY_AT = re.compile(rf"every\s+(?P<days>day|weekday|{_WEEKDAY})\s+at\s+{_CLOCK_TIME}", re.I)
_IN_WORDS = re.compile(rf"in\s+(half\s+an?|an?|{'|'.join(_NUMBERS)})\s+{_UNIT}\b", re.I)
_ZONE = re.compile(r"(?:UTC|[A-Z][A-Za-z_]+/[A-Z][A-Za-z_/+-]+)(?=\s|\Z)")
_CRON_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_SYNTAX_HELP = Phrase("schedule.syntax")


class OnceRule(msgspec.Struct, frozen=True, tag="once", tag_field="kind"):
    at: datetime


class IntervalRule(msgspec.Struct, frozen=True, tag="every", tag_field="kind"):
    """Every `span` after `since`, in elapsed time: changes to summer time are ignored."""

    span: timedelta
    since: datetime


class CronRule(msgspec.Struct, frozen=True, tag="cron", tag_field="kind"):
    expression: str


ScheduleRule: TypeAlias = OnceRule | IntervalRule | CronRule


class Schedule(msgspec.Struct, frozen=True):
    rule: ScheduleRule
    # The zone of the times, and the one they are shown in.
    zone: str = "UTC"

    def __str__(self) -> str:
        return self.write() if isinstance(self.rule, IntervalRule) else str(self.describe())

    def describe(self) -> str:
        """Return the schedule in words."""
        match self.rule:
            case OnceRule(at):
                return Phrase("schedule.once", time=self.format_time(at), zone=self.zone)
            case IntervalRule(span):
                return Phrase("schedule.every", span=durations.describe(span))
            case CronRule(expression):
                return f"{expression} {self.zone}"
            case _:
                assert_never(self.rule)

    def write(self) -> str:
        """Return the schedule as a person writes it, without its zone: `parse` takes it."""
        match self.rule:
            case OnceRule(at):
                return self.format_time(at).replace(" ", "T")
            case IntervalRule(span):
                return f"every {format_duration(span)}"
            case CronRule(expression):
                return expression
            case _:
                assert_never(self.rule)

    def format_time(self, moment: datetime) -> str:
        """Return the local time of a moment in the zone."""
        return f"{clock.to_wall_time(moment, clock.find_zone(self.zone)):%Y-%m-%d %H:%M}"


class DueRun(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with a job that is due."""

    # The due time to run it for, `None` if all were missed.
    run: datetime | None
    # When it is due again, `None` for never.
    following: datetime | None


def parse(text: str, *, zone: str, now: datetime) -> Schedule:
    """Parse a text that is a schedule. Raise `Invalid` for other text, and for a time that never comes or has passed."""
    schedule, rest = parse_prefix(text, zone=zone, now=now)
    if rest:
        raise Invalid(
            Phrase("schedule.too_much", rest=repr(rest[:40]), text=repr(text[:80]), syntax=_SYNTAX_HELP)
        )
    return schedule


def parse_prefix(text: str, *, zone: str, now: datetime) -> tuple[Schedule, str]:
    """Parse the schedule at the beginning of a text, with an optional zone after it. Return it and the rest of the
    text. `zone` is the default."""
    clock.find_zone(zone)
    words = text.strip()
    if words[:1] in ('"', "'", "`", "“"):
        quoted, _, rest = words[1:].partition("”" if words[0] == "“" else words[0])
        return parse(quoted, zone=zone, now=now), rest.strip()
    patterns = (_EVERY_AT, _EVERY, _ISO, _IN, _IN_WORDS, _AT, _CRON)
    found = next((m for pattern in patterns if (m := pattern.match(words))), None)
    if found is None:
        raise Invalid(Phrase("schedule.missing", text=repr(words[:80]), syntax=_SYNTAX_HELP))
    rest = words[found.end() :].strip()
    if named := _ZONE.match(rest):
        zone, rest = clock.find_zone(named[0]).key, rest[named.end() :].strip()
    if found.re is _ISO:
        try:
            given = datetime.fromisoformat(found[0].upper())
            at = given.astimezone(UTC) if given.tzinfo else clock.from_wall_time(given, clock.find_zone(zone))
        except (ValueError, OverflowError) as exc:
            raise Invalid(Phrase("schedule.no_time", text=repr(found[0]))) from exc
        if at <= now:
            raise Invalid(Phrase("schedule.passed", time=found[0]))
        return Schedule(OnceRule(at), zone), rest
    if found.re is _AT:
        return Schedule(OnceRule(_find_named_time(found, zone, now)), zone), rest
    if found.re in (_CRON, _EVERY_AT):
        named = found.re is _EVERY_AT
        expression = _build_cron(found) if named else " ".join(found[0].split()).lower()
        if _find_next_cron(expression, clock.find_zone(zone), now) is None:
            raise Invalid(Phrase("schedule.never", expression=repr(expression)))
        return Schedule(CronRule(expression), zone), rest
    every = found.re is _EVERY
    span = _parse_count(found[1]) * durations.UNITS[found[2].lower()]
    if not SHORTEST_INTERVAL <= span <= LONGEST_INTERVAL:
        raise Invalid(Phrase("schedule.impossible", span=format_duration(span)))
    return Schedule(IntervalRule(span, now) if every else OnceRule(now + span), zone), rest


def find_next(schedule: Schedule, after: datetime) -> datetime | None:
    """Return the first time of a schedule that is later than `after`, `None` if there is none."""
    match schedule.rule:
        case OnceRule(at):
            return at if at > after else None
        case IntervalRule(span, since):
            return since + max(1, (after - since) // span + 1) * span
        case CronRule(expression):
            return _find_next_cron(expression, clock.find_zone(schedule.zone), after)
        case _:
            assert_never(schedule.rule)


def find_due(schedule: Schedule, *, at: datetime, now: datetime, window: timedelta) -> DueRun:
    """Return what to do with a job that is due since `at`. The last time that has passed is run unless it is older
    than `window`; earlier ones are skipped."""
    first = at if now - at <= window else find_next(schedule, now - window - _TICK)
    following = find_next(schedule, now)
    if first is None or first > now:
        return DueRun(run=None, following=following)
    # Find the last time up to now by bisection.
    last, end = first, now
    while end - last >= SHORTEST_INTERVAL:
        middle = last + (end - last) / 2
        found = find_next(schedule, middle)
        if found is not None and found <= now:
            last = found
        else:
            end = middle
    return DueRun(run=last, following=following)


def _parse_count(text: str | None) -> float:
    """Return the number of units: digits, a word, `half an`; nothing means one."""
    word = (text or "a").lower()
    if word.isdigit():
        return int(word)
    if word.startswith("half"):
        return 0.5
    return _NUMBERS.index(word) + 1 if word in _NUMBERS else 1


def _parse_clock_time(found: re.Match[str]) -> time:
    """Return the time of day of a match, which may be `9`, `9:30`, `nine`, `9 pm` or `noon`."""
    half, word = (found["half"] or "").lower(), (found["word"] or "").lower()
    hour = _NUMBERS.index(word) + 1 if word else int(found["hour"] or 12)
    try:
        if half and not 1 <= hour <= 12:
            raise ValueError(hour)
        return time(hour % 12 + (12 if half == "p" else 0) if half else hour, int(found["minute"] or 0))
    except ValueError as exc:
        raise Invalid(Phrase("schedule.no_time", text=repr(found[0][:80]))) from exc


def _build_cron(found: re.Match[str]) -> str:
    at, days = _parse_clock_time(found), found["days"].lower()
    chosen = {"day": "*", "weekday": "mon-fri"}.get(days, days[:3])
    return f"{at.minute} {at.hour} * * {chosen}"


def _find_named_time(found: re.Match[str], zone: str, now: datetime) -> datetime:
    """Return the moment of `tomorrow at nine` and the like. A weekday means the next one that comes, with `next` not
    today; without a day it is the next time that the clock shows it."""
    place, today = clock.find_zone(zone), clock.to_wall_time(now, clock.find_zone(zone)).date()
    at = _parse_clock_time(found)
    ahead, step = 0, timedelta(0)
    if found["weekday"]:
        weekday = next(n for n, day in enumerate(_WEEKDAYS) if day.startswith(found["weekday"][:3].lower()))
        ahead, step = (weekday - today.weekday()) % 7, 7 * _DAY
        if not ahead and (found["which"] or "").lower() == "next":
            ahead = 7
    elif not found["day"]:
        step = _DAY
    elif found["day"].lower() == "tomorrow":
        ahead = 1
    shown = datetime.combine(today + ahead * _DAY, at)
    moment = clock.from_wall_time(shown, place)
    if moment <= now and step:
        moment = clock.from_wall_time(shown + step, place)
    if moment <= now:
        raise Invalid(Phrase("schedule.passed", time=found[0]))
    return moment


@lru_cache(maxsize=1000)
def _load_cron(expression: str) -> tuple[CronSim, list[time], bool]:
    """Parse a cron expression: its days, its times of day in order, and whether the times are fixed."""
    fields = _CRON_ALIASES.get(expression, expression).split()
    try:
        known = CronSim(" ".join(fields), datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, ValueError) as exc:
        raise Invalid(
            Phrase(
                "schedule.no_cron",
                expression=repr(expression),
                reason=str(exc).lower(),
                syntax=_SYNTAX_HELP,
            )
        ) from exc
    times = [time(h, m) for h, m in product(sorted(known.hours), sorted(known.minutes))]
    return known, times, not any(f.startswith("*") for f in fields[:2])


def _find_next_cron(expression: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    known, times, fixed = _load_cron(expression)

    def list_times(day: date) -> list[datetime]:
        folds = (0,) if fixed else (0, 1)
        found = (_find_first(day, times, zone, after, fold, fixed) for fold in folds)
        return [moment for moment in found if moment is not None]

    # When a clock is set back over midnight, the previous day returns after the first minutes of the next one.
    day = clock.to_wall_time(after, zone).date() - _DAY
    for _ in range(_MOST_DAYS):
        if _matches_day(known, day) and (found := list_times(day)):
            return min(found + list_times(day + _DAY) if _matches_day(known, day + _DAY) else found)
        day += _DAY
    return None


def _matches_day(known: CronSim, day: date) -> bool:
    return day.month in known.months and known.match_day(day)


def _find_first(
    day: date, times: list[time], zone: ZoneInfo, after: datetime, fold: int, fixed: bool
) -> datetime | None:
    """Return the first time of a day that is later than `after`."""

    def moment(at: time) -> datetime:
        return clock.from_wall_time(datetime.combine(day, at), zone, fold=fold)

    for at in times[bisect_right(times, after, key=moment) :]:
        if fixed or clock.to_wall_time(moment(at), zone) == datetime.combine(day, at):
            return moment(at)
    return None
