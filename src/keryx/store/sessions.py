"""Sessions: create, find, list, rename, change, end, delete and erase; with unique titles, bindings to outside agents, and the queue of end-of-session hooks."""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from keryx.core import codec, ids, sessions, source
from keryx.core.changes import ChangeKind
from keryx.core.clock import to_micros
from keryx.core.errors import Ambiguous, Invalid, NotFound
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId, ProjectId, SessionId, TagId
from keryx.core.search import Filters, StateFilter, parse_list_filters, subtract_age
from keryx.core.sessions import (
    GATEWAY_SURFACE,
    JOB_SURFACE,
    SURFACES,
    Activity,
    Binding,
    EndReason,
    PruneRule,
    ReservedSession,
    Session,
    SessionFilter,
    SessionListItem,
    SessionSettings,
    TitleBy,
    Viewer,
)
from keryx.core.source import Source
from keryx.core.texts import Phrase
from keryx.core.usage import Tokens
from keryx.store import changes, inbox, media
from keryx.store.db import Engine, Row, Transaction
from keryx.store.db.rows import RowMapper
from keryx.store.db.session_keys import is_sealed

_QUOTED = re.compile(r"""["'“„«‘‚](.+)["'”“»’‘]\Z""", re.S)
_LIKE_WILDCARD = re.compile("[!%_]")
_SHORTEST_PART = 3
_MAX_NAMED = 5
_RESERVED_PREFIX = "reserved/"
_END_OF_TIME = 1 << 60
_ROWS = RowMapper(Session, table="s", without={"tokens"})
_TOKENS = RowMapper(Tokens, columns={name: f"s.tokens_{name}" for name in Tokens.__struct_fields__})
_COLUMNS = f"{_ROWS.columns}, {_TOKENS.columns}"
_SELECT = f"select {_COLUMNS} from sessions s"
# Notes of the feed. What was imported or revised is not named.
OWNER_CHANGED = "given"
MESSAGES_IMPORTED = "imported"
MESSAGES_REVISED = "revised"
_TURN_IN_STATE = "select 1 from turns t where t.session = s.id and t.state = '{}'"
_HAS_RUNNING_TURN, _HAS_QUEUED_TURN = (
    f"exists ({_TURN_IN_STATE.format(state)})" for state in ("running", "queued")
)
_FAILED_STATES = "('failed', 'parked', 'expired')"
_LAST_TURN_FAILED = f"""
(select t.state from turns t where t.session = s.id order by t.position desc limit 1) in {_FAILED_STATES}
"""
# Asked in this way PostgreSQL looks for each session of a page; else it might collect all that wait for this one page.
_FIND_TURN = f"({_TURN_IN_STATE} limit 1) is not null"
_ACTIVITY_COLUMN = f"""
case when {_FIND_TURN.format("running")} then 'running' when {_FIND_TURN.format("queued")} then 'waiting'
  when {_LAST_TURN_FAILED} then 'failed' else 'idle' end
"""
_TAGS_COLUMN = "(select string_agg(x.tag, ' ') from session_tags x where x.session = s.id)"
_LIST_COLUMNS = f"{_COLUMNS}, {_ACTIVITY_COLUMN}, {_TAGS_COLUMN}"
# Up to so many sessions that a filter finds are looked up one by one. If there are more, they are dense enough in the list
# for a walk through its index to meet a page of them soon.
_SPARSE = 1000
# The sessions of turns in a state, each by an index that has nothing else.
_SESSIONS_IN_STATE = {
    StateFilter.RUNNING: "select t.session from turns t where t.state = 'running' limit :limit",
    StateFilter.WAITING: "select distinct t.session from turns t where t.state = 'queued' limit :limit",
    StateFilter.FAILED: f"""
        select t.session from turns t where t.state in {_FAILED_STATES} order by t.position desc limit :limit
    """,
}
_SESSIONS_WITH_TAG = "select session from session_tags where tag = :tag limit :limit"
_CONDITIONS = {
    StateFilter.PINNED: "s.pinned = 1",
    StateFilter.ARCHIVED: "s.archived = 1",
    StateFilter.RUNNING: _HAS_RUNNING_TURN,
    StateFilter.WAITING: _HAS_QUEUED_TURN,
    StateFilter.FAILED: _LAST_TURN_FAILED,
    StateFilter.DELETED: "s.deleted_at is not null",
}


class PendingItems(NamedTuple):
    """What a new message of a session may concern: each is false if there is none."""

    # An open question.
    question: bool
    # A turn that runs or waits.
    turn: bool
    # A chat that mirrors the session.
    mirror: bool
    # A notice or an observed message since the last message to the agent.
    note: bool


def create(
    tx: Transaction,
    *,
    profile: ProfileId,
    owner: PrincipalId,
    surface: str,
    origin: Source | None = None,
    parent: SessionId | None = None,
    parent_seq: int | None = None,
    cwd: str = "",
    settings: SessionSettings = SessionSettings(),
    id: SessionId | None = None,
) -> SessionId:
    """Make a session. The caller adds its first message in the same transaction."""
    session = id or SessionId(ids.new(tx.now))
    if ids.is_temporary(session):
        tx.keys.create(session)
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
            "parent": parent,
            "parent_seq": parent_seq,
            "cwd": _check_folder(cwd),
            "settings": codec.dumps(settings),
            "now": to_micros(tx.now),
        },
    )
    changes.note(tx, ChangeKind.SESSION, session, changes.Scope(profile, owner, session), note="created")
    return session


