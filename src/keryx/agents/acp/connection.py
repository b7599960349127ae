"""JSON-RPC with one agent process: requests with timeouts, and its messages in order to one listener per session, with a bounded queue for it."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio
import msgspec

from keryx.agents.acp.child_process import ChildProcess
from keryx.core import codec
from keryx.core.errors import Invalid
from keryx.core.text import to_single_line
from keryx.jsonrpc.values import Json, as_object

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
AUTH_REQUIRED = -32000
RESOURCE_NOT_FOUND = -32002
REQUEST_CANCELLED = -32800
MAX_QUEUED_MESSAGES = 256
log = logging.getLogger(__name__)
MAX_INVALID_LINES = 1000
_PREVIEW_BYTES = 200
_WRITE_TIMEOUT_SECONDS = 60
RequestId: TypeAlias = int | str | None


class AcpError(Exception):
    """An error answer, of the agent or to it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class AgentUnavailable(Exception):
    """The agent has ended, or speaks no more; `str` says why, for a person."""


class SessionUpdate(msgspec.Struct, frozen=True):
    """The agent tells something of a session."""

    fields: Json


class AgentRequest(msgspec.Struct, frozen=True):
    """The agent asks for something and waits for the answer."""

    id: RequestId
    method: str
    params: Json


class PromptResponse(msgspec.Struct, frozen=True):
    """The answer to a request of ours that was to come in its place among the updates."""

    result: Json
    error: AcpError | None = None


class ConnectionClosed(msgspec.Struct, frozen=True):
    """Nothing more comes."""

    reason: str


class StallWarning(msgspec.Struct, frozen=True):
    """Nothing has come for a while."""


AgentMessage: TypeAlias = SessionUpdate | AgentRequest | PromptResponse | ConnectionClosed | StallWarning


class MessageQueue:
    """Once it is closed, whatever comes is dropped and nobody waits."""

    def __init__(self) -> None:
        self._items: deque[AgentMessage] = deque()
        self._not_empty = asyncio.Event()
        self._not_full = asyncio.Event()
        self._closed = False

    async def put(self, item: AgentMessage) -> None:
        while len(self._items) >= MAX_QUEUED_MESSAGES and not self._closed:
            self._not_full.clear()
            await self._not_full.wait()
        if not self._closed:
            self._items.append(item)
            self._not_empty.set()

    async def get(self) -> AgentMessage:
        while not self._items:
            self._not_empty.clear()
            await self._not_empty.wait()
        item = self._items.popleft()
        self._not_full.set()
        return item

    def close(self) -> list[AgentMessage]:
        """Gives what nobody has taken."""
        left = list(self._items)
        self._closed = True
        self._items.clear()
        self._not_full.set()
        return left


MessageListener: TypeAlias = Callable[[AgentMessage], Awaitable[None]]


