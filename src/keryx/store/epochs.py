"""Epochs: the stretches of a session between compactions, the part of it that the model sees, and the back-off after a failed compaction."""

from datetime import timedelta

from keryx.core import codec
from keryx.core import messages as core
from keryx.core.clock import from_micros, to_micros
from keryx.core.compaction import Epoch
from keryx.core.durations import Backoff
from keryx.core.ids import SessionId
from keryx.core.messages import Message
from keryx.store import messages, turns
from keryx.store.db import Transaction
from keryx.store.messages import TURN_CLOSED

_BACKOFF = Backoff(first=timedelta(minutes=5), longest=timedelta(hours=6))
_MOST_FAILURES = 10


def find_current(tx: Transaction, session: SessionId) -> Epoch | None:
    """The open epoch, or `None` while nothing was compacted."""
    found = list_all(tx, session, limit=1)
    return found[0] if found else None


def load_model_view(tx: Transaction, session: SessionId) -> list[Message]:
    """The conversation as the model sees it: the current epoch without what waits or was set aside."""
    epoch = find_current(tx, session)
    entries = messages.list_after(tx, session, after=epoch.first_seq - 1 if epoch else 0)
    kept = core.drop_summarized(entries) if epoch else entries
    return core.build_model_view(kept, aside=frozenset(turns.list_hidden(tx, session)))


def list_all(tx: Transaction, session: SessionId, *, limit: int = 1000) -> list[Epoch]:
    """The epochs that compactions opened, newest first."""
    rows = tx.rows(
        """
        select number, first_seq, summary, created_at from epochs
        where session = :session
        order by number desc
        limit :limit
        """,
        {"session": session, "limit": limit},
    )
    return [
        Epoch(number=n, first_seq=first, summary=codec.loads(summary, str), created_at=from_micros(at))
        for n, first, summary, at in rows
    ]


def begin(tx: Transaction, session: SessionId, *, first_seq: int, summary: str) -> int:
    """Open the next epoch; return its number. The caller has locked the session."""
    row = tx.row(
        """
        update sessions set epoch = epoch + 1, compact_failures = 0, compact_after = 0
        where id = :id
        returning epoch
        """,
        {"id": session},
    )
    assert row is not None
    tx.run(
        """
        insert into epochs (session, number, first_seq, summary, created_at)
        values (:session, :number, :first_seq, :summary, :now)
        """,
        {
            "session": session,
            "number": row[0],
            "first_seq": first_seq,
            "summary": tx.keys.seal(session, codec.dumps(summary)),
            "now": to_micros(tx.now),
        },
    )
    return int(row[0])


def copy(tx: Transaction, *, source: SessionId, target: SessionId, through: int) -> None:
    """Give a fork the epochs of its parent that began within what was copied."""
    tx.run(
        f"""
        insert into epochs (session, number, first_seq, summary, created_at)
        select :target, number,
          1 + (select count(*) from messages where session = :source and seq < first_seq and {TURN_CLOSED}),
          summary, created_at
        from epochs
        where session = :source and number <= (
          select coalesce(max(epoch), 0) from messages where session = :source and seq <= :through
        )
        """,
        {"source": source, "target": target, "through": through},
    )


def record_failure(tx: Transaction, session: SessionId) -> None:
    """Delay the next compaction, with exponential back-off."""
    row = tx.row("select compact_failures from sessions where id = :id", {"id": session})
    failures = int(row[0]) if row else 0
    pause = _BACKOFF.delay(failures + 1)
    tx.run(
        "update sessions set compact_failures = :failures, compact_after = :after where id = :id",
        {"id": session, "failures": min(failures + 1, _MOST_FAILURES), "after": to_micros(tx.now + pause)},
    )


def can_begin(tx: Transaction, session: SessionId) -> bool:
    """Whether enough time has passed since a compaction failed."""
    row = tx.row("select compact_after from sessions where id = :id", {"id": session})
    return row is None or int(row[0]) <= to_micros(tx.now)
