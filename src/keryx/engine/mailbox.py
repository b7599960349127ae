"""Mailbox: what happens to a running turn, in order: events of its agent, its end, a cancel, a deadline."""

import asyncio
import time
from collections import deque
from typing import TypeAlias

import anyio
import msgspec

from keryx.core.media import Media
from keryx.core.ports import Bound, Called, Compacted, NotCompacted, Noted, Returned, Said, Thought, Used
from keryx.store.wake import Wake

_AHEAD = 64
# Shorter than an eye notices. The time of the machine, whatever our clock says: it is there to spare the disk.
_JOIN_SECONDS = 0.05
_WORDS = (Said, Thought)
_MORE = 2


class Kept(msgspec.Struct, frozen=True):
    """A file that the agent attached, once it is stored."""

    part: Media


Recordable: TypeAlias = (
    Said | Thought | Called | Returned | Used | Noted | Kept | Compacted | NotCompacted | Bound
)


class Ended(msgspec.Struct, frozen=True):
    """The agent has returned, or raised."""

    error: Exception | None = None


class Cancelled(msgspec.Struct, frozen=True):
    """A person stopped the turn."""


class TimedOut(msgspec.Struct, frozen=True):
    reason: str


class HandedBack(msgspec.Struct, frozen=True):
    """The process ends and the turn goes back to the queue."""


End: TypeAlias = Ended | Cancelled | TimedOut | HandedBack
Item: TypeAlias = Recordable | End


class Mailbox:
    """An agent may run ahead of the store by a few events, then waits. Everything else never waits.

    `answers` is signalled when something became of a question of the turn."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._filled = asyncio.Event()
        self._pressing = asyncio.Event()
        self._words_at = 0.0
        self._put = 0
        self._stored = 0
        self._progress = Wake()
        self.answers = Wake()

    def put(self, item: Item) -> None:
        self._items.append(item)
        self._filled.set()
        if not isinstance(item, _WORDS):
            self._pressing.set()

    async def put_event(self, event: Recordable, *, until_stored: bool) -> None:
        """Hand an event over; with `until_stored`, return only when it is in the store."""
        self.put(event)
        self._put += 1
        allowed = self._put if until_stored else self._put - _AHEAD
        if len(self._items) == _MORE and isinstance(event, _WORDS):
            # An agent whose next words are there already would go on, and the first ones wait for them. One that says
            # everything at once is stored at once.
            await asyncio.sleep(0)
        while self._stored < allowed:
            self._pressing.set()
            await self._progress.wait(self._progress.count)

    def mark_stored(self, count: int) -> None:
        self._stored += count
        if all(isinstance(item, _WORDS) for item in self._items):
            self._pressing.clear()
        self._progress.signal()

    async def take(self) -> list[Item]:
        """Everything that has arrived, at least one item. Words come at once after a silence; those that follow are
        joined for a moment, unless something else comes."""
        await self._filled.wait()
        pause = self._words_at - time.monotonic()
        if pause > 0 and not self._pressing.is_set():
            with anyio.move_on_after(pause):
                await self._pressing.wait()
        self._filled.clear()
        self._pressing.clear()
        items = list(self._items)
        self._items.clear()
        if any(isinstance(item, _WORDS) for item in items):
            self._words_at = time.monotonic() + _JOIN_SECONDS
        return items
