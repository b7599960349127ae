"""One reader of the change feed per process, with any number of followers."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from datetime import timedelta
from typing import TypeAlias, TypeVar

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from keryx import logs
from keryx.core.changes import Change
from keryx.core.clock import Clock
from keryx.core.durations import Backoff
from keryx.core.errors import CursorExpired, Retryable, Unavailable
from keryx.core.ids import Cursor, SessionId
from keryx.core.sessions import Viewer
from keryx.store import change_feed, changes
from keryx.store.db import Database, Work
from keryx.timing import WakeSignal

T = TypeVar("T")
ChangeHandler: TypeAlias = Callable[[Change], None]
log = logging.getLogger(__name__)

_BATCH_SIZE = 500
_MAX_RECENT = 2000
# Characters of messages and drafts. Some are long, and followers rarely need more than the last few changes.
MAX_RECENT_CHARS = 4_000_000
_BLOCKED_BACKOFF = Backoff(first=timedelta(milliseconds=5), longest=timedelta(milliseconds=250))
_LONG_BLOCKED_SECONDS = 0.1
_RETRY_SECONDS = 0.5


class Feed:
    """Reads every change once for all followers. It queries the database only after a change."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        on_blocked: Callable[[], None] = lambda: None,
        on_missed: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_blocked` is called repeatedly while an unfinished transaction blocks the feed for longer than a moment,
        `on_missed` when changes were trimmed before they were read."""
        self._database = database
        self._clock = clock
        self._on_blocked = on_blocked
        self._on_missed = on_missed
        self._recent: deque[Change] = deque()
        # The size of each, in the same order.
        self._sizes: deque[int] = deque()
        # Of the messages and drafts that are kept in memory.
        self.recent_chars = 0
        self._read = 0
        self._offsets: dict[Cursor, int] = {}
        self._wake = WakeSignal()
        self._handlers: list[ChangeHandler] = []
        self._cursor: Cursor | None = None
        self._start: Cursor | None = None
        self.reading = False
        self._started = False

    def announce_to(self, handler: ChangeHandler) -> None:
        """Call a handler with every change from the start of the feed on, as soon as it is read. Handlers return at once, and
        raise nothing."""
        self._handlers.append(handler)

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Read until cancelled. Report that it has started when it has caught up. All followers depend on it."""
        attempts = 0
        seen = self._database.wake.count
        self._begin_at(await self._database.read("feed.head", changes.get_head))
        while True:
            before, blocked = self._read, False
            try:
                blocked = await self._catch_up()
            except CursorExpired as exc:
                log.warning("the feed was trimmed while this process slept; continuing at its end: %s", exc)
                self._begin_at(await self._read_store("feed.head", changes.get_head))
                self._on_missed()
            self.reading = True
            if not self._started:
                self._started = True
                task_status.started()
            if blocked:
                attempts = 1 if self._read > before else attempts + 1
                await self._wait_blocked(_BLOCKED_BACKOFF.seconds(attempts))
            else:
                attempts, seen = 0, await self._database.wake.wait(seen)

    @property
    def start(self) -> Cursor:
        """The cursor where this process began to read, to follow from without a query."""
        assert self._start is not None, "the feed does not run yet"
        return self._start

    async def follow(
        self, viewer: Viewer | None, cursor: Cursor, *, session: SessionId | None = None
    ) -> AsyncIterator[Change]:
        """Yield the changes after a cursor that a viewer may see, then live ones, without end. Raise `CursorExpired` if
        the cursor is too old."""
        async for batch in self.batches(cursor):
            for change in batch:
                visible = viewer is None or viewer.sees(change.profile, change.owner)
                if visible and (session is None or change.session == session):
                    yield change

    async def batches(
        self, cursor: Cursor, *, beat: float | None = None
    ) -> AsyncGenerator[list[Change], None]:
        """Yield all changes after a cursor, of any owner, in batches; after `beat` seconds without any, an empty one."""
        while True:
            offset = self._offsets.get(cursor)
            seen = self._wake.count
            if offset is not None:
                batch = self._list_newest(self._read - offset - 1)
            elif cursor == self._cursor:
                batch = []
            else:
                batch, _ = await self._read_after(cursor)
            if batch:
                cursor = batch[-1].cursor
                yield batch
            elif beat is None:
                await self._wake.wait(seen)
            else:
                with anyio.move_on_after(beat):
                    await self._wake.wait(seen)
                if self._wake.count == seen:
                    yield []

    def _begin_at(self, end: Cursor) -> None:
        """Start at the end of the feed. Followers query the changes before it themselves."""
        self._recent.clear()
        self._sizes.clear()
        self.recent_chars = 0
        self._cursor = self._start = end
        self._offsets = {self._start: self._read - 1}
        self._wake.signal()

    def _list_newest(self, count: int) -> list[Change]:
        """Return the last changes in order. Indexed from the end: a follower usually needs one or two of thousands."""
        return [self._recent[n] for n in range(-count, 0)]

    async def _catch_up(self) -> bool:
        """Read all visible changes. Return whether an older, unfinished transaction blocks others."""
        assert self._cursor is not None, "the feed was not begun"
        while True:
            batch, blocked = await self._read_after(self._cursor)
            for change in batch:
                self._remember(change)
                for handle in self._handlers:
                    handle(change)
            if batch:
                self._wake.signal()
            if not batch or (len(batch) < _BATCH_SIZE and not blocked):
                return blocked

    async def _wait_blocked(self, pause: float) -> None:
        """Wait for the older transaction, of this node or another one. Those who claim work must not wait for it."""
        if pause >= _LONG_BLOCKED_SECONDS:
            self._on_blocked()
        # In real time: other transactions do not follow the injected clock.
        await anyio.sleep(pause)

    async def _read_after(self, cursor: Cursor) -> change_feed.FeedPage:
        return await self._read_store(
            "feed.after", lambda tx: change_feed.read_page(tx, cursor, limit=_BATCH_SIZE)
        )

    async def _read_store(self, label: str, work: Work[T]) -> T:
        """Read, and retry for as long as the store is unavailable. Once it has been read, any other fault may be mended too,
        and must not end the process."""
        while True:
            try:
                return await self._database.read(label, work)
            except Unavailable as exc:
                if not self._started and not isinstance(exc, Retryable):
                    raise
                self.reading = False
                log.warning("cannot read the feed now: %s", exc, extra=logs.REPEATS)
                await self._clock.sleep(_RETRY_SECONDS)

    def _remember(self, change: Change) -> None:
        size = change.size
        self._recent.append(change)
        self._sizes.append(size)
        self.recent_chars += size
        self._offsets[change.cursor] = self._read
        self._read += 1
        self._cursor = change.cursor
        # Those before it are queried by followers that have fallen behind.
        while len(self._recent) > _MAX_RECENT or self.recent_chars > MAX_RECENT_CHARS:
            dropped = self._recent.popleft()
            self.recent_chars -= self._sizes.popleft()
            del self._offsets[dropped.cursor]
            self._offsets.pop(self._start or dropped.cursor, None)
