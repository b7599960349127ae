"""The queue between the agent of a turn and its driver: agent events, cancel requests, timeouts and the end, in order."""

import asyncio
import time
from collections import deque
from typing import TypeAlias

import anyio
import msgspec

from keryx.core.ports.agent import ReasoningDelta, TextDelta
from keryx.engine.units.turn_writes import RecordableEvent
from keryx.timing import WakeSignal

# How far the agent may be ahead of the store: in events, and in characters of text. Text is stored at intervals, so the
# second bounds what one turn writes in a second.
_MAX_AHEAD = 64
_MAX_AHEAD_CHARS = 32_768
# Too short to notice; it saves disk writes. Measured on the system's clock, not on the injected one.
_JOIN_SECONDS = 0.05
_TEXT_EVENTS = (TextDelta, ReasoningDelta)
_FLUSH_COUNT = 2


class AgentExit(msgspec.Struct, frozen=True):
    """The agent has returned, or raised."""

    error: Exception | None = None


class CancelRequest(msgspec.Struct, frozen=True):
    """A person stopped the turn."""


class TurnTimeout(msgspec.Struct, frozen=True):
    reason: str


class HandBack(msgspec.Struct, frozen=True):
    """The process ends and the turn goes back to the queue."""


class RestartCheck(msgspec.Struct, frozen=True):
    """The turn may have been put back into the queue, to begin again with more messages."""


TurnEnd: TypeAlias = AgentExit | CancelRequest | TurnTimeout | HandBack
MailboxItem: TypeAlias = RecordableEvent | TurnEnd | RestartCheck


class Mailbox:
    """The agent waits when it is too many events ahead of the store. Other senders never wait."""

    def __init__(self) -> None:
        self._items: deque[MailboxItem] = deque()
        self._filled = asyncio.Event()
        self._urgent = asyncio.Event()
        self._flush_at = 0.0
        self._put = 0
        self._stored = 0
        # The characters of each event of the agent that is not stored, and of all of them.
        self._sizes: deque[int] = deque()
        self._unstored_chars = 0
        self._progress = WakeSignal()
        # Signalled when a question of the turn has changed.
        self.answers = WakeSignal()

    def put(self, item: MailboxItem) -> None:
        self._items.append(item)
        self._filled.set()
        if not isinstance(item, _TEXT_EVENTS):
            self._urgent.set()

    async def put_event(self, event: RecordableEvent, *, until_stored: bool) -> None:
        """Put an event of the agent; with `until_stored`, return only when it is in the store."""
        self.put(event)
        self._put += 1
        self._sizes.append(len(event.text) if isinstance(event, TextDelta | ReasoningDelta) else 0)
        self._unstored_chars += self._sizes[-1]
        allowed = self._put if until_stored else self._put - _MAX_AHEAD
        if len(self._items) == _FLUSH_COUNT and isinstance(event, _TEXT_EVENTS):
            # Yield once so that the first chunk is stored before the agent produces the next.
            await asyncio.sleep(0)
        while self._stored < allowed or self._unstored_chars > _MAX_AHEAD_CHARS:
            if self._stored < allowed:
                self._urgent.set()
            await self._progress.wait(self._progress.count)

    def mark_stored(self, count: int) -> None:
        self._stored += count
        self._unstored_chars -= sum(self._sizes.popleft() for _ in range(min(count, len(self._sizes))))
        if all(isinstance(item, _TEXT_EVENTS) for item in self._items):
            self._urgent.clear()
        self._progress.signal()

    async def take(self) -> list[MailboxItem]:
        """Return all items, at least one. Text is returned at once after a pause; text that follows is collected for a
        moment, unless another kind of item arrives."""
        await self._filled.wait()
        pause = self._flush_at - time.monotonic()
        if pause > 0 and not self._urgent.is_set():
            with anyio.move_on_after(pause):
                await self._urgent.wait()
        self._filled.clear()
        self._urgent.clear()
        items = list(self._items)
        self._items.clear()
        if any(isinstance(item, _TEXT_EVENTS) for item in items):
            self._flush_at = time.monotonic() + _JOIN_SECONDS
        return items
