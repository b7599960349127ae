import asyncio
from datetime import timedelta

import pytest
from tests.builders import until

from keryx.core.clock import Clock
from keryx.testing import START_TIME, FakeClock


async def test_time_stands_still_until_it_is_advanced(clock: FakeClock) -> None:
    same: Clock = clock
    assert (same.now(), same.monotonic()) == (START_TIME, 0.0)
    clock.advance(1.5)
    clock.advance(timedelta(minutes=1))
    assert (clock.now(), clock.monotonic()) == (START_TIME + timedelta(seconds=61.5), 61.5)


async def test_sleepers_wake_in_the_order_of_their_deadlines(clock: FakeClock) -> None:
    woken: list[int] = []

    async def sleep(seconds: int) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for seconds in (3, 1, 2, 9):
            group.create_task(sleep(seconds))
        await until(lambda: clock.sleepers == 4)
        clock.advance(3)
        await until(lambda: len(woken) == 3)
        assert woken == [1, 2, 3]
        clock.advance(6)


async def test_a_jump_of_the_wall_clock_wakes_nobody(clock: FakeClock) -> None:
    task = asyncio.create_task(clock.sleep(10))
    await until(lambda: clock.sleepers == 1)
    clock.jump(timedelta(days=-1))
    clock.jump(7200)
    assert (clock.now() - START_TIME, clock.monotonic(), clock.sleepers) == (timedelta(hours=-22), 0.0, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleepers == 0


async def test_no_time_at_all_is_slept_at_once(clock: FakeClock) -> None:
    async with asyncio.timeout(10):
        await clock.sleep(0)
        await clock.sleep(-5)


def test_time_never_passes_backward(clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1)
