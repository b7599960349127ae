"""The connection to one MCP server: started on first use, shared by all turns, restarted with back-off after it ends."""

import logging
import math
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import anyio
import anyio.to_thread
import httpx2
import mcp_types as types
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from keryx import secrets
from keryx.agents.agent_config import ToolServerConfig
from keryx.agents.mcp.stdio_transport import MAX_LINE_BYTES, open_stdio
from keryx.agents.tools import ToolFailed
from keryx.child_process import LineLimit
from keryx.core.clock import Clock
from keryx.core.durations import describe
from keryx.core.errors import KeryxError
from keryx.core.texts import Phrase

log = logging.getLogger(__name__)

T = TypeVar("T")

_START_SECONDS = 30.0
_RETRY_PAUSES = (0.0, 1.0, 2.0, 5.0, 15.0, 60.0)
# The log of the standard error of a server begins anew when it is longer than this.
_LONGEST_LOG = 1_000_000
_MAX_LOG_LINES = 10_000
_MOST_PAGES = 100
_LOG_TAIL = 2000
OUTCOME_UNKNOWN = "Nobody knows whether it did what it was asked."


class _ServerRun:
    """One run of a server, from its start to its end."""

    def __init__(self, started_at: float) -> None:
        self.started_at = started_at
        self.started = anyio.Event()
        self.ended = anyio.Event()
        self.client: Client | None = None
        self.tools: list[types.Tool] = []
        self.stale = False
        self.error = ""


class McpClient:
    def __init__(self, server: ToolServerConfig, *, group: TaskGroup, clock: Clock, log_file: Path) -> None:
        self.server = server
        self._group = group
        self._clock = clock
        self.log_file = log_file
        self._current: _ServerRun | None = None
        self._failures = 0
        self._not_before = 0.0

    @property
    def error(self) -> str:
        """Why the server does not work; empty while it does, or before it was needed."""
        return self._current.error if self._current else ""

    @property
    def _log_name(self) -> str:
        return f"tools/{self.log_file.name}"

    @property
    def log_tail(self) -> str:
        """The end of the standard error of the server."""
        try:
            with self.log_file.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL))
                return file.read(_LOG_TAIL).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def close(self) -> None:
        """Stop the server if it runs."""
        if self._current:
            self._current.ended.set()

    async def tools(self) -> list[types.Tool]:
        """Return the tools of the server. Raise `ToolFailed` while it does not work."""
        run, client = await self._ensure_running()
        if run.stale:
            run.stale = False
            run.tools = await self._run_request(run, _list_tools(client))
        return run.tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        """Call a tool within the timeout of the server. Raise `ToolFailed` with a sentence for the model."""
        run, client = await self._ensure_running()
        return await self._run_request(run, client.call_tool(tool, dict(arguments)))

    async def _run_request(self, run: _ServerRun, work: Awaitable[T]) -> T:
        """Await a request. Raise `ToolFailed` for every error. A broken connection is closed, so that the next request
        opens a new one."""
        name, seconds = self.server.name, self.server.timeout.total_seconds()
        try:
            with anyio.fail_after(seconds):
                return await work
        except TimeoutError as exc:
            raise ToolFailed(
                f"The tool server {name!r} did not answer within {seconds:g} s. {OUTCOME_UNKNOWN}"
            ) from exc
        except MCPError as exc:
            if exc.code == types.CONNECTION_CLOSED:
                run.ended.set()
                where = f" Its log is {self._log_name} in the home folder." if self.server.command else ""
                raise ToolFailed(
                    f"The tool server {name!r} ended before it answered. {OUTCOME_UNKNOWN} It is started again when it is needed.{where}"
                ) from exc
            if exc.code == types.INVALID_REQUEST:
                # A restarted HTTP server answers so, because it does not know our session.
                run.ended.set()
            raise ToolFailed(f"The tool server {name!r} refused the call: {exc.message[:500]}") from exc
        except Exception as exc:
            log.warning("tool server %s: a request failed", name, exc_info=exc)
            run.ended.set()
            raise ToolFailed(
                f"The tool server {name!r} failed ({_describe_error(_find_first_error(exc))}). {OUTCOME_UNKNOWN}"
            ) from exc

    async def _ensure_running(self) -> tuple[_ServerRun, Client]:
        run = self._current
        if run is None or run.ended.is_set():
            wait = self._not_before - self._clock.monotonic()
            if run and wait > 0:
                raise ToolFailed(f"{self._describe_failure(run)} It is tried again in {math.ceil(wait)} s.")
            run = self._current = _ServerRun(self._clock.monotonic())
            self._group.start_soon(self._run_server, run)
        await run.started.wait()
        if run.client is None:
            raise ToolFailed(self._describe_failure(run))
        return run, run.client

    def _describe_failure(self, run: _ServerRun) -> str:
        return (
            f"The tool server {self.server.name!r} does not work now: {run.error or Phrase('tools.ended')}."
        )

    async def _run_server(self, run: _ServerRun) -> None:
        """Keep the connection open in a task of its own until the server ends. Failures are recorded, not raised."""
        with anyio.CancelScope(deadline=anyio.current_time() + _START_SECONDS) as scope:
            try:
                async with self._open_client(run) as client:
                    run.tools = await _list_tools(client)
                    scope.deadline = math.inf
                    run.client = client
                    run.started.set()
                    await run.ended.wait()
                run.error = Phrase("tools.ended")
            except Exception as exc:  # noqa: BLE001 reported by `error` to the users of the server
                run.error = self._describe_cause(exc)
                log.warning("tool server %s: %s", self.server.name, run.error)
        if scope.cancelled_caught:
            run.error = self._add_log(Phrase("tools.slow", span=describe(timedelta(seconds=_START_SECONDS))))
            log.warning("tool server %s: %s", self.server.name, run.error)
        self._record_end(run)

    def _describe_cause(self, exc: Exception) -> str:
        first = _find_first_error(exc)
        if isinstance(first, httpx2.TransportError):
            return Phrase("tools.unreachable", address=self.server.address, kind=type(first).__name__)
        if isinstance(first, MCPError) and first.code == types.CONNECTION_CLOSED:
            return self._add_log(Phrase("tools.ended_early"))
        return _describe_error(first)

    def _add_log(self, reason: Phrase) -> Phrase:
        """Add the place of the log, which a server that Keryx starts has."""
        return Phrase("tools.with_log", reason=reason, log=self._log_name) if self.server.command else reason

    def _record_end(self, run: _ServerRun) -> None:
        now = self._clock.monotonic()
        steady = run.client is not None and now - run.started_at > _RETRY_PAUSES[-1]
        self._failures = 0 if steady else min(self._failures + 1, len(_RETRY_PAUSES))
        self._not_before = now + _RETRY_PAUSES[max(0, self._failures - 1)]
        run.client = None
        run.ended.set()
        run.started.set()

    @asynccontextmanager
    async def _open_client(self, run: _ServerRun) -> AsyncGenerator[Client]:
        async def changed(message: object) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                run.stale = True

        async with self._open_transport(run) as transport:
            async with Client(transport, message_handler=changed) as client:
                yield client

    @asynccontextmanager
    async def _open_transport(self, run: _ServerRun) -> AsyncGenerator[Transport]:
        server = self.server
        if server.url:
            headers = await self._read_secrets(server.headers)
            timeout = httpx2.Timeout(_START_SECONDS, read=max(_START_SECONDS, server.timeout.total_seconds()))
            # Compression is not asked for: a few bytes could become very many.
            headers = {**headers, "Accept-Encoding": "identity"}
            hooks = {"response": [_bound_response]}
            async with httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks) as http:
                yield streamable_http_client(server.url, http_client=http)
            return
        env = await self._read_secrets(server.env)
        self.log_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        limit = LineLimit(f"the server of tools {server.name}", _MAX_LOG_LINES)
        with self.log_file.open("ab") as errors:
            opening = open_stdio(
                server.command, env=env, cwd=server.cwd, on_error_line=partial(_log_line, errors, limit)
            )
            yield _watch_transport(opening, run)

    async def _read_secrets(self, references: Mapping[str, str]) -> dict[str, str]:
        def read() -> dict[str, str]:
            return {
                name: secrets.read(
                    reference, Phrase("secret.of_tools", key=name, name=repr(self.server.name))
                )
                for name, reference in references.items()
            }

        return await anyio.to_thread.run_sync(read)


