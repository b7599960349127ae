"""Keryx on WhatsApp is killed with -9 while messages stream in; then every chat is read as a person would."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults import whatsapp_storm
from tests.faults.storm import Report


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("run", [whatsapp_storm.run_agent, whatsapp_storm.run_cloud], ids=["agent", "cloud"])
def test_ten_kills_lose_nothing_and_double_nothing(run: Callable[..., Report], tmp_path: Path) -> None:
    report = run(tmp_path, 10, seed=11, between=(0.05, 1.2))
    assert report.clean, report.table()
    assert report.said > 50
