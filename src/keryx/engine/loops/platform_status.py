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
from keryx.engine.plugins import get_account_key
from keryx.engine.units import workers
from keryx.store.db import Database
from keryx.timing import WakeSignal, wait_until

log = logging.getLogger(__name__)

FLUSH_INTERVAL = timedelta(seconds=5)
_MAX_DETAIL = 300

PlatformCounter = Literal["received", "sent", "failed", "throttled", "rejected"]


class PlatformStatusReporter:
    """The adapters of one process. A change of state and the first rejected request are written at once, counters
    every few seconds."""

    def __init__(self, database: Database, clock: Clock, *, worker: WorkerId) -> None:
        self._database = database
        self._clock = clock
        self._worker = worker
        self._statuses: dict[tuple[str, str], PlatformStatus] = {}
        self._written: dict[tuple[str, str], PlatformStatus] = {}
        self._changed = WakeSignal()
        # What the connections of accounts that refuse to send would show.
        self._unrefused: dict[tuple[str, str], tuple[LinkState, str]] = {}
        # A change of state, which is written at once.
        self._urgent = WakeSignal()

    @property
    def statuses(self) -> Sequence[PlatformStatus]:
        """The current status of every adapter of this process."""
        return list(self._statuses.values())

    def report(self, adapter: Adapter, link: LinkState, detail: str = "") -> None:
        """Record the state of an adapter's connection, and log it if it has changed. `detail` is a sentence for a person.
        An account that refuses to send stays `REFUSED` until it sends again."""
        if get_account_key(adapter) in self._unrefused:
            self._unrefused[get_account_key(adapter)] = link, detail
        else:
            self._show(adapter, link, detail)

    def report_refusal(self, adapter: Adapter, detail: str) -> None:
        """Record that a platform has refused the credentials when something was to be sent."""
        before = self._get(adapter)
        self._unrefused.setdefault(get_account_key(adapter), (before.link, before.detail))
        self._show(adapter, LinkState.REFUSED, detail)

    def _show(self, adapter: Adapter, link: LinkState, detail: str) -> None:
        before = self._get(adapter)
        detail = detail[:_MAX_DETAIL]
        if (before.link, before.detail) == (link, detail) and get_account_key(adapter) in self._statuses:
            return
        since = before.since if before.link is link else self._clock.now()
        self._set(adapter, msgspec.structs.replace(before, link=link, detail=detail, since=since))
        quiet = (LinkState.CONNECTING, LinkState.CONNECTED, LinkState.STANDBY)
        level = logging.INFO if link in quiet else logging.WARNING
        log.log(level, "%s:%s is %s %s", adapter.platform, adapter.account, link.value, detail)
        self._urgent.signal()

    def count(self, adapter: Adapter, counter: PlatformCounter) -> None:
        """Add one to a counter of an adapter."""
        if counter == "sent" and (shown := self._unrefused.pop(get_account_key(adapter), None)):
            self._show(adapter, *shown)
        before = self._get(adapter)
        value = msgspec.structs.asdict(before)[counter] + 1
        self._set(adapter, msgspec.structs.replace(before, **{counter: value}))
        if counter == "rejected" and value == 1:
            self._urgent.signal()

    async def run(self) -> None:
        """Write what changes, until cancelled."""
        while True:
            changed, urgent = self._changed.count, self._urgent.count
            await self._flush()
            await self._changed.wait(changed)
            await wait_until(self._urgent, urgent, self._clock, self._clock.now() + FLUSH_INTERVAL)

    async def _flush(self) -> None:
        changed = {k: s for k, s in self._statuses.items() if self._written.get(k) != s}
        if not changed:
            return
        try:
            await self._database.write(
                "connections.put", partial(workers.save_statuses, statuses=list(changed.values()))
            )
        except KeryxError as exc:
            log.warning("cannot write the status of the platforms now: %s", exc)
            self._changed.signal()
        else:
            self._written |= changed

    def _get(self, adapter: Adapter) -> PlatformStatus:
        return self._statuses.get(get_account_key(adapter)) or PlatformStatus(
            platform=adapter.platform,
            account=adapter.account,
            worker=self._worker,
            link=LinkState.CONNECTING,
            detail="",
            since=self._clock.now(),
        )

    def _set(self, adapter: Adapter, status: PlatformStatus) -> None:
        self._statuses[get_account_key(adapter)] = status
        self._changed.signal()
