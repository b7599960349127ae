"""Fetches the files of stored messages from a platform, a few at once, while its adapter listens."""

import logging
from datetime import datetime, timedelta
from functools import partial
from itertools import count

import anyio

from keryx import logs
from keryx.core.clock import Clock
from keryx.core.durations import Backoff, describe
from keryx.core.errors import Conflict, Invalid, KeryxError, Retryable, Unavailable
from keryx.core.ids import WorkerId
from keryx.core.ports.adapter import Adapter, SupportsDownloads
from keryx.core.texts import Phrase, explain
from keryx.engine import media, plugins
from keryx.engine.loops.previews import TYPING_INTERVAL
from keryx.engine.media import MediaStorage
from keryx.engine.policy import MediaLimits
from keryx.engine.units import downloads
from keryx.plugin_thread import guard_plugin
from keryx.store import downloads as store
from keryx.store.db import Database, Work
from keryx.store.downloads import Download
from keryx.timing import WakeSignal, wait_until

log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 3
_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=5))
_RETRY_DELAY = timedelta(seconds=1)
# If a platform asks to wait longer, its file is given up: the answer cannot wait so long.
_LONGEST_PAUSE = timedelta(hours=1)
_TYPING_TIMEOUT_SECONDS = 5
# What a process leaves behind that ends on another machine is noticed by looking.
_LOOK_AGAIN = timedelta(seconds=30)


class Downloader:
    """Fetches for one adapter. A file is claimed by a worker, so that several nodes fetch it once, and the claim of a
    process that has ended is void."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        adapter: Adapter,
        *,
        worker: WorkerId,
        storage: MediaStorage,
        limits: MediaLimits,
        lease: timedelta,
    ) -> None:
        self._database = database
        self._clock = clock
        self._adapter = adapter
        self._worker = worker
        self._storage = storage
        self._limits = limits
        self._lease = lease
        # The positions of the files that are being fetched.
        self._active: set[int] = set()
        # The platform has asked to fetch nothing before, by the monotonic clock.
        self._paused_until = 0.0
        self._work = WakeSignal()

    def look_again(self) -> None:
        """Check for files to fetch: a message with some was stored."""
        self._work.signal()

    async def run(self) -> None:
        """Fetch until cancelled. Does nothing for an adapter that has no `download`."""
        adapter = self._adapter
        if not isinstance(adapter, SupportsDownloads):
            return
        self._active.clear()
        async with anyio.create_task_group() as group:
            while True:
                seen = self._work.count
                claimed: list[Download] = []
                at = self._find_end_of_pause()
                free = self._limits.at_once - len(self._active)
                if free and at is None:
                    try:
                        claimed, at = await self._claim(free)
                    except KeryxError as exc:
                        log.warning("cannot look for files to fetch now: %s", exc, extra=logs.REPEATS)
                        at = self._clock.now() + _RETRY_DELAY
                for download in claimed:
                    self._active.add(download.position)
                    group.start_soon(self._fetch, adapter, download)
                latest = self._clock.now() + _LOOK_AGAIN
                await wait_until(self._work, seen, self._clock, min(at or latest, latest))

    def _find_end_of_pause(self) -> datetime | None:
        left = self._paused_until - self._clock.monotonic()
        return self._clock.now() + timedelta(seconds=left) if left > 0 else None

    async def _claim(self, most: int) -> tuple[list[Download], datetime | None]:
        """Take files to fetch, and return when to look again for those that wait for another attempt."""
        adapter = self._adapter
        work = partial(
            downloads.claim,
            worker=self._worker,
            platform=adapter.platform,
            account=adapter.account,
            most=most,
            # The files of one conversation leave places for those of others.
            share=max(1, self._limits.at_once // 2),
            active=frozenset(self._active),
            lease=self._lease,
        )
        return await self._database.write("downloads.claim", work)

    async def _fetch(self, adapter: SupportsDownloads, download: Download) -> None:
        """Fetch a file and put it, or the reason of the failure, into its message. While the store is not available, repeat it."""
        try:
            async with anyio.create_task_group() as group:
                if self._adapter.capabilities.typing:
                    group.start_soon(self._show_typing, download)
                await self._fetch_and_record(adapter, download)
                group.cancel_scope.cancel()
        finally:
            self._active.discard(download.position)
            self._work.signal()

    async def _show_typing(self, download: Download) -> None:
        """Show that a message is being worked on while its file takes long."""
        while True:
            await self._clock.sleep(TYPING_INTERVAL.total_seconds())
            try:
                find = partial(downloads.find_typing_target, download=download)
                target = await self._database.read("downloads.typing", find)
                if target is not None:
                    with anyio.fail_after(_TYPING_TIMEOUT_SECONDS), guard_plugin():
                        await self._adapter.typing(target)
            except Exception as exc:  # noqa: BLE001 an optional hint
                log.debug("typing on %s failed: %r", self._adapter.platform, exc)

    async def _fetch_and_record(self, adapter: SupportsDownloads, download: Download) -> None:
        for failures in count(1):
            try:
                work = await self._try_fetch(adapter, download)
                await self._database.write("downloads.settle", work)
            except KeryxError as exc:
                log.warning("cannot record the result of a download: %s", exc)
                await self._clock.sleep(_BACKOFF.seconds(failures))
            else:
                return

    async def _try_fetch(self, adapter: SupportsDownloads, download: Download) -> Work[None]:
        """Return the unit of work that records the outcome of one attempt."""
        if download.attempts > _MAX_ATTEMPTS:
            return partial(downloads.give_up, download=download, reason=Phrase("file.deadly"))
        file, limits = download.file, self._limits
        try:
            fetched = await plugins.download(adapter, file, limit=limits.limit, timeout=limits.timeout)
            owner = media.build_adapter_viewer(self._adapter.platform, self._adapter.account)
            part = await self._storage.save(owner, fetched, session=download.session)
        except (Invalid, Conflict) as exc:
            log.info("a file of %s cannot be kept: %s", self._adapter.platform, exc)
            reason = explain(exc, "file.platform_says", platform=self._adapter.platform)
            return partial(downloads.give_up, download=download, reason=reason)
        except Unavailable as exc:
            pause = exc.after if isinstance(exc, Retryable) else timedelta(0)
            if pause > _LONGEST_PAUSE or (not pause and download.attempts >= _MAX_ATTEMPTS):
                log.warning("a file of %s cannot be fetched: %s", self._adapter.platform, exc)
                key = "file.wait" if pause else "file.unavailable"
                reason = explain(exc, key, platform=self._adapter.platform, span=describe(pause))
                return partial(downloads.give_up, download=download, reason=reason)
            backoff = timedelta(seconds=_BACKOFF.seconds(download.attempts))
            later = self._clock.now() + max(pause, backoff)
            if pause:
                self._paused_until = self._clock.monotonic() + pause.total_seconds()
            return partial(store.release, download=download, not_before=later, counted=not pause)
        return partial(downloads.complete, download=download, part=part)