def find_pending(tx: Transaction, session: SessionId) -> PendingItems:
    """Find what a new message of a session may concern. Mostly there is nothing, and one statement says so."""
    row = tx.row(
        """
        select
          exists (select 1 from questions where session = :session and state = 'open'),
          exists (select 1 from turns where session = :session and state = 'queued')
            or exists (select 1 from turns where session = :session and state = 'running'),
          exists (select 1 from lanes where session = :session and mirror = 1),
          exists (
            select 1 from messages
            where session = :session and (role = 'notice' or role = 'user' and observed = 1) and seq > coalesce(
              (
                select seq from messages where session = :session and role = 'user' and observed = 0
                order by seq desc limit 1
              ),
              0
            )
          )
        """,
        {"session": session},
    )
    assert row is not None
    return PendingItems(*map(bool, row))


def build_unknown_error(name: str) -> NotFound:
    return NotFound(
        f"there is no session {name!r}: `keryx sessions list` shows them",
        Phrase("session.unknown", name=repr(name)),
    )


def get(
    tx: Transaction, session: SessionId, *, viewer: Viewer | None = None, deleted: bool = False
) -> Session:
    """A session by its id. With a viewer, a session that is not theirs does not exist."""
    row = tx.row(f"{_SELECT} where s.id = :id", {"id": session})
    found = None if row is None else _from_row(row)
    hidden = found is not None and not deleted and found.deleted_at is not None
    if found is None or hidden or (viewer and not viewer.sees(found.profile, found.owner)):
        raise build_unknown_error(session)
    return found


def get_many(tx: Transaction, sessions: Iterable[SessionId]) -> list[Session]:
    """Those of these sessions that there are, deleted ones too, in no order."""
    rows = tx.rows(f"{_SELECT} where s.id {tx.in_names}", {"names": json.dumps(list(sessions))})
    return [_from_row(row) for row in rows]


def exists(tx: Transaction, session: SessionId) -> bool:
    """Whether a session exists, deleted or not, for any viewer."""
    return tx.row("select 1 from sessions where id = :id", {"id": session}) is not None


def get_title(tx: Transaction, session: SessionId) -> str:
    """Return the title of a session; empty if it has none, or was erased."""
    row = tx.row("select title from sessions where id = :id", {"id": session})
    return "" if row is None else row[0]


def has_title(tx: Transaction, session: SessionId) -> bool:
    """Whether a person, an agent or a rule has named a session, which must exist."""
    return (
        tx.row("select 1 from sessions where id = :id and title_by is not null", {"id": session}) is not None
    )


def lock(tx: Transaction, session: SessionId) -> None:
    """Hold the session until the end of the transaction; the first lock of every unit that changes it."""
    if tx.for_update:
        tx.row(f"select 1 from sessions where id = :id{tx.for_update}", {"id": session})


def list_children(tx: Transaction, session: SessionId) -> list[Session]:
    rows = tx.rows(f"{_SELECT} where s.parent = :id and s.deleted_at is null order by s.id", {"id": session})
    return [_from_row(row) for row in rows]


def rename(tx: Transaction, session: Session, title: str, *, by: TitleBy) -> str:
    """Set a title and return it. A person's title must be free and is overwritten by no other kind; any other title
    gets the next free number. A person's empty title removes the one that was there."""
    if by is TitleBy.PERSON and not title:
        _update(tx, session, "title = '', title_by = null, title_key = null, title_base = null", {})
        return ""
    if by is TitleBy.PERSON:
        wanted = validate_title(tx, Viewer(session.profile, session.owner), title, but=session.id)
    elif session.title_by is TitleBy.PERSON:
        return session.title
    else:
        wanted = _unique_title(tx, session, sessions.clean_title(title))
    _set_title(tx, session, wanted, by)
    return wanted


def validate_title(tx: Transaction, owner: Viewer, title: str, *, but: SessionId | None = None) -> str:
    """A person's title as it would be kept. `Invalid` if a session of this owner has it, `but` this one."""
    wanted = sessions.clean_title(title)
    if _title_taken(tx, owner, wanted, but=but):
        raise Invalid(
            f"you have a session called {wanted!r} already: choose another title",
            Phrase("session.title_taken", title=repr(wanted)),
        )
    return wanted


def import_title(tx: Transaction, session: Session, title: str, *, by: TitleBy | None) -> str:
    """Set the title of an imported session and return it, numbered if it is taken here."""
    wanted = _unique_title(tx, session, sessions.clean_title(title))
    _set_title(tx, session, wanted, by or TitleBy.RULE)
    return wanted


def note_revision(tx: Transaction, session: Session) -> None:
    """Tell followers that marks of its messages changed: look at them again."""
    _note_change(tx, session, MESSAGES_REVISED)


def set_pinned(tx: Transaction, session: Session, pinned: bool) -> None:
    _update(tx, session, "pinned = :value", {"value": int(pinned)})


