"""Fixtures of the command line."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString, cast

import psycopg
import pytest
from tests.cli.driver import Cli


@pytest.fixture
def keryx(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")


@pytest.fixture
def keryx_on_postgres(tmp_path: Path, postgres: str) -> Iterator[Cli]:
    name = f"cli_{secrets.token_hex(6)}"
    _administer(postgres, f"create database {name}")
    yield Cli(tmp_path / "home", KERYX_DATABASE=f"{postgres.rpartition('/')[0]}/{name}")
    _administer(postgres, f"drop database {name} with (force)")


def _administer(dsn: str, sql: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(cast(LiteralString, sql))
