from datetime import UTC, datetime, timedelta

import pytest

from keryx.core import codec, schedules
from keryx.core.errors import Invalid
from keryx.core.schedules import CronRule, IntervalRule, OnceRule, Schedule
from keryx.core.texts import Catalogue

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("30m", OnceRule(NOW + HOUR / 2)),
        ("in 2 hours", OnceRule(NOW + 2 * HOUR)),
        ("1w", OnceRule(NOW + timedelta(weeks=1))),
        ("every 2h", IntervalRule(2 * HOUR, NOW)),
        ("every 90 min", IntervalRule(1.5 * HOUR, NOW)),
        ("Every day", IntervalRule(24 * HOUR, NOW)),
        ("0  9 * * MON-FRI", CronRule("0 9 * * mon-fri")),
        ("@daily", CronRule("@daily")),
        ("2030-01-31T09:00", OnceRule(moment("2030-01-31T09:00+01:00"))),
        ("2030-07-31 09:00", OnceRule(moment("2030-07-31T09:00+02:00"))),
        ("2030-01-31", OnceRule(moment("2030-01-31T00:00+01:00"))),
        ("2030-01-31T09:00Z", OnceRule(moment("2030-01-31T09:00+00:00"))),
        ("2030-03-31T02:30", OnceRule(moment("2030-03-31T03:00+02:00"))),
        # It is Sunday, 13:00 in Berlin.
        ("tomorrow at nine", OnceRule(moment("2026-03-02T09:00+01:00"))),
        ("Tomorrow at 9:30", OnceRule(moment("2026-03-02T09:30+01:00"))),
        ("tomorrow 9am", OnceRule(moment("2026-03-02T09:00+01:00"))),
        ("tomorrow at nine o'clock p.m.", OnceRule(moment("2026-03-02T21:00+01:00"))),
        ("today at 14:00", OnceRule(moment("2026-03-01T14:00+01:00"))),
        ("in two hours", OnceRule(NOW + 2 * HOUR)),
        ("in an hour", OnceRule(NOW + HOUR)),
        ("in half an hour", OnceRule(NOW + HOUR / 2)),
        ("on friday at 14:00", OnceRule(moment("2026-03-06T14:00+01:00"))),
        ("fri 14.00", OnceRule(moment("2026-03-06T14:00+01:00"))),
        ("next monday at noon", OnceRule(moment("2026-03-02T12:00+01:00"))),
        ("next sunday at 14:00", OnceRule(moment("2026-03-08T14:00+01:00"))),
        ("sunday at 14:00", OnceRule(moment("2026-03-01T14:00+01:00"))),
        ("sunday at 12:00", OnceRule(moment("2026-03-08T12:00+01:00"))),
        ("at 12 am", OnceRule(moment("2026-03-02T00:00+01:00"))),
        ("at 12:30 pm", OnceRule(moment("2026-03-02T12:30+01:00"))),
        ("at 15", OnceRule(moment("2026-03-01T15:00+01:00"))),
        ("every day at nine", CronRule("0 9 * * *")),
        ("every weekday at 8:30", CronRule("30 8 * * mon-fri")),
        ("every Friday at 5 pm", CronRule("0 17 * * fri")),
    ],
)
def test_each_way_to_write_a_schedule_is_read(text: str, rule: schedules.ScheduleRule) -> None:
    read = schedules.parse(text, zone="Europe/Berlin", now=NOW)
    assert read == Schedule(rule, "Europe/Berlin")
    assert codec.loads(codec.dumps(read), Schedule) == read
    assert schedules.parse(read.write(), zone=read.zone, now=NOW) == read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "write 30m"),
        ("tomorrow", "tomorrow at nine"),
        ("the day after tomorrow at nine", "tomorrow at nine"),
        ("tomorrow at nine thirty", "too much"),
        ("tomorrow at 25", "is not a date and time"),
        ("tomorrow at 9:75", "is not a date and time"),
        ("tomorrow at 13 pm", "is not a date and time"),
        ("tomorrow at 9:30:15", "write 30m"),
        ("today at 12:59", "has passed"),
        ("someday at nine", "next monday at noon"),
        ("in thirteen hours", "write 30m"),
        ("30s", "write 30m"),
        ("every", "write 30m"),
        ("61 * * * *", "bad minute"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 9 * * funday", "bad day-of-week"),
        ("* * * *", "write 30m"),
        ("0 9 * * * *", "too much"),
        ("@often", "write 30m"),
        ("every 0m", "at least a minute"),
        ("every 9999w", "at most ten years"),
        ("2020-01-01", "has passed"),
        ("2030-02-30", "2030-01-31T09:00"),
        ("2030-01-31T25:00", "2030-01-31T09:00"),
    ],
)
def test_a_wrong_schedule_is_refused_with_what_would_be_right(text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        schedules.parse(text, zone="Europe/Berlin", now=NOW)


def test_a_zone_that_nobody_knows_is_refused() -> None:
    with pytest.raises(Invalid, match="time zone"):
        schedules.parse("@daily", zone="Mars/Olympus", now=NOW)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("every 2 hours check the news", "check the news"),
        ("30m tea", "tea"),
        ("tomorrow at nine call mum", "call mum"),
        ("in two hours call mum", "call mum"),
        ("every day at 8 say good morning", "say good morning"),
        ("0 9 * * mon-fri Say good morning", "Say good morning"),
        ('"0 9 * * *" Say good morning', "Say good morning"),
        ("@hourly 3 facts", "3 facts"),
        ("2030-01-31 Wish me luck", "Wish me luck"),
        ("2030-01-31T09:00 Wish me luck", "Wish me luck"),
    ],
)
def test_a_schedule_is_cut_off_the_front_of_what_a_person_types(text: str, rest: str) -> None:
    assert schedules.parse_prefix(text, zone="UTC", now=NOW)[1] == rest