def set_archived(tx: Transaction, session: Session, archived: bool) -> None:
    _update(tx, session, "archived = :value", {"value": int(archived)})


def set_project(tx: Transaction, session: Session, project: ProjectId | None) -> None:
    _update(tx, session, "project = :value", {"value": project})


def note_change(tx: Transaction, session: Session) -> None:
    """Tell followers that what a list shows of a session changed, beside its own row: its tags."""
    _note_change(tx, session, "changed")


def set_cwd(tx: Transaction, session: Session, cwd: str) -> None:
    _update(tx, session, "cwd = :value", {"value": _check_folder(cwd)})


def _check_folder(cwd: str) -> str:
    """Return a folder as it is. Refuse one that a transaction would take for a sealed text and open, and what names none."""
    if is_sealed(cwd) or "\0" in cwd:
        raise Invalid("the name of a folder cannot begin with a control character, or have a NUL character")
    return cwd


def set_settings(tx: Transaction, session: Session, settings: SessionSettings) -> None:
    _update(tx, session, "settings = :value", {"value": codec.dumps(settings)})


def end(tx: Transaction, session: Session, reason: EndReason | None) -> None:
    """End a session with a reason, or reopen it with none."""
    ended_at = None if reason is None else to_micros(tx.now)
    _update(
        tx,
        session,
        "ended_at = :at, end_reason = :reason",
        {"at": ended_at, "reason": reason and reason.value},
    )


def soft_delete(tx: Transaction, session: Session, *, grace: timedelta) -> None:
    """Delete: gone from every list now, erased after the grace period."""
    tx.run(
        "update sessions set deleted_at = :now, erase_at = :erase_at where id = :id",
        {"id": session.id, "now": to_micros(tx.now), "erase_at": to_micros(tx.now + grace)},
    )
    _note_removal(tx, session)


def undelete(tx: Transaction, session: Session) -> None:
    """Bring a deleted session back. A title that was taken meanwhile gets the next number."""
    if session.title and (title := _unique_title(tx, session, session.title)) != session.title:
        _set_title(tx, session, title, session.title_by or TitleBy.RULE)
    _update(tx, session, "deleted_at = null, erase_at = null", {})


def erase(tx: Transaction, session: Session) -> None:
    """Remove a session and everything of it for good. The key of a temporary one goes first: if the commit fails, what is
    left cannot be read, and the next clean-up removes it."""
    if ids.is_temporary(session.id):
        tx.keys.discard(session.id)
    tx.run("delete from pieces where turn in (select id from turns where session = :id)", {"id": session.id})
    media.remove_for_session(tx, session.id, profile=session.profile, owner=session.owner)
    tx.run("delete from api_conversations where session = :id", {"id": session.id})
    tx.run("delete from sessions where id = :id", {"id": session.id})
    _note_removal(tx, session)


def list_temporary(tx: Transaction) -> list[Session]:
    """Every temporary session, deleted ones too, oldest first."""
    rows = tx.rows(f"{_SELECT} where substr(s.id, 1, 4) = 'tmp-' order by s.id")
    return [_from_row(row) for row in rows]


def list_due_for_erasure(tx: Transaction, *, limit: int = 20) -> list[Session]:
    rows = tx.rows(
        f"{_SELECT} where s.erase_at <= :now order by s.erase_at limit :limit",
        {"now": to_micros(tx.now), "limit": limit},
    )
    return [_from_row(row) for row in rows]


def count_turn(tx: Transaction, session: SessionId) -> None:
    """A turn of this session begins: counted, and served last in the queue of sessions from now on."""
    tx.run(
        "update sessions set turns = turns + 1, served_at = :now where id = :id",
        {"id": session, "now": to_micros(tx.now)},
    )


def copy_counters(tx: Transaction, *, source: SessionId, target: SessionId) -> None:
    """Set the last number, counts, epoch and undo group of a fork from what was copied."""
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


def next_undo_group(tx: Transaction, session: SessionId) -> int:
    row = tx.row("update sessions set undo = undo + 1 where id = :id returning undo", {"id": session})
    assert row is not None
    return int(row[0])


def add_alias(tx: Transaction, session: Session, alias: str) -> None:
    """Add an old id of an imported session as an alias."""
    tx.run(
        """
        insert into aliases (profile, alias, session) values (:profile, :alias, :session)
        on conflict (profile, alias) do nothing
        """,
        {"profile": session.profile, "alias": ids.parse_reference(alias), "session": session.id},
    )


def list_ids_for_owner(tx: Transaction, *, profile: ProfileId, owner: PrincipalId) -> list[SessionId]:
    """The ids of every session of a person, deleted ones too, oldest first."""
    rows = tx.rows(
        "select id from sessions where profile = :profile and owner = :owner order by id",
        {"profile": profile, "owner": owner},
    )
    return [SessionId(row[0]) for row in rows]


