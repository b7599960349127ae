"""Trouble: what has come to a stand and needs a person, or a node that is not there."""

from datetime import datetime, timedelta

import msgspec

from keryx.store.database import Transaction, maybe_moment, micros


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over the whole store. `ahead`: the latest time in the store, if it lies in the future."""

    waiting: int
    oldest: datetime | None
    overdue: int
    parked: int
    unsent: int
    doubtful: int
    ahead: datetime | None


def read(tx: Transaction, *, now: datetime, patience: timedelta, slack: timedelta) -> Trouble:
    """What waits longer than `patience`, what was given up, and whether clocks agree within `slack`."""
    since = {"since": micros(now - patience)}
    waiting = tx.row(
        "select count(*), min(created_at) from turns where state = 'queued' and created_at < :since", since
    )
    overdue = tx.row("select count(*) from turns where state = 'running' and lease_until < :since", since)
    parked = tx.row("select count(*) from turns where state = 'parked'")
    unsent = tx.row("select count(*) from deliveries where state = 'ready' and created_at < :since", since)
    doubtful = tx.row("select count(*) from deliveries where state in ('unknown', 'failed', 'dead')")
    latest = tx.row("select max(active_at) from sessions")
    assert waiting and overdue and parked and unsent and doubtful and latest
    ahead = maybe_moment(latest[0])
    return Trouble(
        waiting=waiting[0],
        oldest=maybe_moment(waiting[1]),
        overdue=overdue[0],
        parked=parked[0],
        unsent=unsent[0],
        doubtful=doubtful[0],
        ahead=ahead if ahead and ahead > now + slack else None,
    )
