"""A thread with its own event loop for the code of one plug-in, calls between its loop and that of the hub, and the guard around every call into plug-in code."""

import asyncio
import concurrent.futures
import logging
import sys
import threading
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from types import CoroutineType
from typing import Any, Generic, ParamSpec, TypeVar

import anyio.to_thread

from keryx.process_tuning import shorten_switch_interval

log = logging.getLogger(__name__)

STALL_SECONDS = 5.0
_STOP_SECONDS = 0.5

_CANCELLED = asyncio.CancelledError.__name__

P = ParamSpec("P")
T = TypeVar("T")


class PluginExit(RuntimeError):
    """Plug-in code raised an exception that would end a program or a task: `SystemExit`, `KeyboardInterrupt`, ..."""

    def __init__(self, name: str) -> None:
        super().__init__(f"it raised {name}")
        self.name = name


class PluginBlocked(RuntimeError):
    """The thread of a plug-in did not begin or end a call in time. The text has its stack."""

    def __init__(self, name: str, seconds: float, stack: str) -> None:
        super().__init__(f"{name} has been blocked for {seconds:.1f} seconds. It stands at:\n{stack}")


def name_error(error: BaseException) -> str:
    """Return the name of what plug-in code raised."""
    return error.name if isinstance(error, PluginExit) else type(error).__name__


@contextmanager
def guard_plugin() -> Generator[None]:
    """Raise `PluginExit` for an exception of plug-in code that would end the process or leave a task without an end.

    A `CancelledError` passes only if the task was asked to cancel: otherwise the task and its group would count as
    cancelled."""
    try:
        yield
    except Exception:
        raise
    except asyncio.CancelledError as exc:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise PluginExit(_CANCELLED) from exc
    except BaseException as exc:
        raise PluginExit(type(exc).__name__) from exc


async def await_in(loop: asyncio.AbstractEventLoop, work: Callable[[], Awaitable[T]]) -> T:
    """Await `work()` in the loop of another thread. Cancelling cancels it there, and does not wait for its end."""
    call = _Call(loop, work)
    try:
        return await call.result
    finally:
        call.abandon()


def bind_to_loop(
    loop: asyncio.AbstractEventLoop, function: Callable[P, Awaitable[T]]
) -> "Callable[P, CoroutineType[Any, Any, T]]":
    """Return a function for other threads that awaits `function` in `loop`."""

    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return await await_in(loop, lambda: function(*args, **kwargs))

    return call


