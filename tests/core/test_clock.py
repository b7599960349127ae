from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.core.clock import Backoff

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
