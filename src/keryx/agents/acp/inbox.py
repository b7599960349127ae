"""Inbox: what comes from an agent for one running turn, in order. It holds a few messages, then the agent waits."""

import asyncio
from collections import deque

from keryx.agents.acp.rpc import Incoming

BOUND = 256


class Inbox:
    """Once it is closed, whatever comes is dropped and nobody waits."""

    def __init__(self) -> None:
        self._items: deque[Incoming] = deque()
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False

    async def put(self, item: Incoming) -> None:
        while len(self._items) >= BOUND and not self._closed:
            self._room.clear()
            await self._room.wait()
        if not self._closed:
            self._items.append(item)
            self._filled.set()

    async def take(self) -> Incoming:
        while not self._items:
            self._filled.clear()
            await self._filled.wait()
        item = self._items.popleft()
        self._room.set()
        return item

    def close(self) -> list[Incoming]:
        """Gives what nobody has taken."""
        left = list(self._items)
        self._closed = True
        self._items.clear()
        self._room.set()
        return left
