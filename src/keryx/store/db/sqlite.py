# The type stubs of apsw name a type that Python 3.11 does not have.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""The SQLite database: one writer thread with group commit that also detects commits of other processes, and a few reader threads."""

import asyncio
import errno
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import apsw

from keryx.core.clock import Clock
from keryx.core.errors import (
    DESCRIPTORS_EXHAUSTED,
    DiskFull,
    Invalid,
    KeryxError,
    Retryable,
    StoreBroken,
    StoreDamaged,
)
from keryx.core.texts import NO_CHANGES, Catalogue
from keryx.store.db import (
    NO_PARAMS,
    UNSTORABLE_TEXT,
    Engine,
    Params,
    Row,
    Transaction,
    Work,
    check_open,
    migrate,
    report_slow,
)
from keryx.store.db.batching import UnitOfWork
from keryx.store.db.session_keys import FIND_TEMPORARY, SessionKeys
from keryx.store.db.store_files import StoreFiles, check_log, count_opening
from keryx.store.db.threads import ThreadPool
from keryx.timing import SystemClock, WakeSignal

T = TypeVar("T")
log = logging.getLogger(__name__)

APPLICATION_ID = 0x4B657279
MAX_BATCH = 256
READERS = 4
# Every write of another connection empties a reader's cache, so a larger one is memory that no read is faster for.
READER_CACHE_KILOBYTES = 1000
POLL_SECONDS = 0.02
BUSY_MILLISECONDS = 15_000
_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX
# When a commit leaves so many pages in the write-ahead log, they are moved to the file.
_CHECKPOINT_PAGES = 2000
LOST_REMEDY = (
    "a store was here: `keryx restore` brings a backup back; `keryx serve --new-store` puts what is left aside"
    " and begins an empty one"
)
_FSYNC_FAILURES = {apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC}


