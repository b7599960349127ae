"""Entries of the change feed, written in the transaction that they describe, and the trimming of old ones."""

from datetime import datetime
from typing import NamedTuple, TypeAlias

from keryx.core.changes import ChangeKind
from keryx.core.clock import to_micros
from keryx.core.deliveries import Delivery
from keryx.core.ids import Cursor
from keryx.core.jobs import Job
from keryx.core.lanes import Lane
from keryx.core.questions import AskedQuestion
from keryx.core.sessions import Project, Session, Viewer
from keryx.core.turns import Turn
from keryx.store import inbox
from keryx.store.db import SESSION_NAME, Engine, Transaction

TRIM_CURSOR = "feed:trimmed"
# The first transaction that ran when a snapshot was taken and may write to the feed, or the end of the snapshot. A
# transaction is left out only if its session is known to be foreign, so one that has just ended counts. Sessions are
# listed with the lower half of the number. Keryx prepares no transactions.
_HORIZON = f"""
select least(
  pg_snapshot_xmax(cast(:snapshot as pg_snapshot))::text::bigint,
  pg_current_xact_id_if_assigned()::text::bigint,
  (
    select min(running::text::bigint)
    from pg_snapshot_xip(cast(:snapshot as pg_snapshot)) running
    where mod(running::text::bigint, 4294967296) not in (
      select backend_xid::text::bigint
      from pg_stat_activity
      where backend_xid is not null
        and (
          datid is distinct from (select oid from pg_database where datname = current_database())
          or application_name not like '{SESSION_NAME}%'
        )
      union all
      select transaction::text::bigint from pg_prepared_xacts
    )
  )
)
"""


class Scope(NamedTuple):
    """The owner, session and turn that a row belongs to: they decide who sees it."""

    profile: str
    owner: str
    session: str | None = None
    turn: str | None = None


Scoped: TypeAlias = Scope | Viewer | Session | Turn | Delivery | AskedQuestion | Lane | Job | Project


def get_scope(row: Scoped) -> Scope:
    """Return the scope of a row. That of a viewer is the person, without a session."""
    match row:
        case Scope():
            return row
        case Turn():
            return Scope(row.profile, row.owner, row.session, row.id)
        case Session():
            return Scope(row.profile, row.owner, row.id)
        case Delivery() | AskedQuestion():
            return Scope(row.profile, row.owner, row.session, row.turn)
        case Lane():
            return Scope(row.profile, row.owner, row.session)
        case Job() | Project():
            return Scope(row.profile, row.owner)
        case Viewer():
            return Scope(row.profile, row.principal)


def note(
    tx: Transaction,
    kind: ChangeKind,
    subject: str,
    row: Scoped,
    *,
    n: int | None = None,
    note: str = "",
) -> None:
    """Add an entry to the feed in the transaction of the change. `subject` is the id of what changed; profile, owner,
    session and turn come from `row`."""
    scope = get_scope(row)
    tx.noted = True
    tx.run(
        """
        insert into changes (at, kind, profile, owner, subject, session, turn, n, note)
        values (:at, :kind, :profile, :owner, :subject, :session, :turn, :n, :note)
        """,
        {
            "at": to_micros(tx.now),
            "kind": kind.value,
            "profile": scope.profile,
            "owner": scope.owner,
            "subject": subject,
            "session": scope.session,
            "turn": scope.turn,
            "n": n,
            "note": note,
        },
    )


def get_head(tx: Transaction) -> Cursor:
    """The cursor of this snapshot: everything it shows lies before, everything else after."""
    if tx.engine is Engine.SQLITE:
        row = tx.row("select seq from sqlite_sequence where name = 'changes'")
        return Cursor(str(row[0]) if row else "0")
    row = tx.row("select pg_current_snapshot()::text")
    assert row is not None
    snapshot = str(row[0])
    return Cursor(f"{get_horizon(tx, snapshot) - 1}.0@{snapshot}")


def get_horizon(tx: Transaction, snapshot: str) -> int:
    """The transaction of PostgreSQL below which the snapshot of this read shows every entry that there will ever be.
    Only writers of Keryx hold it up, not the transactions of other programs."""
    first, _, running = snapshot.split(":")
    if not running:
        return int(first)
    row = tx.row(_HORIZON, {"snapshot": snapshot})
    assert row is not None
    return row[0]


def trim(tx: Transaction, *, before: datetime, most: int = 5000) -> int:
    """Remove up to `most` entries older than `before`; return how many. Readers behind that point get
    `CursorExpired`."""
    column = "position" if tx.engine is Engine.SQLITE else "xid"
    row = tx.row(
        f"""
        select max({column}) from (
          select {column}, at from changes order by {column} limit :most
        ) oldest
        where at < :before and {column} < (
          select coalesce(min({column}), 9223372036854775807) from (
            select {column} from changes where at >= :before order by {column} limit 1
          ) kept
        )
        """,
        {"before": to_micros(before), "most": most},
    )
    if row is None or row[0] is None:
        return 0
    inbox.set_cursor(tx, TRIM_CURSOR, str(row[0]))
    return tx.count(f"delete from changes where {column} <= :last", {"last": row[0]})
