"""Connection: one tool server, started when it is first needed, shared by all turns, and started again when it ended."""

import logging
import math
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast

import anyio
import anyio.to_thread
import httpx2
import mcp_types as types
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from keryx import secrets
from keryx.agents.tools import ToolFailed
from keryx.agents.toolserver import ToolServer
from keryx.core.errors import KeryxError
from keryx.core.ports import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

# It logs what a server writes that is no message, with the text: our log holds no text of others.
logging.getLogger("mcp.client.stdio").setLevel(logging.CRITICAL)

_START_SECONDS = 30.0
_PAUSES = (0.0, 1.0, 2.0, 5.0, 15.0, 60.0)
_LONGEST_LOG = 1_000_000
_MOST_PAGES = 100
_SHOWN = 2000
UNKNOWN = "Nobody knows whether it did what it was asked."


class _Life:
    """One run of a server, from its start to its end."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.settled = anyio.Event()
        self.over = anyio.Event()
        self.client: Client | None = None
        self.tools: list[types.Tool] = []
        self.stale = False
        self.error = ""


class Connection:
    """`error` says why the server does not work now; empty while it does, or before it was needed."""

    def __init__(self, server: ToolServer, *, group: TaskGroup, clock: Clock, log_file: Path) -> None:
        self.server = server
        self._group = group
        self._clock = clock
        self.log_file = log_file
        self._life: _Life | None = None
        self._failures = 0
        self._not_before = 0.0

    @property
    def error(self) -> str:
        return self._life.error if self._life else ""

    @property
    def written(self) -> str:
        """The end of what the server wrote to its standard error."""
        try:
            return self.log_file.read_text(encoding="utf-8", errors="replace")[-_SHOWN:]
        except FileNotFoundError:
            return ""

    def end(self) -> None:
        """Let the server end, if it runs."""
        if self._life:
            self._life.over.set()

    async def tools(self) -> list[types.Tool]:
        """What the server offers. Raises `ToolFailed` while it does not work."""
        life, client = await self._alive()
        if life.stale:
            life.stale = False
            life.tools = await self._guarded(life, _listed(client))
        return life.tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        """Call a tool within the server's time limit. Raises `ToolFailed` with a sentence for the model."""
        life, client = await self._alive()
        return await self._guarded(life, client.call_tool(tool, dict(arguments)))

    async def _guarded(self, life: _Life, work: Awaitable[T]) -> T:
        """Await a request, and turn whatever foreign code raises into one sentence. A connection that broke is given up,
        so that the next request opens another."""
        name, seconds = self.server.name, self.server.timeout.total_seconds()
        try:
            with anyio.fail_after(seconds):
                return await work
        except TimeoutError as exc:
            raise ToolFailed(
                f"The tool server {name!r} did not answer within {seconds:g} s. {UNKNOWN}"
            ) from exc
        except MCPError as exc:
            if exc.code == types.CONNECTION_CLOSED:
                life.over.set()
                raise ToolFailed(
                    f"The tool server {name!r} ended before it answered. {UNKNOWN} It is started again when it is needed."
                ) from exc
            if exc.code == types.INVALID_REQUEST:
                # What a server over HTTP says that was started anew and no longer knows us.
                life.over.set()
            raise ToolFailed(f"The tool server {name!r} refused the call: {exc.message[:500]}") from exc
        except Exception as exc:
            log.warning("tool server %s: a request failed", name, exc_info=exc)
            life.over.set()
            raise ToolFailed(f"The tool server {name!r} failed ({_told(_first(exc))}). {UNKNOWN}") from exc

    async def _alive(self) -> tuple[_Life, Client]:
        life = self._life
        if life is None or life.over.is_set():
            wait = self._not_before - self._clock.monotonic()
            if life and wait > 0:
                raise ToolFailed(f"{self._broken(life)} It is tried again in {math.ceil(wait)} s.")
            life = self._life = _Life(self._clock.monotonic())
            self._group.start_soon(self._live, life)
        await life.settled.wait()
        if life.client is None:
            raise ToolFailed(self._broken(life))
        return life, life.client

    def _broken(self, life: _Life) -> str:
        return f"The tool server {self.server.name!r} does not work now: {life.error or 'it ended'}."

    async def _live(self, life: _Life) -> None:
        """Hold the connection in a task of its own until the server ends. No failure of it harms anybody else."""
        with anyio.CancelScope(deadline=anyio.current_time() + _START_SECONDS) as scope:
            try:
                async with self._opened(life) as client:
                    life.tools = await _listed(client)
                    scope.deadline = math.inf
                    life.client = client
                    life.settled.set()
                    await life.over.wait()
                life.error = "it ended"
            except Exception as exc:  # noqa: BLE001 the door of a tool server: told to whoever uses it
                life.error = self._why(exc)
                log.warning("tool server %s: %s", self.server.name, life.error)
        if scope.cancelled_caught:
            life.error = f"it did not start within {_START_SECONDS:g} s"
        self._ended(life)

    def _why(self, exc: Exception) -> str:
        first = _first(exc)
        if isinstance(first, httpx2.TransportError):
            return f"nobody answers at {self.server.place} ({type(first).__name__})"
        return _told(first)

    def _ended(self, life: _Life) -> None:
        now = self._clock.monotonic()
        steady = life.client is not None and now - life.began > _PAUSES[-1]
        self._failures = 0 if steady else min(self._failures + 1, len(_PAUSES))
        self._not_before = now + _PAUSES[max(0, self._failures - 1)]
        life.client = None
        life.over.set()
        life.settled.set()

    @asynccontextmanager
    async def _opened(self, life: _Life) -> AsyncGenerator[Client]:
        async def changed(message: object) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                life.stale = True

        async with self._transport(life) as transport:
            async with Client(transport, message_handler=changed) as client:
                yield client

    @asynccontextmanager
    async def _transport(self, life: _Life) -> AsyncGenerator[Transport]:
        server = self.server
        if server.url:
            headers = await self._secrets(server.headers)
            timeout = httpx2.Timeout(_START_SECONDS, read=max(_START_SECONDS, server.timeout.total_seconds()))
            async with httpx2.AsyncClient(headers=headers, timeout=timeout) as http:
                yield streamable_http_client(server.url, http_client=http)
            return
        env = await self._secrets(server.env)
        program, *arguments = server.command
        started = StdioServerParameters(command=program, args=arguments, env=env, cwd=server.cwd or None)
        with _opened_log(self.log_file) as errors:
            yield _watched(stdio_client(started, errors), life)

    async def _secrets(self, references: Mapping[str, str]) -> dict[str, str]:
        def read() -> dict[str, str]:
            return {
                name: secrets.read(reference, f"{name} of tools {self.server.name!r}")
                for name, reference in references.items()
            }

        return await anyio.to_thread.run_sync(read)