def test_a_schedule_is_shown_as_it_can_be_typed() -> None:
    texts = ("every 2h", "every 90m", "0 9 * * mon-fri", "2030-01-31T09:00")
    shown = [str(schedules.parse(t, zone="Europe/Berlin", now=NOW)) for t in texts]
    assert shown == [
        "every 2h",
        "every 90m",
        "0 9 * * mon-fri Europe/Berlin",
        "once, 2030-01-31 09:00 Europe/Berlin",
    ]


def test_a_schedule_is_told_in_words() -> None:
    told = schedules.parse("every 2h", zone="UTC", now=NOW).describe()
    assert told == "every 2 hours"
    assert Catalogue(language="de").speak().render(told) == "alle 2 Stunden"


def test_once_comes_once() -> None:
    once = Schedule(OnceRule(NOW))
    assert schedules.find_next(once, NOW - HOUR) == NOW
    assert schedules.find_next(once, NOW) is None


def test_a_moment_is_run_when_it_comes_and_skipped_when_it_is_too_old() -> None:
    schedule = schedules.parse("0 9 * * *", zone="UTC", now=NOW)
    nine = moment("2026-03-02T09:00+00:00")
    on_time = schedules.find_due(schedule, at=nine, now=nine, window=HOUR)
    assert (on_time.run, on_time.following) == (nine, nine + 24 * HOUR)
    assert schedules.find_due(schedule, at=nine, now=nine + HOUR, window=HOUR).run == nine
    late = schedules.find_due(schedule, at=nine, now=nine + 2 * HOUR, window=HOUR)
    assert (late.run, late.following) == (None, nine + 24 * HOUR)
    days_later = schedules.find_due(schedule, at=nine, now=nine + timedelta(days=3, minutes=30), window=HOUR)
    assert (days_later.run, days_later.following) == (nine + timedelta(days=3), nine + timedelta(days=4))
