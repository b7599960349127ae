"""Events that platforms sent, stored once with their receipts so that repeats are recognised; and the named cursors that move in the same commit."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from keryx.core import codec, ids
from keryx.core.clock import from_micros, to_micros
from keryx.core.errors import Conflict
from keryx.core.ports.adapter import Receipt
from keryx.store.db import Transaction


class _ReceiptWithDigest(Receipt, frozen=True, kw_only=True):
    """A receipt as it is stored if its event had a digest."""

    digest: str = ""


def find_receipt(
    tx: Transaction, *, platform: str, account: str, event: str, digest: str = ""
) -> Receipt | None:
    """Return the receipt of an event that was received before. Raise `Conflict` if it had another digest."""
    row = tx.row(
        "select receipt from inbox where platform = :platform and account = :account and event = :event",
        _event_key(platform, account, event),
    )
    if row is None:
        return None
    known = codec.loads(row[0], _ReceiptWithDigest).digest if digest else ""
    if known and known != digest:
        raise Conflict("another message was sent under this key before: choose a new key for each message")
    return codec.loads(row[0], Receipt)


class StoredEvent(NamedTuple):
    platform: str
    receipt: Receipt
    received_at: datetime


def list_by_event(
    tx: Transaction, event: str, *, partial: bool = False, limit: int = 10
) -> list[StoredEvent]:
    """Return the events with this id on any platform. With `partial`, those whose id ends with it behind a point, as with the
    time of a message on Slack behind its channel. Reads the whole inbox: for operators."""
    escaped = ids.escape(event)
    pattern = escaped.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    rows = tx.rows(
        """
        select platform, receipt, received_at from inbox
        where event = :event or event like cast(:pattern as text) escape '\\'
        limit :limit
        """,
        {"event": escaped, "pattern": f"%.{pattern}" if partial else None, "limit": limit},
    )
    return [StoredEvent(name, codec.loads(receipt, Receipt), from_micros(at)) for name, receipt, at in rows]


def record(
    tx: Transaction, receipt: Receipt, *, platform: str, account: str, event: str, digest: str = ""
) -> None:
    """Store the receipt of an event. A concurrent transaction with the same event fails here and is retried."""
    if digest:
        receipt = _ReceiptWithDigest(**msgspec.structs.asdict(receipt), digest=digest)
    tx.run(
        """
        insert into inbox (platform, account, event, receipt, received_at)
        values (:platform, :account, :event, :receipt, :now)
        """,
        {**_event_key(platform, account, event), "receipt": codec.dumps(receipt), "now": to_micros(tx.now)},
    )


def trim(tx: Transaction, *, before: datetime) -> int:
    return tx.count("delete from inbox where received_at < :before", {"before": to_micros(before)})


def _event_key(platform: str, account: str, event: str) -> dict[str, str]:
    return {"platform": ids.escape(platform), "account": ids.escape(account), "event": ids.escape(event)}


def get_cursor(tx: Transaction, name: str) -> str | None:
    row = tx.row("select value from cursors where name = :name", {"name": name})
    return None if row is None else codec.loads(row[0], str)


def set_cursor(tx: Transaction, name: str, value: str) -> None:
    tx.run(
        """
        insert into cursors (name, value, moved_at) values (:name, :value, :now)
        on conflict (name) do update set value = excluded.value, moved_at = excluded.moved_at
        """,
        {"name": name, "value": codec.dumps(value), "now": to_micros(tx.now)},
    )


def set_state(tx: Transaction, name: str, value: str) -> None:
    """Store the state of a scope. An empty value removes it."""
    if value:
        set_cursor(tx, name, value)
    else:
        tx.run("delete from cursors where name = :name", {"name": name})


def take_states(tx: Transaction, names: Sequence[str]) -> list[str]:
    """Return the values of those of these states that exist, in their order, and remove them."""
    found = [(name, value) for name in names if (value := get_cursor(tx, name))]
    for name, _ in found:
        tx.run("delete from cursors where name = :name", {"name": name})
    return [value for _, value in found]


def trim_states(tx: Transaction, prefix: str, *, before: datetime) -> None:
    """Remove the states whose names begin with `prefix` and that were stored before a time."""
    tx.run(
        "delete from cursors where substr(name, 1, :length) = :prefix and moved_at < :before",
        {"length": len(prefix), "prefix": prefix, "before": to_micros(before)},
    )
