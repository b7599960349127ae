"""Stream: one connection that tells a browser everything its viewer may see, as server-sent events."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from keryx.core.errors import CursorExpired, KeryxError
from keryx.core.ids import Cursor
from keryx.surfaces.web import events
from keryx.surfaces.web.broadcast import Broadcast, Gone, mark
from keryx.surfaces.web.digest import encode
from keryx.surfaces.web.guard import Caller, Gate

log = logging.getLogger(__name__)

BEAT = 15.0
_SLOW = 30.0
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_HELLO = b"retry: 1000\n\n"


class Stream:
    """An ASGI response. It ends when the browser goes, when it is too slow, when its sign-in ends, or when the server
    stops; the browser then comes back with its cursor."""

    def __init__(self, broadcast: Broadcast, gate: Gate, caller: Caller, cursor: Cursor) -> None:
        self._broadcast = broadcast
        self._gate = gate
        self._caller = caller
        self._cursor = cursor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = self._broadcast.follow(self._caller.viewer, self._cursor, beat=BEAT)
        async with aclosing(told), anyio.create_task_group() as group:
            group.start_soon(_until_gone, receive, group.cancel_scope)
            try:
                await self._send(Headers(scope=scope), told, send)
            finally:
                group.cancel_scope.cancel()

    async def _send(self, headers: Headers, told: AsyncGenerator[tuple[Cursor, bytes]], send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await _put(send, _HELLO + mark(self._cursor))
        try:
            async for cursor, body in told:
                if not body:
                    await self._gate.caller(headers)
                await _put(send, body or mark(cursor))
        except CursorExpired as exc:
            await _put(send, encode(events.ExpiredEvent(detail=str(exc)), None))
        except Gone:
            log.info("a stream was too slow and is cut; it may come back")
        except TimeoutError:
            log.info("a browser takes nothing more; its stream is cut")
            return
        except KeryxError as exc:
            log.info("a stream ends: %s", exc)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _put(send: Send, body: bytes) -> None:
    with anyio.fail_after(_SLOW):
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
