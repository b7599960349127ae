"""Turns that programs asked for, through the OpenAI-compatible API or another protocol, with what recognises a repeated request and the conversation that a request continues; the conversations that were created there; and the keys of programs."""

import json
from collections.abc import Collection
from datetime import datetime

import msgspec

from keryx.core.clock import from_micros, to_micros
from keryx.core.errors import NotFound
from keryx.core.ids import PrincipalId, ProfileId, SessionId, TurnId
from keryx.core.ports.agent import RequestOptions
from keryx.core.sessions import Viewer
from keryx.core.turns import TurnState
from keryx.store.db import Row, Transaction
from keryx.store.db.rows import RowMapper


class ApiTurn(msgspec.Struct, frozen=True, kw_only=True):
    # In the order in which they were asked for; 0 before it is stored.
    position: int = 0
    turn: TurnId
    session: SessionId
    # A hash of the whole request, by which a repetition is recognised.
    fingerprint: str
    # A hash of what was said up to the question. The next request of the same conversation begins with it.
    prefix: str
    # A hash of the name that the client gave to the conversation; empty without one.
    thread: str
    options: RequestOptions
    # What the answer repeats of the request.
    echo: dict[str, object]
    # The session is erased when the answer was taken, or after a while.
    temporary: bool
    created_at: datetime
    # When a client received the whole answer.
    taken_at: datetime | None = None


_ROWS = RowMapper(ApiTurn)
_SELECT = f"select {_ROWS.columns} from api_turns"


def add(tx: Transaction, turn: ApiTurn) -> None:
    tx.run(
        """
        insert into api_turns
          (turn, session, fingerprint, prefix, thread, options, echo, temporary, created_at, taken_at)
        values
          (:turn, :session, :fingerprint, :prefix, :thread, :options, :echo, :temporary, :created_at, :taken_at)
        """,
        _ROWS.encode(turn),
    )


def find(tx: Transaction, turn: TurnId) -> ApiTurn | None:
    return _ROWS.decode_optional(tx.row(f"{_SELECT} where turn = :turn", {"turn": turn}))


def list_by_fingerprint(tx: Transaction, fingerprint: str, *, since: datetime) -> list[ApiTurn]:
    """Return the turns of equal requests since a time, newest first."""
    rows = tx.rows(
        f"""
        {_SELECT}
        where fingerprint = :fingerprint and created_at >= :since
        order by position desc
        limit 50
        """,
        {"fingerprint": fingerprint, "since": to_micros(since)},
    )
    return _ROWS.decode_all(rows)


def list_by_prefix(tx: Transaction, prefix: str) -> list[ApiTurn]:
    """Return the turns whose requests said the same up to their question, newest first."""
    rows = tx.rows(f"{_SELECT} where prefix = :prefix order by position desc limit 20", {"prefix": prefix})
    return _ROWS.decode_all(rows)


def find_by_thread(tx: Transaction, thread: str) -> ApiTurn | None:
    """Return the newest turn of a conversation that a client has named."""
    row = tx.row(f"{_SELECT} where thread = :thread order by position desc limit 1", {"thread": thread})
    return _ROWS.decode_optional(row)


def list_after(tx: Transaction, session: SessionId, *, after: int) -> list[ApiTurn]:
    """Return the turns of a session above a position, oldest first."""
    rows = tx.rows(
        f"{_SELECT} where session = :session and position > :after order by position",
        {"session": session, "after": after},
    )
    return _ROWS.decode_all(rows)


class ChangePosition(msgspec.Struct, frozen=True):
    """A place in the list of turns by their last change."""

    changed_at: datetime
    # The position of the turn.
    position: int


class ApiTurnFilter(msgspec.Struct, frozen=True, kw_only=True):
    session: SessionId | None = None
    states: frozenset[TurnState] = frozenset(TurnState)
    # Changed at this time or later.
    since: datetime | None = None


_CHANGED_AT = "coalesce(t.finished_at, t.started_at, t.created_at)"


def list_changed(
    tx: Transaction,
    viewer: Viewer,
    wanted: ApiTurnFilter,
    *,
    before: ChangePosition | None = None,
    limit: int,
) -> list[tuple[TurnId, ChangePosition]]:
    """Return the turns that a viewer may see, without temporary ones, the one that changed last first."""
    rows = tx.rows(
        f"""
        select t.id, {_CHANGED_AT}, t.position
        {_select_changed(viewer, wanted.states, tx.in_names)}
          and {_CHANGED_AT} <= :last
          and ({_CHANGED_AT} < :last or t.position < :position)
        order by {_CHANGED_AT} desc, t.position desc
        limit :limit
        """,
        {
            **_list_params(viewer, wanted),
            "last": to_micros(before.changed_at) if before else _LAST_TIME,
            "position": before.position if before else 0,
            "limit": limit,
        },
    )
    return [(TurnId(id_), ChangePosition(from_micros(at), position)) for id_, at, position in rows]


def count_changed(tx: Transaction, viewer: Viewer, wanted: ApiTurnFilter, *, most: int) -> int:
    """Return how many turns `list_changed` has, at most `most`."""
    row = tx.row(
        f"""
        select count(*) from (
          select 1 as found
          {_select_changed(viewer, wanted.states, tx.in_names)}
          limit :most
        ) as counted
        """,
        {**_list_params(viewer, wanted), "most": most},
    )
    assert row is not None
    return row[0]


# Above every time.
_LAST_TIME = (1 << 63) - 1


