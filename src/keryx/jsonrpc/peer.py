"""One JSON-RPC peer: reads its messages in order, correlates responses with our requests, and answers its requests exactly once."""

import asyncio
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

import anyio
import msgspec
from anyio.abc import TaskGroup

from keryx.core import codec
from keryx.core.errors import Invalid, KeryxError
from keryx.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    Json,
    RpcError,
    as_object,
    from_keryx_error,
)
from keryx.jsonrpc.frames import FrameTooLong

log = logging.getLogger(__name__)

RequestId: TypeAlias = int | float | str | None
WriteFrame: TypeAlias = Callable[[bytes], Awaitable[None]]

MAX_CONCURRENT_REQUESTS = 1000
# About what is read in a millisecond.
_PACE_BYTES = 100_000
CANCEL_METHOD = "$/cancel_request"


class IncomingRequest:
    """One request of the peer. Only the first response is sent; later ones are ignored."""

    def __init__(self, peer: "Peer", id_: RequestId, method: str, params: Json) -> None:
        self._peer = peer
        self.id = id_
        self.method = method
        self.params = params
        self.answered = False
        # Cancelled by `$/cancel_request`, unless `on_cancel` is set.
        self.scope = anyio.CancelScope()
        # Called for `$/cancel_request` instead of cancelling the handler.
        self.on_cancel: Callable[[], Awaitable[None]] | None = None

    async def respond(self, result: object) -> None:
        await self._respond_once({"result": result})

    async def respond_error(self, error: RpcError) -> None:
        await self._respond_once({"error": error.to_json()})

    async def run(self, handler: Callable[["IncomingRequest"], Awaitable[object]]) -> None:
        """Call the handler and respond with its result or its error, unless it has responded itself.

        Raise only if the response cannot be sent."""
        result: object = None
        error: RpcError | None = None
        try:
            with self.scope:
                result = await handler(self)
            if self.scope.cancelled_caught:
                error = RpcError(REQUEST_CANCELLED, "the request was cancelled")
        except RpcError as exc:
            error = exc
        except KeryxError as exc:
            error = from_keryx_error(exc)
        except BrokenPipeError:
            raise
        except Exception as exc:
            log.exception("%s failed", self.method[:100])
            failure = f"Keryx failed ({type(exc).__name__}); its log has the details"
            error = RpcError(INTERNAL_ERROR, failure)
        if self.answered:
            return
        if error:
            await self.respond_error(error)
        else:
            await self.respond(result)

    async def _respond_once(self, outcome: Json) -> None:
        if not self.answered:
            self.answered = True
            await self._peer.send({"jsonrpc": "2.0", "id": self.id, **outcome})


class Response(msgspec.Struct, frozen=True):
    result: Json
    error: RpcError | None = None


ResponseHandler: TypeAlias = Callable[[Response], Awaitable[None]]


class MessageHandler(Protocol):
    """Receives the messages of a peer in order: the next one is read when the call has returned."""

    async def handle_request(self, request: IncomingRequest) -> None: ...

    async def handle_notification(self, method: str, params: Json) -> None: ...

    async def handle_invalid(self, id_: RequestId, error: RpcError, frame: bytes) -> None:
        """`id_` is the id of the request if it could be read, else `None`."""
        ...


