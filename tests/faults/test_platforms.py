"""Keryx is killed with -9 while messages stream in on a platform; then every chat is read as a person would."""

from pathlib import Path

import pytest
from tests.faults import platform_storm

# Seconds between two kills, where a connection takes long.
BETWEEN = {"email": (0.3, 2.0), "email-saves-sent": (0.3, 2.0), "signal": (0.3, 1.5)}


@pytest.mark.faults
@pytest.mark.parametrize(
    "platform",
    [
        pytest.param(name, marks=pytest.mark.timeout(600 if name == "signal" else 300))
        for name in platform_storm.DURABLE
    ],
)
def test_ten_kills_lose_nothing_and_double_nothing(platform: str, tmp_path: Path) -> None:
    between = BETWEEN.get(platform, (0.05, 1.2))
    report = platform_storm.run(platform, tmp_path, 10, seed=11, between=between)
    assert report.clean, report.table()
    assert report.said > (20 if platform.startswith("email") else 50)
