"""Reads and encodes each change once for all streams of the process. A ring buffer holds the last batches; a stream that falls out of it is closed and resumes from the store by its cursor.

No stream waits for a long text: a message that is not rendered soon is sent without markup, and once more when it has its HTML."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from keryx import logs
from keryx.core.changes import Change, ChangeKind, DraftChunk
from keryx.core.errors import KeryxError
from keryx.core.ids import Cursor
from keryx.core.messages import Message
from keryx.core.sessions import Viewer
from keryx.engine.hub import Hub
from keryx.engine.hub.views import ChangeDetails
from keryx.fair_limits import FairShares
from keryx.surfaces.web import presenters, schema
from keryx.surfaces.web.stream import events
from keryx.surfaces.web.stream.encoder import REVISED, ChangeEncoder, EncodedEvent, encode_change
from keryx.timing import WakeSignal

log = logging.getLogger(__name__)

_MAX_BATCHES = 1_000
_MAX_RING_BYTES = 16 << 20
_MAX_CHUNK_BYTES = 256 << 10
# Fewer characters of drafts are rendered in a few milliseconds.
_THREAD_CHARS = 400
_RENDER_WAIT_SECONDS = 0.1
_MAX_LATE_MESSAGES = 200
_RETRY_SECONDS = 1.0


class StreamTooSlow(Exception):
    """The next batch of a stream is no longer in the ring buffer."""


class EventBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Some changes, with the events that streams send for them."""

    cursors: list[Cursor]
    events: list[EncodedEvent]
    size: int
    # The joined events by viewer, unless they are long.
    cache: dict[Viewer, bytes]

    def join_for(self, viewer: Viewer, after: int) -> bytes:
        """Return the events of the changes above this index that a viewer may see, followed by the last cursor."""
        if after < 0 and viewer in self.cache:
            return self.cache[viewer]
        body = b"".join(t.body for t in self.events if t.index > after and t.visible_to(viewer))
        if body:
            body += encode_cursor(self.cursors[-1])
        if after < 0 and len(body) <= _MAX_CHUNK_BYTES:
            self.cache[viewer] = body
        return body


class RingPosition(msgspec.Struct, frozen=True):
    """The next batch to send, from the changes above index `after`."""

    batch: int
    after: int = -1


class _LateMessage:
    """A long message on its way: if it is rendered after it was sent, it is sent again."""

    def __init__(self, change: Change, message: Message) -> None:
        self.change = change
        self.message = message
        self.rendered: schema.MessageSchema | None = None
        self.sent = False
        self.done = anyio.Event()


