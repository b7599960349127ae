"""Gates: until when nothing may be sent to a chat, or through an account. They survive a restart."""

from datetime import datetime

from keryx.core import wire
from keryx.core.connections import ClosedGate
from keryx.core.deliveries import Target
from keryx.store.database import Transaction, maybe_moment, micros, moment


def close(tx: Transaction, key: str, *, until: datetime, reason: str) -> None:
    """Keep a gate closed until a moment. A later moment wins."""
    tx.run(
        """
        insert into gates (key, not_before, reason) values (:key, :until, :reason)
        on conflict (key) do update
        set not_before = case when gates.not_before > excluded.not_before then gates.not_before else excluded.not_before end,
            reason = excluded.reason
        """,
        {"key": key, "until": micros(until), "reason": wire.dumps(reason)},
    )


def open_at(tx: Transaction, target: Target, *, now: datetime) -> datetime | None:
    """When both gates of a target are open again; `None` if they are."""
    row = tx.row(
        "select max(not_before) from gates where key in (:chat, :account) and not_before > :now",
        {"chat": target.key, "account": target.account_key, "now": micros(now)},
    )
    return maybe_moment(row[0]) if row else None


def reopen(tx: Transaction, key: str, *, reason: str, at: datetime) -> None:
    """Let a gate that was closed for a reason open at a moment. One that is closed for another stays as it is."""
    tx.run(
        "update gates set not_before = :at where key = :key and reason = :reason",
        {"key": key, "at": micros(at), "reason": wire.dumps(reason)},
    )


def cap_waits(tx: Transaction, *, until: datetime) -> None:
    """Let nothing wait longer than until a moment: for a clock that was set back."""
    tx.run("update gates set not_before = :until where not_before > :until", {"until": micros(until)})


def next_opening(tx: Transaction, *, now: datetime) -> datetime | None:
    row = tx.row("select min(not_before) from gates where not_before > :now", {"now": micros(now)})
    return maybe_moment(row[0]) if row else None


def closed(tx: Transaction, *, now: datetime, limit: int = 100) -> list[ClosedGate]:
    """The gates that are closed now, those that open last first."""
    rows = tx.rows(
        "select key, not_before, reason from gates where not_before > :now order by not_before desc limit :limit",
        {"now": micros(now), "limit": limit},
    )
    return [
        ClosedGate(key=key, until=moment(until), reason=wire.loads(reason, str))
        for key, until, reason in rows
    ]


def trim(tx: Transaction, *, now: datetime) -> int:
    return tx.count("delete from gates where not_before <= :now", {"now": micros(now)})
