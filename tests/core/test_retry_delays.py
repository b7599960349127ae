from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.core.durations import Backoff, parse_retry_after
from keryx.testing import START_TIME

SECOND = timedelta(seconds=1)


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(first=SECOND, longest=30 * SECOND)
    assert [backoff.seconds(n) for n in range(9)] == [1, 1, 2, 4, 8, 16, 30, 30, 30]


@given(st.integers(0, 10**9), st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_a_delay_stays_within_its_jitter(failures: int, jitter: float, chance: float) -> None:
    plain = Backoff(first=SECOND, longest=60 * SECOND).seconds(failures)
    varied = Backoff(first=SECOND, longest=60 * SECOND, jitter=jitter).seconds(
        failures, chance=lambda: chance
    )
    assert varied == pytest.approx(plain, rel=jitter + 1e-9)


@pytest.mark.parametrize(
    ("milliseconds", "seconds", "wait"),
    [
        (None, "7", 7),
        ("250", "7", 0.25),
        ("soon", "7", 7),
        (None, "Sun, 01 Mar 2026 12:00:30 GMT", 30),
        (None, "Sun, 01 Mar 2026 12:00:30 -0000", 30),
        (None, "Sun, 01 Mar 2026 11:00:00 GMT", 0),
        (None, "soon", None),
        (None, "²", None),
        (None, "-3", 0),
        (None, "inf", None),
        (None, None, None),
    ],
)
def test_the_delay_that_a_server_asks_for(
    milliseconds: str | None, seconds: str | None, wait: float | None
) -> None:
    headers = {"retry-after-ms": milliseconds, "retry-after": seconds}
    found = parse_retry_after({name: text for name, text in headers.items() if text}, now=START_TIME)
    assert found == (None if wait is None else timedelta(seconds=wait))
