"""JSON-RPC with one agent process: requests with timeouts, and its messages in order to one listener per session, with a bounded queue for it."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

import anyio
import msgspec

from keryx.child_process import ChildProcess
from keryx.core.text import to_single_line
from keryx.core.texts import Phrase
from keryx.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Json, RpcError, as_object, frames
from keryx.jsonrpc.frames import FrameTooLong
from keryx.jsonrpc.peer import IncomingRequest, Peer, RequestId, Response

MAX_LINE_BYTES = 32_000_000
MAX_QUEUED_MESSAGES = 256
MAX_INVALID_LINES = 1000
_PREVIEW_BYTES = 200
_WRITE_TIMEOUT_SECONDS = 60
log = logging.getLogger(__name__)


class AgentUnavailable(Exception):
    """The agent has ended or does not respond. `text` is the reason, for the user."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class SessionUpdate(msgspec.Struct, frozen=True):
    fields: Json


class PromptResponse(msgspec.Struct, frozen=True):
    """The response to a prompt, delivered in order with the updates."""

    result: Json
    error: RpcError | None = None


class ConnectionClosed(msgspec.Struct, frozen=True):
    reason: str


class StallWarning(msgspec.Struct, frozen=True):
    """No message has arrived for a while."""


AgentMessage: TypeAlias = SessionUpdate | IncomingRequest | PromptResponse | ConnectionClosed | StallWarning


class MessageQueue:
    """A bounded queue. After `close`, `put` drops its item and does not wait."""

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
        """Close the queue and return the items left in it."""
        left = list(self._items)
        self._closed = True
        self._items.clear()
        self._not_full.set()
        return left


MessageListener: TypeAlias = Callable[[AgentMessage], Awaitable[None]]


class AgentConnection:
    """The messages of one agent process, passed in order to the listener of their session. Nothing more is read while
    a listener is busy, so a slow one slows the agent down."""

    def __init__(self, process: ChildProcess, *, name: str) -> None:
        self.process = process
        self.name = name
        self.listeners: dict[str, MessageListener] = {}
        # Lines above MAX_LINE_BYTES, which are discarded.
        self.dropped_lines = 0
        # Lines that are not JSON-RPC messages, and the start of the first.
        self.invalid_lines = 0
        self.first_invalid_line = ""
        self.closed = asyncio.Event()
        self._reason: Phrase | None = None
        self._peer = Peer(self._write, sends_cancel=False)

    async def run(self) -> None:
        """Read until the agent ends, then fail the requests that still wait and tell all listeners."""
        try:
            await self._peer.run(self._read_frames(), self)
        finally:
            self._reason = self._reason or Phrase("agent.ended")
            self.closed.set()
            self._peer.fail_pending(lambda: AgentUnavailable(self.close_reason))
        for listener in list(self.listeners.values()):
            await listener(ConnectionClosed(self.close_reason))

    @property
    def close_reason(self) -> Phrase:
        """Why the connection ended, with the last line of the agent's standard error."""
        reason, last_line = self._reason or Phrase("agent.ended"), self.process.last_stderr_line
        return Phrase("reason.detailed", reason=reason, detail=last_line) if last_line else reason

    async def request(self, method: str, params: Json, *, seconds: float) -> Json:
        """Send a request and return its result. Raise `RpcError` for an error response, and `AgentUnavailable` if the
        agent has ended or does not respond in time."""
        if self.closed.is_set():
            raise AgentUnavailable(self.close_reason)
        try:
            return await self._peer.request(method, params, seconds=seconds)
        except TimeoutError as exc:
            raise AgentUnavailable(
                Phrase("agent.no_response", method=method, seconds=f"{seconds:g}")
            ) from exc

    async def send_prompt(self, session: str, method: str, params: Json) -> None:
        """Send a request whose response goes to the listener of the session, in order with the updates."""

        async def pass_on(response: Response) -> None:
            if listener := self.listeners.get(session):
                await listener(PromptResponse(response.result, response.error))

        await self._peer.start_request(method, params, pass_on)

    async def notify(self, method: str, params: Json) -> None:
        await self._peer.notify(method, params)

    async def respond_error(self, request: IncomingRequest, error: RpcError) -> None:
        """Refuse a request. Does not raise if the agent has ended."""
        with self.ignore_unavailable():
            await request.respond_error(error)

    @contextmanager
    def ignore_unavailable(self) -> Generator[None]:
        """Ignore that the agent has ended: it does not need the response."""
        try:
            yield
        except AgentUnavailable as exc:
            log.info("the agent %s ended before it was answered: %s", self.name, exc)

    async def handle_request(self, request: IncomingRequest) -> None:
        session = request.params.get("sessionId")
        if listener := self._find_listener(session):
            await listener(request)
        elif request.method == "initialize":
            # Only clients send it: the program copies its input. A response would come back, too.
            self._reason = Phrase("agent.repeats")
        elif request.method.startswith(("session/", "fs/", "terminal/", "elicitation/")):
            await self.respond_error(
                request, RpcError(INVALID_PARAMS, f"nobody works on session {session!r} now")
            )
        else:
            await self.respond_error(request, build_unknown_method_error(request))

    async def handle_notification(self, method: str, params: Json) -> None:
        listener = self._find_listener(params.get("sessionId"))
        if listener and method == "session/update":
            await listener(SessionUpdate(as_object(params.get("update"))))

    async def handle_invalid(self, id_: RequestId, error: RpcError, frame: bytes) -> None:
        if id_ is not None:
            await self.respond_error(IncomingRequest(self._peer, id_, "", {}), error)
            return
        self.invalid_lines += 1
        if self.invalid_lines == 1:
            self.first_invalid_line = to_single_line(frame[:_PREVIEW_BYTES].decode("utf-8", "replace"))
            log.warning("the agent %s writes lines that are not JSON-RPC messages; skipped", self.name)

    def _find_listener(self, session: object) -> MessageListener | None:
        return self.listeners.get(session) if isinstance(session, str) else None

    async def _read_frames(self) -> AsyncIterator[bytes]:
        async for frame in frames.read_frames(self.process.chunks(), limit=MAX_LINE_BYTES):
            if isinstance(frame, FrameTooLong):
                self.dropped_lines += 1
                continue
            yield frame
            if self._reason:
                return
            if self.invalid_lines > MAX_INVALID_LINES:
                self._reason = Phrase("agent.no_protocol", line=repr(self.first_invalid_line))
                return

    async def _write(self, data: bytes) -> None:
        try:
            with anyio.fail_after(_WRITE_TIMEOUT_SECONDS):
                await self.process.write(data)
        except BrokenPipeError as exc:
            raise AgentUnavailable(self.close_reason) from exc
        except TimeoutError as exc:
            raise AgentUnavailable(Phrase("agent.not_reading")) from exc


def build_unknown_method_error(request: IncomingRequest) -> RpcError:
    return RpcError(METHOD_NOT_FOUND, f"Keryx has no method {request.method[:100]!r}")
