"""The PostgreSQL database: pooled connections in threads, row locks, and retries of lost races."""

import asyncio
import errno
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
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
    DESCRIPTORS_EXHAUSTED,
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
from keryx.store.db.session_keys import SessionKeys
from keryx.store.db.threads import ThreadPool
from keryx.timing import SystemClock, WakeSignal

T = TypeVar("T")
log = logging.getLogger(__name__)

CONNECTIONS = 10
# Threads for units that may be done together, and how many of them are at once.
BATCH_THREADS, BATCH_SIZE = 4, 16
MAX_RACES = 12
# How often a unit is begun whose connection is lost.
MAX_LOST = 3
_RACE_BACKOFF = Backoff(first=timedelta(milliseconds=1), longest=timedelta(milliseconds=128), jitter=1)
CHANNEL = "keryx"
# The server lets go of what a node holds that it no longer hears from, so that another one can take over.
_IDLE_TIMEOUT_OPTION = "-c idle_in_transaction_session_timeout=5s"
# Shorter than the deadline of a statement: a session that waits for a lock does not notice that nobody waits for it, and
# each new attempt would leave one more behind.
_LOCK_TIMEOUT_OPTION = "-c lock_timeout=10s"
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
# A connection that is lost, or cannot be made, carries no code, or one of a server that is ending.
_LOST_STATES = (None, "57P01", "57P02", "57P03")
# What the server says to a connection that it does not take, and what to do. There are only its words to go by.
_REFUSALS = (
    (re.compile(r'role "[^"]*" does not exist'), "make the role, or name another one in KERYX_DATABASE"),
    (
        re.compile(r"does not exist"),
        "make the database (`createdb`), or name another one in KERYX_DATABASE",
    ),
    (
        re.compile(r"not permitted to log in"),
        "allow it with `alter role … login`, or name another role in KERYX_DATABASE",
    ),
    (
        re.compile(r"permission denied for database"),
        "allow it with `grant connect on database … to …`, or name another role in KERYX_DATABASE",
    ),
    (re.compile(r"pg_hba\.conf"), "add a line for this machine, role and database to its pg_hba.conf"),
    (
        re.compile(r"authentication failed|no password supplied"),
        "check the role and the password in KERYX_DATABASE",
    ),
)
_CROWDED = re.compile(r"too many clients|too many connections|connection slots are reserved")
_STARTING = re.compile(r"starting up|shutting down|recovery mode|not (yet |currently )?accepting connections")