@asynccontextmanager
async def _watched(transport: Transport, life: _Life) -> AsyncGenerator[Any]:
    """A transport that tells when the other side has ended, so that nobody waits for it or speaks to it again."""

    async def relay(
        read: AsyncIterable[SessionMessage | Exception],
        into: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        async with into:
            async for message in read:
                await into.send(message)
        life.over.set()

    async with transport as (read, write), anyio.create_task_group() as group:
        into, out = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        with into, out:
            group.start_soon(relay, read, into)
            yield out, write
            group.cancel_scope.cancel()


async def _listed(client: Client) -> list[types.Tool]:
    found: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


def _opened_log(path: Path) -> TextIO:
    """What a server writes to its standard error goes here, apart from ours; begun anew when it is long."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and path.stat().st_size > _LONGEST_LOG:
        path.unlink()
    return path.open("a", encoding="utf-8")


def _first(exc: BaseException) -> BaseException:
    """Of a group of errors, the first."""
    while isinstance(exc, BaseExceptionGroup):
        exc = cast(BaseExceptionGroup[BaseException], exc).exceptions[0]
    return exc


def _told(exc: BaseException) -> str:
    """What went wrong, in a few words."""
    match exc:
        case FileNotFoundError():
            return f"there is no program {str(exc.filename)!r}"
        case PermissionError():
            return f"{str(exc.filename)!r} may not be run"
        case KeryxError():
            return str(exc).rstrip(".")
        case MCPError() if exc.code == types.CONNECTION_CLOSED:
            return "it ended at once"
        case MCPError():
            return exc.message[:300]
        case _:
            return f"{type(exc).__name__}: {str(exc)[:300]}".rstrip(": ")
