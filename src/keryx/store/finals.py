"""Finals: sessions that ended and whose finalising hooks still have to run, with bounded tries."""

from datetime import datetime

import msgspec

from keryx.core import wire
from keryx.core.ids import SessionId
from keryx.store.database import Transaction, micros


class Final(msgspec.Struct, frozen=True):
    session: SessionId
    reason: str
    tries: int


def add(tx: Transaction, session: SessionId, reason: str, *, now: datetime) -> None:
    tx.run(
        """
        insert into finals (session, reason, due_at) values (:session, :reason, :now)
        on conflict (session) do nothing
        """,
        {"session": session, "reason": reason, "now": micros(now)},
    )


def take(tx: Transaction, *, now: datetime, retry_at: datetime, most: int) -> Final | None:
    """Count a try of the next due final and give it. It comes back at `retry_at` unless it is removed."""
    row = tx.row(
        f"select session, reason, tries from finals where due_at <= :now and tries < :most order by due_at limit 1{tx.skip_locked}",
        {"now": micros(now), "most": most},
    )
    if row is None:
        return None
    tx.run(
        "update finals set tries = tries + 1, due_at = :retry_at where session = :session",
        {"session": row[0], "retry_at": micros(retry_at)},
    )
    return Final(SessionId(row[0]), row[1], int(row[2]) + 1)


def fail(tx: Transaction, session: SessionId, error: str) -> None:
    tx.run(
        "update finals set error = :error where session = :session",
        {"session": session, "error": wire.dumps(error)},
    )


def remove(tx: Transaction, session: SessionId) -> None:
    tx.run("delete from finals where session = :session", {"session": session})
