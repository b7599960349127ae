"""Server: the whole web put together: the page, the API, the stream, health, behind one guard."""

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

from keryx.core import wire as codec
from keryx.core.errors import KeryxError
from keryx.core.ports import Clock
from keryx.core.sessions import Viewer
from keryx.engine.hub import Hub
from keryx.surfaces.web import conversations, files, house, jobs, openapi, problems, surroundings
from keryx.surfaces.web.answers import answer
from keryx.surfaces.web.ask import Ask, Facts, Handler, Place, parsed, permitted
from keryx.surfaces.web.broadcast import Broadcast
from keryx.surfaces.web.contract import OPERATIONS, Needs, Operation
from keryx.surfaces.web.credentials import Seal, Tries
from keryx.surfaces.web.guard import Gate, Guard
from keryx.surfaces.web.static import Static

HANDLERS: Mapping[str, Handler] = {
    **house.HANDLERS,
    **conversations.HANDLERS,
    **surroundings.HANDLERS,
    **files.HANDLERS,
    **jobs.HANDLERS,
}


class Web:
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
        facts: Facts = Facts(),
        beside: Sequence[BaseRoute] = (),
    ) -> None:
        seal = Seal(key)
        self._broadcast = Broadcast(hub)
        self._gate = Gate(operator, hub.sign_ins, seal, token=token, password=password)
        self._place = Place(
            hub=hub,
            clock=clock,
            gate=self._gate,
            seal=seal,
            tries=Tries(clock),
            broadcast=self._broadcast,
            facts=facts,
            secure=secure,
        )
        self._hosts = hosts
        self._beside = beside

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[ASGIApp]:
        """The app at work. At the end every stream is closed at once."""
        static = await anyio.to_thread.run_sync(Static)
        async with anyio.create_task_group() as group:
            group.start_soon(self._broadcast.run)
            try:
                yield Guard(_Door(self._app(static)), self._gate, hosts=self._hosts)
            finally:
                self.close()
                group.cancel_scope.cancel()

    def close(self) -> None:
        """End every stream, as when the process is asked to stop."""
        self._broadcast.close()

    def _app(self, static: Static) -> ASGIApp:
        described = codec.dumps(openapi.document(self._place.facts.version)).encode()

        async def describe(_: Request) -> Response:
            return Response(described, media_type="application/json")

        router = Router(
            routes=[
                *self._beside,
                *_routes(self._place),
                Route("/openapi.json", describe),
                Route("/static/{name:path}", static.file),
                Route("/", static.index),
            ],
            redirect_slashes=False,
        )
        handlers = {HTTPException: problems.on_http, KeryxError: problems.on_keryx}
        return ExceptionMiddleware(router, handlers=handlers)


def _routes(place: Place) -> list[Route]:
    """One route for each path, so that a wrong method is told of all the right ones."""
    paths: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = operation
    return [Route(path, _endpoint(place, by), methods=list(by)) for path, by in paths.items()]


def _endpoint(place: Place, by: Mapping[str, Operation]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        operation = by["GET" if request.method == "HEAD" else request.method]
        if operation.needs is not Needs.NOTHING:
            permitted(operation, request.state.caller)
        ask = Ask(place, operation, request, parsed(operation, request))
        await ask.load()
        given = await HANDLERS[operation.name](ask)
        if given is None or isinstance(given, msgspec.Struct):
            return await answer(request, operation, given)
        # A stream is an ASGI app as every response is; starlette asks for no more.
        return cast(Response, given)

    return endpoint


class _Door:
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
            await problems.unexpected(exc)(scope, receive, send)