def _select_changed(viewer: Viewer, states: Collection[TurnState], in_names: str) -> str:
    # The operator sees the turns of everybody: without an owner, another index has them in order.
    owner = "and t.owner = :owner" if viewer.owner else ""
    state = f"and t.state {in_names}" if len(states) < len(TurnState) else ""
    return f"""
        from turns t
        join api_turns a on a.turn = t.id
        join sessions s on s.id = t.session
        where t.surface = 'api' and t.profile = :profile {owner} {state}
          and a.temporary = 0
          and s.deleted_at is null
          and t.session = coalesce(cast(:session as text), t.session)
          and {_CHANGED_AT} >= :since
    """


def _list_params(viewer: Viewer, wanted: ApiTurnFilter) -> dict[str, object]:
    params: dict[str, object] = {
        "profile": viewer.profile,
        "session": wanted.session,
        "since": to_micros(wanted.since) if wanted.since else 0,
    }
    if viewer.owner:
        params["owner"] = viewer.owner
    if len(wanted.states) < len(TurnState):
        params["names"] = json.dumps(sorted(wanted.states))
    return params


def mark_taken(tx: Transaction, turn: TurnId) -> None:
    tx.run(
        "update api_turns set taken_at = :now where turn = :turn and taken_at is null",
        {"turn": turn, "now": to_micros(tx.now)},
    )


def remove(tx: Transaction, turn: TurnId) -> None:
    tx.run("delete from api_turns where turn = :turn", {"turn": turn})


def list_abandoned(tx: Transaction, *, before: datetime) -> list[ApiTurn]:
    """Return the temporary turns from before a time whose answers were never fetched."""
    rows = tx.rows(
        f"{_SELECT} where temporary = 1 and created_at < :before order by created_at limit 100",
        {"before": to_micros(before)},
    )
    return _ROWS.decode_all(rows)


class ApiConversation(msgspec.Struct, frozen=True, kw_only=True):
    # The session, once it has begun.
    session: SessionId
    viewer: Viewer
    metadata: dict[str, str]
    created_at: datetime


_CONVERSATION_ROWS = RowMapper(ApiConversation, without={"viewer"})
_SELECT_CONVERSATION = f"select {_CONVERSATION_ROWS.columns}, profile, owner from api_conversations"


def save_conversation(tx: Transaction, conversation: ApiConversation) -> None:
    """Add a conversation, or replace the metadata of one that exists."""
    tx.run(
        """
        insert into api_conversations (session, profile, owner, metadata, created_at)
        values (:session, :profile, :owner, :metadata, :created_at)
        on conflict (session) do update set metadata = excluded.metadata
        """,
        {
            **_CONVERSATION_ROWS.encode(conversation),
            "profile": conversation.viewer.profile,
            "owner": conversation.viewer.principal,
        },
    )


def find_conversation(tx: Transaction, viewer: Viewer, session: SessionId) -> ApiConversation | None:
    row = tx.row(f"{_SELECT_CONVERSATION} where session = :session", {"session": session})
    if row is None or not viewer.sees(ProfileId(row[-2]), PrincipalId(row[-1])):
        return None
    return _CONVERSATION_ROWS.decode(row, viewer=Viewer(ProfileId(row[-2]), PrincipalId(row[-1])))


def remove_conversation(tx: Transaction, session: SessionId) -> None:
    tx.run("delete from api_conversations where session = :session", {"session": session})


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    viewer: Viewer
    # What people call the program or device that has the key.
    name: str
    digest: str
    created_at: datetime
    # When it was last used, to the hour.
    seen_at: datetime | None = None
    # It may say something in a conversation by a tool, without a question to the owner.
    may_speak: bool = False


_KEY_ROWS = RowMapper(ApiKey, json={"name"}, without={"viewer"})
_SELECT_KEY = f"select {_KEY_ROWS.columns}, profile, principal from api_keys"


def add_key(tx: Transaction, key: ApiKey) -> None:
    tx.run(
        """
        insert into api_keys (id, profile, principal, name, digest, created_at, seen_at, may_speak)
        values (:id, :profile, :principal, :name, :digest, :created_at, :seen_at, :may_speak)
        """,
        {
            **_KEY_ROWS.encode(key),
            "profile": key.viewer.profile,
            "principal": key.viewer.principal,
        },
    )


def find_key(tx: Transaction, digest: str) -> ApiKey | None:
    row = tx.row(f"{_SELECT_KEY} where digest = :digest", {"digest": digest})
    return None if row is None else _key_from_row(row)


def list_keys(tx: Transaction, viewer: Viewer) -> list[ApiKey]:
    """Return the keys of a person, for the operator those of everybody in the profile, newest first."""
    rows = tx.rows(
        f"""
        {_SELECT_KEY}
        where profile = :profile and principal = coalesce(cast(:owner as text), principal)
        order by created_at desc, id desc
        limit 1000
        """,
        {"profile": viewer.profile, "owner": viewer.owner},
    )
    return [_key_from_row(row) for row in rows]


def touch_key(tx: Transaction, id_: str) -> None:
    tx.run("update api_keys set seen_at = :now where id = :id", {"id": id_, "now": to_micros(tx.now)})


def remove_key(tx: Transaction, viewer: Viewer, id_: str) -> None:
    gone = tx.count(
        """
        delete from api_keys
        where id = :id and profile = :profile and principal = coalesce(cast(:owner as text), principal)
        """,
        {"id": id_, "profile": viewer.profile, "owner": viewer.owner},
    )
    if not gone:
        raise NotFound(f"there is no key {id_[:80]!r}: it may be revoked already")


def _key_from_row(row: Row) -> ApiKey:
    return _KEY_ROWS.decode(row, viewer=Viewer(ProfileId(row[-2]), PrincipalId(row[-1])))
