"""Fixtures of the whole suite: both databases, a clock, and coroutine tests without a mark on each."""

import asyncio
import faulthandler
import gc
import inspect
import os
import secrets
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings
from tests import left_out
from tests.builders import Store
from tests.postgres import ENVIRONMENT, Schemas, Server, Unstartable, drop_schema, own_database

from keryx.store.db import Database, Engine
from keryx.store.db.postgres import PostgresDatabase
from keryx.store.db.sqlite import SqliteDatabase
from keryx.testing import FakeClock

# A landing must not hang on luck: with CI set, the same examples are tried every time.
settings.register_profile("keryx", deadline=None, derandomize=bool(os.environ.get("CI")))
# Chosen by `make faults`.
settings.register_profile("long", deadline=None, max_examples=2000)
settings.load_profile("keryx")

# Without the compiled modules, every process that a test starts would compile all of Keryx.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A suite that runs in the background is deaf to Ctrl-C, and so would be every process that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

Open = Callable[[], Awaitable[Database]]
_STDERR = pytest.StashKey[int]()
_STORE_TESTS = Path(__file__).with_name("store")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> None:
    """Every coroutine test runs on the event loop of anyio's plugin."""
    if collector.istestfunction(obj, name) and inspect.iscoroutinefunction(obj):
        pytest.mark.usefixtures("anyio_backend")(obj)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what uses a store on both engines, or on those that the nearest mark names. Above the store the second run belongs to
    the slow tests, if no mark asks for it: the tests of the store run its statements on both."""
    if "engine" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("engines")
        twice = mark is not None or _STORE_TESTS in metafunc.definition.path.parents
        metafunc.parametrize(
            "engine",
            [
                pytest.param(engine, marks=() if twice or engine is Engine.SQLITE else pytest.mark.slow)
                for engine in (mark.args if mark else Engine)
            ],
            ids=str,
            indirect=True,
        )


def pytest_configure(config: pytest.Config) -> None:
    # Output is not captured now.
    config.stash[_STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_STDERR])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a test with a longer timeout of its own twice as long, too, before its worker is ended."""
    mark = item.get_closest_marker("timeout")
    seconds = 2 * mark.args[0] if mark and mark.args else 0
    if seconds > float(item.config.getini("faulthandler_timeout")):
        faulthandler.dump_traceback_later(seconds, exit=True, file=item.config.stash[_STDERR])


def pytest_collection_finish() -> None:
    """Spare the collector of garbage what was collected here: thousands of tests, which live until the end."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture(scope="session")
def schemas(postgres: str) -> Schemas:
    return Schemas(postgres)


@pytest.fixture
def schema(schemas: Schemas) -> Iterator[str]:
    """The name of a migrated, empty schema that is the test's own while it runs."""
    name = schemas.take()
    yield name
    schemas.give_back(name)


@pytest.fixture
def new_schema(postgres: str) -> Iterator[str]:
    """The name of a schema that is not there yet, and is dropped after the test."""
    name = f"test_{secrets.token_hex(6)}"
    yield name
    with psycopg.connect(postgres, autocommit=True) as connection:
        drop_schema(connection, name)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite store, to be copied: that is quicker than to make one."""
    file = tmp_path_factory.mktemp("migrated") / "keryx.db"

    async def make() -> None:
        async with SqliteDatabase(file):
            pass

    # The thread of the test may have a running event loop.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, make()).result()
    return file


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


@pytest.fixture
def closed(
    engine: Engine, tmp_path: Path, clock: FakeClock, request: pytest.FixtureRequest
) -> Callable[[], SqliteDatabase | PostgresDatabase]:
    """Makes objects for the store of the test, which are not open yet."""
    # The store is made here, before it is opened, so that it is cleared after it was closed.
    if engine is Engine.SQLITE:
        file = shutil.copy(request.getfixturevalue("migrated"), tmp_path / "keryx.db")
        return lambda: SqliteDatabase(file, clock=clock)
    postgres, schema = request.getfixturevalue("postgres"), request.getfixturevalue("schema")
    return lambda: PostgresDatabase(postgres, clock=clock, schema=schema, connections=6)


@pytest.fixture
async def opener(closed: Callable[[], SqliteDatabase | PostgresDatabase]) -> AsyncIterator[Open]:
    """Opens the store of the test, any number of times: each call is another node on the same data."""

    async def opened() -> Database:
        return await stack.enter_async_context(closed())

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
