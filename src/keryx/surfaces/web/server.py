"""The ASGI app: routes, middleware and error handling put together, with the life of its background task."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

import anyio
import anyio.to_thread
import msgspec
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
from keryx.engine.hub.hub import Hub
from keryx.surfaces.web import openapi, responses
from keryx.surfaces.web.auth import AttemptLimiter, Authenticator, CookieSigner, SecurityMiddleware
from keryx.surfaces.web.operations import OPERATIONS, Operation, RequiredRole
from keryx.surfaces.web.request import ApiRequest, Handler, Installation, Services, check_role, parse_query
from keryx.surfaces.web.responses import build_response
from keryx.surfaces.web.routes import files, installation, jobs, lanes, sessions
from keryx.surfaces.web.static_files import StaticFiles
from keryx.surfaces.web.stream.broadcast import Broadcast

HANDLERS: Mapping[str, Handler] = {
    **installation.HANDLERS,
    **sessions.HANDLERS,
    **lanes.HANDLERS,
    **files.HANDLERS,
    **jobs.HANDLERS,
}


class WebApp:
    """The web as an ASGI app. `running` must surround its use: it tells the streams."""

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
        facts: Installation = Installation(),
        beside: Sequence[BaseRoute] = (),
    ) -> None:
        seal = CookieSigner(key)
        self._broadcast = Broadcast(hub)
        self._authenticator = Authenticator(operator, hub.sign_ins, seal, token=token, password=password)
        self._services = Services(
            hub=hub,
            clock=clock,
            authenticator=self._authenticator,
            cookies=seal,
            attempts=AttemptLimiter(clock),
            broadcast=self._broadcast,
            installation=facts,
            secure_cookies=secure,
        )
        self._hosts = hosts
        self._extra_routes = beside

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[ASGIApp]:
        """The app at work. At the end every stream is closed at once."""
        static = await anyio.to_thread.run_sync(StaticFiles)
        async with anyio.create_task_group() as group:
            group.start_soon(self._broadcast.run)
            try:
                yield SecurityMiddleware(
                    _ErrorMiddleware(self._build_app(static)), self._authenticator, hosts=self._hosts
                )
            finally:
                self.close()
                group.cancel_scope.cancel()

    def close(self) -> None:
        """End every stream, as when the process is asked to stop."""
        self._broadcast.close()

    def _build_app(self, static: StaticFiles) -> ASGIApp:
        described = codec.dumps(openapi.build_document(self._services.installation.version)).encode()

        async def describe(_: Request) -> Response:
            return Response(described, media_type="application/json")

        router = Router(
            routes=[
                *self._extra_routes,
                *_build_routes(self._services),
                Route("/openapi.json", describe),
                Route("/static/{name:path}", static.serve_file),
                Route("/", static.serve_index),
            ],
            redirect_slashes=False,
        )
        handlers = {HTTPException: responses.handle_http_error, KeryxError: responses.handle_keryx_error}
        return ExceptionMiddleware(router, handlers=handlers)


def _build_routes(place: Services) -> list[Route]:
    """One route for each path, so that a wrong method is told of all the right ones."""
    paths: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = operation
    return [Route(path, _build_endpoint(place, by), methods=list(by)) for path, by in paths.items()]


def _build_endpoint(place: Services, by: Mapping[str, Operation]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        operation = by["GET" if request.method == "HEAD" else request.method]
        if operation.needs is not RequiredRole.NOTHING:
            check_role(operation, request.state.caller)
        ask = ApiRequest(place, operation, request, parse_query(operation, request))
        await ask.load_body()
        given = await HANDLERS[operation.name](ask)
        if given is None or isinstance(given, msgspec.Struct):
            return await build_response(request, operation, given)
        # A stream is an ASGI app as every response is; starlette asks for no more.
        return cast(Response, given)

    return endpoint


class _ErrorMiddleware:
    """The door of a request: what nobody foresaw is logged and told as a problem, if nothing was sent yet. HEAD gets no
    body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False
        bare = scope["method"] == "HEAD"
        # With this, the router raises what it refuses instead of answering in its own words.
        scope["app"] = self

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            if bare and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as exc:
            if begun:
                raise
            await responses.report_unexpected(exc)(scope, receive, send)
