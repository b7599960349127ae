"""Keryx on Feishu is killed with -9 while messages stream in; then every chat is read as a person would."""

from pathlib import Path

import pytest
from tests.faults import feishu_storm


@pytest.mark.timeout(300)
def test_ten_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    report = feishu_storm.run(tmp_path, 10, seed=11, between=(0.05, 1.2))
    assert report.clean, report.table()
    assert report.said > 50
    assert not report.marked, report.table()
