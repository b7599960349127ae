"""The HTTP responses that last as long as a turn: streams of server-sent events, and documents that wait for the end, in the shapes of the OpenAI-compatible API unless told otherwise. A client that goes away does not end the turn."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import timedelta
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from keryx.core import codec
from keryx.core.errors import AgentFailed, KeryxError, Retryable, Throttled
from keryx.core.ids import TurnId
from keryx.core.sessions import Viewer
from keryx.core.turns import TurnState
from keryx.engine.hub import Hub
from keryx.engine.hub.api_turns import ApiTurnView
from keryx.fair_limits import FairShares
from keryx.surfaces.web import openai_api, responses
from keryx.surfaces.web.openai_api import ChatChunks, Json, ResponseEvents

log = logging.getLogger(__name__)
MEDIA_TYPES = ("application/json", "text/event-stream")
_HEARTBEAT = b": waiting\n\n"
_HEARTBEAT_SECONDS = 15.0
_BEAT_SECONDS = 1.0
_FULL_DELAY = timedelta(seconds=10)
_TOO_MANY = "too many requests wait for answers: the turn goes on; try again"
_FAILED_STATES = frozenset({TurnState.FAILED, TurnState.PARKED, TurnState.EXPIRED, TurnState.MERGED})
_DONE = b"data: [DONE]\n\n"

Encoder: TypeAlias = Callable[[ApiTurnView], bytes]


class ErrorFormat(NamedTuple):
    """How a protocol tells an error: instead of a document, and in a stream."""

    respond: Callable[[KeryxError], Response]
    encode: Callable[[KeryxError], bytes]


def has_finished(view: ApiTurnView) -> bool:
    return view.turn.state.finished


class TurnFollowers:
    """The requests that wait for a turn: a limited number at once."""

    def __init__(self, hub: Hub, *, most: int) -> None:
        self._hub = hub
        self._shares = FairShares(most)
        self.closed = False

    def close(self) -> None:
        """End every request within a second. Clients continue their streams when the server is back."""
        self.closed = True

    async def watch(
        self,
        viewer: Viewer,
        turn: TurnId,
        show: Callable[[ApiTurnView], Awaitable[None]],
        *,
        until: Callable[[ApiTurnView], bool] = has_finished,
    ) -> ApiTurnView:
        """Call `show` with each state of a turn, and at times without a change. Return the last state. Raise `Throttled` if too
        many requests wait, `Retryable` if the server stops or another person needs the place before the turn has ended."""
        share = self._shares.take(viewer.principal)
        if share is None:
            raise Throttled(_TOO_MANY, after=_FULL_DELAY)
        try:
            async with aclosing(self._hub.api_turns.follow(viewer, turn, beat=_BEAT_SECONDS)) as views:
                async for view in views:
                    await show(view)
                    if until(view):
                        return view
                    if self.closed:
                        break
                    if share.revoked:
                        raise Throttled(_TOO_MANY, after=_FULL_DELAY)
        finally:
            self._shares.release(share)
        raise Retryable("the server stops; the turn goes on when it is back: ask again", after=_FULL_DELAY)


class TurnResponse:
    """An ASGI response that follows a turn. With `encode` it is a stream, without a document. `until` tells when it is
    complete, `end` is the last part of a complete stream."""

    def __init__(
        self,
        hub: Hub,
        followers: TurnFollowers,
        viewer: Viewer,
        turn: TurnId,
        *,
        build: Callable[[ApiTurnView], Json],
        encode: Encoder | None,
        headers: Mapping[str, str],
        errors: ErrorFormat | None = None,
        until: Callable[[ApiTurnView], bool] = has_finished,
        end: bytes = _DONE,
        media_type: str = MEDIA_TYPES[0],
    ) -> None:
        self._hub = hub
        self._followers = followers
        self._viewer = viewer
        self._turn = turn
        self._build = build
        self._encode = encode
        self._headers = {"Cache-Control": "no-store", **headers}
        self._errors = errors or OPENAI_ERRORS
        self._until = until
        self._end = end
        self._media_type = media_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        finished = False
        async with responses.cancel_on_disconnect(receive):
            finished = await (
                self._send_stream(send) if self._encode else self._send_document(scope, receive, send)
            )
        if finished:
            # From now on an equal request asks for another answer.
            try:
                await self._hub.api_turns.take(self._viewer, self._turn)
            except KeryxError as exc:
                log.warning("an equal request will get the answer of turn %s again: %s", self._turn, exc)

    async def _send_document(self, scope: Scope, receive: Receive, send: Send) -> bool:
        async def wait(view: ApiTurnView) -> None:
            pass

        try:
            view = await self._followers.watch(self._viewer, self._turn, wait, until=self._until)
            body = codec.dumps(self._build(view)).encode()
        except KeryxError as exc:
            response = self._errors.respond(exc)
            response.headers.update(self._headers)
            await response(scope, receive, send)
            return isinstance(exc, AgentFailed)
        await Response(body, HTTPStatus.OK, self._headers, media_type=self._media_type)(scope, receive, send)
        return view.turn.state.finished

    async def _send_stream(self, send: Send) -> bool:
        """Send events until the turn has ended, and return whether it has."""
        fields = {
            "content-type": f"{MEDIA_TYPES[1]}; charset=utf-8",
            "x-accel-buffering": "no",
            **self._headers,
        }
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        silence = anyio.current_time()

        async def send_new(view: ApiTurnView) -> None:
            nonlocal silence
            assert self._encode is not None
            body = self._encode(view)
            if not body and anyio.current_time() - silence >= _HEARTBEAT_SECONDS:
                body = _HEARTBEAT
            if body:
                silence = anyio.current_time()
                await responses.send_chunk(send, body)

        last = None
        try:
            last = await self._followers.watch(self._viewer, self._turn, send_new, until=self._until)
        except TimeoutError:
            log.info("closed a stream whose client stopped reading")
            return False
        except KeryxError as exc:
            log.info("closed a stream: %s", exc)
            await responses.send_chunk(send, self._errors.encode(exc))
        if last and self._end:
            await responses.send_chunk(send, self._end)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return last is not None and last.turn.state.finished


def encode_event(event: Json, name: str = "", *, id_: str = "") -> bytes:
    """Encode a server-sent event."""
    head = (f"id: {id_}\n" if id_ else "") + (f"event: {name}\n" if name else "")
    return f"{head}data: {codec.dumps(event)}\n\n".encode()


def _encode_openai_error(error: KeryxError) -> bytes:
    return encode_event(responses.build_openai_error(error))


OPENAI_ERRORS = ErrorFormat(responses.openai_error, _encode_openai_error)


def build_response_encoder(after: int = -1) -> Encoder:
    """Return the function that encodes what a state of a turn adds to the stream of its response."""
    events = ResponseEvents(after)
    return lambda view: b"".join(encode_event(event, event["type"]) for event in events.advance(view))


def build_chat_encoder(*, include_usage: bool) -> Encoder:
    """Return the function that encodes what a state of a turn adds to the stream of its chat completion."""
    chunks = ChatChunks(include_usage=include_usage)

    def encode(view: ApiTurnView) -> bytes:
        body = b"".join(encode_event(chunk) for chunk in chunks.advance(view))
        if view.turn.state in _FAILED_STATES:
            body += encode_event(responses.build_openai_error(_build_failure(view)))
        return body

    return encode


def build_response_document(view: ApiTurnView) -> Json:
    return openai_api.build_response(view, openai_api.list_output(view))


def build_chat_document(view: ApiTurnView) -> Json:
    """Build the chat completion of a turn. Raise `AgentFailed` if it failed."""
    if view.turn.state in _FAILED_STATES:
        raise _build_failure(view)
    return openai_api.build_completion(view)


def _build_failure(view: ApiTurnView) -> AgentFailed:
    return AgentFailed(view.turn.error or "the agent failed: look at the conversation")


def build_page(items: list[Json], *, more: bool) -> dict[str, Any]:
    """Build a page of a list."""
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": more,
    }
