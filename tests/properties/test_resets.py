from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keryx.core.resets import ResetMode, ResetPolicy, ResetReason, find_due_reason, find_next_due

TICK = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
SPAN = 8 * DAY

CHANGES = [
    ("UTC", datetime(2024, 2, 29, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2024, 3, 31, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2024, 10, 27, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, tzinfo=UTC)),
    ("Pacific/Kwajalein", datetime(1969, 9, 30, tzinfo=UTC)),
    ("Pacific/Kwajalein", datetime(1993, 8, 21, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2024, 4, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2024, 10, 5, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 2, 18, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 11, 4, tzinfo=UTC)),
    ("America/St_Johns", datetime(2007, 3, 11, tzinfo=UTC)),
    ("America/St_Johns", datetime(2007, 11, 4, tzinfo=UTC)),
    ("America/Scoresbysund", datetime(2025, 3, 30, tzinfo=UTC)),
]


@cache
def minutes(zone: str, start: datetime) -> list[tuple[datetime, datetime]]:
    """Each minute of the span with what a clock on the wall shows."""
    info = ZoneInfo(zone)
    moments = [start + MINUTE * step for step in range(SPAN // MINUTE)]
    return [(moment, moment.astimezone(info).replace(tzinfo=None)) for moment in moments]


@cache
def watched(zone: str, start: datetime, hour: int) -> list[datetime]:
    """Reset moments found by watching the clock: once a day, as soon as it shows the hour or has jumped over it."""
    found: list[datetime] = []
    waiting: set[date] = set()
    seen: set[date] = set()
    for moment, wall in minutes(zone, start):
        if wall.date() not in seen:
            seen.add(wall.date())
            waiting.add(wall.date())
        passed = {day for day in waiting if (wall.date(), wall.hour) >= (day, hour)}
        if passed:
            found.append(moment)
            waiting -= passed
    return found


@st.composite
def scenes(draw: st.DrawFn) -> tuple[str, int, list[datetime], datetime, datetime]:
    """A zone, an hour, the watched moments, and two moments around a change of the clock."""
    zone, change = draw(st.sampled_from(CHANGES))
    start, hour = change - SPAN / 2, draw(st.integers(0, 23))
    moments = watched(zone, start, hour)
    # The first days of the watch are left out: nobody saw what the clock showed before them.
    anywhere = st.datetimes(
        (start + 2 * DAY).replace(tzinfo=None),
        (start + SPAN - DAY).replace(tzinfo=None),
        timezones=st.just(UTC),
    )
    edges = [
        moment + shift for moment in moments if moment > start + 2 * DAY for shift in (-TICK, 0 * TICK, TICK)
    ]
    close = st.sampled_from(edges)
    return zone, hour, moments, draw(anywhere | close), draw(anywhere | close)


@given(scene=scenes())
@settings(deadline=None)
def test_a_daily_reset_is_due_exactly_when_a_watcher_of_the_clock_says_so(
    scene: tuple[str, int, list[datetime], datetime, datetime],
) -> None:
    zone, hour, moments, last_active, now = scene
    policy = ResetPolicy(mode=ResetMode.DAILY, hour=hour, zone=zone)
    expected = any(last_active < moment <= now for moment in moments)
    assert find_due_reason(policy, last_active=last_active, now=now) == (
        ResetReason.DAILY if expected else None
    )


POLICIES = st.builds(
    ResetPolicy,
    mode=st.sampled_from(ResetMode),
    idle=st.timedeltas(TICK, 4 * DAY),
    hour=st.integers(0, 23),
    zone=st.sampled_from([zone for zone, _ in CHANGES]),
)
MOMENTS = st.datetimes(datetime(1960, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
AGES = st.none() | st.timedeltas(-2 * DAY, 2 * DAY)


@given(policy=POLICIES, last_active=MOMENTS, age=AGES, limit=st.timedeltas(timedelta(0), 2 * DAY))
@settings(deadline=None)
def test_the_next_moment_is_the_first_at_which_a_lane_is_due(
    policy: ResetPolicy, last_active: datetime, age: timedelta | None, limit: timedelta
) -> None:
    busy = None if age is None else last_active + age
    moment = find_next_due(policy, last_active=last_active, busy_since=busy, busy_limit=limit)

    def is_due(now: datetime) -> bool:
        return (
            find_due_reason(policy, last_active=last_active, now=now, busy_since=busy, busy_limit=limit)
            is not None
        )

    if policy.mode is ResetMode.NONE:
        assert moment is None
        assert not is_due(last_active + 9 * DAY)
    else:
        assert moment is not None
        assert is_due(moment)
        assert not is_due(moment - TICK)


@given(policy=POLICIES, last_active=MOMENTS, waits=st.tuples(*[st.timedeltas(-DAY, 4 * DAY)] * 2))
@settings(deadline=None)
def test_a_lane_that_is_due_stays_due_for_the_same_reason(
    policy: ResetPolicy, last_active: datetime, waits: tuple[timedelta, ...]
) -> None:
    early, late = (
        find_due_reason(policy, last_active=last_active, now=last_active + wait) for wait in sorted(waits)
    )
    assert early is None or late == early


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_one_reset_follows_another_as_a_watcher_of_the_clock_sees_them(zone: str, change: datetime) -> None:
    start, end = change - SPAN / 2 + 2 * DAY, change + SPAN / 2
    for hour in range(24):
        seen = [moment for moment in watched(zone, change - SPAN / 2, hour) if moment > start]
        policy = ResetPolicy(mode=ResetMode.DAILY, hour=hour, zone=zone)
        assert list(takewhile(lambda moment: moment < end, resets(policy, start))) == seen


def resets(policy: ResetPolicy, moment: datetime) -> Iterator[datetime]:
    while following := find_next_due(policy, last_active=moment):
        yield following
        moment = following