class Broadcast:
    """Feeds all streams. `run` must run in a task of its own."""

    def __init__(self, hub: Hub, renders: anyio.CapacityLimiter, *, most: int) -> None:
        self._hub = hub
        self._renders = renders
        self._shares = FairShares(most)
        self._late: dict[str, _LateMessage] = {}
        self._encoder = ChangeEncoder()
        self._ring: deque[EventBatch] = deque()
        self._first = 0
        self._ring_bytes = 0
        self._positions: dict[Cursor, RingPosition] = {}
        self._signal = WakeSignal()
        self._followers = 0
        self._draft_renders = anyio.CapacityLimiter(1)
        self._has_followers = anyio.Event()
        self.closed = False

    async def run(self) -> None:
        """Publish changes until cancelled. On an error every stream is disconnected; it resumes from the store by its
        cursor, so no change is lost."""
        async with anyio.create_task_group() as group:
            while True:
                pause = _RETRY_SECONDS
                try:
                    await self._has_followers.wait()
                    await self._publish_while_followed(group)
                    pause = 0
                except KeryxError as exc:
                    log.warning("disconnected all streams: %s", exc, extra=logs.REPEATS)
                except Exception:
                    log.exception("disconnected all streams: could not publish a change", extra=logs.REPEATS)
                self._disconnect_all()
                await anyio.sleep(pause)

    def close(self) -> None:
        """End every stream now. Browsers reconnect when the server is back."""
        self.closed = True
        self._signal.signal()

    def has_place(self, viewer: Viewer) -> bool:
        """Whether there may be one stream more of this viewer."""
        return self._shares.has_place(viewer.principal)

    async def follow(
        self, viewer: Viewer, cursor: Cursor, *, beat: float
    ) -> AsyncGenerator[tuple[Cursor, bytes]]:
        """Yield what to send to a viewer after a cursor, each time with the cursor that it leads to, until closed.

        After `beat` seconds without events for this viewer, yield an empty body with the current cursor. Raise `StreamTooSlow` for a slow
        reader, `CursorExpired` and `Invalid` for an unusable cursor. Closed for the stream of a person with fewer, if there are
        as many as there may be."""
        share = self._shares.take(viewer.principal)
        if share is None:
            return
        self._followers += 1
        self._has_followers.set()
        try:
            position = self._find_position(cursor)
            due = anyio.current_time() + beat
            while not self.closed and not share.revoked:
                seen, before = self._signal.count, cursor
                if position is None:
                    cursor, body = await self._read_store(viewer, cursor)
                    position = self._find_position(cursor)
                else:
                    position, body = self._read_ring(viewer, position)
                    cursor = self._cursor_before(position) or cursor
                if body or anyio.current_time() >= due:
                    yield cursor, body
                    due = anyio.current_time() + beat
                elif cursor == before:
                    with anyio.CancelScope(deadline=due):
                        await self._signal.wait(seen)
        finally:
            self._followers -= 1
            self._shares.release(share)

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
        encoded = await anyio.to_thread.run_sync(
            _encode_stored, changes, details, drafts, limiter=self._renders
        )
        last = changes[-1].cursor
        body = b"".join(t.body for t in encoded if t.visible_to(viewer))
        return last, body + encode_cursor(last) if body else b""

    async def _publish_while_followed(self, group: TaskGroup) -> None:
        """Wake the streams that wait for a position, then publish changes while any stream follows."""
        cursor = await self._hub.head_cursor()
        self._positions[cursor] = RingPosition(self._next)
        self._signal.signal()
        async for changes in self._hub.follow_all(cursor):
            if not self._followers:
                self._has_followers = anyio.Event()
                return
            await self._publish(changes, group)

    async def _publish(self, changes: Sequence[Change], group: TaskGroup) -> None:
        unknown = self._encoder.find_unknown_drafts(changes)
        details, drafts = await self._hub.views.load_details(changes, drafts=unknown)
        late = await self._render_messages(changes, group)
        messages: dict[str, schema.MessageSchema] = {m.message.id: m.rendered for m in late if m.rendered}
        encoder = self._encoder
        if encoder.count_chars(changes, drafts) > _THREAD_CHARS:
            encoded = await anyio.to_thread.run_sync(
                encoder.encode_batch, changes, details, drafts, messages, limiter=self._draft_renders
            )
        else:
            encoded = encoder.encode_batch(changes, details, drafts, messages)
        self._append_batch(changes, encoded)
        for one in late:
            if one.message.id in messages:
                self._late.pop(one.message.id, None)
            else:
                one.sent = True
                self._send_late(one)
        self._signal.signal()

    async def _render_messages(self, changes: Sequence[Change], group: TaskGroup) -> list[_LateMessage]:
        """Begin to render the long messages of a batch, and return them after a short time, rendered or not."""
        self._forget_replaced(changes)
        late = {
            c.message.id: _LateMessage(c, c.message)
            for c in changes
            if c.message and not presenters.is_quick(c.message)
        }
        if not late or len(self._late) + len(late) > _MAX_LATE_MESSAGES:
            return []
        self._late |= late
        with anyio.move_on_after(_RENDER_WAIT_SECONDS):
            for one in late.values():
                group.start_soon(self._render_late, one)
            for one in late.values():
                await one.done.wait()
        return list(late.values())

    async def _render_late(self, late: _LateMessage) -> None:
        try:
            late.rendered = await anyio.to_thread.run_sync(
                lambda: presenters.message(late.message), abandon_on_cancel=True, limiter=self._renders
            )
        except Exception:
            log.exception("message %s cannot be rendered: it is shown without markup", late.message.id)
            self._late.pop(late.message.id, None)
        late.done.set()
        self._send_late(late)

    def _send_late(self, late: _LateMessage) -> None:
        """Send a message again with its HTML, if it was sent without, and has not changed since."""
        if not late.sent or late.rendered is None or self._late.get(late.message.id) is not late:
            return
        del self._late[late.message.id]
        event = encode_change(late.change, 0, events.MessageEvent(message=late.rendered), mark=False)
        cursors = self._ring[-1].cursors[-1:]
        self._append(EventBatch(cursors=cursors, events=[event], size=len(event.body), cache={}))
        self._signal.signal()

    def _forget_replaced(self, changes: Sequence[Change]) -> None:
        """Forget messages that a batch changes: the streams get them, or load them again."""
        if not self._late:
            return
        revised = {c.session for c in changes if c.kind is ChangeKind.SESSION_GONE or c.note == REVISED}
        for change in changes:
            if change.message:
                self._late.pop(change.message.id, None)
        self._late = {id_: late for id_, late in self._late.items() if late.message.session not in revised}

    def _disconnect_all(self) -> None:
        """Empty the ring, so that every stream resumes from the store."""
        self._first = self._next + 1
        self._ring.clear()
        self._positions.clear()
        self._ring_bytes = 0
        self._late.clear()
        self._encoder = ChangeEncoder()
        self._signal.signal()

    def _append_batch(self, changes: Sequence[Change], encoded: list[EncodedEvent]) -> None:
        number = self._next
        for index, change in enumerate(changes):
            self._positions[change.cursor] = RingPosition(number, index)
        self._positions[changes[-1].cursor] = RingPosition(number + 1)
        size = sum(len(t.body) for t in encoded)
        cursors = [change.cursor for change in changes]
        self._append(EventBatch(cursors=cursors, events=encoded, size=size, cache={}))

    def _append(self, batch: EventBatch) -> None:
        self._ring.append(batch)
        self._ring_bytes += batch.size
        while len(self._ring) > 1 and (len(self._ring) > _MAX_BATCHES or self._ring_bytes > _MAX_RING_BYTES):
            dropped = self._ring.popleft()
            self._first += 1
            self._ring_bytes -= dropped.size
            for cursor in dropped.cursors:
                self._positions.pop(cursor, None)


def encode_cursor(cursor: Cursor) -> bytes:
    """Encode a server-sent event that only sets the cursor of the browser."""
    return f"id: {cursor}\n\n".encode()


def _encode_stored(
    changes: Sequence[Change], details: ChangeDetails, drafts: Mapping[str, list[DraftChunk]]
) -> list[EncodedEvent]:
    """Encode changes for one stream, with the HTML of their messages within the budget of one response."""
    budget = presenters.RenderBudget()
    messages: dict[str, schema.MessageSchema] = {
        c.message.id: presenters.message(c.message, render=budget.render) for c in changes if c.message
    }
    return ChangeEncoder().encode_batch(changes, details, drafts, messages)
