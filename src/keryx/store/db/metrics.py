"""A database wrapper that counts and times units of work by label, and knows whether the store takes writes."""

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

from keryx.core.clock import Clock
from keryx.core.errors import Unavailable
from keryx.core.texts import Catalogue
from keryx.store.db import Database, Transaction, Work

T = TypeVar("T")
_PROBE_LABEL = "ready"


class UnitMeter:
    """Totals of one label."""

    __slots__ = ("errors", "seconds", "units")

    def __init__(self) -> None:
        self.units = 0
        self.errors = 0
        self.seconds = 0.0


class MeteredDatabase:
    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.engine = inner.engine
        self.wake = inner.wake
        self.meters: dict[str, UnitMeter] = defaultdict(UnitMeter)
        # Whether the last write failed because of the store: a full disk, a lost connection.
        self._write_failed = False

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
        except Unavailable:
            self._write_failed = True
            raise
        self._write_failed = False
        return result

    async def check_writable(self) -> None:
        """Raise `Unavailable` if the last write failed because of the store, and another one that changes nothing does, too."""
        if self._write_failed:
            await self.write(_PROBE_LABEL, _write_nothing_new)

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


def _write_nothing_new(tx: Transaction) -> None:
    """Write a row as it is, which needs as much of the disk as any other change."""
    tx.run("update migrations set name = name where number = 1")
