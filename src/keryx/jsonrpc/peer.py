"""One JSON-RPC peer: dispatches its requests and notifications to a handler, and correlates responses to our own requests."""

import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

import anyio
import msgspec
from anyio.abc import TaskGroup

from keryx.core import codec
from keryx.core.errors import Invalid, KeryxError, Unavailable
from keryx.jsonrpc import errors
from keryx.jsonrpc.errors import RpcError
from keryx.jsonrpc.frames import FrameTooLong

log = logging.getLogger(__name__)

Json: TypeAlias = dict[str, Any]
Id: TypeAlias = int | str | None
WriteFrame: TypeAlias = Callable[[bytes], Awaitable[None]]

MAX_CONCURRENT_REQUESTS = 1000
CANCEL_METHOD = "$/cancel_request"


class IncomingRequest:
    """One request of the peer. Whoever answers first has answered it; later answers are dropped."""

    def __init__(self, peer: "Peer", id_: Id) -> None:
        self._peer = peer
        self._id = id_
        self.answered = False
        self.scope = anyio.CancelScope()
        self.on_cancel: Callable[[], Awaitable[None]] | None = None
        """What `$/cancel_request` does instead of ending the work at once."""

    async def respond(self, result: object) -> None:
        await self._respond_once({"result": result})

    async def respond_error(self, fault: RpcError) -> None:
        await self._respond_once({"error": fault.to_json()})

    async def _respond_once(self, outcome: Json) -> None:
        if not self.answered:
            self.answered = True
            await self._peer.send({"jsonrpc": "2.0", "id": self._id, **outcome})


class RequestHandler(Protocol):
    """What the peer may call. `Fault` and the errors of Keryx become error answers."""

    async def handle_request(self, method: str, params: Json, call: IncomingRequest) -> object: ...

    async def handle_notification(self, method: str, params: Json) -> None: ...