class SqliteTransaction:
    engine = Engine.SQLITE
    for_update = ""
    skip_locked = ""
    in_ids = "in (select value from json_each(:ids))"
    in_names = "in (select value from json_each(:names))"

    def __init__(
        self,
        connection: apsw.Connection,
        now: datetime,
        texts: Catalogue = NO_CHANGES,
        keys: SessionKeys | None = None,
    ) -> None:
        self.now = now
        self.texts = texts
        self.keys = keys or SessionKeys(None, raw=True)
        self.keys.refresh()
        self._connection = connection
        self._cursor = connection.cursor()
        self.noted = False

    def run(self, sql: str, params: Params = NO_PARAMS) -> None:
        self._execute(sql, params)

    def count(self, sql: str, params: Params = NO_PARAMS) -> int:
        self._execute(sql, params)
        return self._connection.changes()

    def rows(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        found = cast("list[Row]", self._execute(sql, params).fetchall())
        return self.keys.unseal_rows(found) if self.keys.in_use else found

    def row(self, sql: str, params: Params = NO_PARAMS) -> Row | None:
        found = self.rows(sql, params)
        return found[0] if found else None

    def batches(self, sql: str, params: Params, size: int) -> Iterator[list[Row]]:
        found = cast("Iterator[Row]", self._execute(sql, params))
        while batch := list(islice(found, size)):
            yield self.keys.unseal_rows(batch) if self.keys.in_use else batch

    def _execute(self, sql: str, params: Params) -> apsw.Cursor:
        try:
            return self._cursor.execute(sql, params)
        except UnicodeEncodeError as exc:
            raise Invalid(UNSTORABLE_TEXT) from exc


class _ReaderOfThread(threading.local):
    connection: apsw.Connection | None = None


class SqliteDatabase:
    """A store in one file. Any number of processes may use the file at once."""

    engine = Engine.SQLITE

    def __init__(
        self,
        path: Path | str,
        *,
        clock: Clock | None = None,
        fatal: Callable[[str], None] | None = None,
        inspect: bool = False,
    ) -> None:
        """With `inspect` the store is opened as it is: it is not created, migrated or checkpointed."""
        self.path = Path(path)
        self._inspect = inspect
        self.clock: Clock = clock or SystemClock()
        self.texts = NO_CHANGES
        self.keys = SessionKeys(Path(f"{self.path}-keys"))
        self.wake = WakeSignal()
        self._fatal = fatal or _exit_process
        self._units: queue.SimpleQueue[UnitOfWork[Any] | None] = queue.SimpleQueue()
        self._local = _ReaderOfThread()
        self._connections: list[apsw.Connection] = []
        self._closing = threading.Event()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._readers = ThreadPool(READERS, "keryx-read", self._loop)
        opening = inspect_store if self._inspect else open_store
        self._writer = await asyncio.to_thread(opening, self.path, self._fatal)
        # A damaged store can still be looked at.
        with suppress(apsw.Error):
            self.keys.note_sessions(SqliteTransaction(self._writer, self.clock.now()).rows(FIND_TEMPORARY))
        self._files = StoreFiles(self._writer, self.path)
        self._thread = threading.Thread(target=self._run_writer, name="keryx-write", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._units.put(None)
        await asyncio.to_thread(self._close)

    async def write(self, label: str, work: Work[T], *, key: str = "") -> T:
        check_open(self._closing)
        unit = UnitOfWork(label, work, key, self._loop)
        self._units.put(unit)
        return await unit.future

    async def read(self, label: str, work: Work[T]) -> T:
        check_open(self._closing)
        return await self._readers.run(lambda: self._read(label, work))

    def _close(self) -> None:
        self._thread.join()
        self._readers.close()
        for connection in self._connections:
            connection.close()
        try:
            if self._files.find_fault():
                # The pages of the log belong to another file. What was acknowledged was checked before.
                self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            elif not self._inspect:
                checkpoint(self._writer)
        except apsw.Error as exc:
            _exit_on_failed_sync(exc, self.path, self._fatal)
        self._writer.close()

    def _read(self, label: str, work: Work[T]) -> T:
        started = time.monotonic()
        try:
            connection = self._get_reader()
            connection.execute("begin")
            try:
                return work(SqliteTransaction(connection, self.clock.now(), self.texts, self.keys))
            finally:
                if not connection.get_autocommit():
                    connection.execute("rollback")
        except (apsw.Error, MemoryError) as exc:
            raise translate_error(exc) from exc
        finally:
            report_slow(label, started)

    def _get_reader(self) -> apsw.Connection:
        connection = self._local.connection
        if connection is None:
            connection = connect(self.path, create=False)
            connection.execute("pragma query_only = on")
            connection.execute(f"pragma cache_size = -{READER_CACHE_KILOBYTES}")
            self._local.connection = connection
            self._connections.append(connection)
        return connection

    def _run_writer(self) -> None:
        try:
            self._write_until_closed()
        except BaseException as exc:
            # Without it every write would wait forever.
            log.exception("the writer of the store failed")
            self._fatal(f"the writer of {self.path} failed ({type(exc).__name__}). Keryx ends")

    def _write_until_closed(self) -> None:
        version = self._writer.pragma("data_version")
        ending = False
        while not ending:
            batch, ending = self._next_batch()
            if batch:
                noted = self._commit_batch(batch)
                self._loop.call_soon_threadsafe(self._resolve_batch, batch, noted)
            # The version as this connection sees it changes only with commits of others: own ones were told above.
            if not ending and self.wake.has_waiters and version != self._writer.pragma("data_version"):
                version = self._writer.pragma("data_version")
                self._loop.call_soon_threadsafe(self.wake.signal)

    def _next_batch(self) -> tuple[list[UnitOfWork[Any]], bool]:
        """The units that wait, and whether the end is among them. After a short while without any, none."""
        batch: list[UnitOfWork[Any]] = []
        with suppress(queue.Empty):
            unit = self._units.get(timeout=POLL_SECONDS)
            while unit is not None:
                batch.append(unit)
                if len(batch) == MAX_BATCH:
                    return batch, False
                unit = self._units.get_nowait()
            return batch, True
        return batch, False

    def _commit_batch(self, batch: list[UnitOfWork[Any]]) -> bool:
        """Run the units, each in a savepoint, and commit them together. Every unit gets its own outcome."""
        started = time.monotonic()
        noted = False
        try:
            # Before the commit too, which may write to the file, and hides that the log was cut.
            self._check_files()
            self._writer.execute("begin immediate")
            for unit in batch:
                noted = self._run_unit(unit, alone=len(batch) == 1) or noted
            if not self._writer.get_autocommit():
                self._writer.execute("commit")
            self._check_files()
        except StoreBroken as exc:
            for unit in batch:
                unit.error = exc
            return False
        except (apsw.Error, MemoryError) as exc:
            _exit_on_failed_sync(exc, self.path, self._fatal)
            if not self._writer.get_autocommit():
                self._writer.execute("rollback")
            for unit in batch:
                unit.error = translate_error(exc)
            return False
        finally:
            report_slow("+".join(u.label for u in batch[:5]), started)
        return noted

    def _run_unit(self, unit: UnitOfWork[Any], *, alone: bool) -> bool:
        """Run a unit, in a savepoint unless it has the transaction to itself, which then ends with its failure."""
        tx = SqliteTransaction(self._writer, self.clock.now(), self.texts, self.keys)
        error: Exception | None = None
        if not alone:
            self._writer.execute("savepoint unit")
        try:
            unit.result = unit.work(tx)
        except (apsw.Error, MemoryError) as exc:
            # Without memory or room, SQLite rolls the whole transaction back by itself.
            if self._writer.get_autocommit() or _is_failed_sync(exc):
                raise
            error = translate_error(exc)
        except Exception as exc:  # noqa: BLE001 raised in the task that waits
            error = exc
        if error:
            unit.error = error
            self._writer.execute("rollback" if alone else "rollback to unit")
            tx.noted = False
        if not alone:
            self._writer.execute("release unit")
        return tx.noted

    def _check_files(self) -> None:
        """End the process if the store is not the one that was opened: what was committed would be lost, or mixed with
        something else."""
        fault = self._files.find_fault()
        if fault is None:
            return
        self._fatal(f"{fault}. Keryx ends, so that nothing is acknowledged that would be lost")
        raise StoreBroken(fault)

    def _resolve_batch(self, batch: list[UnitOfWork[Any]], noted: bool) -> None:
        for unit in batch:
            unit.resolve()
        if noted:
            self.wake.signal()


def connect(path: Path, *, create: bool = True) -> apsw.Connection:
    # One thread at a time uses a connection, so SQLite need not lock it for every column that is read.
    flags = _FLAGS | apsw.SQLITE_OPEN_CREATE if create else _FLAGS
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=400)
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    # A plan does not depend on the values that are bound. Else half of our statements are compiled anew at every run.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.execute("pragma foreign_keys = on")
    connection.execute("pragma synchronous = full")
    connection.execute("pragma cache_size = -4000")
    connection.execute("pragma temp_store = memory")
    return connection


def enable_wal(connection: apsw.Connection) -> None:
    """Switch a file to write-ahead logging. Retries, because SQLite does not wait while another process does the
    same."""
    until = time.monotonic() + BUSY_MILLISECONDS / 1000
    while connection.pragma("journal_mode") != "wal":
        try:
            connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.005)


