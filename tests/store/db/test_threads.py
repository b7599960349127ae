"""The thread pool: blocking calls of many tasks in a few threads."""

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from keryx.core.errors import Unavailable
from keryx.store.db.threads import ThreadPool


@pytest.fixture
async def pool() -> AsyncIterator[ThreadPool]:
    made = ThreadPool(2, "pool", asyncio.get_running_loop())
    yield made
    await asyncio.to_thread(made.close)


class Gate:
    """A call that tells its thread and waits until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self) -> str:
        self.entered.release()
        assert self.open.wait(10)
        return threading.current_thread().name


async def test_a_call_gives_its_result_and_raises_its_error(pool: ThreadPool) -> None:
    assert await pool.run(lambda: 7) == 7
    with pytest.raises(ValueError, match="no number"):
        await pool.run(lambda: int("no number"))
    assert await pool.run(lambda: 8) == 8


@pytest.fixture
def no_more_threads() -> Iterator[Callable[[], None]]:
    """What makes the system refuse every further thread: the stack of each would be larger than the memory."""
    before = threading.stack_size()

    def refuse() -> None:
        threading.stack_size(1 << 46)

    yield refuse
    threading.stack_size(before)


async def test_without_any_thread_a_call_fails_with_advice_and_the_pool_can_be_closed(
    no_more_threads: Callable[[], None],
) -> None:
    pool = ThreadPool(2, "pool", asyncio.get_running_loop())
    no_more_threads()
    for _ in range(2):
        with pytest.raises(Unavailable, match="ulimit -u"):
            await pool.run(lambda: 7)
    pool.close()


async def test_without_another_thread_a_call_waits_for_those_that_run(
    pool: ThreadPool, no_more_threads: Callable[[], None]
) -> None:
    gate = Gate()
    first = asyncio.ensure_future(pool.run(gate))
    assert await asyncio.to_thread(gate.entered.acquire, timeout=10)
    no_more_threads()
    second = asyncio.ensure_future(pool.run(lambda: 8))
    await asyncio.sleep(0)
    gate.open.set()
    assert (await first, await second) == ("pool-0", 8)


async def test_calls_in_turn_share_one_thread(pool: ThreadPool) -> None:
    names = {await pool.run(lambda: threading.current_thread().name) for _ in range(20)}
    assert names == {"pool-0"}


async def test_no_more_threads_run_than_the_pool_has(pool: ThreadPool) -> None:
    gate = Gate()
    calls = [asyncio.ensure_future(pool.run(gate)) for _ in range(5)]
    for _ in range(2):
        assert await asyncio.to_thread(gate.entered.acquire, timeout=10)
    assert not gate.entered.acquire(blocking=False)
    gate.open.set()
    assert set(await asyncio.gather(*calls)) == {"pool-0", "pool-1"}


async def test_a_call_whose_task_was_cancelled_is_made_all_the_same(pool: ThreadPool) -> None:
    gate = Gate()
    made: list[str] = []
    calls = asyncio.ensure_future(pool.run(lambda: made.append(gate())))
    assert await asyncio.to_thread(gate.entered.acquire, timeout=10)
    calls.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calls
    gate.open.set()
    assert await pool.run(lambda: 1) == 1
    await asyncio.to_thread(pool.close)
    assert made == ["pool-0"]


async def test_closing_waits_for_what_was_asked() -> None:
    pool = ThreadPool(1, "pool", asyncio.get_running_loop())
    calls = [asyncio.ensure_future(pool.run(lambda n=n: n)) for n in range(10)]
    await asyncio.sleep(0)
    await asyncio.to_thread(pool.close)
    assert await asyncio.gather(*calls) == list(range(10))


async def test_an_idle_thread_keeps_nothing_of_what_it_read(pool: ThreadPool) -> None:
    class Read:
        pass

    read = weakref.ref(await pool.run(Read))
    async with asyncio.timeout(10):
        while read() is not None:
            gc.collect()
            await asyncio.sleep(0)
