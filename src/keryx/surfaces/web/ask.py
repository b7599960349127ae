"""Ask: one request, parsed by the contract before a handler sees it."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from keryx.core import ids
from keryx.core import wire as codec
from keryx.core.errors import Forbidden, Invalid
from keryx.core.ids import OPERATOR, SessionId
from keryx.core.ports import Clock
from keryx.core.sessions import Viewer
from keryx.core.shapes import Reach
from keryx.engine.hub import Hub
from keryx.surfaces.web import forms, wire
from keryx.surfaces.web.broadcast import Broadcast
from keryx.surfaces.web.contract import Needs, Operation
from keryx.surfaces.web.credentials import Seal, Tries
from keryx.surfaces.web.guard import Caller, Gate
from keryx.surfaces.web.problems import TooLarge

F = TypeVar("F", bound=forms.Form)

LARGEST = 8 << 20
_KEY = re.compile(r"[A-Za-z0-9_.~-]{1,100}\Z")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the web tells of this installation. `accounts` are the connected platforms, each with who sends there."""

    version: str = ""
    agent: str = ""
    models: tuple[wire.Model, ...] = ()
    settings: tuple[wire.Setting, ...] = ()
    accounts: Mapping[str, Reach] | None = None


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What all requests share."""

    hub: Hub
    clock: Clock
    gate: Gate
    seal: Seal
    tries: Tries
    broadcast: Broadcast
    facts: Facts
    secure: bool


class Ask:
    """A request. Its query and body fit the forms of its operation."""

    def __init__(self, place: Place, operation: Operation, request: Request, query: forms.Form) -> None:
        self.place = place
        self.hub = place.hub
        self.operation = operation
        self.request = request
        self._query = query
        self._body: forms.Form | None = None

    @property
    def caller(self) -> Caller:
        return self.request.state.caller

    @property
    def viewer(self) -> Viewer:
        return self.caller.viewer

    @property
    def session(self) -> SessionId:
        return SessionId(self.path("session"))

    @property
    def key(self) -> str:
        """The idempotency key: the same for every repetition of this request."""
        given = self.request.headers.get("idempotency-key")
        if given is None:
            return ids.new(self.place.clock.now())
        if not _KEY.match(given):
            raise Invalid("the header Idempotency-Key takes up to 100 letters, digits and the signs _ . ~ -")
        return given

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def query(self, kind: type[F]) -> F:
        assert isinstance(self._query, kind)
        return self._query

    def body(self, kind: type[F]) -> F:
        assert isinstance(self._body, kind)
        return self._body

    async def load(self) -> None:
        """Read what the operation takes."""
        if self.operation.body is None:
            return
        raw = await read(self.request, LARGEST)
        if not raw.strip():
            raw = b"{}"
        self._body = codec.loads(raw, self.operation.body)


def parsed(operation: Operation, request: Request) -> forms.Form:
    """The query of a request. Raises `Invalid` with the name of what is wrong."""
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in values:
            raise Invalid(f"{name[:80]!r} is given twice: give it once")
        values[name] = value
    try:
        return msgspec.convert(values, operation.query, strict=False)
    except msgspec.ValidationError as exc:
        raise Invalid(f"the query is wrong: {exc}") from exc


def permitted(operation: Operation, caller: Caller) -> None:
    if operation.needs is Needs.OPERATOR and caller.viewer.principal != OPERATOR:
        raise Forbidden("only the operator may do this")


async def read(request: Request, limit: int) -> bytes:
    """The body of a request, refused as soon as it is above the limit."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is too large: at most {limit / 1_000_000:g} MB are taken")


Handler = Callable[[Ask], Awaitable[msgspec.Struct | ASGIApp | None]]
