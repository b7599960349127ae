"""The PostgreSQL database: pooled connections in threads, row locks, and retries of lost races."""

import asyncio
import logging
import re
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, LiteralString, Self, TypeVar, cast

import psycopg
import psycopg_pool
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from keryx.core.clock import Clock
from keryx.core.durations import Backoff
from keryx.core.errors import (
    Conflict,
    DiskFull,
    Invalid,
    KeryxError,
    Retryable,
    StoreBroken,
    StoreDamaged,
    Unavailable,
)
from keryx.core.texts import NO_CHANGES, Catalogue
from keryx.store.db import (
    NO_PARAMS,
    SESSION_NAME,
    SLOW_LABELS,
    Engine,
    Params,
    Row,
    Transaction,
    Work,
    check_open,
    migrate,
    pipeline,
    report_slow,
)
from keryx.store.db.batching import KeyedBatcher, UnitOfWork
from keryx.store.db.deadlines import DeadlineMonitor
from keryx.store.db.notify import Notifier
from keryx.store.db.threads import ThreadPool
from keryx.timing import SystemClock, WakeSignal

T = TypeVar("T")
log = logging.getLogger(__name__)

CONNECTIONS = 10
# Threads for units that may be done together, and how many of them are at once.
BATCH_THREADS, BATCH_SIZE = 4, 16
MAX_RACES = 12
_RACE_BACKOFF = Backoff(first=timedelta(milliseconds=1), longest=timedelta(milliseconds=128), jitter=1)
CHANNEL = "keryx"
# The server lets go of what a node holds that it no longer hears from, so that another one can take over.
_IDLE_TIMEOUT_OPTION = "-c idle_in_transaction_session_timeout=5s"
# A statement that takes longer has met a silent connection, or a lock that somebody keeps. Work that a person knows to be
# long may take much longer.
STATEMENT_SECONDS, LONG_STATEMENT_SECONDS = 20.0, 3600.0
_CONNECTION_OPTIONS = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_BEGIN_READ = b"begin isolation level repeatable read read only"
_MIGRATION_LOCK = 0x6B65727978
_RACE_ERRORS = (pg.SerializationFailure, pg.DeadlockDetected, pg.UniqueViolation)
_CONNECTION_ERRORS = (psycopg.OperationalError, psycopg.InterfaceError, psycopg_pool.PoolTimeout)
# A connection that fails carries no code, only the words of the server.
_REFUSAL_PATTERN = re.compile(r"does not exist|authentication failed|pg_hba\.conf|no password supplied")


