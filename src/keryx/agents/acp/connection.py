"""Connection: JSON-RPC with one agent. What it sends is handled strictly in order, one message after the other."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

from keryx.agents.acp.process import Process
from keryx.agents.acp.rpc import (
    METHOD,
    PARAMS,
    Answered,
    Asked,
    Ended,
    Fault,
    Gone,
    Id,
    Incoming,
    Json,
    Update,
    table,
)
from keryx.core import wire
from keryx.core.errors import Invalid
from keryx.core.titles import line

log = logging.getLogger(__name__)

Listener: TypeAlias = Callable[[Incoming], Awaitable[None]]

MOST_NOISE = 1000
_SHOWN = 200
_WRITE_SECONDS = 60


class Connection:
    """`listeners` get what concerns their session; who is slow to take it slows the agent down. `noise` counts lines
    that were no message; `first_noise` is the beginning of the first."""

    def __init__(self, process: Process, *, name: str) -> None:
        self.process = process
        self.name = name
        self.listeners: dict[str, Listener] = {}
        self.noise = 0
        self.first_noise = ""
        self.over = asyncio.Event()
        self._why = ""
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._queued: dict[int, str] = {}

    async def run(self) -> None:
        """Read until the agent ends; then tell everybody who waits for something."""
        try:
            async for frame in self.process.lines():
                await self._take(frame)
                if self.noise > MOST_NOISE:
                    self._why = f"it writes what is no message of the protocol, such as {self.first_noise!r}"
                    break
        finally:
            self._why = self._why or "it ended before it was done"
            self.over.set()
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(Gone(self.why))
                    waiting.exception()
        for listener in list(self.listeners.values()):
            await listener(Ended(self.why))

    @property
    def why(self) -> str:
        """Why nothing more comes, with the last that it wrote to its standard error."""
        words = self.process.last_words
        return f"{self._why} ({words})" if words else self._why

    async def request(self, method: str, params: Json, *, seconds: float) -> Json:
        """Ask and wait for the answer. Raises `Fault` when it refuses, `Gone` when it is gone or says nothing in time."""
        self._last += 1
        number = self._last
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            if self.over.is_set():
                raise Gone(self.why)
            await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError as exc:
            raise Gone(f"it did not answer {method} within {seconds:g} s") from exc
        finally:
            del self._waiting[number]

    async def begin(self, session: str, method: str, params: Json) -> None:
        """Ask; the answer comes to the session's listener, in its place among the updates."""
        self._last += 1
        self._queued[self._last] = session
        await self._send({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})

    async def notify(self, method: str, params: Json) -> None:
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def answer(self, asked: Asked, result: Json) -> None:
        await self._send({"jsonrpc": "2.0", "id": asked.id, "result": result})

    async def refuse(self, asked: Asked, fault: Fault) -> None:
        error = {"code": fault.code, "message": fault.message}
        await self._send({"jsonrpc": "2.0", "id": asked.id, "error": error})

    async def _send(self, message: Json) -> None:
        try:
            with anyio.fail_after(_WRITE_SECONDS):
                await self.process.write(wire.dumps(message).encode() + b"\n")
        except BrokenPipeError as exc:
            raise Gone(self.why or "it has ended") from exc
        except TimeoutError as exc:
            raise Gone("it does not read what it is told") from exc

    async def _take(self, frame: bytes) -> None:
        try:
            message = table(wire.loads(frame, object))
        except Invalid:
            message = {}
        if message.get("jsonrpc") != "2.0":
            self._count_noise(frame)
        elif isinstance(message.get("method"), str):
            await self._called(message)
        elif isinstance(number := message.get("id"), int):
            await self._answered(number, message)

    def _count_noise(self, frame: bytes) -> None:
        self.noise += 1
        if self.noise == 1:
            self.first_noise = line(frame[:_SHOWN].decode("utf-8", "replace"))
            log.warning("the agent %s writes to its output what is no message; it is skipped", self.name)

    async def _called(self, message: Json) -> None:
        method, params = str(message["method"]), table(message.get("params"))
        session = params.get("sessionId")
        listener = self.listeners.get(session) if isinstance(session, str) else None
        if "id" not in message:
            if listener and method == "session/update":
                await listener(Update(table(params.get("update"))))
            return
        asked = Asked(_id(message["id"]), method, params)
        if listener:
            await listener(asked)
        elif method.startswith(("session/", "fs/", "terminal/", "elicitation/")):
            await self._try_refuse(asked, Fault(PARAMS, f"nobody works on session {session!r} now"))
        else:
            await self._try_refuse(asked, unknown(asked))

    async def _try_refuse(self, asked: Asked, fault: Fault) -> None:
        try:
            await self.refuse(asked, fault)
        except Gone as exc:
            log.info("the agent %s is gone before it was answered: %s", self.name, exc)

    async def _answered(self, number: int, message: Json) -> None:
        error = message.get("error")
        fault = None
        if error is not None:
            told = table(error)
            code = told.get("code")
            fault = Fault(
                code if isinstance(code, int) else 0,
                line(str(told.get("message") or "no reason given"))[:500],
            )
        result = table(message.get("result"))
        waiting = self._waiting.get(number)
        if waiting and not waiting.done():
            if fault:
                waiting.set_exception(fault)
            else:
                waiting.set_result(result)
        elif (session := self._queued.pop(number, None)) and (listener := self.listeners.get(session)):
            await listener(Answered(result, fault))


def unknown(asked: Asked) -> Fault:
    return Fault(METHOD, f"Keryx has no method {asked.method[:100]!r}")


def _id(value: object) -> Id:
    return value if isinstance(value, int | str) else None
