"""Sessions: made with their first message, listed by activity, found by id, prefix, title or alias."""

import base64
import binascii
from datetime import datetime, timedelta
from typing import Any

from keryx.core import ids, source, titles, wire
from keryx.core.changes import Kind
from keryx.core.errors import Ambiguous, Invalid, NotFound
from keryx.core.ids import PrincipalId, ProfileId, ProjectId, SessionId
from keryx.core.sessions import (
    JOB_SURFACE,
    Activity,
    EndReason,
    Listed,
    Listing,
    Session,
    Settings,
    TitleBy,
    Tokens,
    Viewer,
)
from keryx.core.source import Source
from keryx.core.turns import Usage
from keryx.store import changes
from keryx.store.database import Row, Transaction, maybe_moment, micros, moment

_COLUMNS = """
  s.id, s.profile, s.owner, s.surface, s.created_at, s.active_at, s.title, s.title_by, s.origin, s.parent, s.parent_seq,
  s.project, s.pinned, s.archived, s.deleted_at, s.ended_at, s.end_reason, s.cwd, s.settings, s.epoch, s.last_seq,
  s.messages, s.turns, s.tokens_input, s.tokens_output, s.tokens_reasoning, s.tokens_cache_read, s.tokens_cache_write,
  s.cost, s.cost_status, s.context_used, s.context_limit
"""
_SELECT = f"select {_COLUMNS} from sessions s"
_RUNNING = "exists (select 1 from turns t where t.session = s.id and t.state = 'running')"
_WAITING = "exists (select 1 from turns t where t.session = s.id and t.state = 'queued')"
_FAILED = """
(select t.state from turns t where t.session = s.id order by t.position desc limit 1) in ('failed', 'parked', 'expired')
"""

_ACTIVITY = f"""
case when {_RUNNING} then 'running' when {_WAITING} then 'waiting' when {_FAILED} then 'failed' else 'idle' end
"""


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
    row = tx.row(f"{_SELECT} where s.id = :id", {"id": session})
    found = None if row is None else _session(row)
    hidden = found is not None and not deleted and found.deleted_at is not None
    if found is None or hidden or (viewer and not viewer.sees(found.profile, found.owner)):
        raise NotFound(f"there is no session {session!r}: `keryx sessions list` shows them")
    return found


def lock(tx: Transaction, session: SessionId) -> None:
    """Hold the session until the end of the transaction; the first lock of every unit that changes it."""
    if tx.for_update:
        tx.row(f"select 1 from sessions where id = :id{tx.for_update}", {"id": session})


def resolve(tx: Transaction, viewer: Viewer, text: str) -> Session:
    """Find a session by id, unique prefix, title (the newest of its line), or alias."""
    name = ids.reference(text)
    for candidates in (_by_id, _by_title, _by_alias, _by_prefix):
        found = [s for s in candidates(tx, viewer, name) if viewer.sees(s.profile, s.owner)]
        if len(found) == 1 or (found and candidates is _by_title):
            return found[0]
        if found:
            raise Ambiguous(
                f"{name!r} fits {len(found)} sessions or more: give a longer prefix, or the title"
            )
    raise NotFound(f"there is no session {name!r}: `keryx sessions list` shows them")


def page(tx: Transaction, viewer: Viewer, listing: Listing) -> tuple[list[Listed], str | None]:
    """One page of sessions, pinned first, then by last message; and the cursor of the next page."""
    pinned, active_at, last = _position(listing.after)
    limit = max(1, min(listing.limit, 500))
    params: dict[str, Any] = {
        "profile": viewer.profile,
        "pinned_at": pinned,
        "active_at": active_at,
        "last": last,
        "limit": limit + 1,
        "job": JOB_SURFACE,
    }
    where = [
        "s.profile = :profile",
        "s.deleted_at is null",
        "(s.pinned, s.active_at, s.id) < (:pinned_at, :active_at, :last)",
    ]
    where += _filters(viewer, listing, params)
    rows = tx.rows(
        f"""
        select {_COLUMNS}, {_ACTIVITY} from sessions s
        where {" and ".join(where)}
        order by s.pinned desc, s.active_at desc, s.id desc
        limit :limit
        """,
        params,
    )
    found = [Listed(session=_session(row[:-1]), activity=Activity(row[-1])) for row in rows[:limit]]
    return found, _cursor(found[-1].session) if len(rows) > limit else None


def activity(tx: Transaction, session: SessionId) -> Activity:
    row = tx.row(f"select {_ACTIVITY} from sessions s where s.id = :id", {"id": session})
    return Activity(row[0]) if row else Activity.IDLE


def children(tx: Transaction, session: SessionId) -> list[Session]:
    rows = tx.rows(f"{_SELECT} where s.parent = :id and s.deleted_at is null order by s.id", {"id": session})
    return [_session(row) for row in rows]