def change_owner(tx: Transaction, session: Session, owner: PrincipalId) -> None:
    """Transfer a session with all its work to another person. A title that they use already gets a number."""
    heir = msgspec.structs.replace(session, owner=owner)
    title = (
        _unique_title(tx, heir, session.title)
        if session.title and session.deleted_at is None
        else session.title
    )
    tx.run(
        """
        update sessions set owner = :owner, title = :title, title_key = :key, title_base = :base where id = :id
        """,
        {
            "id": session.id,
            "owner": owner,
            "title": tx.keys.seal(session.id, title),
            **find_title_keys(session.id, title),
        },
    )
    params = {"id": session.id, "owner": owner}
    tx.run("update turns set owner = :owner where session = :id", params)
    tx.run("update usage set owner = :owner where session = :id", params)
    tx.run("update deliveries set owner = :owner where session = :id", params)
    _note_removal(tx, session)
    _note_change(tx, heir, OWNER_CHANGED)


def _from_row(row: Row) -> Session:
    return _ROWS.decode(row, tokens=_TOKENS.decode(row[_ROWS.width :]))


def _set_title(tx: Transaction, session: Session, title: str, by: TitleBy) -> None:
    _update(
        tx,
        session,
        "title = :title, title_by = :by, title_key = :key, title_base = :base",
        {"title": tx.keys.seal(session.id, title), "by": by.value, **find_title_keys(session.id, title)},
    )


def _update(tx: Transaction, session: Session, assignment: str, params: dict[str, Any]) -> None:
    tx.run(f"update sessions set {assignment} where id = :id", {**params, "id": session.id})
    _note_change(tx, session, "changed")


def _note_change(tx: Transaction, session: Session, note: str) -> None:
    changes.note(tx, ChangeKind.SESSION, session.id, session, note=note)


def _note_removal(tx: Transaction, session: Session) -> None:
    changes.note(tx, ChangeKind.SESSION_GONE, session.id, session)


def find_title_keys(session: SessionId, title: str) -> dict[str, str | None]:
    """Return the columns that a session is found by. A temporary one is not found by its title."""
    return build_title_keys("" if ids.is_temporary(session) else title)


def build_title_keys(title: str) -> dict[str, str | None]:
    """Return the columns that a title is found by: its key, and the base without its number."""
    return {"key": title.casefold() or None, "base": sessions.split_title_number(title)[0].casefold() or None}


def _title_taken(tx: Transaction, owner: Viewer, title: str, *, but: SessionId | None) -> bool:
    """Whether a session of an owner has this title, `but` not this one."""
    row = tx.row(
        """
        select id from sessions
        where profile = :profile and owner = :owner and title_key = :key and deleted_at is null
        """,
        {"profile": owner.profile, "owner": owner.principal, "key": title.casefold()},
    )
    return row is not None and row[0] != but


def _unique_title(tx: Transaction, session: Session, title: str) -> str:
    """Return the title if it is free, else its next free number."""
    owner = Viewer(session.profile, session.owner)
    return next_title(tx, session, title) if _title_taken(tx, owner, title, but=session.id) else title


def next_title(tx: Transaction, session: Session, title: str) -> str:
    """The next free title of a line: `base #2`, `base #3`, ..."""
    base, _ = sessions.split_title_number(title)
    rows = tx.rows(
        """
        select title from sessions
        where profile = :profile and owner = :owner and title_base = :base and deleted_at is null
        """,
        {"profile": session.profile, "owner": session.owner, "base": base.casefold()},
    )
    number = max((sessions.split_title_number(row[0])[1] for row in rows), default=0) + 1
    # A long base is cut to make room for its number, and may then be of another line.
    owner = Viewer(session.profile, session.owner)
    while _title_taken(tx, owner, wanted := sessions.number_title(base, number), but=session.id):
        number += 1
    return wanted


def resolve(tx: Transaction, viewer: Viewer, text: str, *, by_part: bool = False) -> Session:
    """Find a session by id, title, alias, or unique prefix of an id; `by_part` also by a unique part of its title."""
    name = text.strip()
    for candidates in _iterate_candidates(tx, viewer, name, by_part=by_part):
        found = [s for s in candidates if viewer.sees(s.profile, s.owner)]
        if len(found) == 1:
            return found[0]
        if found:
            titles = ", ".join(f"“{s.title}”" for s in found[:_MAX_NAMED] if s.title)
            phrase = Phrase("session.ambiguous_titles", name=repr(name), titles=titles)
            raise Ambiguous(
                f"{name!r} fits {len(found)} sessions or more: give a longer prefix, or the title",
                phrase if titles else Phrase("session.ambiguous", name=repr(name)),
            )
    raise build_unknown_error(ids.parse_reference(text))


def _iterate_candidates(
    tx: Transaction, viewer: Viewer, name: str, *, by_part: bool
) -> Iterator[list[Session]]:
    """Yield what a name may mean: by id, by title at most one, by alias, by prefix of an id, by part of a title."""
    params = {"name": name, "profile": viewer.profile, "owner": viewer.owner}
    referable = ids.is_reference(name)
    if referable:
        rows = tx.rows(f"{_SELECT} where s.id = :name and s.deleted_at is null", params)
        yield [_from_row(row) for row in rows]
    unquoted = _QUOTED.match(name)
    titles = (name, unquoted[1]) if unquoted else (name,)
    for title in titles:
        yield find_by_title(tx, viewer, title)[:1]
    if referable:
        rows = tx.rows(
            f"{_SELECT} join aliases a on a.session = s.id where a.profile = :profile and a.alias = :name and s.deleted_at is null",
            params,
        )
        yield [_from_row(row) for row in rows]
    prefix = name.lower()
    if len(prefix) >= 4 and prefix.isascii() and prefix.isalnum():
        rows = tx.rows(
            f"""
            {_SELECT}
            where s.id >= :low and s.id < :high and s.deleted_at is null and s.profile = :profile
              and s.owner = coalesce(cast(:owner as text), s.owner)
            order by s.id limit 20
            """,
            {**params, "low": prefix, "high": prefix + "~"},
        )
        yield [_from_row(row) for row in rows]
    if by_part:
        yield _find_by_part(tx, viewer, titles[-1])


