"""Broadcast: every change is read, shown and encoded once in this process, however many streams send it.

A ring holds the last batches. A stream is a place in the ring; one that falls out of it is cut, and comes back with its
cursor to read from the store what it missed. While there are no streams, nothing is read."""

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
from keryx.surfaces.web.digest import Digest, Told, heavy

log = logging.getLogger(__name__)

_BATCHES = 1_000
_BYTES = 32 << 20
_AT_ONCE = 256 << 10
_HEAVY = 8_000
_PAUSE = 1.0


class Gone(Exception):
    """A stream was too slow: what it should send next is no longer in the ring."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Some changes, and what streams are told of them. `joined` keeps what was put together for each viewer."""

    cursors: list[Cursor]
    told: list[Told]
    size: int
    joined: dict[Viewer, bytes]

    def bytes_for(self, viewer: Viewer, after: int) -> bytes:
        """What a viewer may see of the changes above this index, with the cursor that it leads to."""
        if after < 0 and viewer in self.joined:
            return self.joined[viewer]
        body = b"".join(t.body for t in self.told if t.index > after and t.visible(viewer))
        if body:
            body += mark(self.cursors[-1])
        if after < 0:
            self.joined[viewer] = body
        return body


class Place(msgspec.Struct, frozen=True):
    """The next batch to send, from the changes above this index on."""

    batch: int
    after: int = -1


class Signal:
    """Wakes whoever waits."""

    def __init__(self) -> None:
        self.count = 0
        self._event = anyio.Event()

    def set(self) -> None:
        self.count += 1
        self._event.set()
        self._event = anyio.Event()

    async def wait(self, seen: int, seconds: float) -> bool:
        """Wait until the count is another than `seen`; false if it still is the same after some seconds."""
        if self.count == seen:
            with anyio.move_on_after(seconds):
                await self._event.wait()
        return self.count != seen


class Broadcast:
    """`run` does the work, in a task of its own."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._digest = Digest()
        self._ring: deque[Batch] = deque()
        self._first = 0
        self._held = 0
        self._places: dict[Cursor, Place] = {}
        self._signal = Signal()
        self._followers = 0
        self._followed = anyio.Event()
        self.closed = False

    async def run(self) -> None:
        """Tell for ever. When something fails, every stream is cut: it comes back and reads from the store what it
        missed, so nothing is skipped."""
        while True:
            pause = _PAUSE
            try:
                await self._followed.wait()
                await self._tell_while_followed()
                pause = 0
            except KeryxError as exc:
                log.warning("the streams of the web are cut: %s", exc)
            except Exception:
                log.exception("the streams of the web are cut: a change could not be told")
            self._cut()
            await anyio.sleep(pause)

    def close(self) -> None:
        """End every stream now; browsers come back when there is a server again."""
        self.closed = True
        self._signal.set()

    async def follow(
        self, viewer: Viewer, cursor: Cursor, *, beat: float
    ) -> AsyncGenerator[tuple[Cursor, bytes]]:
        """What a viewer is to be sent after a cursor, and the cursor that it leads to, until closed.

        After `beat` seconds without anything, nothing is to be sent, with the cursor reached. Raises `Gone` for a
        reader that is too slow, `CursorExpired` and `Invalid` for a cursor that is of no use."""
        self._followers += 1
        self._followed.set()
        try:
            place = self._place(cursor)
            while not self.closed:
                seen, before = self._signal.count, cursor
                if place is None:
                    cursor, body = await self._missed(viewer, cursor)
                    place = self._place(cursor)
                else:
                    place, body = self._take(viewer, place)
                    cursor = self._cursor(place) or cursor
                if body:
                    yield cursor, body
                elif cursor == before and not await self._signal.wait(seen, beat):
                    yield cursor, b""
        finally:
            self._followers -= 1

    @property
    def _next(self) -> int:
        return self._first + len(self._ring)

    def _place(self, cursor: Cursor) -> Place | None:
        """The place behind a cursor, unless the ring has moved past it."""
        place = self._places.get(cursor)
        return place if place and place.batch >= self._first else None

    def _cursor(self, place: Place) -> Cursor | None:
        """The cursor of all that lies before a place."""
        number = place.batch - 1 - self._first
        return self._ring[number].cursors[-1] if 0 <= number < len(self._ring) else None

    def _take(self, viewer: Viewer, place: Place) -> tuple[Place, bytes]:
        """What comes next, up to about `_AT_ONCE` bytes, and where that leads."""
        if place.batch < self._first:
            raise Gone
        parts: list[bytes] = []
        size = 0
        while place.batch < self._next and size < _AT_ONCE:
            part = self._ring[place.batch - self._first].bytes_for(viewer, place.after)
            parts.append(part)
            size += len(part)
            place = Place(place.batch + 1)
        return place, b"".join(parts)

    async def _missed(self, viewer: Viewer, cursor: Cursor) -> tuple[Cursor, bytes]:
        """What a viewer missed, from the store: as much as is read in one go, and the cursor that it leads to."""
        changes, details, drafts = await self._hub.views.missed(cursor)
        if not changes:
            return cursor, b""
        told = await _away(changes, lambda: Digest().tell(changes, details, drafts))
        last = changes[-1].cursor
        body = b"".join(t.body for t in told if t.visible(viewer))
        return last, body + mark(last) if body else b""

    async def _tell_while_followed(self) -> None:
        """Tell until a change comes that nobody waits for. Whoever began to follow before the first one looks again."""
        cursor = await self._hub.now()
        self._places[cursor] = Place(self._next)
        self._signal.set()
        async for changes in self._hub.changes(cursor):
            if not self._followers:
                self._followed = anyio.Event()
                return
            await self._tell(changes)

    async def _tell(self, changes: Sequence[Change]) -> None:
        unknown = self._digest.unknown(changes)
        details, drafts = await self._hub.views.details(changes, drafts=unknown)
        told = await _away(changes, lambda: self._digest.tell(changes, details, drafts))
        self._keep(changes, told)
        self._signal.set()

    def _cut(self) -> None:
        """Leave no place in the ring for anybody."""
        self._first = self._next + 1
        self._ring.clear()
        self._places.clear()
        self._held = 0
        self._digest = Digest()
        self._signal.set()

    def _keep(self, changes: Sequence[Change], told: list[Told]) -> None:
        number = self._next
        for index, change in enumerate(changes):
            self._places[change.cursor] = Place(number, index)
        self._places[changes[-1].cursor] = Place(number + 1)
        size = sum(len(t.body) for t in told)
        cursors = [change.cursor for change in changes]
        self._ring.append(Batch(cursors=cursors, told=told, size=size, joined={}))
        self._held += size
        while len(self._ring) > 1 and (len(self._ring) > _BATCHES or self._held > _BYTES):
            gone = self._ring.popleft()
            self._first += 1
            self._held -= gone.size
            for cursor in gone.cursors:
                self._places.pop(cursor, None)


def mark(cursor: Cursor) -> bytes:
    """Tells a browser the cursor that it has reached, and nothing else."""
    return f"id: {cursor}\n\n".encode()


async def _away(changes: Sequence[Change], work: Callable[[], list[Told]]) -> list[Told]:
    """Render what is long in a thread, so that others need not wait."""
    return await anyio.to_thread.run_sync(work) if heavy(changes) > _HEAVY else work()
