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
from keryx.engine.hub.hub import Hub
from keryx.surfaces.web.stream.encoder import ChangeEncoder, EncodedEvent, count_chars
from keryx.timing import WakeSignal

log = logging.getLogger(__name__)

_MAX_BATCHES = 1_000
_MAX_RING_BYTES = 32 << 20
_MAX_CHUNK_BYTES = 256 << 10
_THREAD_CHARS = 8_000
_RETRY_SECONDS = 1.0


class StreamTooSlow(Exception):
    """A stream was too slow: what it should send next is no longer in the ring."""


class EventBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Some changes, and what streams are told of them. `joined` keeps what was put together for each viewer."""

    cursors: list[Cursor]
    events: list[EncodedEvent]
    size: int
    cache: dict[Viewer, bytes]

    def join_for(self, viewer: Viewer, after: int) -> bytes:
        """What a viewer may see of the changes above this index, with the cursor that it leads to."""
        if after < 0 and viewer in self.cache:
            return self.cache[viewer]
        body = b"".join(t.body for t in self.events if t.index > after and t.visible_to(viewer))
        if body:
            body += encode_cursor(self.cursors[-1])
        if after < 0:
            self.cache[viewer] = body
        return body


class RingPosition(msgspec.Struct, frozen=True):
    """The next batch to send, from the changes above this index on."""

    batch: int
    after: int = -1


class Broadcast:
    """`run` does the work, in a task of its own."""

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
        """Tell for ever. When something fails, every stream is cut: it comes back and reads from the store what it
        missed, so nothing is skipped."""
        while True:
            pause = _RETRY_SECONDS
            try:
                await self._has_followers.wait()
                await self._publish_while_followed()
                pause = 0
            except KeryxError as exc:
                log.warning("the streams of the web are cut: %s", exc)
            except Exception:
                log.exception("the streams of the web are cut: a change could not be told")
            self._disconnect_all()
            await anyio.sleep(pause)

    def close(self) -> None:
        """End every stream now; browsers come back when there is a server again."""
        self.closed = True
        self._signal.signal()

    async def follow(
        self, viewer: Viewer, cursor: Cursor, *, beat: float
    ) -> AsyncGenerator[tuple[Cursor, bytes]]:
        """What a viewer is to be sent after a cursor, and the cursor that it leads to, until closed.

        After `beat` seconds without anything, nothing is to be sent, with the cursor reached. Raises `Gone` for a
        reader that is too slow, `CursorExpired` and `Invalid` for a cursor that is of no use."""
        self._followers += 1
        self._has_followers.set()
        try:
            place = self._find_position(cursor)
            while not self.closed:
                seen, before = self._signal.count, cursor
                if place is None:
                    cursor, body = await self._read_store(viewer, cursor)
                    place = self._find_position(cursor)
                else:
                    place, body = self._read_ring(viewer, place)
                    cursor = self._cursor_before(place) or cursor
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
        """The place behind a cursor, unless the ring has moved past it."""
        place = self._positions.get(cursor)
        return place if place and place.batch >= self._first else None

    def _cursor_before(self, place: RingPosition) -> Cursor | None:
        """The cursor of all that lies before a place."""
        number = place.batch - 1 - self._first
        return self._ring[number].cursors[-1] if 0 <= number < len(self._ring) else None

    def _read_ring(self, viewer: Viewer, place: RingPosition) -> tuple[RingPosition, bytes]:
        """What comes next, up to about `_AT_ONCE` bytes, and where that leads."""
        if place.batch < self._first:
            raise StreamTooSlow
        parts: list[bytes] = []
        size = 0
        while place.batch < self._next and size < _MAX_CHUNK_BYTES:
            part = self._ring[place.batch - self._first].join_for(viewer, place.after)
            parts.append(part)
            size += len(part)
            place = RingPosition(place.batch + 1)
        return place, b"".join(parts)

    async def _read_store(self, viewer: Viewer, cursor: Cursor) -> tuple[Cursor, bytes]:
        """What a viewer missed, from the store: as much as is read in one go, and the cursor that it leads to."""
        changes, details, drafts = await self._hub.views.read_changes(cursor)
        if not changes:
            return cursor, b""
        told = await _encode_off_loop(changes, lambda: ChangeEncoder().encode_batch(changes, details, drafts))
        last = changes[-1].cursor
        body = b"".join(t.body for t in told if t.visible_to(viewer))
        return last, body + encode_cursor(last) if body else b""

    async def _publish_while_followed(self) -> None:
        """Tell until a change comes that nobody waits for. Whoever began to follow before the first one looks again."""
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
        told = await _encode_off_loop(changes, lambda: self._encoder.encode_batch(changes, details, drafts))
        self._append_batch(changes, told)
        self._signal.signal()

    def _disconnect_all(self) -> None:
        """Leave no place in the ring for anybody."""
        self._first = self._next + 1
        self._ring.clear()
        self._positions.clear()
        self._ring_bytes = 0
        self._encoder = ChangeEncoder()
        self._signal.signal()

    def _append_batch(self, changes: Sequence[Change], told: list[EncodedEvent]) -> None:
        number = self._next
        for index, change in enumerate(changes):
            self._positions[change.cursor] = RingPosition(number, index)
        self._positions[changes[-1].cursor] = RingPosition(number + 1)
        size = sum(len(t.body) for t in told)
        cursors = [change.cursor for change in changes]
        self._ring.append(EventBatch(cursors=cursors, events=told, size=size, cache={}))
        self._ring_bytes += size
        while len(self._ring) > 1 and (len(self._ring) > _MAX_BATCHES or self._ring_bytes > _MAX_RING_BYTES):
            gone = self._ring.popleft()
            self._first += 1
            self._ring_bytes -= gone.size
            for cursor in gone.cursors:
                self._positions.pop(cursor, None)


def encode_cursor(cursor: Cursor) -> bytes:
    """Tells a browser the cursor that it has reached, and nothing else."""
    return f"id: {cursor}\n\n".encode()


async def _encode_off_loop(
    changes: Sequence[Change], work: Callable[[], list[EncodedEvent]]
) -> list[EncodedEvent]:
    """Render what is long in a thread, so that others need not wait."""
    return await anyio.to_thread.run_sync(work) if count_chars(changes) > _THREAD_CHARS else work()
