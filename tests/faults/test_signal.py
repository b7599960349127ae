"""The storm over the real Signal adapter, a short one."""

from pathlib import Path

import pytest
from tests.faults import signal_storm


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_signal_under_kill_nine_loses_doubles_and_swaps_nothing(tmp_path: Path) -> None:
    report = signal_storm.run(tmp_path, 12, seed=9, between=(0.3, 1.5))
    assert report.clean, report.table()
    assert report.said > 50
