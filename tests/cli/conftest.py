"""Fixtures of the command line."""

from pathlib import Path

import pytest
from tests.cli.driver import Cli


@pytest.fixture
def keryx(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


@pytest.fixture
def keryx_on_postgres(tmp_path: Path, own_postgres: str) -> Cli:
    return Cli(tmp_path / "home", KERYX_DATABASE=own_postgres)