def checkpoint_after_commits(connection: apsw.Connection, pages: int) -> None:
    """Checkpoint after each commit that leaves so many pages in the write-ahead log, and let the commit fail if the disk
    refuses to sync. SQLite does it by itself, but ignores that."""

    def checkpoint_if_long(connection: apsw.Connection, name: str, count: int) -> int:
        if count >= pages:
            checkpoint(connection)
        return apsw.SQLITE_OK

    connection.set_wal_hook(checkpoint_if_long)


def checkpoint(connection: apsw.Connection) -> None:
    """Move the pages of the write-ahead log to the file, as far as readers allow. Raise an error only if the disk refuses
    to sync: after any other one, the log still has the pages for the next checkpoint."""
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    except apsw.Error as exc:
        if _is_failed_sync(exc):
            raise
        log.debug("a checkpoint has to wait: %s", exc)


def fsync(path: Path) -> None:
    """Sync a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def has_content(path: Path) -> bool:
    """Whether a file is there and is not empty."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def has_stray_log(path: Path) -> bool:
    """Whether the write-ahead log of a store is there and the store is not: SQLite would delete it at the first use."""
    # The log is looked at first: a process that creates the store writes its file before the log.
    return has_content(path.with_name(f"{path.name}-wal")) and not has_content(path)