def find_by_title(tx: Transaction, viewer: Viewer, text: str) -> list[Session]:
    """The session with this title; for a title without a number that nobody has, its line, newest first."""
    key = _to_title_key(text)
    if not key:
        return []
    rows = tx.rows(
        f"""
        {_SELECT}
        where s.profile = :profile and s.title_base = :base and s.deleted_at is null
          and s.owner = coalesce(cast(:owner as text), s.owner)
        order by s.active_at desc limit 200
        """,
        {"profile": viewer.profile, "base": sessions.split_title_number(key)[0], "owner": viewer.owner},
    )
    line = [_from_row(row) for row in rows]
    exact = [s for s in line if s.title.casefold() == key]
    return exact or (line if sessions.split_title_number(key)[1] == 1 else [])


def _find_by_part(tx: Transaction, viewer: Viewer, text: str) -> list[Session]:
    key = _to_title_key(text)
    if len(key) < _SHORTEST_PART:
        return []
    escaped = _LIKE_WILDCARD.sub(r"!\g<0>", key)
    rows = tx.rows(
        f"""
        {_SELECT}
        where s.profile = :profile and s.title_key like :pattern escape '!' and s.deleted_at is null
          and s.owner = coalesce(cast(:owner as text), s.owner)
        order by s.active_at desc limit 20
        """,
        {"profile": viewer.profile, "pattern": f"%{escaped}%", "owner": viewer.owner},
    )
    return [_from_row(row) for row in rows]


def _to_title_key(text: str) -> str:
    """Return what a title is found by, empty for text that cannot be one."""
    try:
        return sessions.clean_title(text).casefold()
    except Invalid:
        return ""


def list_page(
    tx: Transaction, viewer: Viewer, listing: SessionFilter
) -> tuple[list[SessionListItem], str | None]:
    """One page of sessions, pinned first, then by last message; deleted ones, the last first. And the cursor of the next
    page. Raise `Invalid` for a query that is not one of a list."""
    filters = parse_list_filters(listing.query)
    limit = max(1, min(listing.limit, 500))
    query = _ListQuery(tx, viewer, listing, filters, limit=limit + 1)
    rows = query.run()
    found = [_item_from_row(row) for row in rows[:limit]]
    if len(rows) <= limit:
        return found, None
    last = found[-1].session
    at = last.deleted_at if query.deleted else last.active_at
    assert at is not None
    text = f"{int(last.pinned and not query.deleted)}:{to_micros(at)}:{last.id}"
    return found, base64.urlsafe_b64encode(text.encode()).decode()


class _ListQuery:
    """The statements of one page, each in the order of an index."""

    def __init__(
        self, tx: Transaction, viewer: Viewer, listing: SessionFilter, filters: Filters, *, limit: int
    ) -> None:
        self._tx = tx
        self._after = _decode_page_cursor(listing.after)
        self._limit = limit
        self.deleted = StateFilter.DELETED in filters.is_
        pinned, active_at, last = self._after
        self._params: dict[str, Any] = {
            "profile": viewer.profile,
            "pinned_at": pinned,
            "active_at": active_at,
            "last": last,
            "job": JOB_SURFACE,
        }
        self._where = ["s.profile = :profile", *_build_filters(viewer, listing, filters, self._params)]
        self._where += build_conditions(tx, viewer, filters, self._params, sparse=True)
        times = _build_time_conditions(tx, listing, filters, self._params)
        self._where += times
        self._dated = bool(times)

    def run(self) -> list[Row]:
        if self.deleted:
            return self._select("(s.deleted_at, s.id) < (:active_at, :last)", "s.deleted_at desc, s.id desc")
        if not self._dated:
            return self._select(
                "(s.pinned, s.active_at, s.id) < (:pinned_at, :active_at, :last)",
                "s.pinned desc, s.active_at desc, s.id desc",
            )
        # The times are a range of the index only beside one value of `pinned`.
        rows: list[Row] = []
        for pinned in range(min(self._after[0], 1), -1, -1):
            within = " and (s.active_at, s.id) < (:active_at, :last)" if pinned == self._after[0] else ""
            rows += self._select(
                f"s.pinned = {pinned}{within}", "s.active_at desc, s.id desc", fewer=len(rows)
            )
        return rows

    def _select(self, position: str, order: str, *, fewer: int = 0) -> list[Row]:
        exists = "s.deleted_at is not null" if self.deleted else "s.deleted_at is null"
        return self._tx.rows(
            f"""
            select {_LIST_COLUMNS} from sessions s
            where {" and ".join([*self._where, exists, position])}
            order by {order}
            limit :limit
            """,
            {**self._params, "limit": self._limit - fewer},
        )


