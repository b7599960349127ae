"""A node whose model calls tools is killed with -9 again and again."""

from pathlib import Path

import pytest
from tests.faults import brain_storm


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_a_few_kills_leave_no_invalid_history_and_run_nothing_twice(tmp_path: Path) -> None:
    verdict = brain_storm.run(tmp_path, 5, seed=12, between=(0.5, 3.0))
    assert verdict.clean, verdict.table()
    assert verdict.figures["tool calls"] > 5
