"""Peer: the other end of the line. Requests from it are answered once each, and requests to it are waited for."""

import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

import anyio
import msgspec
from anyio.abc import TaskGroup

from keryx.core import wire
from keryx.core.errors import Invalid, KeryxError, Unavailable
from keryx.surfaces.acp import faults
from keryx.surfaces.acp.faults import Fault
from keryx.surfaces.acp.frames import TooLong

log = logging.getLogger(__name__)

Json: TypeAlias = dict[str, Any]
Id: TypeAlias = int | str | None
Write: TypeAlias = Callable[[bytes], Awaitable[None]]

MOST_AT_ONCE = 1000
CANCEL = "$/cancel_request"


class Call:
    """One request of the peer. Whoever answers first has answered it; later answers are dropped."""

    def __init__(self, peer: "Peer", id_: Id) -> None:
        self._peer = peer
        self._id = id_
        self.answered = False
        self.scope = anyio.CancelScope()
        self.on_cancel: Callable[[], Awaitable[None]] | None = None
        """What `$/cancel_request` does instead of ending the work at once."""

    async def answer(self, result: object) -> None:
        await self._once({"result": result})

    async def refuse(self, fault: Fault) -> None:
        await self._once({"error": fault.body()})

    async def _once(self, outcome: Json) -> None:
        if not self.answered:
            self.answered = True
            await self._peer.send({"jsonrpc": "2.0", "id": self._id, **outcome})


class Methods(Protocol):
    """What the peer may call. `Fault` and the errors of Keryx become error answers."""

    async def request(self, method: str, params: Json, call: Call) -> object: ...

    async def notification(self, method: str, params: Json) -> None: ...


class Peer:
    """Speaks JSON-RPC with one peer. Nothing that it sends ends the connection but the end of its stream."""

    def __init__(self, write: Write, methods: Methods) -> None:
        self._write = write
        self._calls: dict[Id, Call] = {}
        self._asked: dict[int, _Asked] = {}
        self._last = 0
        self._methods = methods

    async def run(self, frames: AsyncIterable[bytes | TooLong]) -> None:
        """Serve until the stream ends; what still runs then is cancelled."""
        async with anyio.create_task_group() as group:
            async for frame in frames:
                await self._take(frame, group)
            group.cancel_scope.cancel()

    async def send(self, message: Mapping[str, Any]) -> None:
        await self._write(encoded(message))

    async def send_many(self, frames: bytes) -> None:
        """Frames that were encoded before, in one go."""
        await self._write(frames)

    async def notify(self, method: str, params: Json) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: Json, *, seconds: float) -> Json:
        """Ask the peer and give its result. Raises `Fault` when it refuses, `Unavailable` when it says nothing in time.

        When the caller is cancelled the peer is told."""
        self._last += 1
        number = self._last
        asked = self._asked[number] = _Asked()
        try:
            await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            with anyio.move_on_after(seconds):
                await asked.done.wait()
            if not asked.done.is_set():
                raise Unavailable(f"the editor did not answer {method} within {seconds:g} s")
            return asked.result()
        finally:
            del self._asked[number]
            if not asked.done.is_set():
                with anyio.move_on_after(1, shield=True):
                    await self.notify(CANCEL, {"requestId": number})

    async def _take(self, frame: bytes | TooLong, group: TaskGroup) -> None:
        if isinstance(frame, TooLong):
            await self._refuse(frame.id, frame)
            return
        try:
            message = wire.loads(frame, object)
        except Invalid as exc:
            await self._refuse(None, Fault(faults.PARSE, str(exc)))
            return
        if not isinstance(message, dict):
            await self._refuse(None, Fault(faults.REQUEST, "a message is one JSON object on one line"))
            return
        await self._route(msgspec.convert(message, Json), group)

    async def _route(self, message: Json, group: TaskGroup) -> None:
        id_, method = message.get("id"), message.get("method")
        if isinstance(id_, bool) or not isinstance(id_, int | str | None) or message.get("jsonrpc") != "2.0":
            await self._refuse(None, Fault(faults.REQUEST, "this is not a message of JSON-RPC 2.0"))
        elif "method" not in message and ("result" in message or "error" in message):
            self._answered(id_, message)
        elif not isinstance(method, str):
            await self._refuse(id_, Fault(faults.REQUEST, "a request names its method"))
        else:
            await self._begin(id_, "id" in message, method, message.get("params"), group)

    async def _begin(self, id_: Id, asks: bool, method: str, params: object, group: TaskGroup) -> None:
        if not isinstance(params, dict | None):
            if asks:
                await self._refuse(id_, Fault(faults.PARAMS, "params must be an object"))
            return
        values = msgspec.convert(params or {}, Json)
        if not asks:
            group.start_soon(self._notified, method, values)
        elif len(self._calls) >= MOST_AT_ONCE:
            await self._refuse(
                id_, Fault(faults.INTERNAL, "too many requests wait: ask again when some are answered")
            )
        else:
            call = self._calls[id_] = Call(self, id_)
            group.start_soon(self._serve, id_, method, values, call)

    async def _serve(self, id_: Id, method: str, params: Json, call: Call) -> None:
        """The door of a request: whatever happens inside, it is answered exactly once."""
        try:
            with call.scope:
                await call.answer(await self._methods.request(method, params, call))
            await call.refuse(Fault(faults.CANCELLED, "the request was cancelled"))
        except Fault as exc:
            await call.refuse(exc)
        except KeryxError as exc:
            await call.refuse(faults.of(exc))
        except BrokenPipeError:
            raise
        except Exception as exc:
            log.exception("%s failed", method)
            await call.refuse(
                Fault(faults.INTERNAL, f"Keryx failed ({type(exc).__name__}); its log has the details")
            )
        finally:
            if self._calls.get(id_) is call:
                del self._calls[id_]

    async def _notified(self, method: str, params: Json) -> None:
        """The door of a notification, which nobody waits for: the log is all that a failure can be told to."""
        try:
            if method == CANCEL:
                await self._cancel(params.get("requestId"))
            else:
                await self._methods.notification(method, params)
        except (Fault, KeryxError) as exc:
            log.warning("the notification %s was of no use: %s", method, exc)
        except BrokenPipeError:
            raise
        except Exception:
            log.exception("the notification %s failed", method)

    async def _cancel(self, id_: object) -> None:
        call = self._calls.get(id_) if isinstance(id_, int | str) else None
        if call is None:
            return
        if call.on_cancel:
            await call.on_cancel()
        else:
            call.scope.cancel()

    def _answered(self, id_: Id, message: Json) -> None:
        asked = self._asked.get(id_) if isinstance(id_, int) else None
        if asked:
            asked.message = message
            asked.done.set()

    async def _refuse(self, id_: Id, fault: Fault) -> None:
        await self.send({"jsonrpc": "2.0", "id": id_, "error": fault.body()})


def encoded(message: Mapping[str, Any]) -> bytes:
    """A message as one line. Text that no UTF-8 can hold is escaped."""
    return wire.dumps(message).encode() + b"\n"


class _Asked:
    """A request to the peer that waits for its answer."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.message: Json = {}

    def result(self) -> Json:
        error = self.message.get("error")
        if error is not None:
            found = msgspec.convert(error, _Error, strict=False)
            raise Fault(found.code, found.message)
        result = self.message.get("result")
        return msgspec.convert(result, Json) if isinstance(result, dict) else {}


class _Error(msgspec.Struct, frozen=True):
    code: int = faults.INTERNAL
    message: str = "the editor gave no reason"
