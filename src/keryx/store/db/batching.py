"""Small units of work that arrive together are run in batches by a few threads. Units with the same key never run concurrently."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from keryx.core.errors import THREADS_EXHAUSTED, Unavailable
from keryx.store.db import Work
from keryx.store.db.threads import PendingResult

T = TypeVar("T")


class UnitOfWork(PendingResult[T]):
    """A unit of work on its way."""

    __slots__ = ("key", "label", "work")

    def __init__(self, label: str, work: Work[T], key: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.label = label
        self.work = work
        self.key = key


BatchRunner = Callable[[Sequence[UnitOfWork[Any]]], None]
"""Runs one or several units and sets the outcome of each. Must not raise."""


class KeyedBatcher:
    """Units of one key run in one thread while any of them waits or runs. A new key goes to the first idle thread, so that few
    callers need few threads."""

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

    async def run(self, label: str, work: Work[T], key: str) -> T:
        """Return or raise what the unit does. It runs to its end even if the task is cancelled."""
        unit = UnitOfWork(label, work, key, self._loop)
        worker = self._worker_by_key.get(key) or self._pick_worker()
        self._worker_by_key[key] = worker
        worker.waiting[key] = worker.waiting.get(key, 0) + 1
        worker.units.put(unit)
        return await unit.future

    def close(self) -> None:
        """Wait until all units have run. Must not be called in the event loop, which receives the results."""
        for worker in self._workers:
            worker.units.put(None)
        for worker in self._workers:
            worker.thread.join()

    def _pick_worker(self) -> "_BatchWorker":
        idle = next((worker for worker in self._workers if not worker.waiting), None)
        if idle is None and len(self._workers) < self._size:
            try:
                idle = _BatchWorker(f"{self._name}-{len(self._workers)}", self._work)
            except RuntimeError as exc:
                # The system allows no more threads. Those that run do the work, only later.
                if not self._workers:
                    raise Unavailable(THREADS_EXHAUSTED) from exc
            else:
                self._workers.append(idle)
        return idle or min(self._workers, key=lambda worker: sum(worker.waiting.values()))

    def _work(self, worker: "_BatchWorker") -> None:
        while units := worker.next_batch(self._most):
            self._do(units)
            self._loop.call_soon_threadsafe(self._resolve, worker, units)
            del units  # an idle thread must not keep the last units alive

    def _resolve(self, worker: "_BatchWorker", units: Sequence[UnitOfWork[Any]]) -> None:
        for unit in units:
            worker.waiting[unit.key] -= 1
            if not worker.waiting[unit.key]:
                del worker.waiting[unit.key], self._worker_by_key[unit.key]
            unit.resolve()


class _BatchWorker:
    """A thread with its queue."""

    def __init__(self, name: str, work: Callable[["_BatchWorker"], None]) -> None:
        self.units: queue.SimpleQueue[UnitOfWork[Any] | None] = queue.SimpleQueue()
        self.waiting: dict[str, int] = {}  # units by key; used in the event loop only
        self._closing = False
        self.thread = threading.Thread(target=work, args=(self,), name=name, daemon=True)
        self.thread.start()

    def next_batch(self, most: int) -> list[UnitOfWork[Any]]:
        """Wait for units; return up to `most` of those that are queued, and none after the batcher was closed."""
        found: list[UnitOfWork[Any]] = []
        while not self._closing and len(found) < most and not (found and self.units.empty()):
            unit = self.units.get()
            self._closing = unit is None
            found += [unit] if unit else []
        return found
