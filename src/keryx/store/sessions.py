"""Sessions: made with their first message, named, changed, ended and erased."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from keryx.core import ids, source, titles, wire
from keryx.core.changes import Kind
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import PrincipalId, ProfileId, ProjectId, SessionId
from keryx.core.sessions import (
    EndReason,
    Session,
    Settings,
    TitleBy,
    Tokens,
    Viewer,
)
from keryx.core.source import Source
from keryx.store import changes, lines, media
from keryx.store.database import AMONG_NAMES, Row, Transaction, maybe_moment, micros, moment

COLUMNS = """
  s.id, s.profile, s.owner, s.surface, s.created_at, s.active_at, s.title, s.title_by, s.origin, s.parent, s.parent_seq,
  s.project, s.pinned, s.archived, s.deleted_at, s.ended_at, s.end_reason, s.cwd, s.settings, s.epoch, s.last_seq,
  s.messages, s.turns, s.tokens_input, s.tokens_output, s.tokens_reasoning, s.tokens_cache_read, s.tokens_cache_write,
  s.cost, s.cost_status, s.context_used, s.context_limit
"""
SELECT = f"select {COLUMNS} from sessions s"
GIVEN = "given"
"""How the feed notes that a session belongs to somebody else now."""
IMPORTED = "imported"
"""How the feed notes that messages, which it does not name, were brought into a session."""
REVISED = "revised"


def create(
    tx: Transaction,
    *,
    profile: ProfileId,
    owner: PrincipalId,
    surface: str,
    now: datetime,
    origin: Source | None = None,
    parent: Session | None = None,
    parent_seq: int | None = None,
    cwd: str = "",
    settings: Settings = Settings(),
    id: SessionId | None = None,
) -> SessionId:
    """Make a session. The caller adds its first message in the same transaction."""
    session = id or SessionId(ids.new(now))
    tx.run(
        """
        insert into sessions
          (id, profile, owner, surface, origin, parent, parent_seq, cwd, settings, created_at, active_at)
        values
          (:id, :profile, :owner, :surface, :origin, :parent, :parent_seq, :cwd, :settings, :now, :now)
        """,
        {
            "id": session,
            "profile": profile,
            "owner": owner,
            "surface": surface,
            "origin": origin and source.encode(origin),
            "parent": parent and parent.id,
            "parent_seq": parent_seq,
            "cwd": cwd,
            "settings": wire.dumps(settings),
            "now": micros(now),
        },
    )
    changes.note(
        tx, Kind.SESSION, session, profile=profile, owner=owner, at=now, session=session, note="created"
    )
    return session


def get(
    tx: Transaction, session: SessionId, *, viewer: Viewer | None = None, deleted: bool = False
) -> Session:
    """A session by its id. With a viewer, a session that is not theirs does not exist."""
    row = tx.row(f"{SELECT} where s.id = :id", {"id": session})
    found = None if row is None else from_row(row)
    hidden = found is not None and not deleted and found.deleted_at is not None
    if found is None or hidden or (viewer and not viewer.sees(found.profile, found.owner)):
        raise NotFound(f"there is no session {session!r}: /sessions or `keryx sessions list` shows them")
    return found


def among(tx: Transaction, sessions: Iterable[SessionId]) -> list[Session]:
    """Those of these sessions that there are, deleted ones too, in no order."""
    rows = tx.rows(f"{SELECT} where s.id {AMONG_NAMES[tx.engine]}", {"names": json.dumps(list(sessions))})
    return [from_row(row) for row in rows]


def exists(tx: Transaction, session: SessionId) -> bool:
    """Whether there is such a session, whoever may see it, the deleted ones included."""
    return tx.row("select 1 from sessions where id = :id", {"id": session}) is not None


def lock(tx: Transaction, session: SessionId) -> None:
    """Hold the session until the end of the transaction; the first lock of every unit that changes it."""
    if tx.for_update:
        tx.row(f"select 1 from sessions where id = :id{tx.for_update}", {"id": session})


def children(tx: Transaction, session: SessionId) -> list[Session]:
    rows = tx.rows(f"{SELECT} where s.parent = :id and s.deleted_at is null order by s.id", {"id": session})
    return [from_row(row) for row in rows]


def rename(tx: Transaction, session: Session, title: str, *, by: TitleBy, now: datetime) -> str:
    """Set a title; gives the one that was set. A person's title must be free and is never overwritten by
    another; any other title takes the next free number."""
    if by is TitleBy.PERSON:
        wanted = free_title(tx, Viewer(session.profile, session.owner), title, but=session.id)
    elif session.title_by is TitleBy.PERSON:
        return session.title
    else:
        wanted = lines.free(tx, session, titles.clean(title))
    _set_title(tx, session, wanted, by, now)
    return wanted


def free_title(tx: Transaction, owner: Viewer, title: str, *, but: SessionId | None = None) -> str:
    """A person's title as it would be kept. `Invalid` if a session of this owner has it, `but` this one."""
    wanted = titles.clean(title)
    if lines.holder(tx, owner, wanted) not in (None, but):
        raise Invalid(f"you have a session called {wanted!r} already: choose another title")
    return wanted