def _item_from_row(row: Row) -> SessionListItem:
    tags = tuple(TagId(tag) for tag in (row[-1] or "").split())
    return SessionListItem(session=_from_row(row), activity=Activity(row[-2]), tags=tags)


def build_conditions(
    tx: Transaction, viewer: Viewer, filters: Filters, params: dict[str, Any], *, sparse: bool = False
) -> list[str]:
    """Return the SQL conditions on a session `s` of those filters that only sessions have, each a fixed text; values go
    into `params`. With `sparse`, the few sessions that a filter finds are named one by one, for a list in its order."""
    where: list[str] = []
    for state in dict.fromkeys(filters.is_):
        if state in _CONDITIONS:
            few = _find_few(tx, _SESSIONS_IN_STATE[state]) if sparse and state in _SESSIONS_IN_STATE else None
            # A session whose turn has failed may have had another one since.
            if few is None or state is StateFilter.FAILED:
                where.append(_CONDITIONS[state])
            if few is not None:
                where.append(_name_sessions(tx, few, state.value, params))
    if filters.project:
        where.append(_match_any("s.project", _find_named(tx, viewer, "projects", filters.project), params))
    for n, name in enumerate(dict.fromkeys(filters.tag)):
        found = _find_named(tx, viewer, "tags", [name])
        param = _name_param("tag", n)
        params[param] = found[0] if found else ""
        few = _find_few(tx, _SESSIONS_WITH_TAG, tag=params[param]) if sparse else None
        if few is None:
            where.append(f"exists (select 1 from session_tags x where x.session = s.id and x.tag = :{param})")
        else:
            where.append(_name_sessions(tx, few, f"{param}_sessions", params))
    if filters.person:
        where.append(_match_any("s.owner", _find_people(tx, viewer, filters.person), params))
    return where


def _name_sessions(tx: Transaction, found: list[str], param: str, params: dict[str, Any]) -> str:
    params[param] = json.dumps(found)
    if tx.engine is Engine.POSTGRES:
        # PostgreSQL always looks up an array by the key; it might join a subquery with all sessions.
        return f"s.id = any (array (select value from json_array_elements_text(cast(:{param} as json))))"
    return f"s.id {tx.in_names.replace(':names', f':{param}')}"


def _find_few(tx: Transaction, sql: str, **params: str) -> list[str] | None:
    """Return the sessions that a statement finds, `None` if there are too many to look them up one by one."""
    limit = _SPARSE + 1
    rows = tx.rows(sql, {**params, "limit": limit})
    return None if len(rows) == limit else list(dict.fromkeys(row[0] for row in rows))


def _match_any(column: str, values: list[str], params: dict[str, Any]) -> str:
    """A condition with one of the values. One value is compared, so that an index keeps its order."""
    names = [_name_param(column.replace(".", "_"), n) for n in range(len(values))]
    params.update(zip(names, values, strict=True))
    if len(names) == 1:
        return f"{column} = :{names[0]}"
    return f"{column} in ({', '.join(f':{name}' for name in names)})" if names else "1 = 0"


def _name_param(name: str, n: int) -> str:
    """The name of one of several parameters. Names have letters only."""
    return f"{name}_{'x' * n}y"


def _find_named(tx: Transaction, viewer: Viewer, table: str, names: Iterable[str]) -> list[str]:
    """The ids of the viewer's projects or tags with these names or ids, without regard to case."""
    wanted = {name.casefold() for name in names}
    rows = tx.rows(
        f"select id, name from {table} where profile = :profile and owner = :owner",
        {"profile": viewer.profile, "owner": viewer.principal},
    )
    return [id_ for id_, name in rows if name.casefold() in wanted or id_ in wanted]


def _find_people(tx: Transaction, viewer: Viewer, names: Iterable[str]) -> list[str]:
    """The ids of people by their names, or by the ids themselves."""
    found = [OPERATOR for name in names if name.casefold() == OPERATOR]
    for name in names:
        rows = tx.rows(
            "select id from principals where profile = :profile and lower(name) = lower(cast(:name as text)) limit 100",
            {"profile": viewer.profile, "name": codec.dumps(name)},
        )
        rows += tx.rows(
            "select id from principals where id = :name and profile = :profile",
            {"profile": viewer.profile, "name": name.lower()},
        )
        found += [row[0] for row in rows]
    return list(dict.fromkeys(found))


def find_people(tx: Transaction, viewer: Viewer, prefix: str, *, limit: int) -> list[tuple[PrincipalId, str]]:
    """The ids and names of people whose name has this beginning, without regard to case, for the filter of a list."""
    # Names are stored as JSON: between the quote and the end of this alphabet lies every name with the prefix.
    low = codec.dumps(prefix)[:-1]
    rows = tx.rows(
        """
        select id, name from principals
        where profile = :profile and lower(name) >= lower(cast(:low as text))
          and lower(name) < lower(cast(:low as text)) || :end
        order by lower(name) limit :limit
        """,
        {"profile": viewer.profile, "low": low, "end": chr(0x10FFFF), "limit": limit},
    )
    found = [(PrincipalId(row[0]), codec.loads(row[1], str)) for row in rows if row[1]]
    return [(id_, name) for id_, name in found if name]


