"""Reads and encodes each change once for all streams of the process. A ring buffer holds the last batches; a stream that falls out of it is closed and resumes from the store by its cursor."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence

import anyio
import anyio.to_thread
import msgspec

from keryx.core.changes import Change
from keryx.core.errors import KeryxError
from keryx.core.ids import Cursor
from keryx.core.sessions import Viewer
from keryx.engine.hub import Hub
from keryx.surfaces.web.stream.encoder import ChangeEncoder, EncodedEvent, count_chars
from keryx.timing import WakeSignal

log = logging.getLogger(__name__)

_MAX_BATCHES = 1_000
_MAX_RING_BYTES = 32 << 20
_MAX_CHUNK_BYTES = 256 << 10
_THREAD_CHARS = 8_000
_RETRY_SECONDS = 1.0


class StreamTooSlow(Exception):
    """The next batch of a stream is no longer in the ring buffer."""


class EventBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Some changes, with the events that streams send for them."""

    cursors: list[Cursor]
    events: list[EncodedEvent]
    size: int
    # The joined events by viewer.
    cache: dict[Viewer, bytes]

    def join_for(self, viewer: Viewer, after: int) -> bytes:
        """Return the events of the changes above this index that a viewer may see, followed by the last cursor."""
        if after < 0 and viewer in self.cache:
            return self.cache[viewer]
        body = b"".join(t.body for t in self.events if t.index > after and t.visible_to(viewer))
        if body:
            body += encode_cursor(self.cursors[-1])
        if after < 0:
            self.cache[viewer] = body
        return body


class RingPosition(msgspec.Struct, frozen=True):
    """The next batch to send, from the changes above index `after`."""

    batch: int
    after: int = -1


