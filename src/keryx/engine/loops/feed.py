"""One reader of the change feed per process, with any number of followers."""

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from keryx.core.changes import Change
from keryx.core.clock import Backoff, Clock
from keryx.core.errors import CursorExpired, Retryable
from keryx.core.ids import Cursor, SessionId
from keryx.core.sessions import Viewer
from keryx.store import change_feed, changes
from keryx.store.db.database import Database
from keryx.timing import WakeSignal

log = logging.getLogger(__name__)

_BATCH_SIZE = 500
_MAX_RECENT = 2000
_BLOCKED_BACKOFF = Backoff(first=timedelta(milliseconds=5), longest=timedelta(milliseconds=250))
_LONG_BLOCKED_SECONDS = 0.1
_RETRY_SECONDS = 0.5


class Feed:
    """Reads every change once, whoever follows. While nothing happens nobody asks the database anything."""

    def __init__(
        self, database: Database, clock: Clock, *, held_up: Callable[[], None] = lambda: None
    ) -> None:
        """`held_up` is called now and then while there are changes that cannot be read for longer than a moment."""
        self._database = database
        self._clock = clock
        self._held_up = held_up
        self._recent: deque[Change] = deque(maxlen=_MAX_RECENT)
        self._read = 0
        self._offsets: dict[Cursor, int] = {}
        self._wake = WakeSignal()
        self._cursor: Cursor | None = None
        self._start: Cursor | None = None
        self.reading = False

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Read for ever; started once all that can be read has been. Everybody who follows depends on it."""
        began, blocked = False, 0
        seen = self._database.wake.count
        await self._begin()
        while True:
            before, held = self._read, False
            try:
                held = await self._catch_up()
            except CursorExpired as exc:
                log.warning("the feed was trimmed while this process slept, and is read from now on: %s", exc)
                await self._begin()
            self.reading = True
            if not began:
                began = True
                task_status.started()
            if held:
                blocked = 1 if self._read > before else blocked + 1
                await self._wait_blocked(_BLOCKED_BACKOFF.seconds(blocked))
            else:
                blocked, seen = 0, await self._database.wake.wait(seen)

    @property
    def start(self) -> Cursor:
        """Where this process began to read: a place to follow from that costs no question to the database."""
        assert self._start is not None, "the feed does not run yet"
        return self._start

    async def live(self, missed: Callable[[], None]) -> AsyncIterator[Change]:
        """Everything from the start on, for whoever can do without what was trimmed unread: `missed` is called then."""
        cursor = self.start
        while True:
            try:
                async for batch in self.batches(cursor):
                    for change in batch:
                        cursor = change.cursor
                        yield change
            except CursorExpired:
                cursor = await self._database.read("feed.head", changes.get_head)
                missed()

    async def follow(
        self, viewer: Viewer | None, cursor: Cursor, *, session: SessionId | None = None
    ) -> AsyncIterator[Change]:
        """Everything after a cursor that a viewer may see, then live, for ever. `CursorExpired` if it is too old."""
        async for batch in self.batches(cursor):
            for change in batch:
                if _is_visible(change, viewer, session):
                    yield change

    async def batches(self, cursor: Cursor) -> AsyncIterator[list[Change]]:
        """The same for everybody, in batches of what is there to be read."""
        while True:
            place = self._offsets.get(cursor)
            seen = self._wake.count
            if place is not None:
                batch = self._list_newest(self._read - place - 1)
            elif cursor == self._cursor:
                batch = []
            else:
                batch, _ = await self._read_after(cursor)
            if batch:
                cursor = batch[-1].cursor
                yield batch
            else:
                await self._wake.wait(seen)

    async def _begin(self) -> None:
        """Read from now on. Whoever follows looks again: what came between their look and this one is not read here."""
        self._recent.clear()
        self._cursor = self._start = await self._database.read("feed.head", changes.get_head)
        self._offsets = {self._start: self._read - 1}
        self._wake.signal()

    def _list_newest(self, count: int) -> list[Change]:
        """The last changes, in order. Counted from the end, for a follower mostly lacks one or two of thousands."""
        return [self._recent[n] for n in range(-count, 0)]

    async def _catch_up(self) -> bool:
        """Read all that can be read. Tells whether more is there that an older, unfinished transaction holds back."""
        assert self._cursor is not None, "the feed was not begun"
        while True:
            batch, held = await self._read_after(self._cursor)
            for change in batch:
                self._remember(change)
            if batch:
                self._wake.signal()
            if not batch or (len(batch) < _BATCH_SIZE and not held):
                return held

    async def _wait_blocked(self, pause: float) -> None:
        """Wait for the older transaction, which may belong to any client of the server and last for hours. Workers that
        poll queues must not wait with us."""
        if pause >= _LONG_BLOCKED_SECONDS:
            self._held_up()
        # Other transactions end in their own time, whatever our clock says.
        await anyio.sleep(pause)

    async def _read_after(self, cursor: Cursor) -> tuple[list[Change], bool]:
        """Read on, however long the store is away: everybody who follows waits with us."""
        while True:
            try:
                return await self._database.read(
                    "feed.after",
                    lambda tx: (
                        change_feed.list_after(tx, cursor, limit=_BATCH_SIZE),
                        change_feed.has_held_back(tx),
                    ),
                )
            except Retryable as exc:
                self.reading = False
                log.warning("the feed waits for the store: %s", exc)
                await self._clock.sleep(_RETRY_SECONDS)

    def _remember(self, change: Change) -> None:
        if len(self._recent) == _MAX_RECENT:
            del self._offsets[self._recent[0].cursor]
            self._offsets.pop(self._start or self._recent[0].cursor, None)
        self._recent.append(change)
        self._offsets[change.cursor] = self._read
        self._read += 1
        self._cursor = change.cursor


def _is_visible(change: Change, viewer: Viewer | None, session: SessionId | None) -> bool:
    if viewer is not None and not viewer.sees(change.profile, change.owner):
        return False
    return session is None or change.session == session
