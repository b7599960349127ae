"""Keryx is killed with -9 while mails stream in; then every mailbox is read as a person would."""

from pathlib import Path

import pytest
from tests.faults import email_storm

pytestmark = pytest.mark.faults


@pytest.mark.timeout(300)
@pytest.mark.parametrize("saves_sent", [True, False])
def test_ten_kills_lose_nothing_and_double_nothing(tmp_path: Path, saves_sent: bool) -> None:
    report = email_storm.run(tmp_path, 10, seed=11, between=(0.3, 2.0), saves_sent=saves_sent)
    assert report.clean, report.table()
    assert report.said > 20
