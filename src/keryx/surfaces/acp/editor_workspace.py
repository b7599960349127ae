"""The files and the terminal of the editor for the turns of one session, and the MCP servers that the editor passes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import msgspec

from keryx.core.errors import Invalid, KeryxError, Unavailable
from keryx.core.ids import SessionId
from keryx.core.ports.agent import EditorToolServer
from keryx.jsonrpc.errors import RpcError
from keryx.jsonrpc.values import Json
from keryx.surfaces.acp.context import EditorContext

FILE_TIMEOUT_SECONDS = 60.0
COMMAND_TIMEOUT_SECONDS = 600.0
MAX_OUTPUT_BYTES = 200_000
_RELEASE_SECONDS = 2.0


class EditorWorkspace:
    """Asks the editor for nothing that it did not offer."""

    def __init__(self, desk: EditorContext, session: SessionId) -> None:
        self._context = desk
        self._session = session
        self.can_read = desk.capabilities.read_file
        self.can_write = desk.capabilities.write_file
        self.can_run = desk.capabilities.terminal

    async def read(self, path: str, *, line: int | None = None, limit: int | None = None) -> str:
        asked: Json = {"path": path, "line": line, "limit": limit}
        given = {key: value for key, value in asked.items() if value is not None}
        result = await self._request("fs/read_text_file", given, seconds=FILE_TIMEOUT_SECONDS)
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
            with anyio.move_on_after(COMMAND_TIMEOUT_SECONDS) as limit:
                await self._request(
                    "terminal/wait_for_exit", terminal, seconds=COMMAND_TIMEOUT_SECONDS + FILE_TIMEOUT_SECONDS
                )
            result = await self._request("terminal/output", terminal, seconds=FILE_TIMEOUT_SECONDS)
        note = (
            f"[It did not end within {COMMAND_TIMEOUT_SECONDS:g} s and was stopped.]"
            if limit.cancel_called
            else ""
        )
        return "\n".join(filter(None, (_as_text(result.get("output")), note or _format_exit(result))))

    @asynccontextmanager
    async def _open_terminal(self, command: str, cwd: str) -> AsyncGenerator[Json]:
        """A terminal that runs a command, and is given back whatever happens."""
        wanted: Json = {"command": "/bin/sh", "args": ["-c", command], "cwd": cwd}
        made = await self._request(
            "terminal/create", {**wanted, "outputByteLimit": MAX_OUTPUT_BYTES}, seconds=FILE_TIMEOUT_SECONDS
        )
        terminal: Json = {"terminalId": made.get("terminalId")}
        try:
            yield terminal
        finally:
            with anyio.move_on_after(_RELEASE_SECONDS, shield=True):
                # Releasing ends a command that still runs.
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


def parse_servers(given: tuple[Json, ...] | None) -> list[EditorToolServer]:
    """The tool servers that an editor names. `Invalid` for one of a kind that was not offered."""
    return [_parse_server(one) for one in given or ()]


def _parse_server(given: Json) -> EditorToolServer:
    try:
        found = msgspec.convert(given, _McpServerParams)
    except msgspec.ValidationError as exc:
        raise Invalid(f"a tool server is not understood: {exc}") from exc
    if found.type == "stdio" and found.command:
        command = (found.command, *(found.args or ()))
        return EditorToolServer(
            name=found.name, command=command, env={p.name: p.value for p in found.env or ()}
        )
    if found.type == "http" and found.url:
        return EditorToolServer(
            name=found.name, url=found.url, headers={p.name: p.value for p in found.headers or ()}
        )
    raise Invalid(f"the tool server {found.name[:80]!r} is of a kind that is not taken: use stdio or http")


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _format_exit(result: Json) -> str:
    status = result.get("exitStatus")
    found = msgspec.convert(status, _ExitStatus) if isinstance(status, dict) else _ExitStatus()
    if found.signal:
        return f"[Ended by {found.signal}.]"
    return f"[Ended with {found.exit_code}.]" if found.exit_code else ""


class _ExitStatus(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int | None = None
    signal: str | None = None
