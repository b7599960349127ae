"""Witness: a database that sees what a write which is struck by a fault found, and what it left."""

import asyncio
from typing import TypeVar

from tests.engine.world import SECONDS

from keryx.store.db import Database, Engine, Transaction, Work
from keryx.testing import CrashingDatabase, DatabaseFault, FaultTiming

T = TypeVar("T")
Rows = dict[str, list[str]]

# How often everybody who is ready has had a turn before it counts that nobody goes on.
_CALM = 20
_TABLES = {
    Engine.SQLITE: "select name from sqlite_schema where type = 'table' and name not like 'sqlite_%'",
    Engine.POSTGRES: "select table_name from information_schema.tables where table_schema = current_schema()",
}


def rows(tx: Transaction) -> Rows:
    """Every row of every table."""
    return {
        table: sorted(repr(tuple(row)) for row in tx.rows(f"select * from {table}"))
        for (table,) in tx.rows(_TABLES[tx.engine])
    }


def changed(before: Rows, after: Rows) -> set[str]:
    """The tables that differ."""
    return {table for table in before if before[table] != after[table]}


class Witness(CrashingDatabase):
    """Writes come one by one. After the first that is struck all others wait until somebody has looked: `before` is
    the store that this write found, `after` what it made of it."""

    def __init__(self, inner: Database) -> None:
        super().__init__(inner)
        self._label = ""
        self._one = asyncio.Lock()
        self._under_way = 0
        self.before: Rows = {}
        self.after: Rows = {}

    def strike(self, label: str, when: FaultTiming, *, sticky: bool = False) -> DatabaseFault:
        """Let the next write with a label fail, or all of them until the fault is healed."""
        fault = DatabaseFault(label, when, sticky=sticky)
        self._label, self.faults = label, [fault]
        return fault

    async def look(self) -> Rows:
        """The store as the write that was struck has left it."""
        try:
            return await self._inner.read("rows", rows)
        finally:
            self._one.release()

    async def quiet(self) -> None:
        """Wait until nothing is under way: everybody waits for time to pass, or for somebody to say something."""
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
