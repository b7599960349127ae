"""Names the threads of conversations after their titles and archives them at the end, while an adapter listens. What to do is derived from the store, so that a process that ends in between loses nothing."""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial

import anyio

from keryx.core.changes import Change, ChangeKind
from keryx.core.clock import Clock
from keryx.core.durations import Backoff
from keryx.core.errors import CursorExpired, KeryxError, Refused, Throttled
from keryx.core.ids import LaneKey
from keryx.core.ports.adapter import Adapter, SupportsThreads
from keryx.engine import plugins
from keryx.engine.loops.feed import Feed
from keryx.engine.units import thread_states
from keryx.engine.units.thread_states import ThreadUpdate
from keryx.store import changes
from keryx.store.db import Database
from keryx.timing import WakeSignal, wait_until

log = logging.getLogger(__name__)

_BACKOFF = Backoff(first=timedelta(seconds=2), longest=timedelta(minutes=5))
_SESSION_CHANGES = (ChangeKind.SESSION, ChangeKind.SESSION_GONE)


class ThreadUpdater:
    """Updates the threads of one account, one after the other."""

    def __init__(
        self, database: Database, clock: Clock, feed: Feed, adapter: Adapter, *, timeout: timedelta
    ) -> None:
        self._database = database
        self._clock = clock
        self._feed = feed
        self._adapter = adapter
        self._timeout = timeout
        # The lanes to look at, and when; how often the last attempts failed.
        self._due: dict[LaneKey, datetime] = {}
        self._failures: dict[LaneKey, int] = {}
        self._work = WakeSignal()

    async def run(self) -> None:
        """Update until cancelled. Does nothing for an adapter whose threads have no titles."""
        adapter = self._adapter
        if not adapter.capabilities.thread_titles or not isinstance(adapter, SupportsThreads):
            return
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow)
            while True:
                seen, now = self._work.count, self._clock.now()
                for lane in [lane for lane, at in self._due.items() if at <= now]:
                    del self._due[lane]
                    await self._update(adapter, lane)
                await wait_until(self._work, seen, self._clock, min(self._due.values(), default=None))

    async def _follow(self) -> None:
        """Look at all threads, and then at those whose conversation changes."""
        failures = 0
        while True:
            try:
                cursor = await self._database.read("threads.head", changes.get_head)
                self._look_at(
                    await self._database.read("threads.all", partial(thread_states.list_lanes, **self._place))
                )
                failures = 0
                async for batch in self._feed.batches(cursor):
                    await self._look_at_changes(batch)
            except CursorExpired:
                log.info("changes were missed: all threads of %s are looked at", self._adapter.platform)
            except KeryxError as exc:
                failures += 1
                log.warning("cannot look for threads to rename now: %s", exc)
                await self._clock.sleep(_BACKOFF.seconds(failures))

    async def _look_at_changes(self, batch: list[Change]) -> None:
        self._look_at(LaneKey(change.subject) for change in batch if change.kind is ChangeKind.LANE)
        changed = frozenset(c.session for c in batch if c.kind in _SESSION_CHANGES and c.session)
        if changed:
            find = partial(thread_states.list_session_lanes, changed=changed, **self._place)
            self._look_at(await self._database.read("threads.changed", find))

    @property
    def _place(self) -> dict[str, str]:
        return {"platform": self._adapter.platform, "account": self._adapter.account}

    def _look_at(self, lanes: Iterable[LaneKey]) -> None:
        # One that waits after a failure has more to show now, but not earlier.
        if found := dict.fromkeys(lanes, self._clock.now()):
            self._due = {**found, **self._due}
            self._work.signal()

    async def _update(self, adapter: SupportsThreads, lane: LaneKey) -> None:
        """Bring the thread of a lane up to date, or look at it again later."""
        try:
            update = await self._database.read(
                "threads.find", partial(thread_states.find_update, key=lane, **self._place)
            )
            if update is not None and update.busy:
                self._retry(lane)
                return
            if update is not None:
                await self._call(adapter, update)
                await self._database.write("threads.record", partial(thread_states.record, update=update))
        except KeryxError as exc:
            log.info("a thread of %s is not up to date: %s", self._adapter.platform, exc)
            self._retry(lane, exc.after if isinstance(exc, Throttled) else timedelta(0))
        else:
            self._failures.pop(lane, None)

    async def _call(self, adapter: SupportsThreads, update: ThreadUpdate) -> None:
        """Rename and archive a thread. One that cannot be changed stays as it is."""
        try:
            await plugins.update_thread(
                adapter, update.target, title=update.title, archive=update.archive, timeout=self._timeout
            )
        except Refused as exc:
            log.info("%s refused to rename or archive a thread: %s", self._adapter.platform, exc)

    def _retry(self, lane: LaneKey, after: timedelta = timedelta(0)) -> None:
        failures = self._failures[lane] = self._failures.get(lane, 0) + 1
        self._due[lane] = self._clock.now() + max(after, _BACKOFF.delay(failures))
