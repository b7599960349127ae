"""Cron schedules agree with somebody who watches the clock on the wall, over every kind of change of the clock."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.test_resets import CHANGES, DAY, MINUTE, SPAN

from keryx.core import schedules
from keryx.core.schedules import CronRule, IntervalRule, Schedule

MINUTES = {
    "*": range(60),
    "*/15": range(0, 60, 15),
    "0": [0],
    "30": [30],
    "5,59": [5, 59],
    "10-12": [10, 11, 12],
}
HOURS = {"*": range(24), "*/6": range(0, 24, 6), "0": [0], "2": [2], "1-3": [1, 2, 3], "0,23": [0, 23]}
WEEKDAYS = {"*": range(7), "mon-fri": range(5), "sun": [6], "sat,7": [5, 6]}


@cache
def clock(zone: str, start: datetime) -> list[tuple[datetime, datetime, bool]]:
    """Each minute with what the clock shows, and whether it had never shown as much before."""
    found: list[tuple[datetime, datetime, bool]] = []
    furthest = start.replace(tzinfo=None) - 2 * DAY
    for step in range(SPAN // MINUTE):
        moment = start + step * MINUTE
        wall = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        found.append((moment, wall, wall > furthest))
        furthest = max(furthest, wall)
    return found


def watched(zone: str, start: datetime, minutes: str, hours: str, weekdays: str) -> list[datetime]:
    """The moments of a schedule, found by watching. A fixed time comes when the clock first shows it or passes it."""

    def fits(wall: datetime) -> bool:
        return (
            wall.minute in MINUTES[minutes]
            and wall.hour in HOURS[hours]
            and wall.weekday() in WEEKDAYS[weekdays]
        )

    if minutes.startswith("*") or hours.startswith("*"):
        return [moment for moment, wall, _ in clock(zone, start) if fits(wall)]
    found: list[datetime] = []
    before: datetime | None = None
    for moment, wall, further in clock(zone, start):
        if further:
            passed = wall - before if before else MINUTE
            skipped: Sequence[datetime] = [wall - n * MINUTE for n in range(passed // MINUTE)]
            if any(map(fits, skipped)):
                found.append(moment)
            before = wall
    return found


@given(
    change=st.sampled_from(CHANGES),
    minutes=st.sampled_from(sorted(MINUTES)),
    hours=st.sampled_from(sorted(HOURS)),
    weekdays=st.sampled_from(sorted(WEEKDAYS)),
    offset=st.integers(0, 4 * 24 * 60),
    seconds=st.integers(0, 59),
)
@example(
    change=("America/St_Johns", datetime(2007, 11, 4, tzinfo=UTC)),
    minutes="*/15",
    hours="0,23",
    weekdays="*",
    offset=0,
    seconds=0,
)
@settings(deadline=None)
def test_a_cron_schedule_comes_exactly_when_a_watcher_of_the_clock_says_so(
    change: tuple[str, datetime], minutes: str, hours: str, weekdays: str, offset: int, seconds: int
) -> None:
    zone, day = change
    start = day - SPAN / 2
    after = start + 2 * DAY + offset * MINUTE + timedelta(seconds=seconds)
    end = start + SPAN - DAY
    expected = [m for m in watched(zone, start, minutes, hours, weekdays) if after < m < end][:40]
    schedule = Schedule(CronRule(f"{minutes} {hours} * * {weekdays}"), zone)
    found: list[datetime] = []
    moment = schedules.find_next(schedule, after)
    while moment is not None and moment < end and len(found) < 40:
        found.append(moment)
        moment = schedules.find_next(schedule, moment)
    assert found == expected


@given(
    change=st.sampled_from(CHANGES),
    minutes=st.sampled_from(sorted(MINUTES)),
    hours=st.sampled_from(sorted(HOURS)),
    weekdays=st.sampled_from(sorted(WEEKDAYS)),
    start=st.integers(0, 4 * 24 * 60),
    late=st.integers(0, 2 * 24 * 3600),
)
@settings(deadline=None)
def test_the_last_of_many_missed_moments_is_found(
    change: tuple[str, datetime], minutes: str, hours: str, weekdays: str, start: int, late: int
) -> None:
    zone, day = change
    schedule = Schedule(CronRule(f"{minutes} {hours} * * {weekdays}"), zone)
    at = schedules.find_next(schedule, day - 2 * DAY + start * MINUTE)
    assert at is not None
    now = at + timedelta(seconds=late)
    plan = schedules.find_due(schedule, at=at, now=now, window=30 * DAY)
    assert plan.run is not None and at <= plan.run <= now
    assert schedules.find_next(schedule, plan.run) == plan.following == schedules.find_next(schedule, now)


@given(
    late=st.integers(0, 10_000),
    ahead=st.integers(0, 500),
    span=st.integers(1, 300),
    window=st.integers(1, 2_000),
)
def test_of_what_was_missed_only_the_last_is_run_and_only_within_the_window(
    late: int, ahead: int, span: int, window: int
) -> None:
    since = datetime(2026, 3, 1, tzinfo=UTC)
    schedule = Schedule(IntervalRule(span * MINUTE, since))
    at = since + (ahead + 1) * span * MINUTE
    now = at + timedelta(seconds=late * 7)
    plan = schedules.find_due(schedule, at=at, now=now, window=window * MINUTE)
    moments = [at + n * span * MINUTE for n in range((now - at) // (span * MINUTE) + 2)]
    passed = [m for m in moments if m <= now]
    assert plan.run == (passed[-1] if now - passed[-1] <= window * MINUTE else None)
    assert plan.following == moments[len(passed)]
