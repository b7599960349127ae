"""One API request, parsed by its operation before a handler sees it, and the services that all requests share."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from keryx.core import codec, ids
from keryx.core.clock import Clock
from keryx.core.errors import Forbidden, Invalid
from keryx.core.ids import OPERATOR, SessionId
from keryx.core.ports.adapter import PlatformReach
from keryx.core.sessions import Viewer
from keryx.engine.hub.hub import Hub
from keryx.surfaces.web import request_schema, schema
from keryx.surfaces.web.auth import AttemptLimiter, Authenticator, Caller, CookieSigner
from keryx.surfaces.web.operations import Operation, RequiredRole
from keryx.surfaces.web.responses import BodyTooLarge
from keryx.surfaces.web.stream.broadcast import Broadcast

FormT = TypeVar("FormT", bound=request_schema.RequestForm)

MAX_BODY_BYTES = 8 << 20
_IDEMPOTENCY_KEY = re.compile(r"[A-Za-z0-9_.~-]{1,100}\Z")


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """What the web tells of this installation. `accounts` are the connected platforms, each with who sends there."""

    version: str = ""
    agent: str = ""
    models: tuple[schema.Model, ...] = ()
    settings: tuple[schema.Setting, ...] = ()
    accounts: Mapping[str, PlatformReach] | None = None


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What all requests share."""

    hub: Hub
    clock: Clock
    authenticator: Authenticator
    cookies: CookieSigner
    attempts: AttemptLimiter
    broadcast: Broadcast
    installation: Installation
    secure_cookies: bool


class ApiRequest:
    """A request. Its query and body fit the forms of its operation."""

    def __init__(
        self, place: Services, operation: Operation, request: Request, query: request_schema.RequestForm
    ) -> None:
        self.services = place
        self.hub = place.hub
        self.operation = operation
        self.request = request
        self._query = query
        self._body: request_schema.RequestForm | None = None

    @property
    def caller(self) -> Caller:
        return self.request.state.caller

    @property
    def viewer(self) -> Viewer:
        return self.caller.viewer

    @property
    def session_id(self) -> SessionId:
        return SessionId(self.path_param("session"))

    @property
    def idempotency_key(self) -> str:
        """The idempotency key: the same for every repetition of this request."""
        given = self.request.headers.get("idempotency-key")
        if given is None:
            return ids.new(self.services.clock.now())
        if not _IDEMPOTENCY_KEY.match(given):
            raise Invalid("the header Idempotency-Key takes up to 100 letters, digits and the signs _ . ~ -")
        return given

    def path_param(self, name: str) -> str:
        return str(self.request.path_params[name])

    def query(self, kind: type[FormT]) -> FormT:
        assert isinstance(self._query, kind)
        return self._query

    def body(self, kind: type[FormT]) -> FormT:
        assert isinstance(self._body, kind)
        return self._body

    async def load_body(self) -> None:
        """Read what the operation takes."""
        if self.operation.body is None:
            return
        raw = await read_body(self.request, MAX_BODY_BYTES)
        if not raw.strip():
            raw = b"{}"
        self._body = codec.loads(raw, self.operation.body)


def parse_query(operation: Operation, request: Request) -> request_schema.RequestForm:
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


def check_role(operation: Operation, caller: Caller) -> None:
    if operation.needs is RequiredRole.OPERATOR and caller.viewer.principal != OPERATOR:
        raise Forbidden("only the operator may do this")


async def read_body(request: Request, limit: int) -> bytes:
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


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is too large: at most {limit / 1_000_000:g} MB are taken")


Handler = Callable[[ApiRequest], Awaitable[msgspec.Struct | ASGIApp | None]]