def keep_title(tx: Transaction, session: Session, title: str, *, by: TitleBy | None, now: datetime) -> str:
    """Give a session the title that it has elsewhere; gives the one that was set, numbered if it is taken here."""
    wanted = lines.free(tx, session, titles.clean(title))
    _set_title(tx, session, wanted, by or TitleBy.RULE, now)
    return wanted


def touch(tx: Transaction, session: Session, *, now: datetime) -> None:
    """Tell followers that marks of its messages changed: look at them again."""
    _note(tx, session, REVISED, now)


def set_pinned(tx: Transaction, session: Session, pinned: bool, *, now: datetime) -> None:
    _change(tx, session, "pinned = :value", {"value": int(pinned)}, now)


def set_archived(tx: Transaction, session: Session, archived: bool, *, now: datetime) -> None:
    _change(tx, session, "archived = :value", {"value": int(archived)}, now)


def set_project(tx: Transaction, session: Session, project: ProjectId | None, *, now: datetime) -> None:
    _change(tx, session, "project = :value", {"value": project}, now)


def set_settings(tx: Transaction, session: Session, settings: Settings, *, now: datetime) -> None:
    _change(tx, session, "settings = :value", {"value": wire.dumps(settings)}, now)


def end(tx: Transaction, session: Session, reason: EndReason | None, *, now: datetime) -> None:
    """End a session with a reason, or reopen it with none."""
    ended_at = None if reason is None else micros(now)
    _change(
        tx,
        session,
        "ended_at = :at, end_reason = :reason",
        {"at": ended_at, "reason": reason and reason.value},
        now,
    )


def hide(tx: Transaction, session: Session, *, grace: timedelta, now: datetime) -> None:
    """Delete: gone from every list now, erased after the grace period."""
    tx.run(
        "update sessions set deleted_at = :now, erase_at = :erase_at where id = :id",
        {"id": session.id, "now": micros(now), "erase_at": micros(now + grace)},
    )
    _note_gone(tx, session, now)


def unhide(tx: Transaction, session: Session, *, now: datetime) -> None:
    """Bring a deleted session back. A title that was taken meanwhile gets the next number."""
    if session.title and lines.taken(tx, session, session.title):
        title = lines.free(tx, session, session.title)
        _set_title(tx, session, title, session.title_by or TitleBy.RULE, now)
    _change(tx, session, "deleted_at = null, erase_at = null", {}, now)


def erase(tx: Transaction, session: Session, *, now: datetime) -> None:
    """Remove a session and everything of it for good."""
    tx.run("delete from pieces where turn in (select id from turns where session = :id)", {"id": session.id})
    media.forget(tx, session.id, profile=session.profile, owner=session.owner)
    tx.run("delete from sessions where id = :id", {"id": session.id})
    _note_gone(tx, session, now)


def due_for_erasure(tx: Transaction, *, now: datetime, limit: int = 20) -> list[Session]:
    rows = tx.rows(
        f"{SELECT} where s.erase_at <= :now order by s.erase_at limit :limit",
        {"now": micros(now), "limit": limit},
    )
    return [from_row(row) for row in rows]


def count_turn(tx: Transaction, session: SessionId, *, now: datetime) -> None:
    """A turn of this session begins: counted, and served last in the queue of sessions from now on."""
    tx.run(
        "update sessions set turns = turns + 1, served_at = :now where id = :id",
        {"id": session, "now": micros(now)},
    )


def copy_counters(tx: Transaction, *, source: SessionId, target: SessionId) -> None:
    """Let a fork continue the numbering, epoch and undo groups of what was copied."""
    tx.run(
        """
        update sessions
        set last_seq = (select coalesce(max(seq), 0) from messages where session = :target),
            messages = (select count(*) from messages where session = :target),
            epoch = (select coalesce(max(epoch), 0) from messages where session = :target),
            undo = (select p.undo from sessions p where p.id = :source)
        where id = :target
        """,
        {"source": source, "target": target},
    )