def rename(tx: Transaction, session: Session, title: str, *, by: TitleBy, now: datetime) -> str:
    """Set a title; gives the one that was set. A person's title must be free and is never overwritten by rule;
    a title by rule takes the next free number."""
    wanted = titles.clean(title)
    if by is TitleBy.RULE:
        if session.title_by is TitleBy.PERSON:
            return session.title
        wanted = _free(tx, session, wanted)
    elif _taken(tx, session, wanted):
        raise Invalid(f"you have a session called {wanted!r} already: choose another title")
    _set_title(tx, session, wanted, by, now)
    return wanted


def free_title(tx: Transaction, session: Session, title: str) -> str:
    """The next free title of a line, for a fork: `base #2`, `base #3`, ..."""
    return _free(tx, session, titles.base(title)[0], always=True)


def keep_title(tx: Transaction, session: Session, title: str, *, by: TitleBy | None, now: datetime) -> str:
    """Give a session the title that it has elsewhere; gives the one that was set, numbered if it is taken here."""
    wanted = _free(tx, session, titles.clean(title))
    _set_title(tx, session, wanted, by or TitleBy.RULE, now)
    return wanted


def touch(tx: Transaction, session: Session, *, now: datetime) -> None:
    """Tell followers that something about the session changed: look again."""
    _note(tx, session, "changed", now)


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
    if session.title and _taken(tx, session, session.title):
        title = _free(tx, session, session.title)
        _set_title(tx, session, title, session.title_by or TitleBy.RULE, now)
    _change(tx, session, "deleted_at = null, erase_at = null", {}, now)


def erase(tx: Transaction, session: Session, *, now: datetime) -> None:
    """Remove a session and everything of it for good."""
    tx.run("delete from pieces where turn in (select id from turns where session = :id)", {"id": session.id})
    tx.run("delete from sessions where id = :id", {"id": session.id})
    _note_gone(tx, session, now)


def due_for_erasure(tx: Transaction, *, now: datetime, limit: int = 20) -> list[Session]:
    rows = tx.rows(
        f"{_SELECT} where s.erase_at <= :now order by s.erase_at limit :limit",
        {"now": micros(now), "limit": limit},
    )
    return [_session(row) for row in rows]


def count_turn(tx: Transaction, session: SessionId, *, now: datetime) -> None:
    """A turn of this session begins: counted, and served last in the queue of sessions from now on."""
    tx.run(
        "update sessions set turns = turns + 1, served_at = :now where id = :id",
        {"id": session, "now": micros(now)},
    )


def add_usage(tx: Transaction, session: SessionId, usage: Usage) -> None:
    tx.run(
        """
        update sessions
        set tokens_input = tokens_input + :input,
            tokens_output = tokens_output + :output,
            tokens_reasoning = tokens_reasoning + :reasoning,
            tokens_cache_read = tokens_cache_read + :cache_read,
            tokens_cache_write = tokens_cache_write + :cache_write,
            cost = case when cast(:cost as bigint) is null then cost else coalesce(cost, 0) + cast(:cost as bigint) end,
            cost_status = case
              when cast(:cost as bigint) is null then cost_status
              when :estimated = 1 then 'estimated'
              when cost_status = 'estimated' then 'estimated'
              else 'actual' end,
            context_used = coalesce(cast(:context_used as bigint), context_used),
            context_limit = coalesce(cast(:context_limit as bigint), context_limit)
        where id = :id
        """,
        {
            "id": session,
            "input": usage.input,
            "output": usage.output,
            "reasoning": usage.reasoning,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
            "cost": usage.cost,
            "estimated": int(usage.estimated),
            "context_used": usage.context_used,
            "context_limit": usage.context_limit,
        },
    )