def list_prunable(
    tx: Transaction,
    rule: PruneRule,
    *,
    viewer: Viewer | None = None,
    limit: int = 100,
) -> list[Session]:
    """The sessions that a rule takes, oldest first: of those that a viewer sees, or of all. A rule with a query needs a
    viewer, who named what is in it."""
    where = [
        "s.deleted_at is null",
        "s.pinned = 0",
        "s.active_at < :before",
        f"not {_HAS_RUNNING_TURN}",
        f"not {_HAS_QUEUED_TURN}",
    ]
    params: dict[str, Any] = {"before": to_micros(rule.before), "limit": limit}
    if not rule.delete:
        where.append("s.archived = 0")
    profile = viewer and viewer.profile
    for value, name in ((profile, "profile"), (rule.surface, "surface"), (rule.owner, "owner")):
        if value is not None:
            params[name] = value
            where.append(f"s.{name} = :{name}")
    if viewer and viewer.owner:
        params["viewer"] = viewer.owner
        where.append("s.owner = :viewer")
    if rule.query and viewer:
        filters = parse_list_filters(rule.query)
        where += build_conditions(tx, viewer, filters, params)
        where += _build_surface_conditions(filters, params)
        where += _build_time_conditions(tx, SessionFilter(), filters, params)
    if rule.surface is None and rule.except_surfaces:
        params["names"] = json.dumps(rule.except_surfaces)
        where.append(f"not s.surface {tx.in_names}")
    rows = tx.rows(f"{_SELECT} where {' and '.join(where)} order by s.active_at, s.id limit :limit", params)
    return [_from_row(row) for row in rows]


def get_many_with_activity(tx: Transaction, sessions: Iterable[SessionId]) -> list[SessionListItem]:
    """Those of these sessions that exist, deleted ones too, in no order."""
    rows = tx.rows(
        f"select {_LIST_COLUMNS} from sessions s where s.id {tx.in_names}",
        {"names": json.dumps(list(sessions))},
    )
    return [_item_from_row(row) for row in rows]


def get_activity(tx: Transaction, session: SessionId) -> Activity:
    row = tx.row(f"select {_ACTIVITY_COLUMN} from sessions s where s.id = :id", {"id": session})
    return Activity(row[0]) if row else Activity.IDLE


def get_listed(tx: Transaction, session: Session) -> SessionListItem:
    """A session as a list shows it."""
    (found,) = get_many_with_activity(tx, [session.id])
    return found


def _build_filters(
    viewer: Viewer, listing: SessionFilter, filters: Filters, params: dict[str, Any]
) -> list[str]:
    """The optional conditions of a list, each a fixed text; values go into `params`."""
    where: list[str] = []
    for value, name, clause in (
        (viewer.owner, "owner", "s.owner = :owner"),
        (listing.owner, "person", "s.owner = :person"),
        (listing.surface, "surface", "s.surface = :surface"),
        (listing.project, "project", "s.project = :project"),
        (listing.cwd, "cwd", "s.cwd = :cwd and s.cwd <> ''"),
    ):
        if value is not None:
            params[name] = value
            where.append(clause)
    where += _build_surface_conditions(filters, params)
    either = {StateFilter.ARCHIVED, StateFilter.DELETED} & set(filters.is_)
    if listing.archived is not None and not either:
        where.append("s.archived = 1" if listing.archived else "s.archived = 0")
    if listing.pinned is not None:
        where.append("s.pinned = 1" if listing.pinned else "s.pinned = 0")
    # Scheduled runs are shown where they are asked for, or the project that they lie in.
    chosen = listing.project or filters.project or filters.surface or either
    if not listing.jobs and listing.surface != JOB_SURFACE and not chosen:
        where.append("s.surface <> :job")
    match listing.activity:
        case Activity.RUNNING:
            where.append(_HAS_RUNNING_TURN)
        case Activity.WAITING:
            where.append(_HAS_QUEUED_TURN)
        case Activity.FAILED:
            where.append(_LAST_TURN_FAILED)
        case Activity.IDLE:
            where.append(f"not {_HAS_RUNNING_TURN} and not {_HAS_QUEUED_TURN}")
        case None:
            pass
    return where


def _build_surface_conditions(filters: Filters, params: dict[str, Any]) -> list[str]:
    """A session goes by its surface, and one of a chat by its platform too."""
    if not filters.surface:
        return []
    surfaces = [name.lower() for name in filters.surface]
    known = [name for name in surfaces if name in SURFACES]
    clauses = [_match_any("s.surface", known, params)] if known else []
    for n, name in enumerate(name for name in surfaces if name not in SURFACES):
        escaped = _LIKE_WILDCARD.sub(r"!\g<0>", codec.dumps(name))
        platform, other = _name_param("platform", n), _name_param("other", n)
        params |= {platform: f'%"platform":{escaped}%', other: name}
        clauses.append(
            f"(s.surface = :{other} or (s.surface = '{GATEWAY_SURFACE}' and s.origin like :{platform} escape '!'))"
        )
    return [f"({' or '.join(clauses)})" if len(clauses) > 1 else clauses[0]]


