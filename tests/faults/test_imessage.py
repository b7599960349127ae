"""Keryx on iMessage is killed with -9 while messages stream in; then every chat is read as a person would."""

from pathlib import Path

import pytest
from tests.faults.imessage_storm import RUNS


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("transport", sorted(RUNS))
def test_ten_kills_lose_nothing_and_double_nothing(transport: str, tmp_path: Path) -> None:
    report = RUNS[transport](tmp_path, 10, seed=11, between=(0.05, 1.2))
    assert report.clean, report.table()
    assert report.said > 50
