"""Fixtures of the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.driver import Cli
from tests.postgres import own_database


@pytest.fixture
def keryx(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


@pytest.fixture
def keryx_on_postgres(tmp_path: Path, postgres: str) -> Iterator[Cli]:
    with own_database(postgres) as address:
        yield Cli(tmp_path / "home", KERYX_DATABASE=address)
