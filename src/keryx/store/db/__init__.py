"""The seam to the database: what a transaction offers to store functions and what a database offers to the engine, with the wake-up signal and the table sequences."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from keryx.core.clock import Clock, from_micros, to_micros
from keryx.core.errors import StoreDamaged, Unavailable
from keryx.core.texts import Catalogue
from keryx.store.db.session_keys import SessionKeys
from keryx.timing import WakeSignal

T = TypeVar("T")

log = logging.getLogger(__name__)
_SLOW_SECONDS = 0.5
# Labels of work that a person asked for and knows to be long: no reason to warn.
SLOW_LABELS = frozenset({"backup", "copy", "export", "stats", "verify"})
UNSTORABLE_TEXT = "this text has characters that a database cannot keep (NUL, half an emoji): remove them"
# PostgreSQL never keeps the plan of a statement with this remark: the best one depends on its values.
NEVER_PREPARE = "/* planned anew */"
# On PostgreSQL the name of every session of Keryx begins with this. Migration 20 refuses entries of the feed from others.
SESSION_NAME = "keryx"


Row = Sequence[Any]
Params = Mapping[str, Any]

NO_PARAMS: Params = {}


class Engine(StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgres"


class Transaction(Protocol):
    """One transaction. SQL uses `:name` parameters on both engines."""

    engine: Engine
    for_update: str  # clause that locks the selected rows; empty where there is one writer anyway
    skip_locked: str  # clause that locks them and skips rows locked by others; empty like `for_update`
    in_ids: str  # condition `in` a JSON list of numbers, the parameter `ids`
    in_names: str  # condition `in` a JSON list of texts, the parameter `names`
    noted: bool  # whether a change was noted, so that the commit wakes followers
    now: datetime  # the time of this unit of work, UTC
    texts: Catalogue  # the texts for people in this installation
    keys: SessionKeys  # what temporary sessions say is sealed with; rows are opened as they are read

    def run(self, sql: str, params: Params = NO_PARAMS) -> None:
        """Queue the statement; its error surfaces at the next statement at the latest."""
        ...

    def count(self, sql: str, params: Params = NO_PARAMS) -> int:
        """Execute; return the number of rows changed."""
        ...

    def rows(self, sql: str, params: Params = NO_PARAMS) -> list[Row]: ...

    def row(self, sql: str, params: Params = NO_PARAMS) -> Row | None: ...

    def batches(self, sql: str, params: Params, size: int) -> Iterator[list[Row]]:
        """Yield the rows in batches, to bound memory. Read them to the end before the next statement."""
        ...


Work = Callable[[Transaction], T]


class Database(Protocol):
    """Runs units of work, each in its own transaction, in the database's threads.

    `write` returns after the commit is durable. A unit that raises changes nothing. `read` sees one
    snapshot. `wake` is signalled after every commit, of any process, that noted a change. Labels name
    units in logs, metrics and fault tests. A unit with a `key` is small and one of many: concurrent ones may share a
    commit, and two with the same key never run concurrently."""

    engine: Engine
    wake: WakeSignal

    @property
    def clock(self) -> Clock:
        """The clock that transactions take their time from."""
        ...

    @clock.setter
    def clock(self, clock: Clock) -> None: ...

    @property
    def texts(self) -> Catalogue:
        """The texts for people, for transactions."""
        ...

    @texts.setter
    def texts(self, texts: Catalogue) -> None: ...

    @property
    def keys(self) -> SessionKeys:
        """The keys of temporary sessions, for transactions."""
        ...

    @keys.setter
    def keys(self, keys: SessionKeys) -> None: ...

    async def write(self, label: str, work: Work[T], *, key: str = "") -> T: ...

    async def read(self, label: str, work: Work[T]) -> T: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class DatabaseWrapper:
    """Passes everything on to another database. A subclass adds something to `write` and `read`."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.engine = inner.engine
        self.wake = inner.wake

    @property
    def clock(self) -> Clock:
        return self._inner.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._inner.clock = clock

    @property
    def texts(self) -> Catalogue:
        return self._inner.texts

    @texts.setter
    def texts(self, texts: Catalogue) -> None:
        self._inner.texts = texts

    @property
    def keys(self) -> SessionKeys:
        return self._inner.keys

    @keys.setter
    def keys(self, keys: SessionKeys) -> None:
        self._inner.keys = keys

    async def write(self, label: str, work: Work[T], *, key: str = "") -> T:
        return await self._inner.write(label, work, key=key)

    async def read(self, label: str, work: Work[T]) -> T:
        return await self._inner.read(label, work)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)


def maybe_micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def maybe_moment(value: int | None) -> datetime | None:
    return None if value is None else from_micros(value)


def check_open(closing: threading.Event) -> None:
    if closing.is_set():
        raise Unavailable("the store is closed: Keryx is ending")


def report_slow(label: str, started: float) -> None:
    """Warn of a unit of work that began at this reading of the monotonic clock and took long."""
    seconds = time.monotonic() - started
    if seconds > _SLOW_SECONDS and label not in SLOW_LABELS:
        log.warning("slow transaction %s: %.3f s", label, seconds)


def get_last_issued(tx: Transaction, table: str, column: str) -> int:
    """The last number that a table gave out, 0 for none."""
    if tx.engine is Engine.SQLITE:
        row = tx.row("select seq from sqlite_sequence where name = :table", {"table": table})
        return row[0] if row else 0
    row = tx.row("select pg_get_serial_sequence(:table, :column)", {"table": table, "column": column})
    if row is None:
        raise StoreDamaged(f"{table} gives out no numbers: restore a backup")
    row = tx.row(f"select case when is_called then last_value else last_value - 1 end from {row[0]}")
    return row[0] if row else 0


def advance_sequence(tx: Transaction, table: str, column: str, number: int) -> None:
    """Set the sequence of a table so that the next number comes after `number`."""
    values = {"table": table, "number": number}
    if tx.engine is Engine.POSTGRES:
        tx.row(
            "select setval(pg_get_serial_sequence(:table, :column), greatest(:number, 1), :number > 0)",
            {**values, "column": column},
        )
    elif not tx.count("update sqlite_sequence set seq = :number where name = :table", values) and number:
        tx.run("insert into sqlite_sequence (name, seq) values (:table, :number)", values)