def copy_counters(tx: Transaction, *, source: SessionId, target: SessionId, through: int) -> None:
    """Let a fork continue the numbering, epoch and undo groups of its parent."""
    tx.run(
        """
        update sessions
        set last_seq = :through,
            messages = (select count(*) from messages where session = :target),
            epoch = (select coalesce(max(epoch), 0) from messages where session = :target),
            undo = (select p.undo from sessions p where p.id = :source)
        where id = :target
        """,
        {"source": source, "target": target, "through": through},
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


def _by_id(tx: Transaction, viewer: Viewer, name: str) -> list[Session]:
    return [
        _session(r) for r in tx.rows(f"{_SELECT} where s.id = :name and s.deleted_at is null", {"name": name})
    ]


def _by_title(tx: Transaction, viewer: Viewer, name: str) -> list[Session]:
    key = name.casefold()
    rows = tx.rows(
        f"""
        {_SELECT}
        where s.profile = :profile and s.title_base = :base and s.deleted_at is null
          and s.owner = coalesce(cast(:owner as text), s.owner)
        order by s.active_at desc limit 200
        """,
        {"profile": viewer.profile, "base": titles.base(key)[0], "owner": viewer.owner},
    )
    line = [_session(row) for row in rows]
    # A numbered title asks for that one; a bare title for the newest of its line.
    exact = [s for s in line if s.title.casefold() == key]
    return exact if titles.base(key)[1] > 1 else line


def _by_alias(tx: Transaction, viewer: Viewer, name: str) -> list[Session]:
    rows = tx.rows(
        f"{_SELECT} join aliases a on a.session = s.id where a.profile = :profile and a.alias = :name and s.deleted_at is null",
        {"profile": viewer.profile, "name": name},
    )
    return [_session(row) for row in rows]


def _by_prefix(tx: Transaction, viewer: Viewer, name: str) -> list[Session]:
    prefix = name.lower()
    if len(prefix) < 4 or not prefix.isascii() or not prefix.isalnum():
        return []
    rows = tx.rows(
        f"""
        {_SELECT}
        where s.id >= :low and s.id < :high and s.deleted_at is null and s.profile = :profile
          and s.owner = coalesce(cast(:owner as text), s.owner)
        order by s.id limit 20
        """,
        {"low": prefix, "high": prefix + "~", "profile": viewer.profile, "owner": viewer.owner},
    )
    return [_session(row) for row in rows]


def _filters(viewer: Viewer, listing: Listing, params: dict[str, Any]) -> list[str]:
    """The optional conditions of a list, each a fixed text; values go into `params`."""
    where: list[str] = []
    for value, name, clause in (
        (viewer.owner, "owner", "s.owner = :owner"),
        (listing.surface, "surface", "s.surface = :surface"),
        (listing.project, "project", "s.project = :project"),
        (listing.cwd, "cwd", "s.cwd = :cwd"),
    ):
        if value is not None:
            params[name] = value
            where.append(clause)
    if listing.archived is not None:
        where.append("s.archived = 1" if listing.archived else "s.archived = 0")
    if listing.pinned is not None:
        where.append("s.pinned = 1" if listing.pinned else "s.pinned = 0")
    if listing.since is not None:
        params["since"] = micros(listing.since)
        where.append("s.active_at >= :since")
    if not listing.jobs and listing.surface != JOB_SURFACE:
        where.append("s.surface <> :job")
    match listing.activity:
        case Activity.RUNNING:
            where.append(_RUNNING)
        case Activity.WAITING:
            where.append(_WAITING)
        case Activity.FAILED:
            where.append(_FAILED)
        case Activity.IDLE:
            where.append(f"not {_RUNNING} and not {_WAITING}")
        case None:
            pass
    return where


def _position(after: str | None) -> tuple[int, int, str]:
    if after is None:
        return 2, 0, ""
    try:
        pinned, active_at, last = base64.urlsafe_b64decode(after.encode()).decode("ascii").split(":")
        if max(len(pinned), len(active_at)) > 18:
            raise ValueError("a number out of range")
        return int(pinned), int(active_at), ids.reference(last)
    except (ValueError, binascii.Error, Invalid) as exc:
        raise Invalid(f"{after[:80]!r} is not a page cursor: use one that Keryx gave you") from exc


def _cursor(session: Session) -> str:
    text = f"{int(session.pinned)}:{micros(session.active_at)}:{session.id}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def _set_title(tx: Transaction, session: Session, title: str, by: TitleBy, now: datetime) -> None:
    _change(
        tx,
        session,
        "title = :title, title_by = :by, title_key = :key, title_base = :base",
        {
            "title": title,
            "by": by.value,
            "key": title.casefold(),
            "base": titles.base(title)[0].casefold(),
        },
        now,
    )


def _taken(tx: Transaction, session: Session, title: str) -> bool:
    row = tx.row(
        """
        select 1 from sessions
        where profile = :profile and owner = :owner and title_key = :key and id <> :id and deleted_at is null
        """,
        {"profile": session.profile, "owner": session.owner, "key": title.casefold(), "id": session.id},
    )
    return row is not None


def _free(tx: Transaction, session: Session, title: str, *, always: bool = False) -> str:
    if not always and not _taken(tx, session, title):
        return title
    base, _ = titles.base(title)
    rows = tx.rows(
        """
        select title from sessions
        where profile = :profile and owner = :owner and title_base = :base and deleted_at is null
        """,
        {"profile": session.profile, "owner": session.owner, "base": base.casefold()},
    )
    number = max((titles.base(row[0])[1] for row in rows), default=0) + 1
    # A long base is cut to make room for its number, and may then be of another line.
    while _taken(tx, session, wanted := titles.numbered(base, number)):
        number += 1
    return wanted


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


def _session(row: Row) -> Session:
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