def open_store(path: Path, fatal: Callable[[str], None] | None = None) -> apsw.Connection:
    """Open the file for writing, creating and migrating it as needed; refuse what is not ours."""
    _check_file(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection = connect(path)
        checkpoint_after_commits(connection, _CHECKPOINT_PAGES)
        _check_content(connection, path)
        enable_wal(connection)
        connection.execute("begin immediate")
        # Make the names of the files durable before the first commit. SQLite tries the same, but ignores
        # a failure.
        try:
            fsync(path.parent)
        except OSError as exc:
            # Other codes say that the file system cannot sync a folder, or that it may not be opened.
            if exc.errno == errno.EIO:
                _end(f"{path.parent}: {exc.strerror}", fatal or _exit_process)
        try:
            migrate.apply(SqliteTransaction(connection, datetime.now(UTC)))
            connection.pragma("application_id", APPLICATION_ID)
            count_opening(connection)
        except BaseException:
            connection.execute("rollback")
            raise
        connection.execute("commit")
        # The file itself has the number of this opening from now on.
        checkpoint(connection)
    except apsw.Error as exc:
        _exit_on_failed_sync(exc, path, fatal or _exit_process)
        raise translate_error(exc, path) from exc
    except OSError as exc:
        reason = "it is a file" if isinstance(exc, FileExistsError | NotADirectoryError) else exc.strerror
        raise StoreBroken(
            f"{path.parent} cannot be used ({reason}): check its rights, or set KERYX_HOME to a folder you may write"
        ) from exc
    return connection


def inspect_store(path: Path, fatal: Callable[[str], None] | None = None) -> apsw.Connection:
    """Open a file that is there as it is, and leave its log alone at the end. Refuse one that would have to be migrated."""
    _check_file(path)
    try:
        connection = connect(path, create=False)
        _check_content(connection, path)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.wal_autocheckpoint(0)
        migrate.check(SqliteTransaction(connection, datetime.now(UTC)))
    except apsw.Error as exc:
        _exit_on_failed_sync(exc, path, fatal or _exit_process)
        raise translate_error(exc, path) from exc
    return connection


def _check_file(path: Path) -> None:
    """Raise `StoreBroken` for what is not a file, and for a log without its file."""
    if path.exists() and not path.is_file():
        raise StoreBroken(f"{path} is not a file: name one in KERYX_DATABASE, or a folder in KERYX_HOME")
    if has_stray_log(path):
        raise StoreBroken(f"{path} is gone or empty, and its log is there: {LOST_REMEDY}")


def _check_content(connection: apsw.Connection, path: Path) -> None:
    """Raise `StoreBroken` for the file of another program, or with the log of another store, and leave both as they are."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    check_log(connection, path)
    objects = next(connection.execute("select count(*) from sqlite_schema"))[0]
    if objects and connection.pragma("application_id") != APPLICATION_ID:
        connection.close()
        raise StoreBroken(
            f"{path} belongs to another program: move the file away, or set KERYX_HOME elsewhere"
        )
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)


def translate_error(exc: apsw.Error | MemoryError, path: Path | None = None) -> KeryxError:
    """Translate every error of SQLite that leaves the store."""
    where = str(path) if path else "the store"
    match exc:
        case MemoryError() | apsw.NoMemError():
            return Retryable(f"there is no memory left for {where}: try again, or give Keryx more")
        case apsw.BusyError() | apsw.LockedError():
            return Retryable(f"{where} is busy: another process holds it for long; try again")
        case apsw.FullError():
            return DiskFull(f"the disk of {where} is full: free some space, Keryx goes on by itself")
        case apsw.NotADBError():
            return StoreDamaged(
                f"{where} is not a Keryx store: move the file away, or set KERYX_HOME elsewhere"
            )
        case apsw.CorruptError():
            return StoreDamaged(f"{where} is damaged ({exc}): run `keryx verify`, then restore a backup")
        case apsw.CantOpenError() if not _has_free_descriptor():
            return Retryable(f"{where} cannot be opened, as {DESCRIPTORS_EXHAUSTED}")
        case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreBroken(
                f"{where} cannot be opened for writing: check its rights, or set KERYX_HOME elsewhere"
            )
        case apsw.IOError():
            return StoreBroken(
                f"reading or writing {where} failed ({exc}): check the disk and its free space"
            )
        case apsw.SQLError() | apsw.FormatError() | apsw.MismatchError():
            return StoreDamaged(f"{where} refused a statement: {exc}")
        case _:
            return StoreBroken(f"{where} refused a statement: {exc}")


def _has_free_descriptor() -> bool:
    """Return whether this process can open another file. SQLite does not tell why it could not."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as exc:
        return exc.errno not in (errno.EMFILE, errno.ENFILE)
    return True


def _exit_on_failed_sync(exc: Exception, path: Path, fatal: Callable[[str], None]) -> None:
    if _is_failed_sync(exc):
        _end(f"{path}: {exc}", fatal)


def _end(what: str, fatal: Callable[[str], None]) -> None:
    """End the process: after a failed sync the state of the disk is unknown, and the next sync may succeed wrongly."""
    fatal(f"the disk refused to sync {what}. Keryx ends, so that nothing unsafe is acknowledged")


def _is_failed_sync(exc: Exception) -> bool:
    return get_extended_code(exc) in _FSYNC_FAILURES


def get_extended_code(exc: Exception) -> int:
    """Return the extended result code of an error of SQLite, 0 for another error: apsw sets it on its own errors only."""
    return getattr(exc, "extendedresult", 0)


def _exit_process(reason: str) -> None:
    log.critical("%s", reason)
    os.write(2, f"keryx: {reason}\n".encode())
    os._exit(74)


_: type[Transaction] = SqliteTransaction