class AgentConnection:
    """`listeners` get what concerns their session; who is slow to take it slows the agent down. `noise` counts lines
    that were no message; `first_noise` is the beginning of the first."""

    def __init__(self, process: ChildProcess, *, name: str) -> None:
        self.process = process
        self.name = name
        self.listeners: dict[str, MessageListener] = {}
        self.invalid_lines = 0
        self.first_invalid_line = ""
        self.closed = asyncio.Event()
        self._reason = ""
        self._last_id = 0
        self._pending: dict[int, asyncio.Future[Json]] = {}
        self._prompts: dict[int, str] = {}

    async def run(self) -> None:
        """Read until the agent ends; then tell everybody who waits for something."""
        try:
            async for frame in self.process.lines():
                await self._handle_frame(frame)
                if self.invalid_lines > MAX_INVALID_LINES:
                    self._reason = (
                        f"it writes what is no message of the protocol, such as {self.first_invalid_line!r}"
                    )
                    break
        finally:
            self._reason = self._reason or "it ended before it was done"
            self.closed.set()
            for waiting in self._pending.values():
                if not waiting.done():
                    waiting.set_exception(AgentUnavailable(self.close_reason))
                    waiting.exception()
        for listener in list(self.listeners.values()):
            await listener(ConnectionClosed(self.close_reason))

    @property
    def close_reason(self) -> str:
        """Why nothing more comes, with the last that it wrote to its standard error."""
        words = self.process.last_stderr_line
        return f"{self._reason} ({words})" if words else self._reason

    async def request(self, method: str, params: Json, *, seconds: float) -> Json:
        """Ask and wait for the answer. Raises `Fault` when it refuses, `Gone` when it is gone or says nothing in time."""
        self._last_id += 1
        number = self._last_id
        waiting = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            if self.closed.is_set():
                raise AgentUnavailable(self.close_reason)
            await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError as exc:
            raise AgentUnavailable(f"it did not answer {method} within {seconds:g} s") from exc
        finally:
            del self._pending[number]

    async def send_prompt(self, session: str, method: str, params: Json) -> None:
        """Ask; the answer comes to the session's listener, in its place among the updates."""
        self._last_id += 1
        self._prompts[self._last_id] = session
        await self._send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})

    async def notify(self, method: str, params: Json) -> None:
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def respond(self, asked: AgentRequest, result: Json) -> None:
        await self._send({"jsonrpc": "2.0", "id": asked.id, "result": result})

    async def respond_error(self, asked: AgentRequest, fault: AcpError) -> None:
        error = {"code": fault.code, "message": fault.message}
        await self._send({"jsonrpc": "2.0", "id": asked.id, "error": error})

    async def _send(self, message: Json) -> None:
        try:
            with anyio.fail_after(_WRITE_TIMEOUT_SECONDS):
                await self.process.write(codec.dumps(message).encode() + b"\n")
        except BrokenPipeError as exc:
            raise AgentUnavailable(self.close_reason or "it has ended") from exc
        except TimeoutError as exc:
            raise AgentUnavailable("it does not read what it is told") from exc

    async def _handle_frame(self, frame: bytes) -> None:
        try:
            message = as_object(codec.loads(frame, object))
        except Invalid:
            message = {}
        if message.get("jsonrpc") != "2.0":
            self._count_invalid_line(frame)
        elif isinstance(message.get("method"), str):
            await self._dispatch(message)
        elif isinstance(number := message.get("id"), int):
            await self._handle_response(number, message)

    def _count_invalid_line(self, frame: bytes) -> None:
        self.invalid_lines += 1
        if self.invalid_lines == 1:
            self.first_invalid_line = to_single_line(frame[:_PREVIEW_BYTES].decode("utf-8", "replace"))
            log.warning("the agent %s writes to its output what is no message; it is skipped", self.name)

    async def _dispatch(self, message: Json) -> None:
        method, params = str(message["method"]), as_object(message.get("params"))
        session = params.get("sessionId")
        listener = self.listeners.get(session) if isinstance(session, str) else None
        if "id" not in message:
            if listener and method == "session/update":
                await listener(SessionUpdate(as_object(params.get("update"))))
            return
        asked = AgentRequest(_parse_id(message["id"]), method, params)
        if listener:
            await listener(asked)
        elif method.startswith(("session/", "fs/", "terminal/", "elicitation/")):
            await self._try_respond_error(
                asked, AcpError(INVALID_PARAMS, f"nobody works on session {session!r} now")
            )
        else:
            await self._try_respond_error(asked, build_unknown_method_error(asked))

    async def _try_respond_error(self, asked: AgentRequest, fault: AcpError) -> None:
        try:
            await self.respond_error(asked, fault)
        except AgentUnavailable as exc:
            log.info("the agent %s is gone before it was answered: %s", self.name, exc)

    async def _handle_response(self, number: int, message: Json) -> None:
        error = message.get("error")
        fault = None
        if error is not None:
            told = as_object(error)
            code = told.get("code")
            fault = AcpError(
                code if isinstance(code, int) else 0,
                to_single_line(str(told.get("message") or "no reason given"))[:500],
            )
        result = as_object(message.get("result"))
        waiting = self._pending.get(number)
        if waiting and not waiting.done():
            if fault:
                waiting.set_exception(fault)
            else:
                waiting.set_result(result)
        elif (session := self._prompts.pop(number, None)) and (listener := self.listeners.get(session)):
            await listener(PromptResponse(result, fault))


def build_unknown_method_error(asked: AgentRequest) -> AcpError:
    return AcpError(METHOD_NOT_FOUND, f"Keryx has no method {asked.method[:100]!r}")


def _parse_id(value: object) -> RequestId:
    return value if isinstance(value, int | str) else None