class Peer:
    """Speaks JSON-RPC with one peer. Nothing that it sends ends the connection but the end of its stream."""

    def __init__(self, write: WriteFrame, methods: RequestHandler) -> None:
        self._write = write
        self._incoming: dict[Id, IncomingRequest] = {}
        self._pending: dict[int, _PendingRequest] = {}
        self._last_id = 0
        self._handler = methods

    async def run(self, frames: AsyncIterable[bytes | FrameTooLong]) -> None:
        """Serve until the stream ends; what still runs then is cancelled."""
        async with anyio.create_task_group() as group:
            async for frame in frames:
                await self._handle_frame(frame, group)
            group.cancel_scope.cancel()

    async def send(self, message: Mapping[str, Any]) -> None:
        await self._write(encode_message(message))

    async def send_encoded(self, frames: bytes) -> None:
        """Frames that were encoded before, in one go."""
        await self._write(frames)

    async def notify(self, method: str, params: Json) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: Json, *, seconds: float) -> Json:
        """Ask the peer and give its result. Raises `Fault` when it refuses, `Unavailable` when it says nothing in time.

        When the caller is cancelled the peer is told."""
        self._last_id += 1
        number = self._last_id
        asked = self._pending[number] = _PendingRequest()
        try:
            await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            with anyio.move_on_after(seconds):
                await asked.done.wait()
            if not asked.done.is_set():
                raise Unavailable(f"the editor did not answer {method} within {seconds:g} s")
            return asked.result()
        finally:
            del self._pending[number]
            if not asked.done.is_set():
                with anyio.move_on_after(1, shield=True):
                    await self.notify(CANCEL_METHOD, {"requestId": number})

    async def _handle_frame(self, frame: bytes | FrameTooLong, group: TaskGroup) -> None:
        if isinstance(frame, FrameTooLong):
            await self._send_error(frame.id, frame)
            return
        try:
            message = codec.loads(frame, object)
        except Invalid as exc:
            await self._send_error(None, RpcError(errors.PARSE_ERROR, str(exc)))
            return
        if not isinstance(message, dict):
            await self._send_error(
                None, RpcError(errors.INVALID_REQUEST, "a message is one JSON object on one line")
            )
            return
        await self._route(msgspec.convert(message, Json), group)

    async def _route(self, message: Json, group: TaskGroup) -> None:
        id_, method = message.get("id"), message.get("method")
        if isinstance(id_, bool) or not isinstance(id_, int | str | None) or message.get("jsonrpc") != "2.0":
            await self._send_error(
                None, RpcError(errors.INVALID_REQUEST, "this is not a message of JSON-RPC 2.0")
            )
        elif "method" not in message and ("result" in message or "error" in message):
            self._handle_response(id_, message)
        elif not isinstance(method, str):
            await self._send_error(id_, RpcError(errors.INVALID_REQUEST, "a request names its method"))
        else:
            await self._start_request(id_, "id" in message, method, message.get("params"), group)

    async def _start_request(
        self, id_: Id, asks: bool, method: str, params: object, group: TaskGroup
    ) -> None:
        if not isinstance(params, dict | None):
            if asks:
                await self._send_error(id_, RpcError(errors.INVALID_PARAMS, "params must be an object"))
            return
        values = msgspec.convert(params or {}, Json)
        if not asks:
            group.start_soon(self._run_notification, method, values)
        elif len(self._incoming) >= MAX_CONCURRENT_REQUESTS:
            await self._send_error(
                id_,
                RpcError(errors.INTERNAL_ERROR, "too many requests wait: ask again when some are answered"),
            )
        else:
            call = self._incoming[id_] = IncomingRequest(self, id_)
            group.start_soon(self._run_request, id_, method, values, call)

    async def _run_request(self, id_: Id, method: str, params: Json, call: IncomingRequest) -> None:
        """The door of a request: whatever happens inside, it is answered exactly once."""
        try:
            with call.scope:
                await call.respond(await self._handler.handle_request(method, params, call))
            await call.respond_error(RpcError(errors.REQUEST_CANCELLED, "the request was cancelled"))
        except RpcError as exc:
            await call.respond_error(exc)
        except KeryxError as exc:
            await call.respond_error(errors.from_keryx_error(exc))
        except BrokenPipeError:
            raise
        except Exception as exc:
            log.exception("%s failed", method)
            await call.respond_error(
                RpcError(
                    errors.INTERNAL_ERROR, f"Keryx failed ({type(exc).__name__}); its log has the details"
                )
            )
        finally:
            if self._incoming.get(id_) is call:
                del self._incoming[id_]

    async def _run_notification(self, method: str, params: Json) -> None:
        """The door of a notification, which nobody waits for: the log is all that a failure can be told to."""
        try:
            if method == CANCEL_METHOD:
                await self._cancel_request(params.get("requestId"))
            else:
                await self._handler.handle_notification(method, params)
        except (RpcError, KeryxError) as exc:
            log.warning("the notification %s was of no use: %s", method, exc)
        except BrokenPipeError:
            raise
        except Exception:
            log.exception("the notification %s failed", method)

    async def _cancel_request(self, id_: object) -> None:
        call = self._incoming.get(id_) if isinstance(id_, int | str) else None
        if call is None:
            return
        if call.on_cancel:
            await call.on_cancel()
        else:
            call.scope.cancel()

    def _handle_response(self, id_: Id, message: Json) -> None:
        asked = self._pending.get(id_) if isinstance(id_, int) else None
        if asked:
            asked.message = message
            asked.done.set()

    async def _send_error(self, id_: Id, fault: RpcError) -> None:
        await self.send({"jsonrpc": "2.0", "id": id_, "error": fault.to_json()})


def encode_message(message: Mapping[str, Any]) -> bytes:
    """A message as one line. Text that no UTF-8 can hold is escaped."""
    return codec.dumps(message).encode() + b"\n"


class _PendingRequest:
    """A request to the peer that waits for its answer."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.message: Json = {}

    def result(self) -> Json:
        error = self.message.get("error")
        if error is not None:
            found = msgspec.convert(error, _ErrorObject, strict=False)
            raise RpcError(found.code, found.message)
        result = self.message.get("result")
        return msgspec.convert(result, Json) if isinstance(result, dict) else {}


class _ErrorObject(msgspec.Struct, frozen=True):
    code: int = errors.INTERNAL_ERROR
    message: str = "the editor gave no reason"
