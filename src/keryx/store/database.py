"""The seam: what a transaction offers to store functions, and what a database offers to the engine."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from keryx.core.moments import micros, moment
from keryx.store.wake import Wake

T = TypeVar("T")
log = logging.getLogger(__name__)
Row = Sequence[Any]
Params = Mapping[str, Any]

NOTHING: Params = {}
_SLOW_SECONDS = 0.5
# Labels of work that a person asked for and knows to be long: no reason to warn.
_LONG_WORK = frozenset({"backup", "copy", "export", "stats", "verify"})
UNSTORABLE = "this text has characters that a database cannot keep (NUL, half an emoji): remove them"


class Engine(StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgres"


# PostgreSQL never keeps the plan of a statement with this remark: the best one depends on its values.
PLANNED_ANEW = "/* planned anew */"
# How a statement takes many numbers, or many names, as one parameter.
AMONG_IDS = {
    Engine.SQLITE: "in (select value from json_each(:ids))",
    Engine.POSTGRES: "in (select cast(value as bigint) from json_array_elements_text(cast(:ids as json)))",
}
AMONG_NAMES = {
    Engine.SQLITE: "in (select value from json_each(:names))",
    Engine.POSTGRES: "in (select value from json_array_elements_text(cast(:names as json)))",
}


class Transaction(Protocol):
    """One transaction. SQL uses `:name` parameters on both engines.

    `for_update` is the clause that locks the selected rows, and `skip_locked` the one that passes over
    rows locked by others; both are empty where there is one writer anyway."""

    engine: Engine
    for_update: str
    skip_locked: str
    noted: bool

    def run(self, sql: str, params: Params = NOTHING) -> None:
        """Execute, at the latest with the next statement, which may be the one that fails then."""
        ...

    def count(self, sql: str, params: Params = NOTHING) -> int:
        """Execute; gives the number of rows changed."""
        ...

    def rows(self, sql: str, params: Params = NOTHING) -> list[Row]: ...

    def row(self, sql: str, params: Params = NOTHING) -> Row | None: ...

    def batches(self, sql: str, params: Params, size: int) -> Iterator[list[Row]]:
        """Rows a few at a time, so that many never stand in memory at once. To be read to the end before anything else
        is executed."""
        ...


Work = Callable[[Transaction], T]


class Database(Protocol):
    """Runs units of work, each in its own transaction, in the database's threads.

    `write` returns after the commit is durable. A unit that raises changes nothing. `read` sees one
    snapshot. `wake` is signalled after every commit, of any process, that noted a change. Labels name
    units in logs, metrics and fault tests. A unit with a `place` is small, and one of many: those that come at once
    may be committed together, and two of one place never run side by side."""

    engine: Engine
    wake: Wake

    async def write(self, label: str, work: Work[T], *, place: str = "") -> T: ...

    async def read(self, label: str, work: Work[T]) -> T: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def maybe_micros(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def maybe_moment(value: int | None) -> datetime | None:
    return None if value is None else moment(value)


def report_slow(label: str, started: float) -> None:
    """Warn of a unit of work that began at this reading of the monotonic clock and took long."""
    seconds = time.monotonic() - started
    if seconds > _SLOW_SECONDS and label not in _LONG_WORK:
        log.warning("slow transaction %s: %.3f s", label, seconds)
