# The kit may be missing: the types are those in `typings`.
# pyright: reportMissingModuleSource=false
"""A session service for the Agent Development Kit on the store of Keryx. Needs the extra `adk`."""

import uuid
from fractions import Fraction
from typing import Any

import pydantic_core
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.sessions import Session
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)

from keryx.core.errors import Conflict, NotFound
from keryx.integrations import StoreThread
from keryx.store.db import Transaction
from keryx.store.frameworks import adk_sessions
from keryx.store.frameworks.adk_sessions import AdkSession, StateChange

_APP, _USER, _TEMPORARY = "app:", "user:", "temp:"
_NANOSECONDS = 10**9


class KeryxSessionService(BaseSessionService):
    """Keeps sessions, their events and their state. What an app or a person shares is kept beside the sessions."""

    def __init__(self, store: StoreThread | str = "") -> None:
        """Use the store at a path or a PostgreSQL address; without one, that of the settings of Keryx."""
        self.store = store if isinstance(store, StoreThread) else StoreThread(store)

    async def close(self) -> None:
        self.store.close()

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        name = (session_id or "").strip() or str(uuid.uuid4())
        change = _divide_state(state or {})

        def work(tx: Transaction) -> Session:
            at = _to_nanos(tx.now.timestamp())
            adk_sessions.create(
                tx, self.store.viewer, app=app_name, person=user_id, name=name, change=change, at=at
            )
            found = adk_sessions.find(tx, self.store.viewer, app=app_name, person=user_id, name=name)
            assert found is not None, "the session was just inserted"
            return self._build_session(tx, found)

        try:
            return await self.store.write_async("adk.create", work)
        except Conflict as exc:
            raise AlreadyExistsError(str(exc)) from exc

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        since = config.after_timestamp if config else None
        limit = config.num_recent_events if config else None

        def work(tx: Transaction) -> tuple[Session, list[str]] | None:
            found = adk_sessions.find(
                tx, self.store.viewer, app=app_name, person=user_id, name=session_id.strip()
            )
            if found is None:
                return None
            events = adk_sessions.list_events(
                tx, found.number, since=None if since is None else _to_nanos(since), limit=limit
            )
            return self._build_session(tx, found), events

        outcome = await self.store.read_async("adk.get", work)
        if outcome is None:
            return None
        session, events = outcome
        session.events = [Event.model_validate_json(body) for body in events]
        return session

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        def work(tx: Transaction) -> list[Session]:
            states = adk_sessions.read_states(tx, self.store.viewer, app=app_name, person=user_id)
            found = adk_sessions.list_all(tx, self.store.viewer, app=app_name, person=user_id)
            return [_merge_session(session, states) for session in found]

        return ListSessionsResponse(sessions=await self.store.read_async("adk.list", work))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        def work(tx: Transaction) -> None:
            adk_sessions.remove(tx, self.store.viewer, app=app_name, person=user_id, name=session_id.strip())

        await self.store.write_async("adk.delete", work)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        def work(tx: Transaction) -> dict[str, Any]:
            return adk_sessions.read_states(tx, self.store.viewer, app=app_name, person=user_id).get(
                user_id, {}
            )

        return await self.store.read_async("adk.get", work)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event. An event that is there already is not appended again. Raise `StaleSessionError`, which is a
        `ValueError`, if the session was changed elsewhere since it was read."""
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        known, at = _to_nanos(session.last_update_time), _to_nanos(event.timestamp)
        change = _divide_state(event.actions.state_delta if event.actions else {})
        body = event.model_dump_json(exclude_none=True)

        def work(tx: Transaction) -> bool:
            return adk_sessions.append_event(
                tx,
                self.store.viewer,
                app=session.app_name,
                person=session.user_id,
                name=session.id,
                known=known,
                event=event.id,
                body=body,
                change=change,
                at=at,
            )

        try:
            appended = await self.store.write_async("adk.append", work)
        except NotFound as exc:
            raise SessionNotFoundError(str(exc)) from exc
        if not appended:
            raise _make_stale_error(f"the session {session.id!r} was changed since it was read: get it again")
        if not any(known_event.id == event.id for known_event in session.events):
            self._update_session_state(session, event)
            session.events.append(event)
        session.last_update_time = event.timestamp
        return event

    def _build_session(self, tx: Transaction, found: AdkSession) -> Session:
        states = adk_sessions.read_states(tx, self.store.viewer, app=found.app, person=found.person)
        return _merge_session(found, states)


def _merge_session(found: AdkSession, states: dict[str, dict[str, Any]]) -> Session:
    shared = {f"{_APP}{key}": value for key, value in states.get("", {}).items()}
    own = {f"{_USER}{key}": value for key, value in states.get(found.person, {}).items()}
    return Session(
        id=found.name,
        app_name=found.app,
        user_id=found.person,
        state={**found.state, **shared, **own},
        events=[],
        last_update_time=found.updated_at / _NANOSECONDS,
    )


def _divide_state(state: dict[str, Any]) -> StateChange:
    """Return what belongs to the app, to the person and to the session. What is temporary is left out."""
    safe: dict[str, Any] = pydantic_core.to_jsonable_python(state, fallback=repr)
    return StateChange(
        app={key.removeprefix(_APP): value for key, value in safe.items() if key.startswith(_APP)},
        person={key.removeprefix(_USER): value for key, value in safe.items() if key.startswith(_USER)},
        session={key: value for key, value in safe.items() if not key.startswith((_APP, _USER, _TEMPORARY))},
    )


def _to_nanos(seconds: float) -> int:
    """Return a time so exactly that the same number of seconds comes back."""
    return round(Fraction(seconds) * _NANOSECONDS)


def _make_stale_error(text: str) -> ValueError:
    try:
        from google.adk.errors import StaleSessionError  # noqa: PLC0415 older versions have none
    except ImportError:
        return ValueError(text)
    return StaleSessionError(text)