class _LostBeforeCommit(Exception):
    """The connection was lost before the end of the transaction was sent, so nothing of it is stored."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error


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
        keys: SessionKeys | None = None,
        *,
        begin: bytes = b"begin",
    ) -> None:
        self.now = now
        self.texts = texts
        self.keys = keys or SessionKeys(None, raw=True)
        self.keys.refresh()
        self._pipeline = pipeline.get_pipeline(connection)
        self._pipeline.begin(begin)
        self.noted = False

    def run(self, sql: str, params: Params = NO_PARAMS) -> None:
        self._pipeline.queue(sql, params)

    def count(self, sql: str, params: Params = NO_PARAMS) -> int:
        return self._pipeline.execute(sql, params).count

    def rows(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        found = self._pipeline.execute(sql, params).rows()
        return self.keys.unseal_rows(found) if self.keys.in_use else found

    def row(self, sql: str, params: Params = NO_PARAMS) -> Row | None:
        found = self._pipeline.execute(sql, params).rows(0, 1)
        if not found:
            return None
        return self.keys.unseal_rows(found)[0] if self.keys.in_use else found[0]

    def batches(self, sql: str, params: Params, size: int) -> Iterator[list[Row]]:
        found, first = self._pipeline.execute(sql, params), 0
        while batch := found.rows(first, first + size):
            yield self.keys.unseal_rows(batch) if self.keys.in_use else batch
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
        # The operator names a folder that all nodes share.
        self.keys = SessionKeys(None)
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
                # Refuse a connection that lost the name by which the readers of the feed know a writer.
                name = connection.info.parameter_status("application_name") or ""
                if not name.startswith(SESSION_NAME):
                    raise StoreBroken(
                        f"PostgreSQL knows this session as {name!r}, not as {SESSION_NAME!r}: something between Keryx and the server"
                        " drops application_name; connect directly, or let it pass"
                    )
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
            timeout=self._deadline,
            open=True,
        )

    def _migrate(self, connection: psycopg.Connection[Any]) -> None:
        # Another node may migrate for long.
        connection.execute("set local lock_timeout = 0")
        connection.execute("select pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
        connection.execute("set local lock_timeout to default")
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
            "options": f"{_IDLE_TIMEOUT_OPTION} {_LOCK_TIMEOUT_OPTION} {said.get('options', '')} {path}".strip(),
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
        except (*_RACE_ERRORS, _LostBeforeCommit):
            return False
        except _CONNECTION_ERRORS as exc:
            # It may have been committed, so only the caller can decide to run it again.
            for unit in units:
                unit.error = self._translate_error(exc)
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
                return self._run_until_sent(label, partial(self._transact, label, work))
            except _RACE_ERRORS as exc:
                log.debug("lost a race in %s: %s", label, exc)
                time.sleep(_RACE_BACKOFF.seconds(race + 1))
            except psycopg.Error as exc:
                raise self._translate_error(exc) from exc
        raise Conflict(
            f"{label} lost {MAX_RACES} races in a row: too many writers want the same rows; try again"
        )

    def _run_until_sent(self, label: str, attempt: Callable[[], T]) -> T:
        """Return what the attempt does. It is repeated if its connection is lost before the commit, but not once it has taken
        the time of a statement. A commit without an answer may have happened, so only the caller can decide."""
        until = time.monotonic() + self._deadline
        attempts = 1
        while True:
            try:
                return attempt()
            except _LostBeforeCommit as exc:
                lost = exc.error
            # Raised outside of the block above: else each error would be the context of the other.
            if attempts == MAX_LOST or time.monotonic() > until:
                raise lost
            log.info("%s is run again, as its connection was lost: %s", label, lost)
            attempts += 1

    def _transact(self, label: str, work: Work[T]) -> T:
        started = time.monotonic()
        with self._lend_connection(label) as connection:
            try:
                tx = PostgresTransaction(connection, self.clock.now(), self.texts, self.keys)
                result = work(tx)
                tx.commit()
            except (psycopg.OperationalError, psycopg.InterfaceError) as exc:
                if connection.statements.commit_sent or exc.sqlstate not in _LOST_STATES:
                    raise
                raise _LostBeforeCommit(exc) from exc
        if tx.noted:
            self._notifier.notify()
        report_slow(label, started)
        return result

    @contextmanager
    def _lend_connection(self, label: str) -> Generator[pipeline.PipelineConnection]:
        """Lend a connection of the pool. Those that have ended or may be silent are closed first, and the pool makes others."""
        while (connection := self._pool.getconn()).has_ended():
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
            return self._run_until_sent(label, partial(self._read_once, label, work))
        except psycopg.Error as exc:
            raise self._translate_error(exc) from exc
        finally:
            report_slow(label, started)

    def _read_once(self, label: str, work: Work[T]) -> T:
        with self._lend_connection(label) as connection:
            try:
                tx = PostgresTransaction(
                    connection, self.clock.now(), self.texts, self.keys, begin=_BEGIN_READ
                )
                result = work(tx)
                tx.commit()
                return result
            except (psycopg.OperationalError, psycopg.InterfaceError) as exc:
                if exc.sqlstate not in _LOST_STATES:
                    raise
                raise _LostBeforeCommit(exc) from exc

    def _translate_error(self, exc: psycopg.Error) -> KeryxError:
        """Translate an error. The pool does not tell why it has no connection, but the thread that notifies knows."""
        pooled = isinstance(exc, psycopg_pool.PoolTimeout)
        return translate_error(self._notifier.trouble or exc if pooled else exc)


def translate_error(exc: Exception) -> KeryxError:
    """Translate every error of PostgreSQL that leaves the store."""
    match exc:
        case psycopg_pool.PoolTimeout():
            return Retryable(
                "no connection to PostgreSQL came free in time: check that it runs, and what its sessions wait for"
                " (pg_stat_activity); Keryx goes on by itself"
            )
        case pg.ProgramLimitExceeded():
            return Invalid(f"PostgreSQL cannot hold this ({_first_line(exc)}): shorten it")
        case pg.DiskFull():
            return DiskFull("the disk of PostgreSQL is full: free some space, Keryx goes on by itself")
        case pg.LockNotAvailable():
            return Retryable(
                "another session of PostgreSQL keeps what Keryx needs locked: find it in pg_locks and pg_stat_activity, and"
                " end it (pg_terminate_backend); Keryx goes on by itself"
            )
        case pg.InsufficientPrivilege() | pg.InvalidSchemaName():
            return StoreBroken(
                f"PostgreSQL denies it to the role of Keryx ({_first_line(exc)}): make the role the owner of the tables and"
                " their schema, or grant it all rights on them"
            )
        case pg.ReadOnlySqlTransaction():
            return StoreBroken(
                f"PostgreSQL takes no writes ({_first_line(exc)}), as a standby does: name the primary in KERYX_DATABASE, or"
                " all servers with target_session_attrs=read-write"
            )
        case psycopg.OperationalError() if exc.sqlstate in _LOST_STATES:
            return _translate_lost_connection(exc)
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


def _translate_lost_connection(exc: psycopg.OperationalError) -> KeryxError:
    """Translate the error of a connection that is lost or cannot be made."""
    text = str(exc)
    if os.strerror(errno.EMFILE) in text:
        return Retryable(f"PostgreSQL cannot be reached, as {DESCRIPTORS_EXHAUSTED}")
    if _CROWDED.search(text):
        return Retryable(
            f"PostgreSQL has no connection left ({_last_line(exc)}): end other clients, or raise max_connections there;"
            " Keryx goes on by itself"
        )
    if _STARTING.search(text):
        return Retryable(
            f"PostgreSQL is not ready ({_last_line(exc)}): wait, or see its log; Keryx goes on by itself"
        )
    for pattern, remedy in _REFUSALS:
        if pattern.search(text):
            return StoreBroken(f"PostgreSQL refused the connection ({_last_line(exc)}): {remedy}")
    return Retryable(f"the connection to PostgreSQL failed ({_first_line(exc)}): check that it runs")


def _last_line(exc: Exception) -> str:
    """Return what the server said last, after the addresses that were tried."""
    lines = [line for line in str(exc).strip().splitlines() if "FATAL" in line] or [_first_line(exc)]
    return lines[-1].rpartition("FATAL:")[2].strip()


def _first_line(exc: Exception) -> str:
    text = str(exc).strip()
    return text.splitlines()[0] if text else type(exc).__name__


_: type[Transaction] = PostgresTransaction
