"""A small thread pool that runs blocking calls for the tasks of one event loop, at half the cost of the standard one."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from keryx.core import codec
from keryx.core.errors import THREADS_EXHAUSTED, Unavailable

T = TypeVar("T")


class PendingResult(Generic[T]):
    """The result or error of a thread, for a task that awaits it."""

    __slots__ = ("error", "future", "result")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[T] = loop.create_future()
        self.result: T | None = None
        self.error: Exception | None = None

    def run(self, call: Callable[[], T]) -> None:
        try:
            self.result = call()
        except Exception as exc:  # noqa: BLE001 raised in the task that waits
            self.error = exc

    def resolve(self) -> None:
        """Resolve the future. Must be called in its event loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # pyright: ignore[reportArgumentType]


class _ThreadCall(PendingResult[T]):
    __slots__ = ("call",)

    def __init__(self, call: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.call = call


class ThreadPool:
    """Starts a thread only while all others are busy."""

    def __init__(self, size: int, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._size = size
        self._name = name
        self._loop = loop
        self._jobs: queue.SimpleQueue[_ThreadCall[Any] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._pending = 0
        codec.resolve_struct_types()

    async def run(self, call: Callable[[], T]) -> T:
        """Return or raise what the call does. The call is made even if the task is cancelled."""
        job = _ThreadCall(call, self._loop)
        if len(self._threads) < min(self._pending + 1, self._size):
            self._start()
        self._pending += 1
        self._jobs.put(job)
        return await job.future

    def close(self) -> None:
        """Wait until all calls are done. Must not be called in the event loop, which receives the results."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as exc:
            # The system allows no more. Those that run make the calls, only later.
            if not self._threads:
                raise Unavailable(THREADS_EXHAUSTED) from exc
        else:
            self._threads.append(thread)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run(job.call)
            self._loop.call_soon_threadsafe(self._resolve, job)
            del job  # an idle thread must not keep the last result alive

    def _resolve(self, job: _ThreadCall[Any]) -> None:
        self._pending -= 1
        job.resolve()
