"""Sessions of the Agent Development Kit: their events, their state, and the states that sessions of an app or of a person share."""

from typing import Any

import msgspec

from keryx.core import codec
from keryx.core.errors import Conflict, NotFound
from keryx.core.sessions import Viewer
from keryx.store.db import Row, Transaction

State = dict[str, Any]
# The person of the state that all sessions of an app share. No person has this name.
_EVERYBODY = ""


class AdkSession(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    app: str
    person: str
    name: str
    state: State
    # In nanoseconds.
    updated_at: int


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """What changes in each state."""

    app: State = {}
    person: State = {}
    session: State = {}


_COLUMNS = "number, app, person, name, state, updated_at"
_OWNED = "profile = :profile and owner = :owner and app = :app"


def create(
    tx: Transaction, viewer: Viewer, *, app: str, person: str, name: str, change: StateChange, at: int
) -> None:
    """Raise `Conflict` if there is such a session."""
    params = {**_build_params(viewer, app), "person": person, "name": name, "at": at}
    created = tx.count(
        """
        insert into adk_sessions (profile, owner, app, person, name, state, created_at, updated_at)
        values (:profile, :owner, :app, :person, :name, :state, :at, :at)
        on conflict (profile, owner, app, person, name) do nothing
        """,
        {**params, "state": codec.dumps(change.session)},
    )
    if not created:
        raise Conflict(f"there is a session {name[:80]!r} already: use it, or choose another id")
    _change_state(tx, viewer, app, _EVERYBODY, change.app)
    _change_state(tx, viewer, app, person, change.person)


def find(tx: Transaction, viewer: Viewer, *, app: str, person: str, name: str) -> AdkSession | None:
    row = tx.row(
        f"select {_COLUMNS} from adk_sessions where {_OWNED} and person = :person and name = :name",
        {**_build_params(viewer, app), "person": person, "name": name},
    )
    return _decode(row) if row else None


def list_all(tx: Transaction, viewer: Viewer, *, app: str, person: str | None) -> list[AdkSession]:
    """Return the sessions of an app, or of one person in it, those that changed last at the end."""
    rows = tx.rows(
        f"""
        select {_COLUMNS} from adk_sessions
        where {_OWNED} {"and person = :person" if person is not None else ""}
        order by updated_at, person, name
        """,
        {**_build_params(viewer, app), **({"person": person} if person is not None else {})},
    )
    return [_decode(row) for row in rows]


def list_events(tx: Transaction, session: int, *, since: int | None, limit: int | None) -> list[str]:
    """Return the last events of a session, oldest first."""
    if limit == 0:
        return []
    rows = tx.rows(
        f"""
        select body from adk_events
        where session = :session {"and at >= :since" if since is not None else ""}
        order by n desc {f"limit {int(limit)}" if limit is not None else ""}
        """,
        {"session": session, **({"since": since} if since is not None else {})},
    )
    return [body for (body,) in reversed(rows)]


def read_states(tx: Transaction, viewer: Viewer, *, app: str, person: str | None) -> dict[str, State]:
    """Return the states that sessions share, by person; the one of the app is under an empty name. Of all persons if none
    is given."""
    rows = tx.rows(
        f"""
        select person, state from adk_states
        where {_OWNED} {"and person in (:person, '')" if person is not None else ""}
        """,
        {**_build_params(viewer, app), **({"person": person} if person is not None else {})},
    )
    return {name: codec.loads(state, State) for name, state in rows}


def append_event(
    tx: Transaction,
    viewer: Viewer,
    *,
    app: str,
    person: str,
    name: str,
    known: int,
    event: str,
    body: str,
    change: StateChange,
    at: int,
) -> bool:
    """Append an event that a session has not got yet. Raise `NotFound` if the session was deleted. Return False, and
    change nothing, if it has changed after the time `known`."""
    row = tx.row(
        f"""
        select {_COLUMNS}, events from adk_sessions
        where {_OWNED} and person = :person and name = :name {tx.for_update}
        """,
        {**_build_params(viewer, app), "person": person, "name": name},
    )
    if row is None:
        raise NotFound(f"there is no session {name[:80]!r}: create it first")
    session, count = _decode(row), row[-1]
    equal = tx.row(
        "select 1 from adk_events where session = :session and id = :id and body = :body",
        {"session": session.number, "id": event, "body": body},
    )
    if equal:
        return True
    if session.updated_at > known:
        return False
    tx.run(
        "insert into adk_events (session, n, id, at, body) values (:session, :n, :id, :at, :body)",
        {"session": session.number, "n": count + 1, "id": event, "at": at, "body": body},
    )
    tx.run(
        "update adk_sessions set events = :events, state = :state, updated_at = :at where number = :number",
        {
            "number": session.number,
            "events": count + 1,
            "state": codec.dumps({**session.state, **change.session}),
            "at": at,
        },
    )
    _change_state(tx, viewer, app, _EVERYBODY, change.app)
    _change_state(tx, viewer, app, person, change.person)
    return True


def remove(tx: Transaction, viewer: Viewer, *, app: str, person: str, name: str) -> None:
    tx.run(
        f"delete from adk_sessions where {_OWNED} and person = :person and name = :name",
        {**_build_params(viewer, app), "person": person, "name": name},
    )


def _change_state(tx: Transaction, viewer: Viewer, app: str, person: str, change: State) -> None:
    if not change:
        return
    params = {**_build_params(viewer, app), "person": person}
    tx.run(
        """
        insert into adk_states (profile, owner, app, person, state)
        values (:profile, :owner, :app, :person, '{}')
        on conflict (profile, owner, app, person) do nothing
        """,
        params,
    )
    row = tx.row(f"select state from adk_states where {_OWNED} and person = :person {tx.for_update}", params)
    assert row is not None, "the state was just inserted"
    tx.run(
        f"update adk_states set state = :state where {_OWNED} and person = :person",
        {**params, "state": codec.dumps({**codec.loads(row[0], State), **change})},
    )


def _decode(row: Row) -> AdkSession:
    number, app, person, name, state, updated_at, *_ = row
    return AdkSession(
        number=number,
        app=app,
        person=person,
        name=name,
        state=codec.loads(state, State),
        updated_at=updated_at,
    )


def _build_params(viewer: Viewer, app: str) -> dict[str, Any]:
    return {"profile": viewer.profile, "owner": viewer.principal, "app": app}
