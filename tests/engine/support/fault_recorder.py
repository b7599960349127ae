"""FaultRecorder: a database that records its rows before and after a write that a fault hits."""

import asyncio
from typing import TypeVar

from tests.engine.world import SECONDS

from keryx.store.db import Database, Engine, Transaction, Work
from keryx.testing import CrashingDatabase, DatabaseFault, FaultTiming

T = TypeVar("T")
Rows = dict[str, list[str]]

# After this many iterations of the event loop without a read or write, all tasks count as waiting.
_CALM = 20
_TABLES = {
    Engine.SQLITE: "select name from sqlite_schema where type = 'table' and name not like 'sqlite_%'",
    Engine.POSTGRES: "select table_name from information_schema.tables where table_schema = current_schema()",
}


def rows(tx: Transaction) -> Rows:
    """Return every row of every table."""
    return {
        table: sorted(repr(tuple(row)) for row in tx.rows(f"select * from {table}"))
        for (table,) in tx.rows(_TABLES[tx.engine])
    }


def changed(before: Rows, after: Rows) -> set[str]:
    """Return the tables that differ."""
    return {table for table in before if before[table] != after[table]}


class FaultRecorder(CrashingDatabase):
    """Runs writes one by one. After the one that a fault hits, all others wait until `look` is called. `before` and
    `after` are the rows before this write and at its end."""

    def __init__(self, inner: Database) -> None:
        super().__init__(inner)
        self._label = ""
        self._one = asyncio.Lock()
        self._under_way = 0
        self.before: Rows = {}
        self.after: Rows = {}

    def strike(self, label: str, when: FaultTiming, *, sticky: bool = False) -> DatabaseFault:
        """Make the next write with a label fail, or with `sticky` all of them until the fault is cleared."""
        fault = DatabaseFault(label, when, sticky=sticky)
        self._label, self.faults = label, [fault]
        return fault

    async def look(self) -> Rows:
        """Return the rows after the write that was hit, and let other writes go on."""
        try:
            return await self._inner.read("rows", rows)
        finally:
            self._one.release()

    async def quiet(self) -> None:
        """Wait until no read or write is running, so that every task waits for time or for an event."""
        calm = 0
        while calm < _CALM:
            await asyncio.sleep(0.001 if self._under_way else 0)
            calm = 0 if self._under_way else calm + 1

    async def write(self, label: str, work: Work[T], *, key: str = "") -> T:
        async with asyncio.timeout(SECONDS):
            await self._one.acquire()
        struck = label == self._label and not self.faults[0].hits
        self._under_way += 1
        try:
            seen = await self._watched(work) if struck else work
            return await super().write(label, seen, key=key)
        finally:
            self._under_way -= 1
            if not struck:
                self._one.release()

    async def read(self, label: str, work: Work[T]) -> T:
        self._under_way += 1
        try:
            return await super().read(label, work)
        finally:
            self._under_way -= 1

    async def _watched(self, work: Work[T]) -> Work[T]:
        self.before = await self._inner.read("rows", rows)

        def watched(tx: Transaction) -> T:
            result = work(tx)
            self.after = rows(tx)
            return result

        return watched