def _log_line(file: IO[bytes], limit: LineLimit, line: str) -> bool:
    """Write a line to the log of a server. Return whether there may be more."""
    if limit.allows_line():
        if file.tell() > _LONGEST_LOG:
            file.truncate(0)
            file.seek(0)
        file.write(f"{line}\n".encode("utf-8", "replace"))
        file.flush()
    return not limit.is_reached


@asynccontextmanager
async def _watch_transport(transport: Transport, run: _ServerRun) -> AsyncGenerator[Any]:
    """Wrap a transport so that `ended` is set when the other side closes it."""

    async def relay(
        read: AsyncIterable[SessionMessage | Exception],
        into: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        async with into:
            async for message in read:
                await into.send(message)
        run.ended.set()

    async with transport as (read, write), anyio.create_task_group() as group:
        into, out = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        with into, out:
            group.start_soon(relay, read, into)
            yield out, write
            group.cancel_scope.cancel()


class _BoundedBody(httpx2.AsyncByteStream):
    """The body of a response, which may not be longer than a line of a server on standard streams."""

    def __init__(self, source: httpx2.AsyncByteStream) -> None:
        self._source = source

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_LINE_BYTES
        async for chunk in self._source:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"a response has more than {MAX_LINE_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._source.aclose()


async def _bound_response(response: httpx2.Response) -> None:
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.headers.pop("content-encoding", None)
    response.stream = _BoundedBody(response.stream)


async def _list_tools(client: Client) -> list[types.Tool]:
    tools: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def _find_first_error(exc: BaseException) -> BaseException:
    """Return the first error of an exception group."""
    while isinstance(exc, BaseExceptionGroup):
        exc = cast(BaseExceptionGroup[BaseException], exc).exceptions[0]
    return exc


def _describe_error(exc: BaseException) -> str:
    match exc:
        case FileNotFoundError():
            return Phrase("tools.no_program", program=repr(str(exc.filename)))
        case PermissionError():
            return Phrase("tools.forbidden", program=repr(str(exc.filename)))
        case KeryxError():
            return exc.text
        case MCPError():
            return exc.message[:300]
        case _:
            return f"{type(exc).__name__}: {str(exc)[:300]}".rstrip(": ")
