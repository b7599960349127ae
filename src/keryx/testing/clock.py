"""A clock that a test moves."""

import asyncio
from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class FakeClock:
    """A clock that stands still until a test moves it. Satisfies `keryx.core.ports.Clock`; used from one
    event loop."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        self._monotonic = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    @property
    def sleepers(self) -> int:
        """How many tasks are asleep."""
        return len(self._sleepers)

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Return once the clock has been advanced this far. No time at all only lets other tasks run."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        sleeper = self._monotonic + seconds, asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        try:
            await sleeper[1]
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    def advance(self, by: timedelta | float) -> None:
        """Let time pass. Sleepers whose time has come go on in the order of their deadlines."""
        passed = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if passed < timedelta(0):
            raise ValueError("time only passes forward: use jump to set the wall clock back")
        self._now += passed
        self._monotonic += passed.total_seconds()
        due = sorted((s for s in self._sleepers if s[0] <= self._monotonic), key=lambda s: s[0])
        for sleeper in due:
            self._sleepers.remove(sleeper)
            if not sleeper[1].done():
                sleeper[1].set_result(None)

    def jump(self, by: timedelta | float) -> None:
        """Set the wall clock forward or back, as an administrator or a time server does. Nobody wakes."""
        self._now += by if isinstance(by, timedelta) else timedelta(seconds=by)
