from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from keryx.core import codec
from keryx.core.errors import Invalid
from keryx.core.resets import (
    ResetMode,
    ResetPolicies,
    ResetPolicy,
    ResetReason,
    find_due_reason,
    find_next_due,
)
from keryx.core.source import ChatType

TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
IDLE = ResetPolicy(mode=ResetMode.IDLE, idle=HOUR)


def daily(zone: str, hour: int) -> ResetPolicy:
    return ResetPolicy(mode=ResetMode.DAILY, zone=zone, hour=hour)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def local(moment: datetime | None, zone: str) -> str:
    assert moment is not None
    return moment.astimezone(ZoneInfo(zone)).isoformat(sep=" ", timespec="minutes")


def test_without_a_policy_nothing_is_ever_due() -> None:
    assert find_due_reason(ResetPolicy(), last_active=NOON, now=NOON + timedelta(days=9999)) is None
    assert find_next_due(ResetPolicy(), last_active=NOON) is None


def test_an_idle_lane_is_due_strictly_after_the_deadline() -> None:
    assert find_due_reason(IDLE, last_active=NOON, now=NOON + HOUR) is None
    assert find_due_reason(IDLE, last_active=NOON, now=NOON + HOUR + TICK) is ResetReason.IDLE


def test_a_daily_reset_comes_at_the_hour_itself() -> None:
    policy = daily("UTC", 4)
    morning = utc("2024-05-02T04:00")
    assert find_due_reason(policy, last_active=NOON, now=morning - TICK) is None
    assert find_due_reason(policy, last_active=NOON, now=morning) is ResetReason.DAILY
    assert find_due_reason(policy, last_active=morning, now=morning + timedelta(hours=23)) is None


def test_a_daily_reset_that_was_slept_through_is_still_due() -> None:
    assert (
        find_due_reason(daily("UTC", 4), last_active=NOON, now=NOON + timedelta(days=30)) is ResetReason.DAILY
    )


def test_of_two_reasons_the_first_is_told() -> None:
    both = ResetPolicy(mode=ResetMode.BOTH, idle=timedelta(hours=20), hour=4)
    later = NOON + timedelta(days=3)
    assert find_due_reason(both, last_active=NOON, now=later) is ResetReason.DAILY
    assert find_due_reason(both, last_active=utc("2024-05-02T05:00"), now=later) is ResetReason.IDLE


@pytest.mark.parametrize("mode", ResetMode)
def test_a_clock_that_jumps_back_makes_nothing_due(mode: ResetMode) -> None:
    policy = ResetPolicy(mode=mode, idle=HOUR)
    assert find_due_reason(policy, last_active=NOON, now=NOON - timedelta(days=3)) is None


@pytest.mark.parametrize(
    ("zone", "hour", "last_active", "expected"),
    [
        ("Europe/Berlin", 2, "2024-03-30T20:00", "2024-03-31 03:00+02:00"),
        ("Europe/Berlin", 2, "2024-10-26T20:00", "2024-10-27 02:00+02:00"),
        ("Europe/Berlin", 2, "2024-10-27T00:00", "2024-10-28 02:00+01:00"),
        ("Australia/Lord_Howe", 2, "2024-10-05T10:00", "2024-10-06 02:30+11:00"),
        ("Australia/Lord_Howe", 2, "2024-04-06T15:05", "2024-04-07 02:00+10:30"),
        ("America/Sao_Paulo", 0, "2018-11-03T12:00", "2018-11-04 01:00-02:00"),
        ("America/Sao_Paulo", 23, "2018-02-17T12:00", "2018-02-17 23:00-02:00"),
        ("America/Sao_Paulo", 23, "2018-02-18T01:00", "2018-02-18 23:00-03:00"),
        ("Pacific/Apia", 4, "2011-12-29T15:00", "2011-12-31 04:00+14:00"),
        ("Pacific/Apia", 0, "2011-12-29T12:00", "2011-12-31 00:00+14:00"),
        ("America/St_Johns", 1, "2007-03-10T20:00", "2007-03-11 01:01-02:30"),
        ("America/St_Johns", 0, "2007-11-04T02:30", "2007-11-05 00:00-03:30"),
        ("America/Nuuk", 23, "2024-03-30T12:00", "2024-03-31 00:00-01:00"),
        ("America/Scoresbysund", 23, "2025-03-29T12:00", "2025-03-30 00:00-01:00"),
    ],
)
def test_the_daily_reset_is_right_over_changes_of_the_clock(
    zone: str, hour: int, last_active: str, expected: str
) -> None:
    assert local(find_next_due(daily(zone, hour), last_active=utc(last_active)), zone) == expected


def test_a_lane_with_work_in_the_background_waits_for_it() -> None:
    later = NOON + timedelta(hours=20)
    assert find_due_reason(IDLE, last_active=NOON, now=later, busy_since=NOON) is None


def test_work_that_is_too_old_does_not_hold_a_lane() -> None:
    limit = timedelta(hours=5)
    deadline = NOON + limit
    assert find_due_reason(IDLE, last_active=NOON, now=deadline, busy_since=NOON, busy_limit=limit) is None
    overdue = find_due_reason(IDLE, last_active=NOON, now=deadline + TICK, busy_since=NOON, busy_limit=limit)
    assert overdue is ResetReason.IDLE


@pytest.mark.parametrize("hour", [-1, 24])
def test_an_impossible_hour_is_refused(hour: int) -> None:
    with pytest.raises(Invalid, match="an hour of the day"):
        ResetPolicy(hour=hour)


@pytest.mark.parametrize("idle", [timedelta(0), -HOUR, timedelta.max])
def test_an_impossible_idle_time_is_refused(idle: timedelta) -> None:
    with pytest.raises(Invalid, match="idle: give a time above zero"):
        ResetPolicy(idle=idle)


@pytest.mark.parametrize(
    "zone",
    ["", "Berlin", "America", "../etc/passwd", "/etc/localtime", "a\x00b", "\ud800", "x" * 300, "zone.tab"],
)
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(Invalid, match="not a known time zone"):
        ResetPolicy(zone=zone)


def test_the_most_specific_policy_wins() -> None:
    default, kind, platform, place = (ResetPolicy(hour=hour) for hour in (1, 2, 3, 4))
    resets = ResetPolicies(
        default=default,
        chat_types={ChatType.GROUP: kind},
        platforms={"slack": platform},
        places={"slack": {ChatType.DM: place}},
    )
    assert resets.for_source("telegram", ChatType.DM) == default
    assert resets.for_source("telegram", ChatType.GROUP) == kind
    assert resets.for_source("slack", ChatType.GROUP) == platform
    assert resets.for_source("slack", ChatType.DM) == place


def test_an_override_may_switch_resets_off() -> None:
    resets = ResetPolicies(default=IDLE, platforms={"cli": ResetPolicy()})
    assert resets.for_source("cli", ChatType.DM).mode is ResetMode.NONE


def test_overrides_are_checked_when_they_are_read() -> None:
    read = codec.loads('{"places":{"slack":{"dm":{"mode":"both","idle":"PT30M"}}}}', ResetPolicies)
    assert read.for_source("slack", ChatType.DM).idle == timedelta(minutes=30)
    with pytest.raises(Invalid, match="<= 23"):
        codec.loads('{"places":{"slack":{"dm":{"hour":24}}}}', ResetPolicies)
    with pytest.raises(Invalid, match="Invalid enum value 'room'"):
        codec.loads('{"chat_types":{"room":{}}}', ResetPolicies)
    with pytest.raises(Invalid, match="unknown field `minutes`"):
        codec.loads('{"default":{"minutes":30}}', ResetPolicies)
