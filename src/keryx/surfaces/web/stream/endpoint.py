"""The route /api/stream and its response: one connection that sends a viewer all events from a cursor on."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta

import anyio
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from keryx.core.errors import CursorExpired, KeryxError, Retryable
from keryx.core.ids import Cursor
from keryx.core.texts import Phrase
from keryx.surfaces.web import request_schema
from keryx.surfaces.web.auth import Authenticator, Caller
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest
from keryx.surfaces.web.responses import cancel_on_disconnect, send_chunk
from keryx.surfaces.web.stream import Broadcast, StreamTooSlow, encode_cursor, events
from keryx.surfaces.web.stream.encoder import encode_event

router = ApiRouter()

log = logging.getLogger(__name__)
HEARTBEAT_SECONDS = 15.0
_FULL_DELAY = timedelta(seconds=10)
_MEDIA_TYPE = "text/event-stream"
_HEADERS = [
    (b"content-type", f"{_MEDIA_TYPE}; charset=utf-8".encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_RETRY_FIELD = b"retry: 1000\n\n"


class EventStreamResponse:
    """An ASGI response. It ends when the browser disconnects or is too slow, when its sign-in ends, or when the server
    stops. The browser then reconnects with its cursor."""

    def __init__(
        self, broadcast: Broadcast, authenticator: Authenticator, caller: Caller, cursor: Cursor
    ) -> None:
        self._broadcast = broadcast
        self._authenticator = authenticator
        self._caller = caller
        self._cursor = cursor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        batches = self._broadcast.follow(self._caller.viewer, self._cursor, beat=HEARTBEAT_SECONDS)
        async with aclosing(batches), cancel_on_disconnect(receive):
            await self._send(scope, batches, send)

    async def _send(self, scope: Scope, batches: AsyncGenerator[tuple[Cursor, bytes]], send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send_chunk(send, _RETRY_FIELD + encode_cursor(self._cursor))
        checked = anyio.current_time()
        try:
            async for cursor, body in batches:
                if not body or anyio.current_time() - checked >= HEARTBEAT_SECONDS:
                    await self._authenticator.authenticate(Headers(scope=scope), scope["state"]["address"])
                    checked = anyio.current_time()
                await send_chunk(send, body or encode_cursor(cursor))
        except CursorExpired as exc:
            await send_chunk(send, encode_event(events.ExpiredEvent(detail=str(exc)), None))
        except StreamTooSlow:
            log.info("closed a stream that was too slow; the browser reconnects")
        except TimeoutError:
            log.info("closed a stream whose browser stopped reading")
            return
        except KeryxError as exc:
            log.info("closed a stream: %s", exc)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@router.get(
    "/api/stream",
    summary="Everything that the viewer may see, as it happens: server-sent events from a cursor on.",
    media_types=(_MEDIA_TYPE,),
)
async def stream(request: ApiRequest, query: request_schema.StreamQuery) -> EventStreamResponse | Response:
    if not request.services.broadcast.has_place(request.viewer):
        raise Retryable(Phrase("web.too_many_pages"), after=_FULL_DELAY)
    start = request.http.headers.get("last-event-id") or query.cursor
    cursor = Cursor(start) if start else await request.hub.head_cursor()
    await request.hub.views.check_cursor(cursor)
    if request.http.method == "HEAD":
        return Response(media_type=_MEDIA_TYPE)
    return EventStreamResponse(
        request.services.broadcast, request.services.authenticator, request.caller, cursor
    )
