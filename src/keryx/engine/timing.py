"""The system clock, and waiting for a signal or a deadline, whichever comes first."""

import asyncio
import time
from datetime import UTC, datetime

import anyio

from keryx.core.clock import Clock
from keryx.store.db.database import WakeSignal

_MAX_SLEEP_SECONDS = 30.0


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def wait_until(wake: WakeSignal, seen: int, clock: Clock, at: datetime | None) -> None:
    """Return when the wake-up has been signalled since `seen`, or at a moment; without one only the signal counts.

    May return early, for the wall clock may be set while we sleep: the caller looks again."""
    if at is None:
        await wake.wait(seen)
        return
    async with anyio.create_task_group() as group:

        async def ring() -> None:
            await clock.sleep(min(max(0.0, (at - clock.now()).total_seconds()), _MAX_SLEEP_SECONDS))
            group.cancel_scope.cancel()

        group.start_soon(ring)
        await wake.wait(seen)
        group.cancel_scope.cancel()