def next_undo(tx: Transaction, session: SessionId) -> int:
    row = tx.row("update sessions set undo = undo + 1 where id = :id returning undo", {"id": session})
    assert row is not None
    return int(row[0])


def add_alias(tx: Transaction, session: Session, alias: str) -> None:
    """Let an old id of an imported session lead to it for ever."""
    tx.run(
        """
        insert into aliases (profile, alias, session) values (:profile, :alias, :session)
        on conflict (profile, alias) do nothing
        """,
        {"profile": session.profile, "alias": ids.reference(alias), "session": session.id},
    )


def of_owner(tx: Transaction, *, profile: ProfileId, owner: PrincipalId) -> list[SessionId]:
    """The ids of every session of a person, deleted ones too, oldest first."""
    rows = tx.rows(
        "select id from sessions where profile = :profile and owner = :owner order by id",
        {"profile": profile, "owner": owner},
    )
    return [SessionId(row[0]) for row in rows]


def give(tx: Transaction, session: Session, owner: PrincipalId, *, now: datetime) -> None:
    """Let a session with all its work belong to another person. A title that they use already gets a number."""
    heir = msgspec.structs.replace(session, owner=owner)
    title = (
        lines.free(tx, heir, session.title) if session.title and session.deleted_at is None else session.title
    )
    tx.run(
        """
        update sessions set owner = :owner, title = :title, title_key = :key, title_base = :base where id = :id
        """,
        {"id": session.id, "owner": owner, "title": title, **lines.keys(title)},
    )
    params = {"id": session.id, "owner": owner}
    tx.run("update turns set owner = :owner where session = :id", params)
    tx.run("update usage set owner = :owner where session = :id", params)
    tx.run("update deliveries set owner = :owner where session = :id", params)
    _note_gone(tx, session, now)
    _note(tx, heir, GIVEN, now)


def from_row(row: Row) -> Session:
    (
        id_, profile, owner, surface, created_at, active_at, title, title_by, origin, parent, parent_seq,
        project, pinned, archived, deleted_at, ended_at, end_reason, cwd, settings, epoch, last_seq,
        messages, turns, tokens_input, tokens_output, tokens_reasoning, tokens_cache_read, tokens_cache_write,
        cost, cost_status, context_used, context_limit,
    ) = row  # fmt: skip
    return Session(
        id=id_,
        profile=profile,
        owner=owner,
        surface=surface,
        created_at=moment(created_at),
        active_at=moment(active_at),
        title=title,
        title_by=TitleBy(title_by) if title_by else None,
        origin=source.decode(origin) if origin else None,
        parent=parent,
        parent_seq=parent_seq,
        project=project,
        pinned=bool(pinned),
        archived=bool(archived),
        deleted_at=maybe_moment(deleted_at),
        ended_at=maybe_moment(ended_at),
        end_reason=EndReason(end_reason) if end_reason else None,
        cwd=cwd,
        settings=wire.loads(settings, Settings),
        epoch=epoch,
        last_seq=last_seq,
        messages=messages,
        turns=turns,
        tokens=Tokens(
            input=tokens_input,
            output=tokens_output,
            reasoning=tokens_reasoning,
            cache_read=tokens_cache_read,
            cache_write=tokens_cache_write,
        ),
        cost=cost,
        cost_status=cost_status,
        context_used=context_used,
        context_limit=context_limit,
    )


def _set_title(tx: Transaction, session: Session, title: str, by: TitleBy, now: datetime) -> None:
    _change(
        tx,
        session,
        "title = :title, title_by = :by, title_key = :key, title_base = :base",
        {"title": title, "by": by.value, **lines.keys(title)},
        now,
    )


def _change(
    tx: Transaction, session: Session, assignment: str, params: dict[str, Any], now: datetime
) -> None:
    tx.run(f"update sessions set {assignment} where id = :id", {**params, "id": session.id})
    _note(tx, session, "changed", now)


def _note(tx: Transaction, session: Session, note: str, now: datetime) -> None:
    changes.note(
        tx,
        Kind.SESSION,
        session.id,
        profile=session.profile,
        owner=session.owner,
        at=now,
        session=session.id,
        note=note,
    )


def _note_gone(tx: Transaction, session: Session, now: datetime) -> None:
    changes.note(
        tx,
        Kind.SESSION_GONE,
        session.id,
        profile=session.profile,
        owner=session.owner,
        at=now,
        session=session.id,
    )