class Broadcast:
    """Feeds all streams. `run` must run in a task of its own."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._encoder = ChangeEncoder()
        self._ring: deque[EventBatch] = deque()
        self._first = 0
        self._ring_bytes = 0
        self._positions: dict[Cursor, RingPosition] = {}
        self._signal = WakeSignal()
        self._followers = 0
        self._has_followers = anyio.Event()
        self.closed = False

    async def run(self) -> None:
        """Publish changes until cancelled. On an error every stream is disconnected; it resumes from the store by its
        cursor, so no change is lost."""
        while True:
            pause = _RETRY_SECONDS
            try:
                await self._has_followers.wait()
                await self._publish_while_followed()
                pause = 0
            except KeryxError as exc:
                log.warning("disconnected all streams: %s", exc)
            except Exception:
                log.exception("disconnected all streams: could not publish a change")
            self._disconnect_all()
            await anyio.sleep(pause)

    def close(self) -> None:
        """End every stream now. Browsers reconnect when the server is back."""
        self.closed = True
        self._signal.signal()

    async def follow(
        self, viewer: Viewer, cursor: Cursor, *, beat: float
    ) -> AsyncGenerator[tuple[Cursor, bytes]]:
        """Yield what to send to a viewer after a cursor, each time with the cursor that it leads to, until closed.

        After `beat` seconds without events, yield an empty body with the current cursor. Raise `StreamTooSlow` for a slow
        reader, `CursorExpired` and `Invalid` for an unusable cursor."""
        self._followers += 1
        self._has_followers.set()
        try:
            position = self._find_position(cursor)
            while not self.closed:
                seen, before = self._signal.count, cursor
                if position is None:
                    cursor, body = await self._read_store(viewer, cursor)
                    position = self._find_position(cursor)
                else:
                    position, body = self._read_ring(viewer, position)
                    cursor = self._cursor_before(position) or cursor
                if body:
                    yield cursor, body
                elif cursor == before:
                    with anyio.move_on_after(beat):
                        await self._signal.wait(seen)
                    if self._signal.count == seen:
                        yield cursor, b""
        finally:
            self._followers -= 1

    @property
    def _next(self) -> int:
        return self._first + len(self._ring)

    def _find_position(self, cursor: Cursor) -> RingPosition | None:
        """Return the position after a cursor, or None if the ring no longer contains it."""
        position = self._positions.get(cursor)
        return position if position and position.batch >= self._first else None

    def _cursor_before(self, position: RingPosition) -> Cursor | None:
        """Return the cursor of the batch before a position."""
        number = position.batch - 1 - self._first
        return self._ring[number].cursors[-1] if 0 <= number < len(self._ring) else None

    def _read_ring(self, viewer: Viewer, position: RingPosition) -> tuple[RingPosition, bytes]:
        """Return the next batches, up to about `_MAX_CHUNK_BYTES`, and the position after them."""
        if position.batch < self._first:
            raise StreamTooSlow
        parts: list[bytes] = []
        size = 0
        while position.batch < self._next and size < _MAX_CHUNK_BYTES:
            part = self._ring[position.batch - self._first].join_for(viewer, position.after)
            parts.append(part)
            size += len(part)
            position = RingPosition(position.batch + 1)
        return position, b"".join(parts)

    async def _read_store(self, viewer: Viewer, cursor: Cursor) -> tuple[Cursor, bytes]:
        """Read the next changes after a cursor from the store. Return the last cursor and the events."""
        changes, details, drafts = await self._hub.views.read_changes(cursor)
        if not changes:
            return cursor, b""
        events = await _encode_off_loop(
            changes, lambda: ChangeEncoder().encode_batch(changes, details, drafts)
        )
        last = changes[-1].cursor
        body = b"".join(t.body for t in events if t.visible_to(viewer))
        return last, body + encode_cursor(last) if body else b""

    async def _publish_while_followed(self) -> None:
        """Wake the streams that wait for a position, then publish changes while any stream follows."""
        cursor = await self._hub.head_cursor()
        self._positions[cursor] = RingPosition(self._next)
        self._signal.signal()
        async for changes in self._hub.follow_all(cursor):
            if not self._followers:
                self._has_followers = anyio.Event()
                return
            await self._publish(changes)

    async def _publish(self, changes: Sequence[Change]) -> None:
        unknown = self._encoder.find_unknown_drafts(changes)
        details, drafts = await self._hub.views.load_details(changes, drafts=unknown)
        events = await _encode_off_loop(changes, lambda: self._encoder.encode_batch(changes, details, drafts))
        self._append_batch(changes, events)
        self._signal.signal()

    def _disconnect_all(self) -> None:
        """Empty the ring, so that every stream resumes from the store."""
        self._first = self._next + 1
        self._ring.clear()
        self._positions.clear()
        self._ring_bytes = 0
        self._encoder = ChangeEncoder()
        self._signal.signal()

    def _append_batch(self, changes: Sequence[Change], events: list[EncodedEvent]) -> None:
        number = self._next
        for index, change in enumerate(changes):
            self._positions[change.cursor] = RingPosition(number, index)
        self._positions[changes[-1].cursor] = RingPosition(number + 1)
        size = sum(len(t.body) for t in events)
        cursors = [change.cursor for change in changes]
        self._ring.append(EventBatch(cursors=cursors, events=events, size=size, cache={}))
        self._ring_bytes += size
        while len(self._ring) > 1 and (len(self._ring) > _MAX_BATCHES or self._ring_bytes > _MAX_RING_BYTES):
            dropped = self._ring.popleft()
            self._first += 1
            self._ring_bytes -= dropped.size
            for cursor in dropped.cursors:
                self._positions.pop(cursor, None)


def encode_cursor(cursor: Cursor) -> bytes:
    """Encode a server-sent event that only sets the cursor of the browser."""
    return f"id: {cursor}\n\n".encode()


async def _encode_off_loop(
    changes: Sequence[Change], work: Callable[[], list[EncodedEvent]]
) -> list[EncodedEvent]:
    """Run `work`, in a thread if the changes contain much text, to keep the event loop free."""
    return await anyio.to_thread.run_sync(work) if count_chars(changes) > _THREAD_CHARS else work()
