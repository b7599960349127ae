"""Threads for plug-ins: whatever the code in them does, the loop outside goes on."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from datetime import timedelta

import pytest

from keryx.core.errors import NotFound, Throttled
from keryx.plugin_thread import PluginBlocked, PluginExit, PluginThread, bind_to_loop, name_error

SECONDS = 30
SPAN = timedelta(seconds=3)
mark: ContextVar[str] = ContextVar("mark", default="")


class Odd(BaseException):
    pass


@pytest.fixture
async def thread() -> AsyncIterator[PluginThread]:
    made = PluginThread("the parrot", stall=0.5)
    yield made
    await made.stop()


def raising(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        raise error

    return work


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), Odd(), GeneratorExit()])
async def test_what_would_end_the_process_ends_the_call(thread: PluginThread, error: BaseException) -> None:
    with pytest.raises(PluginExit, match=f"it raised {type(error).__name__}") as caught:
        await thread.run(raising(error))
    assert name_error(caught.value) == type(error).__name__
    assert await thread.run_sync(lambda: "alive", seconds=SECONDS) == "alive"


async def test_errors_keep_their_types(thread: PluginThread) -> None:
    for error in (NotFound("x"), ValueError("y"), TimeoutError("z")):
        with pytest.raises(type(error), match=str(error)):
            await thread.run(raising(error))


async def test_code_that_cancels_itself_fails_and_cancels_nobody_else(thread: PluginThread) -> None:
    async def cancel_self() -> None:
        task = asyncio.current_task()
        assert task
        task.cancel()
        await asyncio.sleep(0)

    for work in (cancel_self, raising(asyncio.CancelledError())):
        with pytest.raises(PluginExit, match="it raised CancelledError"):
            await thread.run(work)


async def test_tasks_and_callbacks_that_raise_and_a_stopped_loop_do_no_harm(
    thread: PluginThread, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[asyncio.Task[None]] = []

    async def leave() -> None:
        loop = asyncio.get_running_loop()

        async def leave_process() -> None:
            raise SystemExit(3)

        def interrupt() -> None:
            raise KeyboardInterrupt

        left.append(asyncio.create_task(leave_process()))
        loop.call_soon(interrupt)
        loop.call_soon(loop.stop)

    await thread.run(leave)
    for _ in range(5):
        assert await thread.run_sync(threading.get_ident, seconds=SECONDS) != threading.get_ident()
    assert "the parrot raised in a task or a callback of its own" in caplog.text
    assert "the parrot stopped its event loop" in caplog.text
    assert isinstance(left[0].exception(), SystemExit)


async def test_a_blocked_thread_is_named_once_with_its_stack(
    thread: PluginThread, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()
    heard: list[float] = []
    thread.on_stall = heard.append

    async def block_for_the_test() -> None:
        release.wait(SECONDS)

    blocked = asyncio.create_task(thread.run(block_for_the_test))
    async with asyncio.timeout(SECONDS):
        while not heard:  # noqa: ASYNC110 the thread tells nobody
            await asyncio.sleep(0.01)
        release.set()
        await blocked
        await thread.run(lambda: asyncio.sleep(0.3))
    assert heard[0] > 0 and heard[-1] == 0 and len(heard) == 2
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(told) == 2 and "the parrot has been blocked" in told[0]
    assert "in block_for_the_test" in told[0] and "release.wait" in told[0]
    assert told[1] == "the parrot is not blocked any more"


async def test_a_call_that_a_blocked_thread_does_not_begin_never_begins(thread: PluginThread) -> None:
    release, began = threading.Event(), list[str]()

    async def block() -> None:
        release.wait(SECONDS)

    async def work() -> None:
        began.append("late")

    blocked = asyncio.create_task(thread.run(block))
    await asyncio.sleep(0)
    with pytest.raises(PluginBlocked, match="in block"):
        await thread.run(work, begin_within=0.05)
    assert thread.blocked
    with pytest.raises(PluginBlocked):
        await thread.run_sync(lambda: None, seconds=0.05)
    release.set()
    await blocked
    await thread.run_sync(lambda: None, seconds=SECONDS)
    assert not thread.blocked and not began


async def test_cancelling_reaches_the_call_and_waits_for_nobody(thread: PluginThread) -> None:
    reached, ended, stubborn_ended = threading.Event(), threading.Event(), threading.Event()

    async def cooperative() -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def stubborn() -> None:
        reached.set()
        while not stubborn_ended.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    for work in (cooperative, stubborn):
        reached.clear()
        task = asyncio.create_task(thread.run(work))
        assert await asyncio.to_thread(reached.wait, SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await asyncio.to_thread(ended.wait, SECONDS)
    stubborn_ended.set()


async def test_a_stream_is_resumed_only_when_more_is_wanted_and_closed_in_its_own_loop(
    thread: PluginThread,
) -> None:
    steps: list[str] = []
    closed = threading.Event()

    async def items() -> AsyncGenerator[int, None]:
        mark.set("mine")
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(SECONDS):
                for n in range(1000):
                    steps.append(f"made {n}")
                    yield n
                    assert asyncio.current_task() is task and mark.get() == "mine"
        finally:
            await asyncio.sleep(0)
            assert asyncio.get_running_loop() is not home
            closed.set()

    home = asyncio.get_running_loop()
    async with aclosing(thread.stream(items)) as stream:
        async for n in stream:
            await asyncio.sleep(0.005)
            steps.append(f"taken {n}")
            if n == 2:
                break
    assert await asyncio.to_thread(closed.wait, SECONDS)
    assert steps == ["made 0", "taken 0", "made 1", "taken 1", "made 2", "taken 2"]


async def test_what_a_stream_yields_after_its_end_is_dropped(
    thread: PluginThread, caplog: pytest.LogCaptureFixture
) -> None:
    yielded = threading.Event()

    async def stubborn() -> AsyncGenerator[int, None]:
        yield 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yielded.set()
            yield 2

    got: list[int] = []
    stream = thread.stream(stubborn)
    got.append(await anext(stream))
    waiting = asyncio.create_task(anext(stream))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(yielded.wait, SECONDS)
    await thread.run_sync(lambda: None, seconds=SECONDS)
    assert got == [1]


async def test_a_stream_raises_what_its_code_raises(thread: PluginThread) -> None:
    async def failing() -> AsyncGenerator[int, None]:
        yield 1
        raise SystemExit

    stream = thread.stream(failing)
    assert await anext(stream) == 1
    with pytest.raises(PluginExit, match="SystemExit"):
        await anext(stream)


async def test_functions_of_the_hub_run_in_its_loop_and_keep_their_errors(thread: PluginThread) -> None:
    home = asyncio.get_running_loop()

    async def double(n: int) -> int:
        assert asyncio.get_running_loop() is home
        if n < 0:
            raise Throttled("wait", after=SPAN)
        return 2 * n

    bound = bind_to_loop(home, double)
    assert await thread.run(lambda: bound(4)) == 8
    with pytest.raises(Throttled) as caught:
        await thread.run(lambda: bound(-1))
    assert caught.value.after == SPAN


async def test_stopping_cancels_what_was_left_and_leaves_what_is_blocked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended = threading.Event()
    kept: list[asyncio.Task[None]] = []

    async def leaked() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def leak() -> None:
        kept.append(asyncio.create_task(leaked()))

    leaky = PluginThread("the leaky one")
    await leaky.run(leak)
    await leaky.stop()
    assert ended.is_set()

    release = threading.Event()
    stuck = PluginThread("the stuck one")

    async def block() -> None:
        release.wait(SECONDS)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await stuck.run(block)
    await stuck.stop()
    release.set()
    assert "the stuck one does not stop" in caplog.text
