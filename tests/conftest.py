"""Fixtures of the whole suite: both databases, a clock, and coroutine tests without a mark on each."""

import inspect
import os
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import LiteralString, cast

import psycopg
import pytest
from hypothesis import settings
from tests import left_out
from tests.builders import Store
from tests.postgres import ENVIRONMENT, Server, Unstartable, own_database

from keryx.store.db.database import Database, Engine
from keryx.store.db.postgres import PostgresDatabase
from keryx.store.db.sqlite import SqliteDatabase
from keryx.testing import FakeClock

# A landing must not hang on luck: with CI set, the same examples are tried every time.
settings.register_profile("keryx", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("keryx")

# A suite that runs in the background is deaf to Ctrl-C, and so would be every process that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

Open = Callable[[], Awaitable[Database]]


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> None:
    """Every coroutine test runs on the event loop of anyio's plugin."""
    if collector.istestfunction(obj, name) and inspect.iscoroutinefunction(obj):
        pytest.mark.usefixtures("anyio_backend")(obj)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each group of tests that could not run here, where it cannot be overlooked."""
    lines = left_out.summarize(terminalreporter.stats.get("skipped", []))
    if not lines:
        return
    terminalreporter.section("TESTS LEFT OUT ON THIS MACHINE", sep="!", red=True, bold=True)
    for line in lines:
        terminalreporter.line(line, red=True)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL that runs for the whole session, started when first asked for."""
    if given := os.environ.get(ENVIRONMENT):
        yield given
        return
    try:
        server = Server()
    except Unstartable as exc:
        left_out.skip("tests on PostgreSQL", why=str(exc), command=left_out.POSTGRES)
    try:
        server.start()
        yield server.dsn
    finally:
        server.remove()


@pytest.fixture
def own_postgres(postgres: str) -> Iterator[str]:
    """The address of an empty database that is the test's own, for processes that are told nothing but an address."""
    with own_database(postgres) as address:
        yield address


@pytest.fixture
def schema(postgres: str) -> Iterator[str]:
    """The name of a schema that is the test's own, and is dropped after it."""
    name = f"test_{secrets.token_hex(6)}"
    yield name
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(cast(LiteralString, f'drop schema if exists "{name}" cascade'))


@pytest.fixture(params=list(Engine), ids=str)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


@pytest.fixture
async def opener(
    engine: Engine, tmp_path: Path, clock: FakeClock, request: pytest.FixtureRequest
) -> AsyncIterator[Open]:
    """Opens the store of the test, any number of times: each call is another node on the same data."""

    def make() -> SqliteDatabase | PostgresDatabase:
        if engine is Engine.SQLITE:
            return SqliteDatabase(tmp_path / "keryx.db", clock=clock)
        return PostgresDatabase(
            request.getfixturevalue("postgres"),
            clock=clock,
            schema=request.getfixturevalue("schema"),
            connections=6,
        )

    async def opened() -> Database:
        return await stack.enter_async_context(make())

    async with AsyncExitStack() as stack:
        yield opened


@pytest.fixture
async def database(opener: Open) -> Database:
    """An open, empty store, once on SQLite and once on PostgreSQL."""
    return await opener()


@pytest.fixture
def store(database: Database) -> Store:
    """The same store, with store functions called one transaction each."""
    return Store(database)
