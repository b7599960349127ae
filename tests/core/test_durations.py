from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.core import durations, schedules, search
from keryx.core.schedules import IntervalRule, OnceRule

SIZES = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("unit", "smhdw")
@pytest.mark.parametrize("text", ["2{}", "2 {}", " 2{} ", "2.0{}"])
def test_settings_and_options_take_a_number_with_a_letter(text: str, unit: str) -> None:
    assert durations.parse(text.format(unit)) == 2 * SIZES[unit]


@pytest.mark.parametrize(
    ("words", "unit"),
    [
        (("m", "min", "mins", "minute", "minutes", "MIN", "Minutes"), "m"),
        (("h", "hour", "hours", "H"), "h"),
        (("d", "day", "days", "Days"), "d"),
        (("w", "week", "weeks", "W"), "w"),
    ],
)
def test_schedules_and_durations_take_the_same_words(words: tuple[str, ...], unit: str) -> None:
    for word in words:
        for text in (f"3{word}", f"3 {word}"):
            assert durations.parse(text) == 3 * SIZES[unit]
            assert schedules.parse(text, zone="UTC", now=NOW).rule == OnceRule(NOW + 3 * SIZES[unit])
            assert schedules.parse(f"in {text}", zone="UTC", now=NOW).rule == OnceRule(NOW + 3 * SIZES[unit])
            assert schedules.parse(f"every {text}", zone="UTC", now=NOW).rule == IntervalRule(
                3 * SIZES[unit], NOW
            )
        assert schedules.parse(f"every {word}", zone="UTC", now=NOW).rule == IntervalRule(SIZES[unit], NOW)


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("5h", timedelta(hours=5)),
        ("5D", timedelta(days=5)),
        ("5w", timedelta(weeks=5)),
        ("5m", timedelta(days=150)),
        ("5min", timedelta(minutes=5)),
        ("9999y", timedelta(days=9999 * 365)),
    ],
)
def test_an_m_alone_is_a_month_in_searches_only(text: str, age: timedelta) -> None:
    assert search.parse(f"after:{text}").filters.after_age == age


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "5 fortnights", "1e3s", "5m5", ".5h", "9" * 30 + "w"])
def test_other_text_is_no_duration(text: str) -> None:
    assert durations.parse(text) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=1.5), "1.5s"),
        (timedelta(seconds=90), "90s"),
        (timedelta(minutes=10), "10m"),
        (timedelta(hours=48), "2d"),
        (timedelta(days=14), "2w"),
        (timedelta(days=365), "365d"),
        (timedelta(seconds=1_234_567), "1234567s"),
    ],
)
def test_the_largest_unit_that_divides_it_is_written(value: timedelta, text: str) -> None:
    assert durations.format_duration(value) == text


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=36_500)))
def test_what_is_written_is_read_back(value: timedelta) -> None:
    assert durations.parse(durations.format_duration(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("90s", "90 seconds"),
        ("2m", "2 minutes"),
        ("90m", "90 minutes"),
        ("2h", "2 hours"),
        ("1d", "24 hours"),
        ("3d", "3 days"),
    ],
)
def test_a_sentence_has_the_largest_unit_that_fits(value: str, text: str) -> None:
    assert durations.describe(durations.parse(value) or timedelta(0)) == text
