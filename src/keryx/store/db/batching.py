"""Small units of work that arrive together are run in batches by a few threads. Units with the same key never run concurrently."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from keryx.store.db.database import Work
from keryx.store.db.threads import PendingResult

T = TypeVar("T")


class UnitOfWork(PendingResult[T]):
    """A unit of work on its way."""

    __slots__ = ("label", "place", "work")

    def __init__(self, label: str, work: Work[T], place: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.label = label
        self.work = work
        self.place = place


BatchRunner = Callable[[Sequence[UnitOfWork[Any]]], None]
"""Does units, one or several, and gives each its outcome. Must not raise."""


class KeyedBatcher:
    """A place belongs to one thread while something of it waits or runs there. Else the first thread that has nothing to
    do takes it, so that few threads run for few callers."""

    def __init__(
        self, size: int, most: int, name: str, do: BatchRunner, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._size = size
        self._most = most
        self._name = name
        self._do = do
        self._loop = loop
        self._workers: list[_BatchWorker] = []
        self._worker_by_key: dict[str, _BatchWorker] = {}

    async def run(self, label: str, work: Work[T], place: str) -> T:
        """What the unit gives or raises. If the task is cancelled meanwhile, the unit is done all the same."""
        unit = UnitOfWork(label, work, place, self._loop)
        line = self._worker_by_key.get(place) or self._pick_worker()
        self._worker_by_key[place] = line
        line.waiting[place] = line.waiting.get(place, 0) + 1
        line.units.put(unit)
        return await unit.future

    def close(self) -> None:
        """Wait until all that was asked is done. Not to be called in the loop, which has to take the answers."""
        for line in self._workers:
            line.units.put(None)
        for line in self._workers:
            line.thread.join()

    def _pick_worker(self) -> "_BatchWorker":
        idle = next((line for line in self._workers if not line.waiting), None)
        if idle is None and len(self._workers) < self._size:
            idle = _BatchWorker(f"{self._name}-{len(self._workers)}", self._work)
            self._workers.append(idle)
        return idle or min(self._workers, key=lambda line: sum(line.waiting.values()))

    def _work(self, line: "_BatchWorker") -> None:
        while units := line.next_batch(self._most):
            self._do(units)
            self._loop.call_soon_threadsafe(self._resolve, line, units)
            del units  # or an idle thread would keep what it did last

    def _resolve(self, line: "_BatchWorker", units: Sequence[UnitOfWork[Any]]) -> None:
        for unit in units:
            line.waiting[unit.place] -= 1
            if not line.waiting[unit.place]:
                del line.waiting[unit.place], self._worker_by_key[unit.place]
            unit.resolve()


class _BatchWorker:
    """A thread and what waits for it: `waiting` counts the units of each place, and is touched in the loop only."""

    def __init__(self, name: str, work: Callable[["_BatchWorker"], None]) -> None:
        self.units: queue.SimpleQueue[UnitOfWork[Any] | None] = queue.SimpleQueue()
        self.waiting: dict[str, int] = {}
        self._closing = False
        self.thread = threading.Thread(target=work, args=(self,), name=name, daemon=True)
        self.thread.start()

    def next_batch(self, most: int) -> list[UnitOfWork[Any]]:
        """Wait for units; gives those that are there, up to `most`, and none at the end."""
        found: list[UnitOfWork[Any]] = []
        while not self._closing and len(found) < most and not (found and self.units.empty()):
            unit = self.units.get()
            self._closing = unit is None
            found += [unit] if unit else []
        return found