class _Call(Generic[T]):
    """One call from the current loop into the loop of another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Awaitable[T]]) -> None:
        self._loop = loop
        self._work = work
        self._home = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        # Decides a race: the call begins, or it is withdrawn.
        self._first = threading.Lock()
        self.begun = asyncio.Event()
        self.result: asyncio.Future[T] = self._home.create_future()
        loop.call_soon_threadsafe(self._begin)

    def withdraw(self) -> bool:
        """Return whether the call has not begun. Then it never does."""
        return self._first.acquire(blocking=False)

    def abandon(self) -> None:
        """Drop the result, and cancel the call unless it has ended."""
        if not self.result.done() or self.result.cancelled():
            self.result.cancel()
            with suppress(RuntimeError):  # the loop is closed, so the call has ended
                self._loop.call_soon_threadsafe(self._cancel)

    def _begin(self) -> None:
        if not self.result.cancelled():
            self._task = self._loop.create_task(self._run())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        if not self._first.acquire(blocking=False):
            return
        self._post(self.begun.set)
        try:
            with guard_plugin():
                value = await self._work()
        except asyncio.CancelledError:
            self._post(self.result.cancel)
            raise
        except Exception as exc:  # noqa: BLE001 it is raised where the call came from
            self._post(self._settle, partial(self.result.set_exception, exc))
        else:
            self._post(self._settle, partial(self.result.set_result, value))

    def _settle(self, settle: Callable[[], None]) -> None:
        if not self.result.done():
            settle()

    def _post(self, callback: Callable[..., Any], *args: Any) -> None:
        with suppress(RuntimeError):  # the caller's loop is closed, so the result is of no use
            self._home.call_soon_threadsafe(callback, *args)


class PluginThread:
    """A daemon thread that runs the code of one plug-in. An exception of that code ends only its own call, and code that
    blocks delays only calls of the same thread: it is logged once per stall, with its stack."""

    def __init__(self, name: str, *, stall: float = STALL_SECONDS) -> None:
        self.name = name
        # Called in the hub's loop when a stall is noticed, with its seconds, and with 0 when it is over.
        self.on_stall: Callable[[float], None] | None = None
        # A call was not begun in time, and the thread has not begun anything since.
        self.blocked = False
        self._stall_limit = stall
        self._beat_interval = stall / 5
        self._stalled = False
        self._calls = 0
        self._beating = False
        self._beat_at = 0.0
        self._suspected_at = 0.0
        self._stopping = False
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._log_error)
        self._thread = threading.Thread(target=self._main, name=f"plug-in {name}", daemon=True)
        shorten_switch_interval()
        self._thread.start()

    def call(self, work: Callable[[], T], *, seconds: float) -> T:
        """Call a function in the thread and block until it has returned. Raise `PluginBlocked` if it takes longer; it
        then goes on, without an effect on the caller."""
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                with guard_plugin():
                    outcome.set_result(work())
            except Exception as exc:  # noqa: BLE001 it is raised where the call came from
                outcome.set_exception(exc)

        self._loop.call_soon_threadsafe(run)
        concurrent.futures.wait([outcome], seconds)
        if not outcome.done():
            raise self._describe_block(seconds)
        return outcome.result()

    async def run(self, work: Callable[[], Awaitable[T]], *, begin_within: float | None = None) -> T:
        """Await `work()` in the thread. Cancelling cancels it there, and does not wait for its end. Raise
        `PluginBlocked` if it was not begun in time; it then never begins."""
        call = _Call(self._loop, work)
        self._watch()
        try:
            if begin_within is not None:
                await self._wait_until_begun(call, begin_within)
            while not call.result.done():
                await asyncio.wait({call.result}, timeout=self._beat_interval)
                self._check_stall()
            if call.result.cancelled():
                raise PluginExit(_CANCELLED)
            return call.result.result()
        finally:
            self._calls -= 1
            call.abandon()

    def bind(self, function: Callable[P, Awaitable[T]]) -> "Callable[P, CoroutineType[Any, Any, T]]":
        """Return a function for the hub that awaits `function` in the thread."""

        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return await self.run(lambda: function(*args, **kwargs))

        return call

    async def run_sync(self, work: Callable[[], T], *, seconds: float) -> T:
        """Call a function in the thread. Raise `PluginBlocked` if it has not returned in time."""

        async def run() -> T:
            return work()

        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self.run(run)
        except TimeoutError:
            if limit.expired():
                raise self._describe_block(seconds) from None
            raise

    async def stream(
        self, make: Callable[[], AsyncGenerator[T, None]], *, begin_within: float | None = None
    ) -> AsyncGenerator[T, None]:
        """Iterate over an async generator that lives in the thread, in one task. It is resumed when the next item is
        asked for, and closed in its own loop, which is not waited for. What it yields after that is dropped."""
        home = asyncio.get_running_loop()
        offers: asyncio.Queue[tuple[T, asyncio.Future[bool]] | None] = asyncio.Queue()
        closed = False

        async def offer(item: T) -> bool:
            """Hand an item over. Return whether another one is wanted, once that is known."""
            wanted: asyncio.Future[bool] = home.create_future()
            if closed:
                return False
            offers.put_nowait((item, wanted))
            return await wanted

        async def produce() -> None:
            async with aclosing(make()) as items:
                async for item in items:
                    if not await await_in(home, partial(offer, item)):
                        return

        producer = asyncio.create_task(self.run(produce, begin_within=begin_within))
        producer.add_done_callback(lambda _: offers.put_nowait(None))
        try:
            while (offered := await offers.get()) is not None:
                item, wanted = offered
                yield item
                if not wanted.done():
                    wanted.set_result(True)
            producer.result()
        finally:
            closed = True
            producer.cancel()
            if producer.done() and not producer.cancelled():
                producer.exception()

    def request_stop(self) -> None:
        """Tell the thread to cancel what the plug-in still runs, and to end."""
        if not self._stopping:
            self._stopping = True
            self._loop.call_soon_threadsafe(self._loop.stop)

    async def stop(self) -> None:
        """Cancel what the plug-in still runs, wait a moment for it, and end the thread. A thread that is blocked is left
        behind: it ends with the process."""
        self.request_stop()
        await anyio.to_thread.run_sync(self._thread.join, 2 * _STOP_SECONDS)
        if self._thread.is_alive():
            log.warning("%s does not stop: %s", self.name, self._describe_block(2 * _STOP_SECONDS))

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._stopping:
            self._run_loop(self._loop.run_forever)
            if not self._stopping:
                log.warning("%s stopped its event loop, which is started again", self.name)
        self._run_loop(self._end_tasks)

    def _run_loop(self, run: Callable[[], None]) -> None:
        """Run the loop. What a task or a callback of the plug-in raises to end the process is logged only."""
        try:
            run()
        except BaseException:
            log.exception("%s raised in a task or a callback of its own", self.name)

    def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = self._loop.run_until_complete(asyncio.wait(tasks, timeout=_STOP_SECONDS))
            if left:
                log.warning("%s left %d tasks that ignore their cancellation", self.name, len(left))
                return
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _log_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        log.error("%s: %s", self.name, context.get("message"), exc_info=context.get("exception"))

    def _watch(self) -> None:
        """Make the thread record at intervals that it is not blocked, for as long as calls run."""
        self._calls += 1
        self._start_beat()

    def _start_beat(self) -> None:
        if not self._beating:
            self._beating = True
            self._beat_at = time.monotonic()
            self._loop.call_soon_threadsafe(self._beat)

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        self._beating = self._calls > 0
        if self._beating:
            self._loop.call_later(self._beat_interval, self._beat)

    def _check_stall(self) -> None:
        self._start_beat()
        silent = time.monotonic() - self._beat_at
        # Seen twice, so that a process that was suspended has a chance to go on.
        stalled = silent > self._stall_limit and (self._stalled or self._suspected_at == self._beat_at)
        self._suspected_at = self._beat_at
        if stalled is self._stalled:
            return
        self._stalled = stalled
        if stalled:
            log.warning("%s", self._describe_block(silent))
        else:
            log.warning("%s is not blocked any more", self.name)
        if self.on_stall is not None:
            self.on_stall(silent if stalled else 0)

    async def _wait_until_begun(self, call: _Call[Any], seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await call.begun.wait()
        if not call.begun.is_set() and call.withdraw():
            self.blocked = True
            self._loop.call_soon_threadsafe(self._mark_free)
            raise self._describe_block(seconds)

    def _mark_free(self) -> None:
        self.blocked = False

    def _describe_block(self, seconds: float) -> PluginBlocked:
        # The documented way to get the stack of another thread.
        frame = sys._current_frames().get(self._thread.ident or 0)  # pyright: ignore[reportPrivateUsage]
        stack = "".join(traceback.format_stack(frame)).rstrip() if frame else "(it has ended)"
        return PluginBlocked(self.name, seconds, stack)
