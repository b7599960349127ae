"""Connections: how an adapter stands with its platform, and what has gone through it."""

from datetime import datetime

import msgspec

from keryx.core.ids import WorkerId
from keryx.core.ports import Link


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """One account on one platform, as one process sees it. The counters run since that process began: events
    `received`, parts `sent`, attempts that `failed`, and those that the platform `throttled`."""

    platform: str
    account: str
    worker: WorkerId
    link: Link
    detail: str
    since: datetime
    received: int = 0
    sent: int = 0
    failed: int = 0
    throttled: int = 0


class ClosedGate(msgspec.Struct, frozen=True, kw_only=True):
    """A chat or an account that nothing is sent to until a moment, and why."""

    key: str
    until: datetime
    reason: str
