"""The system clock, the signal that wakes waiting tasks, and waiting for a signal or a deadline, whichever comes first."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeAlias

import anyio

from keryx.core.clock import Clock

_MAX_SLEEP_SECONDS = 30.0

# Waits for some seconds. Tests pass one that does not.
Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class WakeSignal:
    """Counts signals, so that a waiter never misses one: it reads the count, looks for work, and then waits for a
    higher count. Used from one event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiters)

    def signal(self) -> None:
        self.count += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait(self, seen: int) -> int:
        """Return the count as soon as it is above `seen`."""
        while self.count <= seen:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
        return self.count


async def wait_until(wake: WakeSignal, seen: int, clock: Clock, at: datetime | None) -> None:
    """Return when `wake` was signalled after `seen`, or at the time `at`; `None` waits for the signal alone.

    May return early, because the wall clock may be set meanwhile: the caller looks again."""
    if at is None:
        await wake.wait(seen)
        return
    async with anyio.create_task_group() as group:

        async def sleep() -> None:
            await clock.sleep(min(max(0.0, (at - clock.now()).total_seconds()), _MAX_SLEEP_SECONDS))
            group.cancel_scope.cancel()

        group.start_soon(sleep)
        await wake.wait(seen)
        group.cancel_scope.cancel()
