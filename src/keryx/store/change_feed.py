"""Reads the change feed: the entries after a cursor, in commit order, with the messages and draft pieces that they name."""

from typing import NamedTuple

from keryx.core import codec
from keryx.core.changes import Change, ChangeKind
from keryx.core.clock import from_micros
from keryx.core.errors import CursorExpired, Invalid
from keryx.core.ids import Cursor, PrincipalId, ProfileId, SessionId, TurnId
from keryx.store import changes, inbox, messages, turns
from keryx.store.db import Engine, Row, Transaction

_COLUMNS = f"""
  c.at, c.kind, c.profile, c.owner, c.subject, c.session, c.turn, c.n, c.note,
  p.body, p.thought, p.media, {messages.columns("m")}
"""
_JOINS = """
left join messages m on c.kind = 'message' and m.session = c.session and m.seq = c.n
left join pieces p on c.kind = 'draft' and p.turn = c.turn and p.n = c.n
"""
# With counts from before a rush, PostgreSQL would rather read all messages than look for a few. The limits forbid it.
_LATERAL_JOINS = """
left join lateral (
  select * from messages where c.kind = 'message' and session = c.session and seq = c.n limit 1
) m on true
left join lateral (select * from pieces where c.kind = 'draft' and turn = c.turn and n = c.n limit 1) p on true
"""


class FeedPage(NamedTuple):
    changes: list[Change]
    # Committed entries wait for an older transaction of Keryx to end before they may be read.
    held_back: bool


class _FeedState(NamedTuple):
    """The feed of PostgreSQL as one snapshot shows it."""

    horizon: int  # entries of transactions below this one may be read
    newest: int  # the transaction of the last entry, 0 without any
    trimmed: str | None

    @property
    def held_back(self) -> bool:
        return self.newest >= self.horizon


def list_after(tx: Transaction, cursor: Cursor, *, limit: int = 500) -> list[Change]:
    """The entries after a cursor, in commit order. Raises `CursorExpired` if some were trimmed."""
    return read_page(tx, cursor, limit=limit).changes


def read_page(tx: Transaction, cursor: Cursor, *, limit: int) -> FeedPage:
    """The entries after a cursor, in commit order, and whether more wait. Raises `CursorExpired` if some were trimmed."""
    if tx.engine is Engine.POSTGRES:
        place, _, snapshot = cursor.partition("@")
        first, _, second = place.partition(".")
        xid, position = _parse_number(first, cursor), _parse_number(second, cursor)
        end = _parse_snapshot_end(snapshot, cursor)
        state = _read_state(tx)
        _check_not_trimmed(state.trimmed, xid, cursor)
        rows = tx.rows(
            f"""
            select c.xid, c.position, {_COLUMNS}
            from changes c {_LATERAL_JOINS}
            where (c.xid, c.position) > (:xid, :position)
              and c.xid < :horizon
              and not pg_visible_in_snapshot(c.xid::text::xid8, cast(:seen as pg_snapshot))
            order by c.xid, c.position
            limit :limit
            """,
            {
                "xid": xid,
                "position": position,
                "horizon": state.horizon,
                "seen": snapshot or "1:1:",
                "limit": limit,
            },
        )
        found = [
            _change_from_row(
                Cursor(f"{row[0]}.{row[1]}@{snapshot}" if row[0] < end else f"{row[0]}.{row[1]}"), row[2:]
            )
            for row in rows
        ]
        return FeedPage(found, state.held_back)
    position = _parse_number(cursor, cursor)
    rows = tx.rows(
        f"select c.position, {_COLUMNS} from changes c {_JOINS} where c.position > :position order by c.position limit :limit",
        {"position": position, "limit": limit},
    )
    # Nothing was trimmed before an entry that follows the cursor directly, which is nearly always so.
    if not rows or rows[0][0] != position + 1:
        _check_not_trimmed(inbox.get_cursor(tx, changes.TRIM_CURSOR), position, cursor)
    return FeedPage([_change_from_row(Cursor(str(row[0])), row[1:]) for row in rows], held_back=False)


def check_cursor(tx: Transaction, cursor: Cursor) -> None:
    """Raise `CursorExpired` for a cursor that lies after everything: it comes from a store that is no more, as before
    a backup was restored."""
    first, last = cursor.split("@")[0].split(".")[0], changes.get_head(tx)
    end = int(last) if tx.engine is Engine.SQLITE else int(last.split(":")[1])
    if _parse_number(first, cursor) > end:
        raise CursorExpired("the store is older than this cursor: open again to start from now")


def has_held_back(tx: Transaction) -> bool:
    """Whether committed entries wait for an older transaction of Keryx to end before they may be read."""
    return tx.engine is Engine.POSTGRES and _read_state(tx).held_back


def _read_state(tx: Transaction) -> _FeedState:
    # The newest by the index: to look for one that is new enough may be to read all others.
    row = tx.row(
        """
        select
          pg_current_snapshot()::text,
          (select max(xid) from changes),
          (select value from cursors where name = :name)
        """,
        {"name": changes.TRIM_CURSOR},
    )
    assert row is not None
    snapshot, newest, trimmed = row
    oldest_running = int(snapshot.partition(":")[0])
    return _FeedState(
        # Who runs is asked only if there are entries that it could matter for.
        oldest_running if (newest or 0) < oldest_running else changes.get_horizon(tx, snapshot),
        newest or 0,
        None if trimmed is None else codec.loads(trimmed, str),
    )


def _parse_snapshot_end(snapshot: str, cursor: Cursor) -> int:
    """The first transaction that a snapshot cannot have seen; 0 without a snapshot."""
    if not snapshot:
        return 0
    first, _, rest = snapshot.partition(":")
    last, colon, within = rest.partition(":")
    low, high = _parse_number(first, cursor), _parse_number(last, cursor)
    numbers = [low, *(_parse_number(n, cursor) for n in within.split(",") if within)]
    if (
        not colon
        or low < 1
        or numbers != sorted(numbers)
        or numbers[-1] > high
        or (within and numbers[-1] == high)
    ):
        raise _invalid_cursor(cursor)
    return high


def _check_not_trimmed(trimmed: str | None, position: int, cursor: Cursor) -> None:
    if trimmed is not None and position < int(trimmed):
        raise CursorExpired(f"the feed no longer goes back to {cursor}: open again to start from now")


def _parse_number(text: str, cursor: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise _invalid_cursor(cursor)
    return int(text)


def _invalid_cursor(cursor: str) -> Invalid:
    return Invalid(f"{cursor[:80]!r} is not a cursor: use one that Keryx gave you")


def _change_from_row(cursor: Cursor, row: Row) -> Change:
    at, kind, profile, owner, subject, session, turn, n, note, body, thought, media, *message = row
    return Change(
        cursor=cursor,
        at=from_micros(at),
        kind=ChangeKind(kind),
        profile=ProfileId(profile),
        owner=PrincipalId(owner),
        subject=subject,
        session=session and SessionId(session),
        turn=turn and TurnId(turn),
        note=note,
        message=messages.from_row(message) if message[0] is not None else None,
        piece=turns.draft_piece_from_row(n, body, thought, media) if body is not None else None,
    )
