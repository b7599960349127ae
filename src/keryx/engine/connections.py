"""Connections: what the adapters of this process report and count, written down so that other processes can tell."""

import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Literal

import msgspec

from keryx.core.connections import Connection
from keryx.core.errors import KeryxError
from keryx.core.ids import WorkerId
from keryx.core.ports import Adapter, Clock, Link
from keryx.engine.alarm import signal_or_moment
from keryx.store import connections
from keryx.store.database import Database, Transaction
from keryx.store.wake import Wake

log = logging.getLogger(__name__)

EVERY = timedelta(seconds=5)
_LONGEST_DETAIL = 300

Counter = Literal["received", "sent", "failed", "throttled"]


class Connections:
    """The adapters of one process. A change of state is written at once, counters every few seconds."""

    def __init__(self, database: Database, clock: Clock, *, worker: WorkerId) -> None:
        self._database = database
        self._clock = clock
        self._worker = worker
        self._known: dict[tuple[str, str], Connection] = {}
        self._written: dict[tuple[str, str], Connection] = {}
        self._counted = Wake()
        self._moved = Wake()

    @property
    def known(self) -> Sequence[Connection]:
        """Every connection of this process, as it stands now."""
        return list(self._known.values())

    def report(self, adapter: Adapter, link: Link, detail: str = "") -> None:
        """How the connection stands, in a sentence for a person."""
        before = self._of(adapter)
        told = detail[:_LONGEST_DETAIL]
        if (before.link, before.detail) == (link, told) and self._key(adapter) in self._written:
            return
        since = before.since if before.link is link else self._clock.now()
        self._put(adapter, msgspec.structs.replace(before, link=link, detail=told, since=since))
        level = logging.INFO if link in (Link.CONNECTING, Link.CONNECTED) else logging.WARNING
        log.log(level, "%s:%s is %s %s", adapter.platform, adapter.account, link.value, told)
        self._moved.signal()

    def count(self, adapter: Adapter, counter: Counter) -> None:
        """One more of something has happened."""
        before = self._of(adapter)
        now = msgspec.structs.asdict(before)[counter] + 1
        self._put(adapter, msgspec.structs.replace(before, **{counter: now}))

    async def run(self) -> None:
        """Write down what changes, until cancelled."""
        while True:
            counted, moved = self._counted.count, self._moved.count
            await self._flush()
            await self._counted.wait(counted)
            await signal_or_moment(self._moved, moved, self._clock, self._clock.now() + EVERY)

    async def _flush(self) -> None:
        changed = {k: c for k, c in self._known.items() if self._written.get(k) != c}
        if not changed:
            return
        try:
            await self._database.write("connections.put", partial(_put, changed=list(changed.values())))
        except KeryxError as exc:
            log.warning("how the platforms stand cannot be written now: %s", exc)
            self._counted.signal()
        else:
            self._written |= changed

    def _of(self, adapter: Adapter) -> Connection:
        return self._known.get(self._key(adapter)) or Connection(
            platform=adapter.platform,
            account=adapter.account,
            worker=self._worker,
            link=Link.CONNECTING,
            detail="",
            since=self._clock.now(),
        )

    def _put(self, adapter: Adapter, connection: Connection) -> None:
        self._known[self._key(adapter)] = connection
        self._counted.signal()

    @staticmethod
    def _key(adapter: Adapter) -> tuple[str, str]:
        return adapter.platform, adapter.account


def _put(tx: Transaction, *, changed: Sequence[Connection]) -> None:
    for connection in changed:
        connections.put(tx, connection)
