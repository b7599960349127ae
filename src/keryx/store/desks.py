"""Desks: what each viewer has read, has typed and not sent, and prefers."""

import json
from collections.abc import Sequence
from datetime import datetime

import msgspec

from keryx.core import wire
from keryx.core.changes import Kind
from keryx.core.ids import SessionId
from keryx.core.sessions import Session, Viewer
from keryx.store import changes
from keryx.store.database import AMONG_NAMES, Transaction, micros, moment


class Composed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was typed and not sent; `media` are ids."""

    text: str = ""
    media: tuple[str, ...] = ()


def read(tx: Transaction, viewer: Viewer, session: Session, seq: int, *, now: datetime) -> bool:
    """Move a read mark forward, never back, and note it; gives whether it moved."""
    moved = tx.count(
        """
        insert into reads (profile, principal, session, seq) values (:profile, :principal, :session, :seq)
        on conflict (profile, principal, session) do update set seq = excluded.seq where reads.seq < excluded.seq
        """,
        {**_who(viewer), "session": session.id, "seq": min(seq, session.last_seq)},
    )
    if moved:
        changes.note(
            tx,
            Kind.READ,
            session.id,
            profile=viewer.profile,
            owner=viewer.principal,
            at=now,
            session=session.id,
            note=str(min(seq, session.last_seq)),
        )
    return bool(moved)


def marks(tx: Transaction, viewer: Viewer, sessions: Sequence[Session]) -> dict[SessionId, int]:
    """How far the viewer has read each session. What was said before the first visit counts as read."""
    rows = tx.rows(
        f"""
        select session, seq from reads
        where profile = :profile and principal = :principal and session {AMONG_NAMES[tx.engine]}
        """,
        {**_who(viewer), "names": json.dumps([s.id for s in sessions])},
    )
    known = {SessionId(session): int(seq) for session, seq in rows}
    since = _since(tx, viewer)
    old = {s.id: s.last_seq for s in sessions if since is None or s.active_at <= since}
    return {s.id: known.get(s.id, old.get(s.id, 0)) for s in sessions}


def compose(
    tx: Transaction,
    viewer: Viewer,
    place: str,
    composed: Composed,
    *,
    session: SessionId | None,
    now: datetime,
) -> None:
    """Keep what was typed at a place; nothing typed is forgotten."""
    key = {**_who(viewer), "place": place}
    if composed == Composed():
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
        {**key, "session": session, "body": wire.dumps(composed), "now": micros(now)},
    )


def composed(tx: Transaction, viewer: Viewer, place: str) -> Composed:
    row = tx.row(
        "select body from composers where profile = :profile and principal = :principal and place = :place",
        {**_who(viewer), "place": place},
    )
    return Composed() if row is None else wire.loads(row[0], Composed)


def preferences(tx: Transaction, viewer: Viewer) -> dict[str, str]:
    row = tx.row(
        "select body from preferences where profile = :profile and principal = :principal", _who(viewer)
    )
    return {} if row is None else wire.loads(row[0], dict[str, str])


def prefer(tx: Transaction, viewer: Viewer, values: dict[str, str], *, now: datetime) -> None:
    """Keep preferences. The first time is the viewer's first visit."""
    tx.run(
        """
        insert into preferences (profile, principal, body, since) values (:profile, :principal, :body, :now)
        on conflict (profile, principal) do update set body = excluded.body
        """,
        {**_who(viewer), "body": wire.dumps(values), "now": micros(now)},
    )


def visited(tx: Transaction, viewer: Viewer) -> bool:
    """Whether the viewer has been here before."""
    return _since(tx, viewer) is not None


def _since(tx: Transaction, viewer: Viewer) -> datetime | None:
    row = tx.row(
        "select since from preferences where profile = :profile and principal = :principal", _who(viewer)
    )
    return None if row is None else moment(row[0])


def _who(viewer: Viewer) -> dict[str, str]:
    return {"profile": viewer.profile, "principal": viewer.principal}
