"""API requests: the value that handlers get, the parsing of query and body, and the services that all requests share."""

import logging
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec
from starlette.requests import ClientDisconnect, Request

from keryx.core import codec, ids
from keryx.core.clock import Clock
from keryx.core.errors import Invalid, Unavailable
from keryx.core.ids import SessionId
from keryx.core.ports.adapter import PlatformReach
from keryx.core.ports.agent import SpeakText, TranscribeSound
from keryx.core.ports.setup import SetupService
from keryx.core.sessions import Viewer
from keryx.core.texts import Phrase, Texts, choose_language
from keryx.engine.hub import Hub
from keryx.fair_limits import FairQueue
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.auth import Authenticator, Caller, CookieSigner, list_readers
from keryx.surfaces.web.openai_api.turn_responses import TurnFollowers
from keryx.surfaces.web.operations import Operation
from keryx.surfaces.web.responses import BodyIncomplete, BodyTooLarge
from keryx.surfaces.web.sign_in_limits import GuessLimiter, KnownBrowsers
from keryx.surfaces.web.stream import Broadcast
from keryx.surfaces.web.webauthn import ChallengeIssuer

log = logging.getLogger(__name__)
T = TypeVar("T")

_TOO_MUCH = Phrase("web.too_much")
_GRACE_SECONDS = 30.0
_IDEMPOTENCY_KEY = re.compile(r"[A-Za-z0-9_.~-]{1,100}\Z")


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """What the API reports about this installation."""

    version: str = ""
    agent: str = ""
    # Those that a session may choose from, the one in force first.
    agents: tuple[str, ...] = ()
    models: tuple[schema.ModelSchema, ...] = ()
    # The profiles that the operator can choose from, the one without a choice first.
    profiles: tuple[str, ...] = ()
    settings: tuple[schema.Setting, ...] = ()
    # The folder of keryx.toml, without which no platform can be set up.
    home: Path | None = None
    # The connected platforms, each with the accounts that can send there.
    accounts: Mapping[str, PlatformReach] | None = None
    # Where others reach this installation; empty if conversations cannot be shared.
    public_address: str = ""
    # Of the prices of the models.
    currency: str = "USD"


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that all requests share."""

    hub: Hub
    clock: Clock
    authenticator: Authenticator
    cookies: CookieSigner
    guesses: GuessLimiter
    browsers: KnownBrowsers
    broadcast: Broadcast
    installation: Installation
    secure_cookies: bool
    # Held while a platform is set up, because each setup changes the same file.
    setup_lock: anyio.Lock
    # For the threads that render texts: few, so that they leave processor time to everything else.
    renders: anyio.CapacityLimiter
    # For exports: each takes a reader of the store for as long as it lasts.
    exports: FairQueue
    # For searches in folders, which may have very many files.
    folders: FairQueue
    # For files to import. To find out which program wrote one may take half a minute.
    imports: anyio.CapacityLimiter
    # For what anybody with a link may ask for, apart from the exports of users. By turns of the shared conversations.
    shares: FairQueue
    # Requests that wait for a turn.
    followers: TurnFollowers
    # Returns what is said in a sound; `None` if no model is configured for it.
    transcribe: TranscribeSound | None
    # Returns a text as a sound; `None` if no model is configured for it.
    speak: SpeakText | None
    # For requests of the page to these two, which wait for a model.
    sounds: anyio.CapacityLimiter
    # Changes the settings; `None` in a process that cannot.
    setup: SetupService | None
    # For passkeys.
    challenges: ChallengeIssuer
    # Setups of platforms that run on the page, by their ids.
    dialogs: dict[str, object]


class IncomingBody:
    """A body that is being read. Its scope is cancelled when it has to give way."""

    def __init__(self, *, known: bool) -> None:
        self.known = known
        self.began = time.monotonic()
        self.content = bytearray()
        self.scope = anyio.CancelScope()


class BodyMemory:
    """Counts the bytes of all bodies that are being read, so that many clients together cannot exhaust the memory. Callers
    who are not known have a limit apart, so that they take nothing from the others."""

    def __init__(self, limit: int, unknown_limit: int, *, grace: float = _GRACE_SECONDS) -> None:
        """A body of a known caller gives way when it has been read for `grace` seconds."""
        self._limits = {True: limit, False: unknown_limit}
        self._grace = {True: grace, False: 0.0}
        # By whether the caller is known, in the order of their beginning, each with the bytes that it counts for.
        self._bodies: dict[bool, dict[IncomingBody, int]] = {True: {}, False: {}}

    @contextmanager
    def read(self, *, known: bool) -> Generator[IncomingBody]:
        """Yield a body to read into. Raise `Unavailable` if it has given way to others."""
        body = IncomingBody(known=known)
        self._bodies[known][body] = 0
        try:
            with body.scope:
                yield body
        finally:
            self._bodies[known].pop(body, None)
        if body.scope.cancel_called:
            raise Unavailable(_TOO_MUCH)

    def add(self, body: IncomingBody, chunk: bytes) -> None:
        """Add bytes to a body. If there are too many, the one that began first gives way; raise `Unavailable` if none may."""
        if body.scope.cancel_called:
            return
        body.content += chunk
        bodies = self._bodies[body.known]
        bodies[body] += len(chunk)
        while sum(bodies.values()) > self._limits[body.known]:
            oldest = next(iter(bodies))
            if time.monotonic() - oldest.began < self._grace[body.known]:
                raise Unavailable(_TOO_MUCH)
            log.warning("clients send too much at once: the body that began first is refused")
            del bodies[oldest]
            oldest.content.clear()
            oldest.scope.cancel()


class ApiRequest:
    """A request to the API, with the services that its handler needs."""

    def __init__(self, services: Services, http: Request) -> None:
        self.services = services
        self.hub = services.hub
        self.http = http

    @property
    def caller(self) -> Caller:
        return self.http.state.caller

    @property
    def viewer(self) -> Viewer:
        return self.caller.viewer

    @property
    def language(self) -> str | None:
        """The language that the browser prefers."""
        return choose_language(self.http.headers.get("accept-language", ""))

    @property
    def texts(self) -> Texts:
        """The texts for people in the language of the viewer, or of a stranger, for whom some pages are."""
        caller: Caller | None = self.http.scope["state"].get("caller")
        return self.hub.texts.speak(self.language, "", *list_readers(caller.viewer if caller else None))

    @property
    def session_id(self) -> SessionId:
        return SessionId(self.path_param("session"))

    @property
    def idempotency_key(self) -> str:
        """The header Idempotency-Key, or a new key if there is none. Raise `Invalid` if it is malformed."""
        key = self.http.headers.get("idempotency-key")
        if key is None:
            return ids.new(self.services.clock.now())
        if not _IDEMPOTENCY_KEY.match(key):
            raise Invalid("the header Idempotency-Key takes up to 100 letters, digits and the signs _ . ~ -")
        return key

    async def render(self, build: Callable[[Callable[[str], str]], T]) -> T:
        """Return what `build` returns in a thread. It gets a function that renders texts within the budget of one
        response."""
        return await anyio.to_thread.run_sync(
            lambda: build(presenters.RenderBudget().render), limiter=self.services.renders
        )

    def path_param(self, name: str) -> str:
        return str(self.http.path_params[name])


async def parse_arguments(operation: Operation, http: Request) -> dict[str, request_schema.RequestForm]:
    """Return the `query` and `body` that the handler takes. Raise `Invalid` with the name of a wrong field."""
    arguments: dict[str, request_schema.RequestForm] = {}
    values: dict[str, str] = {}
    query_type = operation.query or request_schema.EmptyQuery
    for name, value in http.query_params.multi_items():
        if name in values and query_type.__struct_config__.forbid_unknown_fields:
            raise Invalid(f"{name[:80]!r} is given twice: give it once")
        values[name] = value
    try:
        query = msgspec.convert(values, query_type, strict=False)
    except msgspec.ValidationError as exc:
        raise Invalid(f"the query is wrong: {exc}") from exc
    if operation.query:
        arguments["query"] = query
    if operation.body:
        raw = await read_body(http, operation.body_limit)
        arguments["body"] = codec.loads_foreign(raw if raw.strip() else b"{}", operation.body)
    return arguments


async def read_body(http: Request, limit: int) -> bytes:
    """Return the body. Raise `BodyTooLarge` as soon as it is known to exceed the limit, and `Unavailable` while too much is
    being sent."""
    too_large = BodyTooLarge(Phrase("web.too_large", limit=f"{limit / 1_000_000:g}"))
    declared = http.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise too_large
    memory: BodyMemory = http.state.body_memory
    content = b""
    try:
        with memory.read(known="caller" in http.scope["state"]) as body:
            async for chunk in http.stream():
                memory.add(body, chunk)
                if len(body.content) > limit:
                    raise too_large
            content = bytes(body.content)
    except ClientDisconnect as exc:
        raise BodyIncomplete(Phrase("web.cut_off")) from exc
    return content
