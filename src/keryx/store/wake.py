"""A wake-up: it says "ask again" and carries no data."""

import asyncio


class Wake:
    """Counts signals. `wait` returns when the count has passed what the caller has seen, so a signal
    between asking and waiting is never missed. Used from one event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def awaited(self) -> bool:
        return bool(self._waiters)

    def signal(self) -> None:
        self.count += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait(self, seen: int) -> int:
        while self.count <= seen:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
        return self.count
