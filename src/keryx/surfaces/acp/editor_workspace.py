"""The files and the terminal of the editor for the turns of one session, and the MCP servers that the editor passes."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec

from keryx.core.errors import Invalid, KeryxError, Unavailable
from keryx.core.ids import SessionId
from keryx.core.ports.agent import EditorToolServer
from keryx.jsonrpc import Json, RpcError, as_object, as_text
from keryx.surfaces.acp.context import EditorContext

FILE_TIMEOUT_SECONDS = 60.0
COMMAND_TIMEOUT_SECONDS = 600.0
MAX_OUTPUT_BYTES = 200_000
_RELEASE_SECONDS = 2.0


class EditorWorkspace:
    """Uses only the capabilities that the editor has offered."""

    def __init__(
        self,
        context: EditorContext,
        session: SessionId,
        *,
        show_terminal: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._context = context
        self._show_terminal = show_terminal
        self._session = session
        self.can_read = context.capabilities.read_file
        self.can_write = context.capabilities.write_file
        self.can_run = context.capabilities.terminal

    async def read(self, path: str, *, line: int | None = None, limit: int | None = None) -> str:
        params: Json = {"path": path, "line": line, "limit": limit}
        params = {key: value for key, value in params.items() if value is not None}
        result = await self._request("fs/read_text_file", params, seconds=FILE_TIMEOUT_SECONDS)
        content = result.get("content")
        if not isinstance(content, str):
            raise Unavailable("the editor gave no text")
        return content

    async def write(self, path: str, content: str) -> None:
        await self._request(
            "fs/write_text_file", {"path": path, "content": content}, seconds=FILE_TIMEOUT_SECONDS
        )

    async def run(self, command: str, *, cwd: str) -> str:
        async with self._open_terminal(command, cwd) as terminal:
            await self._show_terminal(command, as_text(terminal.get("terminalId")))
            with anyio.move_on_after(COMMAND_TIMEOUT_SECONDS) as limit:
                await self._request(
                    "terminal/wait_for_exit", terminal, seconds=COMMAND_TIMEOUT_SECONDS + FILE_TIMEOUT_SECONDS
                )
            result = await self._request("terminal/output", terminal, seconds=FILE_TIMEOUT_SECONDS)
        status = msgspec.convert(as_object(result.get("exitStatus")), _ExitStatus)
        note = f"[Ended with {status.exit_code}.]" if status.exit_code else ""
        if limit.cancel_called:
            note = f"[It did not end within {COMMAND_TIMEOUT_SECONDS:g} s and was stopped.]"
        elif status.signal:
            note = f"[Ended by {status.signal}.]"
        return "\n".join(filter(None, (as_text(result.get("output")), note)))

    @asynccontextmanager
    async def _open_terminal(self, command: str, cwd: str) -> AsyncGenerator[Json]:
        """Run a command in a terminal, which is released after the block."""
        params = {
            "command": "/bin/sh",
            "args": ["-c", command],
            "cwd": cwd,
            "outputByteLimit": MAX_OUTPUT_BYTES,
        }
        created = await self._request("terminal/create", params, seconds=FILE_TIMEOUT_SECONDS)
        terminal: Json = {"terminalId": created.get("terminalId")}
        try:
            yield terminal
        finally:
            with anyio.move_on_after(_RELEASE_SECONDS, shield=True):
                # This also ends a command that still runs.
                await self._request("terminal/release", terminal, seconds=_RELEASE_SECONDS)

    async def _request(self, method: str, params: Json, *, seconds: float) -> Json:
        try:
            return await self._context.request(self._session, method, params, seconds=seconds)
        except RpcError as exc:
            raise KeryxError(f"the editor refused: {exc}") from exc


class _NameValue(msgspec.Struct, frozen=True):
    name: str
    value: str


class _McpServerParams(msgspec.Struct, frozen=True):
    name: str
    type: str = "stdio"
    command: str = ""
    args: tuple[str, ...] | None = ()
    env: tuple[_NameValue, ...] | None = ()
    url: str = ""
    headers: tuple[_NameValue, ...] | None = ()


def parse_server(params: Json) -> EditorToolServer:
    """Parse a tool server that an editor names. Raise `Invalid` if its transport is not supported."""
    try:
        server = msgspec.convert(params, _McpServerParams)
    except msgspec.ValidationError as exc:
        raise Invalid(f"a tool server is not understood: {exc}") from exc
    if server.type == "stdio" and server.command:
        command = (server.command, *(server.args or ()))
        return EditorToolServer(
            name=server.name, command=command, env={p.name: p.value for p in server.env or ()}
        )
    if server.type == "http" and server.url:
        return EditorToolServer(
            name=server.name, url=server.url, headers={p.name: p.value for p in server.headers or ()}
        )
    raise Invalid(f"the tool server {server.name[:80]!r} is of a kind that is not taken: use stdio or http")


class _ExitStatus(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int | None = None
    signal: str | None = None