class PostgresTransaction:
    engine = Engine.POSTGRES
    # A lock that lets others insert rows referring to a locked one: keys never change.
    for_update = " for no key update"
    skip_locked = " for no key update skip locked"
    in_ids = "in (select cast(value as bigint) from json_array_elements_text(cast(:ids as json)))"
    in_names = "in (select value from json_array_elements_text(cast(:names as json)))"

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        now: datetime,
        texts: Catalogue = NO_CHANGES,
        *,
        begin: bytes = b"begin",
    ) -> None:
        self.now = now
        self.texts = texts
        self._pipeline = pipeline.get_pipeline(connection)
        self._pipeline.begin(begin)
        self.noted = False

    def run(self, sql: str, params: Params = NO_PARAMS) -> None:
        self._pipeline.queue(sql, params)

    def count(self, sql: str, params: Params = NO_PARAMS) -> int:
        return self._pipeline.execute(sql, params).count

    def rows(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        return self._pipeline.execute(sql, params).rows()

    def row(self, sql: str, params: Params = NO_PARAMS) -> Row | None:
        found = self._pipeline.execute(sql, params).rows(0, 1)
        return found[0] if found else None

    def batches(self, sql: str, params: Params, size: int) -> Iterator[list[Row]]:
        found, first = self._pipeline.execute(sql, params), 0
        while batch := found.rows(first, first + size):
            yield batch
            first += size

    def commit(self) -> None:
        self._pipeline.commit()


class PostgresDatabase:
    """A store that several nodes share."""

    engine = Engine.POSTGRES

    def __init__(
        self,
        dsn: str,
        *,
        clock: Clock | None = None,
        schema: str | None = None,
        connections: int = CONNECTIONS,
        deadline: float = STATEMENT_SECONDS,
        inspect: bool = False,
    ) -> None:
        """With `inspect` the store is opened as it is: it is not created or migrated."""
        self._inspect = inspect
        self._deadline = deadline
        self.clock: Clock = clock or SystemClock()
        self.texts = NO_CHANGES
        self.wake = WakeSignal()
        self._dsn = dsn
        self._schema = schema
        self._connections = connections
        self._channel = f"{CHANNEL}_{schema}" if schema else CHANNEL
        self._closing = threading.Event()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPool(self._connections, "keryx-pg", self._loop)
        self._batcher = KeyedBatcher(BATCH_THREADS, BATCH_SIZE, "keryx-batch", self._write_batch, self._loop)
        await asyncio.to_thread(self._open)
        self._notifier = Notifier(
            self._dsn, self._options(), self._channel, self.wake, self._loop, self._monitor
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        await asyncio.to_thread(self._close)

    async def write(self, label: str, work: Work[T], *, key: str = "") -> T:
        check_open(self._closing)
        if key:
            return await self._batcher.run(label, work, key)
        return await self._threads.run(lambda: self._write(label, work))

    async def read(self, label: str, work: Work[T]) -> T:
        check_open(self._closing)
        return await self._threads.run(lambda: self._read(label, work))

    def _open(self) -> None:
        try:
            with psycopg.connect(self._dsn, **self._options()) as connection:
                _check_session_name(connection)
                if self._inspect:
                    migrate.check(PostgresTransaction(connection, datetime.now(UTC)))
                else:
                    self._migrate(connection)
        except psycopg.Error as exc:
            raise translate_error(exc) from exc
        self._monitor = DeadlineMonitor(self._deadline)
        self._pool = psycopg_pool.ConnectionPool(
            self._dsn,
            configure=lambda connection: self._monitor.add(connection.statements.deadline),
            connection_class=pipeline.PipelineConnection,
            kwargs=self._options(),
            min_size=min(2, self._connections),
            max_size=self._connections,
            timeout=20,
            open=True,
        )

    def _migrate(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute("select pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        if self._schema:
            connection.execute(cast(LiteralString, f'create schema if not exists "{self._schema}"'))
        tx = PostgresTransaction(connection, datetime.now(UTC))
        migrate.apply(tx)
        tx.commit()

    def _options(self) -> dict[str, Any]:
        """What is asked of each connection, beside what the address says: that stays as it is."""
        said = conninfo_to_dict(self._dsn)
        path = f"-c search_path={self._schema}" if self._schema else ""
        ours = {name: value for name, value in _CONNECTION_OPTIONS.items() if name not in said}
        name = str(said.get("application_name", ""))
        return {
            "application_name": name if name.startswith(SESSION_NAME) else f"{SESSION_NAME} {name}".strip(),
            "options": f"{_IDLE_TIMEOUT_OPTION} {said.get('options', '')} {path}".strip(),
            **ours,
        }

    def _close(self) -> None:
        self._threads.close()
        self._batcher.close()
        self._notifier.close()
        self._pool.close()
        self._monitor.close()

    def _write_batch(self, units: Sequence[UnitOfWork[Any]]) -> None:
        """Run units in one transaction. If the work of one fails, each gets a transaction of its own."""
        if len(units) > 1 and self._write_together(units):
            return
        for unit in units:
            unit.run(partial(self._write, unit.label, unit.work))

    def _write_together(self, units: Sequence[UnitOfWork[Any]]) -> bool:
        """Run the units in one transaction. Return False if it was rolled back and each must be run alone."""
        try:
            results = self._transact(units[0].label, lambda tx: [unit.work(tx) for unit in units])
        except _RACE_ERRORS:
            return False
        except _CONNECTION_ERRORS as exc:
            # It may have been committed, so only the caller can decide to run it again.
            for unit in units:
                unit.error = translate_error(exc)
            return True
        except Exception as exc:  # noqa: BLE001 the unit that failed does so again, by itself
            log.debug("%d units are run one by one: %s", len(units), exc)
            return False
        for unit, result in zip(units, results, strict=True):
            unit.result = result
        return True

    def _write(self, label: str, work: Work[T]) -> T:
        """Run the unit in a transaction of its own; a race lost to another one is run again."""
        for race in range(MAX_RACES):
            try:
                return self._transact(label, work)
            except _RACE_ERRORS as exc:
                log.debug("lost a race in %s: %s", label, exc)
                time.sleep(_RACE_BACKOFF.seconds(race + 1))
            except (psycopg.Error, psycopg_pool.PoolTimeout) as exc:
                raise translate_error(exc) from exc
        raise Conflict(
            f"{label} lost {MAX_RACES} races in a row: too many writers want the same rows; try again"
        )

    def _transact(self, label: str, work: Work[T]) -> T:
        started = time.monotonic()
        with self._lend_connection(label) as connection:
            tx = PostgresTransaction(connection, self.clock.now(), self.texts)
            result = work(tx)
            tx.commit()
        if tx.noted:
            self._notifier.notify()
        report_slow(label, started)
        return result

    @contextmanager
    def _lend_connection(self, label: str) -> Generator[pipeline.PipelineConnection]:
        """Lend a connection of the pool. Those that may be silent are closed first, and the pool makes others."""
        while (connection := self._pool.getconn()).statements.deadline.suspect:
            connection.close()
            self._pool.putconn(connection)
        seconds = LONG_STATEMENT_SECONDS if label in SLOW_LABELS else self._deadline
        connection.statements.deadline.seconds = seconds
        try:
            with connection:
                yield connection
        finally:
            self._pool.putconn(connection)

    def _read(self, label: str, work: Work[T]) -> T:
        started = time.monotonic()
        try:
            with self._lend_connection(label) as connection:
                tx = PostgresTransaction(connection, self.clock.now(), self.texts, begin=_BEGIN_READ)
                result = work(tx)
                tx.commit()
                return result
        except (psycopg.Error, psycopg_pool.PoolTimeout) as exc:
            raise translate_error(exc) from exc
        finally:
            report_slow(label, started)


def _check_session_name(connection: psycopg.Connection[Any]) -> None:
    """Refuse a connection that lost the name by which the readers of the feed know a writer."""
    name = connection.info.parameter_status("application_name") or ""
    if not name.startswith(SESSION_NAME):
        raise StoreBroken(
            f"PostgreSQL knows this session as {name!r}, not as {SESSION_NAME!r}: something between Keryx and the server"
            " drops application_name; connect directly, or let it pass"
        )


def translate_error(exc: Exception) -> KeryxError:
    """Translate every error of PostgreSQL that leaves the store."""
    match exc:
        case psycopg_pool.PoolTimeout():
            return Retryable("PostgreSQL does not answer: check that it runs; Keryx goes on by itself")
        case pg.ProgramLimitExceeded():
            return Invalid(f"PostgreSQL cannot hold this ({_first_line(exc)}): shorten it")
        case pg.DiskFull():
            return DiskFull("the disk of PostgreSQL is full: free some space, Keryx goes on by itself")
        case psycopg.OperationalError() if exc.sqlstate is None and _REFUSAL_PATTERN.search(str(exc)):
            return StoreBroken(
                f"PostgreSQL refused the connection ({_first_line(exc)}): check KERYX_DATABASE"
            )
        case psycopg.ProgrammingError() if 'missing "="' in str(exc):
            return Invalid(
                "KERYX_DATABASE is not a PostgreSQL address: it looks like postgresql://user@host/name"
            )
        case psycopg.OperationalError() | psycopg.InterfaceError() | pg.IdleInTransactionSessionTimeout():
            return Retryable(f"the connection to PostgreSQL failed ({_first_line(exc)}): check that it runs")
        case pg.IntegrityError():
            return Conflict(f"PostgreSQL refused a change: {_first_line(exc)}")
        case (
            pg.UndefinedTable()
            | pg.UndefinedColumn()
            | pg.DataCorrupted()
            | pg.IndexCorrupted()
            | psycopg.DataError()
        ):
            return StoreDamaged(f"PostgreSQL refused a statement: {_first_line(exc)}")
        case psycopg.Error():
            return StoreBroken(f"PostgreSQL refused a statement: {_first_line(exc)}")
        case _:
            return Unavailable(f"PostgreSQL failed: {_first_line(exc)}")


def _first_line(exc: Exception) -> str:
    text = str(exc).strip()
    return text.splitlines()[0] if text else type(exc).__name__


_: type[Transaction] = PostgresTransaction
