"""Alarm: waiting for a signal, or for a moment, whichever comes first."""

from datetime import datetime

import anyio

from keryx.core.ports import Clock
from keryx.store.wake import Wake

_LONGEST_SECONDS = 30.0


async def signal_or_moment(wake: Wake, seen: int, clock: Clock, at: datetime | None) -> None:
    """Return when the wake-up has been signalled since `seen`, or at a moment; without one only the signal counts.

    May return early, for the wall clock may be set while we sleep: the caller looks again."""
    if at is None:
        await wake.wait(seen)
        return
    async with anyio.create_task_group() as group:

        async def ring() -> None:
            await clock.sleep(min(max(0.0, (at - clock.now()).total_seconds()), _LONGEST_SECONDS))
            group.cancel_scope.cancel()

        group.start_soon(ring)
        await wake.wait(seen)
        group.cancel_scope.cancel()
