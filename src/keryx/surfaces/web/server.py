"""The ASGI app: routes, middleware and error handling put together, with the life of its background task."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keryx import metrics
from keryx.client_address import TrustedProxies
from keryx.core import codec
from keryx.core.clock import Clock
from keryx.core.errors import KeryxError
from keryx.core.ports.agent import SpeakText, TranscribeSound
from keryx.core.ports.setup import SetupService
from keryx.core.sessions import Viewer
from keryx.engine.hub import Hub
from keryx.fair_limits import FairQueue
from keryx.surfaces.web import openapi, responses
from keryx.surfaces.web.auth import SHARE_PATH, Authenticator, CookieSigner, SecurityMiddleware
from keryx.surfaces.web.openai_api.turn_responses import TurnFollowers
from keryx.surfaces.web.request import BodyMemory, Installation, Services
from keryx.surfaces.web.routes import build_routes
from keryx.surfaces.web.sign_in_limits import GuessLimiter, KnownBrowsers
from keryx.surfaces.web.static_files import StaticFiles
from keryx.surfaces.web.stream import Broadcast
from keryx.surfaces.web.webauthn import ChallengeIssuer

_RENDER_THREADS = 2
_EXPORTS = 1
_FOLDERS = 1
_IMPORTS = 1
_SHARES = 1
_SOUNDS = 8
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_MIN_BODY_MEMORY = 64 << 20
_MIN_UNKNOWN_BODY_MEMORY = 16 << 20


class WebApp:
    """The web surface. `lifespan` yields the ASGI app and runs the task that feeds its streams."""

    def __init__(
        self,
        hub: Hub,
        clock: Clock,
        *,
        operator: Viewer,
        key: bytes,
        token: str = "",
        password: str = "",
        hosts: Sequence[str] = (),
        secure: bool = False,
        streams: int = 500,
        proxies: TrustedProxies = TrustedProxies(),
        installation: Installation = Installation(),
        extra_routes: Sequence[BaseRoute] = (),
        max_hook_body: int = 0,
        transcribe: TranscribeSound | None = None,
        speak: SpeakText | None = None,
        setup: SetupService | None = None,
    ) -> None:
        """`max_hook_body` is the longest body in bytes that a hook accepts."""
        cookies, guesses = CookieSigner(key), GuessLimiter(clock)
        renders = anyio.CapacityLimiter(_RENDER_THREADS)
        self._broadcast = Broadcast(hub, renders, most=streams)
        self._followers = TurnFollowers(hub, most=streams)
        self._authenticator = Authenticator(
            operator,
            hub.sign_ins,
            hub.api_keys,
            hub.users,
            cookies,
            guesses,
            token=token,
            password=password,
        )
        self._services = Services(
            hub=hub,
            clock=clock,
            authenticator=self._authenticator,
            cookies=cookies,
            guesses=guesses,
            browsers=KnownBrowsers(key, clock),
            broadcast=self._broadcast,
            installation=installation,
            secure_cookies=secure,
            setup_lock=anyio.Lock(),
            renders=renders,
            exports=FairQueue(_EXPORTS),
            folders=FairQueue(_FOLDERS),
            imports=anyio.CapacityLimiter(_IMPORTS),
            shares=FairQueue(_SHARES),
            followers=self._followers,
            transcribe=transcribe,
            speak=speak,
            sounds=anyio.CapacityLimiter(_SOUNDS),
            setup=setup,
            challenges=ChallengeIssuer(key, clock),
            dialogs={},
        )
        self._hosts = hosts
        self._proxies = proxies
        self._body_memory = BodyMemory(
            max(_MIN_BODY_MEMORY, 4 * hub.media.limit), max(_MIN_UNKNOWN_BODY_MEMORY, 2 * max_hook_body)
        )
        self._extra_routes = extra_routes

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[ASGIApp]:
        """Yield the running app. On exit every stream is closed at once."""
        static = await anyio.to_thread.run_sync(StaticFiles, self._services.hub.texts)
        if self._authenticator.required:
            # Before a password was set, anybody could connect a browser.
            await self._services.hub.push_subscriptions.remove_unsigned()
        async with anyio.create_task_group() as group:
            group.start_soon(self._broadcast.run)
            try:
                routes = self._build_routes(static)
                app = _ErrorMiddleware(_build_router(routes, static), self._body_memory)
                secured = SecurityMiddleware(
                    app,
                    self._authenticator,
                    hosts=self._hosts,
                    proxies=self._proxies,
                    profiles=self._services.installation.profiles,
                    respond_error=static.serve_error,
                )
                yield _MetricsMiddleware(secured, routes)
            finally:
                self.close()
                group.cancel_scope.cancel()

    def close(self) -> None:
        """Close every stream, for instance because the process is asked to stop."""
        self._broadcast.close()
        self._followers.close()

    def _build_routes(self, static: StaticFiles) -> list[BaseRoute]:
        document = codec.dumps(openapi.build_document(self._services.installation.version)).encode()

        async def serve_document(_: Request) -> Response:
            return Response(document, media_type="application/json")

        return [
            *self._extra_routes,
            *build_routes(self._services),
            Route("/openapi.json", serve_document),
            Route("/static/{name:path}", static.serve_file),
            Route("/", static.serve_index),
            Route("/worker.js", static.serve_worker),
            Route(SHARE_PATH, static.serve_share_target, methods=["POST"]),
        ]


def _build_router(routes: Sequence[BaseRoute], static: StaticFiles) -> ASGIApp:
    """Build the app of the routes, which turns each error into a response."""

    async def handle_http_error(request: Request, error: Exception) -> Response:
        missing = isinstance(error, HTTPException) and error.status_code == HTTPStatus.NOT_FOUND
        page = static.serve_missing(request) if missing else None
        return page or await responses.handle_http_error(request, error)

    async def handle_keryx_error(request: Request, error: Exception) -> Response:
        return static.serve_error(request, error)

    handlers = {HTTPException: handle_http_error, KeryxError: handle_keryx_error}
    return ExceptionMiddleware(Router(routes=routes, redirect_slashes=False), handlers=handlers)


class _MetricsMiddleware:
    """Counts requests and the time until their responses begin, by the path of their route, never by the path itself."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._paths: dict[object, str] = {r.endpoint: r.path for r in routes if isinstance(r, Route)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        # A request whose connection breaks before the response has no status.
        status = "none"

        async def send_measured(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = f"{message['status'] // 100}xx"
                metrics.HTTP_TIME.observe(time.monotonic() - began, self._find_path(scope))
            await send(message)

        try:
            await self._app(scope, receive, send_measured)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else metrics.OTHER
            metrics.HTTP_REQUESTS.add(self._find_path(scope), method, status)

    def _find_path(self, scope: Scope) -> str:
        return self._paths.get(scope.get("endpoint"), metrics.OTHER)


class _ErrorMiddleware:
    """Logs an unexpected error and responds with a problem document, unless the response has begun. Strips bodies of
    responses to HEAD. Sets `scope["state"]["body_memory"]`."""

    def __init__(self, app: ASGIApp, body_memory: BodyMemory) -> None:
        self._app = app
        self._body_memory = body_memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False
        without_body = scope["method"] == "HEAD"
        # Starlette's router raises HTTPException only inside an app; otherwise it responds with plain text itself.
        scope["app"] = self
        scope.setdefault("state", {})["body_memory"] = self._body_memory

        async def send_observed(message: Message) -> None:
            nonlocal started
            started = True
            if without_body and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(scope, receive, send_observed)
        except Exception as exc:
            if started:
                raise
            await responses.report_unexpected(exc, scope["path"])(scope, receive, send)