def _build_time_conditions(
    tx: Transaction, listing: SessionFilter, filters: Filters, params: dict[str, Any]
) -> list[str]:
    """The conditions on the time of the last message. `before` is exclusive, `since` is not."""
    since = [listing.since, filters.after, subtract_age(tx.now, filters.after_age)]
    before = [filters.before, subtract_age(tx.now, filters.before_age)]
    where: list[str] = []
    if any(since):
        params["since"] = max(to_micros(moment) for moment in since if moment)
        where.append("s.active_at >= :since")
    if any(before):
        params["before_time"] = min(to_micros(moment) for moment in before if moment)
        where.append("s.active_at < :before_time")
    return where


def _decode_page_cursor(after: str | None) -> tuple[int, int, str]:
    if after is None:
        return 2, _END_OF_TIME, ""
    try:
        pinned, active_at, last = base64.urlsafe_b64decode(after.encode()).decode("ascii").split(":")
        if max(len(pinned), len(active_at)) > 18:
            raise ValueError("a number out of range")
        return int(pinned), int(active_at), ids.parse_reference(last)
    except (ValueError, binascii.Error, Invalid) as exc:
        raise Invalid(f"{after[:80]!r} is not a page cursor: use one that Keryx gave you") from exc


def reserve(tx: Transaction, session: SessionId, reserved: ReservedSession) -> None:
    """Keep what is known of a session before its first message; the last call counts."""
    inbox.set_state(tx, f"{_RESERVED_PREFIX}{session}", codec.dumps(reserved))


def find_reserved(tx: Transaction, session: SessionId, viewer: Viewer) -> ReservedSession | None:
    """A session that was reserved and has no message yet, unless it is not the viewer's."""
    value = inbox.get_cursor(tx, f"{_RESERVED_PREFIX}{session}")
    found = None if value is None else codec.loads(value, ReservedSession)
    return found if found and viewer.sees(found.profile, found.owner) else None


def unreserve(tx: Transaction, session: SessionId) -> None:
    inbox.set_state(tx, f"{_RESERVED_PREFIX}{session}", "")


def trim_reserved(tx: Transaction, *, before: datetime) -> None:
    """Forget the reserved sessions that were not opened or changed since a time."""
    inbox.trim_states(tx, _RESERVED_PREFIX, before=before)


def save_binding(tx: Transaction, session: SessionId, binding: Binding) -> None:
    """Keep a binding in place of the one that this session had with the same agent."""
    tx.run(
        """
        insert into bindings (session, agent, body, bound_at, seen_at)
        values (:session, :agent, :body, :now, :now)
        on conflict (session, agent) do update
        set body = excluded.body, seen_at = excluded.seen_at
        """,
        {
            "session": session,
            "agent": ids.escape(binding.agent),
            "body": codec.dumps(binding),
            "now": to_micros(tx.now),
        },
    )


def remove_bindings(tx: Transaction, session: SessionId) -> None:
    """Forget which sessions of outside agents continue a session: they begin anew, with its history."""
    tx.run("delete from bindings where session = :session", {"session": session})


def list_bindings(tx: Transaction, session: SessionId) -> dict[str, Binding]:
    """The bindings of a session, by the name of the agent."""
    rows = tx.rows("select body from bindings where session = :session", {"session": session})
    found = [codec.loads(row[0], Binding) for row in rows]
    return {binding.agent: binding for binding in found}


class SessionEndHook(msgspec.Struct, frozen=True):
    session: SessionId
    reason: str
    tries: int
    # The names of the hooks that have succeeded.
    done: tuple[str, ...] = ()


def add_end_hook(tx: Transaction, session: SessionId, reason: str) -> None:
    tx.run(
        """
        insert into finals (session, reason, due_at) values (:session, :reason, :now)
        on conflict (session) do nothing
        """,
        {"session": session, "reason": reason, "now": to_micros(tx.now)},
    )


def claim_end_hook(tx: Transaction, *, retry_at: datetime, most: int) -> SessionEndHook | None:
    """Count a try of the next due final and give it. It comes back at `retry_at` unless it is removed."""
    row = tx.row(
        f"select session, reason, tries, done from finals where due_at <= :now and tries < :most order by due_at limit 1{tx.skip_locked}",
        {"now": to_micros(tx.now), "most": most},
    )
    if row is None:
        return None
    tx.run(
        "update finals set tries = tries + 1, due_at = :retry_at where session = :session",
        {"session": row[0], "retry_at": to_micros(retry_at)},
    )
    return SessionEndHook(SessionId(row[0]), row[1], int(row[2]) + 1, codec.loads(row[3], tuple[str, ...]))


def record_end_hook_error(tx: Transaction, session: SessionId, error: str) -> None:
    tx.run(
        "update finals set error = :error where session = :session",
        {"session": session, "error": codec.dumps(error)},
    )


def record_end_hook_done(tx: Transaction, session: SessionId, done: tuple[str, ...]) -> None:
    tx.run(
        "update finals set done = :done where session = :session",
        {"session": session, "done": codec.dumps(done)},
    )


def remove_end_hook(tx: Transaction, session: SessionId) -> bool:
    """Remove what is left to do at the end of a session; return whether there was something."""
    return bool(tx.count("delete from finals where session = :session", {"session": session}))
