"""A database wrapper that counts and times units of work by label, and knows whether the store takes writes."""

import asyncio
import errno
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from keryx.core.errors import DiskFull, StoreBroken, Unavailable
from keryx.store.db import Database, DatabaseWrapper, Engine, Transaction, Work

T = TypeVar("T")
_PROBE_LABEL = "ready"
# A probe that succeeded counts for so long, however often it is asked for.
_PROBE_SECONDS = 2.0
# How long a probe waits for the locks of others on PostgreSQL.
_LOCK_SECONDS = 3.0
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


class MeteredDatabase(DatabaseWrapper):
    def __init__(self, inner: Database, *, lock_seconds: float = _LOCK_SECONDS) -> None:
        super().__init__(inner)
        self._lock_seconds = lock_seconds
        self.meters: dict[str, UnitMeter] = defaultdict(UnitMeter)
        self._probe_lock = asyncio.Lock()
        # When the last probe that succeeded began, by the monotonic clock.
        self._probed_at = -math.inf
        # The writes that found the disk full, by label, and when. A smaller one may still find room.
        self._full_at: dict[str, float] = {}

    async def write(self, label: str, work: Work[T], *, key: str = "") -> T:
        try:
            result = await self._measure(label, super().write(label, work, key=key))
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
                await self.write(_PROBE_LABEL, self._probe_write)
                self._probed_at = now

    async def rehearse_write(self) -> None:
        """Raise `Unavailable` if the store does not take the write of `check_writable`. It is rolled back."""

        def write_and_undo(tx: Transaction) -> None:
            self._probe_write(tx)
            if tx.engine is Engine.POSTGRES:
                tx.count(_NEED_ROOM)
            raise _UndoError

        with suppress(_UndoError):
            await self.write(_PROBE_LABEL, write_and_undo)

    async def read(self, label: str, work: Work[T]) -> T:
        return await self._measure(label, super().read(label, work))

    async def _measure(self, label: str, unit: Awaitable[T]) -> T:
        meter = self.meters[label]
        started = time.monotonic()
        try:
            return await unit
        except Exception:
            meter.errors += 1
            raise
        finally:
            meter.units += 1
            meter.seconds += time.monotonic() - started

    def _probe_write(self, tx: Transaction) -> None:
        """Rewrite a row without a change, after a check of what else a message needs: its tables, and on SQLite room on the disk
        for more than one page. On PostgreSQL another session may have locked the tables, or the rights to write to them may be missing."""
        if tx.engine is Engine.SQLITE:
            row = tx.row("pragma database_list")
            assert row is not None
            # Raise `DiskFull` if a file in the folder cannot grow by what a message needs.
            folder = Path(row[2]).parent
            try:
                with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
                    file.write(bytes(_PROBE_BYTES))
            except OSError as exc:
                if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise DiskFull(_FULL) from exc
                raise StoreBroken(
                    f"{folder} cannot be written ({exc.strerror}): check its rights and the disk"
                ) from exc
            tx.row(f"select 1 from {_PROBED_TABLES} limit 0")
        else:
            tx.run(
                "select set_config('lock_timeout', cast(:milliseconds as text), true)",
                {"milliseconds": str(round(self._lock_seconds * 1000))},
            )
            tx.run(f"lock table {_PROBED_TABLES} in row exclusive mode")
        tx.count("update migrations set name = name where number = 1")
