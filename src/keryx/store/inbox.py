"""Inbox: which events of which platform have been taken in, and what became of each."""

from datetime import datetime

from keryx.core import ids, wire
from keryx.core.ports import Receipt
from keryx.store.database import Transaction, micros


def seen(tx: Transaction, *, platform: str, account: str, event: str) -> Receipt | None:
    """The receipt of an event that was taken in before."""
    row = tx.row(
        "select receipt from inbox where platform = :platform and account = :account and event = :event",
        _key(platform, account, event),
    )
    return None if row is None else wire.loads(row[0], Receipt)


def record(
    tx: Transaction, receipt: Receipt, *, platform: str, account: str, event: str, now: datetime
) -> None:
    """Remember an event. A second transaction with the same event fails here and is run again."""
    tx.run(
        """
        insert into inbox (platform, account, event, receipt, received_at)
        values (:platform, :account, :event, :receipt, :now)
        """,
        {**_key(platform, account, event), "receipt": wire.dumps(receipt), "now": micros(now)},
    )


def trim(tx: Transaction, *, before: datetime) -> int:
    return tx.count("delete from inbox where received_at < :before", {"before": micros(before)})


def _key(platform: str, account: str, event: str) -> dict[str, str]:
    return {"platform": ids.plain(platform), "account": ids.plain(account), "event": ids.plain(event)}
