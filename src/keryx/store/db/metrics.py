"""A database wrapper that counts and times units of work by label, and knows whether the store takes writes."""

import asyncio
import errno
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from keryx.core.clock import Clock
from keryx.core.errors import DiskFull, StoreBroken, Unavailable
from keryx.core.texts import Catalogue
from keryx.store.db import Database, Engine, Transaction, Work

T = TypeVar("T")
_PROBE_LABEL = "ready"
# A probe that succeeded counts for so long, however often it is asked for.
_PROBE_SECONDS = 2.0
# The room that a message and its answer need.
_PROBE_BYTES = 1 << 18
# A write that found the disk full is believed for so long, unless one of the same kind succeeds.
_FULL_SECONDS = 20.0
_FULL = "the disk of the store is full: free some space, Keryx goes on by itself"
# Rows that do not fit into the pages that a table has.
_NEED_ROOM = """
insert into cursors (name, value, moved_at)
select 'probe ' || n, repeat(md5(cast(random() as text)), 60), 0 from generate_series(1, 100) n
"""
# The tables that a message and its answer need.
_PROBED_TABLES = "inbox, lanes, sessions, epochs, messages, turns, pieces, finals, deliveries, receipts, changes, cursors, workers"


class UnitMeter:
    """Totals of one label."""

    __slots__ = ("errors", "seconds", "units")

    def __init__(self) -> None:
        self.units = 0
        self.errors = 0
        self.seconds = 0.0


class _UndoError(Exception):
    """Rolls a transaction back."""


class MeteredDatabase:
    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.engine = inner.engine
        self.wake = inner.wake
        self.meters: dict[str, UnitMeter] = defaultdict(UnitMeter)
        self._probe_lock = asyncio.Lock()
        # When the last probe that succeeded began, by the monotonic clock.
        self._probed_at = -math.inf
        # The writes that found the disk full, by label, and when. A smaller one may still find room.
        self._full_at: dict[str, float] = {}

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

    async def write(self, label: str, work: Work[T], *, key: str = "") -> T:
        try:
            result = await self._measure(label, lambda: self._inner.write(label, work, key=key))
        except Unavailable as exc:
            self._probed_at = -math.inf
            if isinstance(exc, DiskFull):
                self._full_at[label] = time.monotonic()
            raise
        if self._full_at:
            self._full_at.pop(label, None)
        return result

    async def check_writable(self) -> None:
        """Raise `Unavailable` if the store does not take a write that changes nothing, or has found its disk full just now.
        Callers at the same time share one."""
        async with self._probe_lock:
            now = time.monotonic()
            if any(now - at < _FULL_SECONDS for at in self._full_at.values()):
                raise DiskFull(_FULL)
            if now - self._probed_at > _PROBE_SECONDS:
                await self.write(_PROBE_LABEL, probe_write)
                self._probed_at = now

    async def rehearse_write(self) -> None:
        """Raise `Unavailable` if the store does not take the write of `check_writable`. It is rolled back."""

        def write_and_undo(tx: Transaction) -> None:
            probe_write(tx)
            if tx.engine is Engine.POSTGRES:
                tx.count(_NEED_ROOM)
            raise _UndoError

        with suppress(_UndoError):
            await self.write(_PROBE_LABEL, write_and_undo)

    async def read(self, label: str, work: Work[T]) -> T:
        return await self._measure(label, lambda: self._inner.read(label, work))

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)

    async def _measure(self, label: str, ask: Callable[[], Awaitable[T]]) -> T:
        meter = self.meters[label]
        started = time.monotonic()
        try:
            return await ask()
        except Exception:
            meter.errors += 1
            raise
        finally:
            meter.units += 1
            meter.seconds += time.monotonic() - started


def probe_write(tx: Transaction) -> None:
    """Write a row as it is, after a look at what else a message needs: its tables, and on SQLite room on the disk for more
    than one page. On PostgreSQL another session may have locked the tables, or the rights to write to them may be missing."""
    if tx.engine is Engine.SQLITE:
        row = tx.row("pragma database_list")
        assert row is not None
        _check_room(Path(row[2]).parent)
        tx.row(f"select 1 from {_PROBED_TABLES} limit 0")
    else:
        tx.run("set local lock_timeout = '3s'")
        tx.run(f"lock table {_PROBED_TABLES} in row exclusive mode")
    tx.count("update migrations set name = name where number = 1")


def _check_room(folder: Path) -> None:
    """Raise `DiskFull` if a file in the folder cannot grow by what a message needs."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(_PROBE_BYTES))
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DiskFull(_FULL) from exc
        raise StoreBroken(
            f"{folder} cannot be written ({exc.strerror}): check its rights and the disk"
        ) from exc
