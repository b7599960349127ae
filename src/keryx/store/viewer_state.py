"""State of each viewer: read marks, text that was typed and not sent, preferences, and links to sessions that were shared."""

import json
from collections.abc import Sequence
from datetime import datetime

import msgspec

from keryx.core import codec
from keryx.core.changes import ChangeKind
from keryx.core.clock import from_micros, to_micros
from keryx.core.errors import NotFound
from keryx.core.ids import SessionId
from keryx.core.sessions import JOB_SURFACE, Session, Viewer
from keryx.core.texts import Phrase
from keryx.store import changes
from keryx.store.db import Transaction
from keryx.store.db.rows import RowMapper

_ZONE = "zone"
# Which sessions are unread is a question for each of them, so only so many are asked about.
_EXAMINED = 2_000


class UnsentMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was typed and not sent; `media` are ids."""

    text: str = ""
    media: tuple[str, ...] = ()


def mark_read(tx: Transaction, viewer: Viewer, session: Session, seq: int) -> bool:
    """Move a read mark forward, never back, and note it; return whether it moved."""
    moved = tx.count(
        """
        insert into reads (profile, principal, session, seq) values (:profile, :principal, :session, :seq)
        on conflict (profile, principal, session) do update set seq = excluded.seq where reads.seq < excluded.seq
        """,
        {**_viewer_key(viewer), "session": session.id, "seq": min(seq, session.last_seq)},
    )
    if moved:
        scope = changes.Scope(viewer.profile, viewer.principal, session.id)
        changes.note(tx, ChangeKind.READ, session.id, scope, note=str(min(seq, session.last_seq)))
    return bool(moved)


def get_read_marks(tx: Transaction, viewer: Viewer, sessions: Sequence[Session]) -> dict[SessionId, int]:
    """How far the viewer has read each session. What was said before the first visit counts as read."""
    rows = tx.rows(
        f"""
        select session, seq from reads
        where profile = :profile and principal = :principal and session {tx.in_names}
        """,
        {**_viewer_key(viewer), "names": json.dumps([s.id for s in sessions])},
    )
    known = {SessionId(session): int(seq) for session, seq in rows}
    since = _get_first_visit(tx, viewer)
    old = {s.id: s.last_seq for s in sessions if since is None or s.active_at <= since}
    return {s.id: known.get(s.id, old.get(s.id, 0)) for s in sessions}


def list_unread(tx: Transaction, viewer: Viewer, *, limit: int) -> list[SessionId]:
    """The sessions of the list with something that the viewer has not read, among those that were used last."""
    since = _get_first_visit(tx, viewer)
    if since is None:
        return []
    owner = "and s.owner = :owner" if viewer.owner else ""
    rows = tx.rows(
        f"""
        select recent.id from (
          select s.id, s.last_seq, s.active_at from sessions s
          where s.profile = :profile {owner} and s.archived = 0 and s.deleted_at is null and s.surface <> :job
          order by s.pinned desc, s.active_at desc, s.id desc
          limit :examined
        ) recent
        left join reads r on r.profile = :profile and r.principal = :principal and r.session = recent.id
        where recent.last_seq > coalesce(r.seq, case when recent.active_at <= :since then recent.last_seq else 0 end)
        limit :limit
        """,
        {
            **_viewer_key(viewer),
            "owner": viewer.owner,
            "job": JOB_SURFACE,
            "since": to_micros(since),
            "examined": _EXAMINED,
            "limit": limit,
        },
    )
    return [SessionId(row[0]) for row in rows]


def save_unsent(
    tx: Transaction,
    viewer: Viewer,
    place: str,
    composed: UnsentMessage,
    *,
    session: SessionId | None,
) -> None:
    """Keep what was typed at a place; nothing typed is forgotten."""
    key = {**_viewer_key(viewer), "place": place}
    if composed == UnsentMessage():
        tx.run(
            "delete from composers where profile = :profile and principal = :principal and place = :place",
            key,
        )
        return
    tx.run(
        """
        insert into composers (profile, principal, place, session, body, saved_at)
        values (:profile, :principal, :place, :session, :body, :now)
        on conflict (profile, principal, place) do update set body = excluded.body, saved_at = excluded.saved_at
        """,
        {
            **key,
            "session": session,
            "body": tx.keys.seal(session, codec.dumps(composed)),
            "now": to_micros(tx.now),
        },
    )


def get_unsent(tx: Transaction, viewer: Viewer, place: str) -> UnsentMessage:
    row = tx.row(
        "select body from composers where profile = :profile and principal = :principal and place = :place",
        {**_viewer_key(viewer), "place": place},
    )
    return UnsentMessage() if row is None else codec.loads(row[0], UnsentMessage)


def get_zone(tx: Transaction, viewer: Viewer) -> str:
    """Return the time zone that a person has set, empty if none."""
    return get_preferences(tx, viewer).get(_ZONE, "")


def set_zone(tx: Transaction, viewer: Viewer, zone: str) -> None:
    """Keep the time zone of a person; an empty one is removed."""
    save_preferences(tx, viewer, {**get_preferences(tx, viewer), _ZONE: zone})


def get_preferences(tx: Transaction, viewer: Viewer) -> dict[str, str]:
    row = tx.row(
        "select body from preferences where profile = :profile and principal = :principal",
        _viewer_key(viewer),
    )
    return {} if row is None else codec.loads(row[0], dict[str, str])


def save_preferences(tx: Transaction, viewer: Viewer, values: dict[str, str]) -> None:
    """Keep preferences. The first time is the viewer's first visit."""
    tx.run(
        """
        insert into preferences (profile, principal, body, since) values (:profile, :principal, :body, :now)
        on conflict (profile, principal) do update set body = excluded.body
        """,
        {**_viewer_key(viewer), "body": codec.dumps(values), "now": to_micros(tx.now)},
    )


def has_visited(tx: Transaction, viewer: Viewer) -> bool:
    """Whether the viewer has been here before."""
    return _get_first_visit(tx, viewer) is not None


def _get_first_visit(tx: Transaction, viewer: Viewer) -> datetime | None:
    row = tx.row(
        "select since from preferences where profile = :profile and principal = :principal",
        _viewer_key(viewer),
    )
    return None if row is None else from_micros(row[0])


def _viewer_key(viewer: Viewer) -> dict[str, str]:
    return {"profile": viewer.profile, "principal": viewer.principal}


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A link to a session. It shows messages up to `through`."""

    id: str
    session: SessionId
    through: int
    created_at: datetime


_SHARE_ROWS = RowMapper(Share)


def add_share(tx: Transaction, share: Share, *, digest: str) -> None:
    tx.run(
        """
        insert into shares (id, session, digest, through, created_at)
        values (:id, :session, :digest, :through, :created_at)
        """,
        {**_SHARE_ROWS.encode(share), "digest": digest},
    )


def find_share(tx: Transaction, *, digest: str) -> Share | None:
    row = tx.row(f"select {_SHARE_ROWS.columns} from shares where digest = :digest", {"digest": digest})
    return _SHARE_ROWS.decode_optional(row)


def list_shares(tx: Transaction, session: SessionId) -> list[Share]:
    """Return the links to a session, oldest first."""
    rows = tx.rows(
        f"select {_SHARE_ROWS.columns} from shares where session = :session order by created_at, id",
        {"session": session},
    )
    return _SHARE_ROWS.decode_all(rows)


def remove_share(tx: Transaction, session: SessionId, id_: str) -> None:
    gone = tx.count(
        "delete from shares where session = :session and id = :id", {"session": session, "id": id_}
    )
    if not gone:
        raise NotFound(Phrase("web.no_share"))
