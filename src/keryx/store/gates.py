"""Gates: until when nothing may be sent to a chat, or through an account. They survive a restart."""

from datetime import datetime

from keryx.core import wire
from keryx.store.database import Transaction, maybe_moment, micros


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


def cap_waits(tx: Transaction, *, until: datetime) -> None:
    """Let nothing wait longer than until a moment: for a clock that was set back."""
    tx.run("update gates set not_before = :until where not_before > :until", {"until": micros(until)})


def next_opening(tx: Transaction, *, now: datetime) -> datetime | None:
    row = tx.row("select min(not_before) from gates where not_before > :now", {"now": micros(now)})
    return maybe_moment(row[0]) if row else None


def trim(tx: Transaction, *, now: datetime) -> int:
    return tx.run("delete from gates where not_before <= :now", {"now": micros(now)})
