"""Turn functions that take a transaction into typed async methods of the hub, each one unit of work under its label."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from keryx.core.ids import SessionId
from keryx.core.sessions import Session, Viewer
from keryx.store import sessions
from keryx.store.db import Database, Transaction


class HubPart:
    """The hub, or the verbs of one noun."""

    def __init__(self, database: Database) -> None:
        self._database = database


P = ParamSpec("P")
T = TypeVar("T")
Part = TypeVar("Part", bound=HubPart)
Unit: TypeAlias = Callable[Concatenate[Part, Transaction, P], T]
Verb: TypeAlias = Callable[Concatenate[Part, P], Coroutine[Any, Any, T]]


def read_unit(label: str) -> Callable[[Unit[Part, P, T]], Verb[Part, P, T]]:
    """Run a method `(self, tx, ...)` in one read; callers leave `tx` out."""

    def decorate(method: Unit[Part, P, T]) -> Verb[Part, P, T]:
        @wraps(method)
        async def verb(self: Part, *args: P.args, **kwargs: P.kwargs) -> T:
            return await _get_database(self).read(label, lambda tx: method(self, tx, *args, **kwargs))

        return verb

    return decorate


def write_unit(label: str) -> Callable[[Unit[Part, P, T]], Verb[Part, P, T]]:
    """Run a method `(self, tx, ...)` in one write; callers leave `tx` out."""

    def decorate(method: Unit[Part, P, T]) -> Verb[Part, P, T]:
        @wraps(method)
        async def verb(self: Part, *args: P.args, **kwargs: P.kwargs) -> T:
            return await _get_database(self).write(label, lambda tx: method(self, tx, *args, **kwargs))

        return verb

    return decorate


def bind_read(label: str, function: Callable[Concatenate[Transaction, P], T]) -> Verb[HubPart, P, T]:
    """A method that calls `function(tx, ...)` in one read."""

    async def verb(self: HubPart, *args: P.args, **kwargs: P.kwargs) -> T:
        return await _get_database(self).read(label, lambda tx: function(tx, *args, **kwargs))

    return verb


def bind_write(label: str, function: Callable[Concatenate[Transaction, P], T]) -> Verb[HubPart, P, T]:
    """A method that calls `function(tx, ...)` in one write."""

    async def verb(self: HubPart, *args: P.args, **kwargs: P.kwargs) -> T:
        return await _get_database(self).write(label, lambda tx: function(tx, *args, **kwargs))

    return verb


def on_session(
    function: Callable[Concatenate[Transaction, Session, P], T],
) -> Callable[Concatenate[Transaction, Viewer, SessionId, P], T]:
    """Adapt a function of a session to take a viewer and an id instead. It raises `NotFound` for a session that the
    viewer may not see."""

    def find_and_call(
        tx: Transaction, viewer: Viewer, session: SessionId, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return function(tx, sessions.get(tx, session, viewer=viewer), *args, **kwargs)

    return find_and_call


def _get_database(part: HubPart) -> Database:
    # Verbs are methods of the part that are defined outside of its class.
    return part._database  # pyright: ignore[reportPrivateUsage]