class Peer:
    """Sends requests and notifications to one peer and reads what it sends."""

    def __init__(self, write: WriteFrame, *, sends_cancel: bool) -> None:
        self._write = write
        # Send `$/cancel_request` after a request that timed out or was cancelled.
        self._sends_cancel = sends_cancel
        self._pending: dict[RequestId, ResponseHandler] = {}
        self._waiting: set[asyncio.Future[Json]] = set()
        self._last_id = 0

    async def run(self, frames: AsyncIterable[bytes | FrameTooLong], handler: MessageHandler) -> None:
        """Pass every message on until the stream ends. No message ends the loop; an exception of the handler does."""
        async for frame in frames:
            # A fast peer does not keep other tasks waiting, a long message not for longer than it takes.
            await asyncio.sleep(0 if isinstance(frame, FrameTooLong) else len(frame) // _PACE_BYTES / 1_000)
            if isinstance(frame, FrameTooLong):
                await handler.handle_invalid(frame.id, frame, b"")
            else:
                await self._handle_frame(frame, handler)

    async def send(self, message: Mapping[str, Any]) -> None:
        await self._write(encode_message(message))

    async def send_encoded(self, frames: bytes) -> None:
        """Send encoded frames in one write."""
        await self._write(frames)

    async def notify(self, method: str, params: Json) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: Json, *, seconds: float) -> Json:
        """Send a request and return its result. Raise `RpcError` for an error response, `TimeoutError` if no response
        arrives in time, and the error of `fail_pending`."""
        result: asyncio.Future[Json] = asyncio.get_running_loop().create_future()

        async def resolve(response: Response) -> None:
            if response.error:
                _set_exception(result, response.error)
            elif not result.done():
                result.set_result(response.result)

        self._waiting.add(result)
        number = self._last_id + 1
        try:
            await self.start_request(method, params, resolve)
            with anyio.move_on_after(seconds):
                return await result
            raise TimeoutError(f"{method} was not answered within {seconds:g} s")
        finally:
            self._waiting.discard(result)
            if self._pending.pop(number, None) and self._sends_cancel:
                # If the peer has ended, the error that the caller waits for says so.
                with anyio.move_on_after(1, shield=True), suppress(BrokenPipeError):
                    await self.notify(CANCEL_METHOD, {"requestId": number})

    async def start_request(self, method: str, params: Json, on_response: ResponseHandler) -> None:
        """Send a request. `on_response` is awaited in order with the other messages of the peer; it is not called if
        the connection ends first."""
        self._last_id += 1
        self._pending[self._last_id] = on_response
        await self.send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})

    def fail_pending(self, build_error: Callable[[], Exception]) -> None:
        """Raise an error in all callers of `request` that still wait."""
        for result in self._waiting:
            _set_exception(result, build_error())

    async def _handle_frame(self, frame: bytes, handler: MessageHandler) -> None:
        try:
            message = codec.loads(frame, object)
        except Invalid as exc:
            await handler.handle_invalid(None, RpcError(PARSE_ERROR, str(exc)), frame)
            return
        if not isinstance(message, dict):
            await _reject(handler, None, "a message is one JSON object on one line", frame)
            return
        await self._handle_message(as_object(message), frame, handler)  # pyright: ignore[reportUnknownArgumentType]

    async def _handle_message(self, message: Json, frame: bytes, handler: MessageHandler) -> None:
        id_, method, params = message.get("id"), message.get("method"), message.get("params")
        if (
            isinstance(id_, bool)
            or not isinstance(id_, int | float | str | None)
            or message.get("jsonrpc") != "2.0"
        ):
            await _reject(handler, None, "this is not a message of JSON-RPC 2.0", frame)
        elif "method" not in message and (id_ in self._pending or "result" in message or "error" in message):
            await self._handle_response(id_, message)
        elif not isinstance(method, str):
            await _reject(handler, id_, "a request names its method", frame)
        elif "id" not in message:
            if isinstance(params, dict | None):
                await handler.handle_notification(method, as_object(params))  # pyright: ignore[reportUnknownArgumentType]
        elif not isinstance(params, dict | None):
            error = RpcError(INVALID_PARAMS, "params must be an object")
            await handler.handle_invalid(id_, error, frame)
        else:
            await handler.handle_request(IncomingRequest(self, id_, method, as_object(params)))  # pyright: ignore[reportUnknownArgumentType]

    async def _handle_response(self, id_: RequestId, message: Json) -> None:
        """Deliver a response. One that is not awaited any more is ignored."""
        error = None if message.get("error") is None else RpcError.from_json(message["error"])
        if on_response := self._pending.pop(id_, None):
            await on_response(Response(as_object(message.get("result")), error))


def _set_exception(waiting: asyncio.Future[Json], error: Exception) -> None:
    if not waiting.done():
        waiting.set_exception(error)
        waiting.exception()  # Mark it as retrieved: a caller that is being cancelled does not await it.


async def _reject(handler: MessageHandler, id_: RequestId, reason: str, frame: bytes) -> None:
    await handler.handle_invalid(id_, RpcError(INVALID_REQUEST, reason), frame)


def encode_message(message: Mapping[str, Any]) -> bytes:
    """Encode a message as one line. Text that is not valid UTF-8 is escaped."""
    return codec.dumps(message).encode() + b"\n"


class Methods(Protocol):
    """What a peer may call on a server. `RpcError` and Keryx errors become error responses."""

    async def handle_request(self, request: IncomingRequest) -> object:
        """Return the result, unless the method has responded itself."""
        ...

    async def handle_notification(self, method: str, params: Json) -> None: ...


async def serve(peer: Peer, frames: AsyncIterable[bytes | FrameTooLong], methods: Methods) -> None:
    """Serve the requests of a peer concurrently until its stream ends, then cancel those that still run."""
    async with anyio.create_task_group() as group:
        await peer.run(frames, _ConcurrentServer(peer, methods, group))
        group.cancel_scope.cancel()


class _ConcurrentServer:
    """Runs every request and notification in a task of its own, started in order."""

    def __init__(self, peer: Peer, methods: Methods, group: TaskGroup) -> None:
        self._peer = peer
        self._methods = methods
        self._group = group
        self._running: dict[RequestId, IncomingRequest] = {}

    async def handle_request(self, request: IncomingRequest) -> None:
        if len(self._running) >= MAX_CONCURRENT_REQUESTS:
            reason = "too many requests wait: ask again when some are answered"
            await request.respond_error(RpcError(INTERNAL_ERROR, reason))
            return
        self._running[request.id] = request
        self._group.start_soon(self._run_request, request)

    async def handle_notification(self, method: str, params: Json) -> None:
        self._group.start_soon(self._run_notification, method, params)

    async def handle_invalid(self, id_: RequestId, error: RpcError, frame: bytes) -> None:
        await self._peer.send({"jsonrpc": "2.0", "id": id_, "error": error.to_json()})

    async def _run_request(self, request: IncomingRequest) -> None:
        try:
            await request.run(self._methods.handle_request)
        finally:
            if self._running.get(request.id) is request:
                del self._running[request.id]

    async def _run_notification(self, method: str, params: Json) -> None:
        try:
            if method == CANCEL_METHOD:
                await self._cancel_request(params.get("requestId"))
            else:
                await self._methods.handle_notification(method, params)
        except (RpcError, KeryxError) as exc:
            log.warning("ignored notification %s: %s", method[:100], exc)
        except BrokenPipeError:
            raise
        except Exception:
            log.exception("the notification %s failed", method[:100])

    async def _cancel_request(self, id_: object) -> None:
        request = self._running.get(id_) if isinstance(id_, int | float | str) else None
        if request is None:
            return
        if request.on_cancel:
            await request.on_cancel()
        else:
            request.scope.cancel()
