"""Records the state and the counters of this process's adapters, so that other processes can read them."""

import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Literal

import msgspec

from keryx.core.clock import Clock
from keryx.core.errors import KeryxError
from keryx.core.ids import WorkerId
from keryx.core.ports.adapter import Adapter, LinkState, PlatformStatus
from keryx.engine.units import workers
from keryx.store.db.database import Database
from keryx.timing import WakeSignal, wait_until

log = logging.getLogger(__name__)

FLUSH_INTERVAL = timedelta(seconds=5)
_MAX_DETAIL = 300

PlatformCounter = Literal["received", "sent", "failed", "throttled"]


class PlatformStatusReporter:
    """The adapters of one process. A change of state is written at once, counters every few seconds."""

    def __init__(self, database: Database, clock: Clock, *, worker: WorkerId) -> None:
        self._database = database
        self._clock = clock
        self._worker = worker
        self._known: dict[tuple[str, str], PlatformStatus] = {}
        self._written: dict[tuple[str, str], PlatformStatus] = {}
        self._counted = WakeSignal()
        self._moved = WakeSignal()

    @property
    def statuses(self) -> Sequence[PlatformStatus]:
        """Every connection of this process, as it stands now."""
        return list(self._known.values())

    def report(self, adapter: Adapter, link: LinkState, detail: str = "") -> None:
        """How the connection stands, in a sentence for a person."""
        before = self._get(adapter)
        told = detail[:_MAX_DETAIL]
        if (before.link, before.detail) == (link, told) and self._key(adapter) in self._written:
            return
        since = before.since if before.link is link else self._clock.now()
        self._set(adapter, msgspec.structs.replace(before, link=link, detail=told, since=since))
        level = logging.INFO if link in (LinkState.CONNECTING, LinkState.CONNECTED) else logging.WARNING
        log.log(level, "%s:%s is %s %s", adapter.platform, adapter.account, link.value, told)
        self._moved.signal()

    def count(self, adapter: Adapter, counter: PlatformCounter) -> None:
        """One more of something has happened."""
        before = self._get(adapter)
        now = msgspec.structs.asdict(before)[counter] + 1
        self._set(adapter, msgspec.structs.replace(before, **{counter: now}))

    async def run(self) -> None:
        """Write down what changes, until cancelled."""
        while True:
            counted, moved = self._counted.count, self._moved.count
            await self._flush()
            await self._counted.wait(counted)
            await wait_until(self._moved, moved, self._clock, self._clock.now() + FLUSH_INTERVAL)

    async def _flush(self) -> None:
        changed = {k: c for k, c in self._known.items() if self._written.get(k) != c}
        if not changed:
            return
        try:
            await self._database.write(
                "connections.put", partial(workers.save_statuses, statuses=list(changed.values()))
            )
        except KeryxError as exc:
            log.warning("how the platforms stand cannot be written now: %s", exc)
            self._counted.signal()
        else:
            self._written |= changed

    def _get(self, adapter: Adapter) -> PlatformStatus:
        return self._known.get(self._key(adapter)) or PlatformStatus(
            platform=adapter.platform,
            account=adapter.account,
            worker=self._worker,
            link=LinkState.CONNECTING,
            detail="",
            since=self._clock.now(),
        )

    def _set(self, adapter: Adapter, connection: PlatformStatus) -> None:
        self._known[self._key(adapter)] = connection
        self._counted.signal()

    @staticmethod
    def _key(adapter: Adapter) -> tuple[str, str]:
        return adapter.platform, adapter.account
