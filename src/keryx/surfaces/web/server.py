"""The ASGI app: routes, middleware and error handling put together, with the life of its background task."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keryx.core import codec
from keryx.core.clock import Clock
from keryx.core.errors import KeryxError
from keryx.core.sessions import Viewer
from keryx.engine.hub import Hub
from keryx.surfaces.web import openapi, responses
from keryx.surfaces.web.auth import Authenticator, CookieSigner, SecurityMiddleware
from keryx.surfaces.web.client_address import TrustedProxies
from keryx.surfaces.web.request import BodyMemory, Installation, Services
from keryx.surfaces.web.routes import build_routes
from keryx.surfaces.web.sign_in_limits import GuessLimiter, KnownBrowsers
from keryx.surfaces.web.static_files import StaticFiles
from keryx.surfaces.web.stream import Broadcast

_RENDER_THREADS = 2
_MIN_BODY_MEMORY = 64 << 20


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
        streams: int = 300,
        proxies: TrustedProxies = TrustedProxies(),
        installation: Installation = Installation(),
        extra_routes: Sequence[BaseRoute] = (),
    ) -> None:
        cookies, guesses = CookieSigner(key), GuessLimiter(clock)
        renders = anyio.CapacityLimiter(_RENDER_THREADS)
        self._broadcast = Broadcast(hub, renders, most=streams)
        self._authenticator = Authenticator(
            operator, hub.sign_ins, cookies, guesses, token=token, password=password
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
            renders=renders,
        )
        self._hosts = hosts
        self._proxies = proxies
        self._body_memory = max(_MIN_BODY_MEMORY, 4 * hub.media.limit)
        self._extra_routes = extra_routes

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[ASGIApp]:
        """Yield the running app. On exit every stream is closed at once."""
        static = await anyio.to_thread.run_sync(StaticFiles)
        async with anyio.create_task_group() as group:
            group.start_soon(self._broadcast.run)
            try:
                app = _ErrorMiddleware(self._build_app(static), BodyMemory(self._body_memory))
                yield SecurityMiddleware(app, self._authenticator, hosts=self._hosts, proxies=self._proxies)
            finally:
                self.close()
                group.cancel_scope.cancel()

    def close(self) -> None:
        """Close every stream, for instance because the process is asked to stop."""
        self._broadcast.close()

    def _build_app(self, static: StaticFiles) -> ASGIApp:
        document = codec.dumps(openapi.build_document(self._services.installation.version)).encode()

        async def serve_document(_: Request) -> Response:
            return Response(document, media_type="application/json")

        router = Router(
            routes=[
                *self._extra_routes,
                *build_routes(self._services),
                Route("/openapi.json", serve_document),
                Route("/static/{name:path}", static.serve_file),
                Route("/", static.serve_index),
            ],
            redirect_slashes=False,
        )
        handlers = {HTTPException: responses.handle_http_error, KeryxError: responses.handle_keryx_error}
        return ExceptionMiddleware(router, handlers=handlers)


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
            await responses.report_unexpected(exc)(scope, receive, send)
