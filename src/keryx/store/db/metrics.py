"""A database wrapper that counts and times units of work by label."""

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

from keryx.core.clock import Clock
from keryx.core.texts import Catalogue
from keryx.store.db import Database, Work

T = TypeVar("T")


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
        return await self._measure(label, lambda: self._inner.write(label, work, key=key))

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
