"""Tools that an editor provides to its sessions: files, terminal, and the MCP servers it names. They are available while the editor has the session open."""

import os
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import anyio
import msgspec
from anyio.abc import TaskGroup

from keryx.agents.agent_config import ToolServerConfig
from keryx.agents.tools import Permission, Toolbox, ToolFailed, ToolOutput, ToolSpec
from keryx.core.clock import Clock
from keryx.core.errors import KeryxError, format_install_command
from keryx.core.ids import SessionId
from keryx.core.ports.agent import EditorToolServer, TurnContext, Workspace
from keryx.core.texts import Phrase

_INVALID_SERVER_NAME = re.compile(r"[^a-z0-9]+")
_LONGEST_SERVER_NAME = 24
READ_TOOL = "read_text_file"
WRITE_TOOL = "write_text_file"
RUN_TOOL = "run_in_terminal"
_PATH_SCHEMA = {"type": "string", "description": "A path, absolute or from the working directory."}
_LINES_SCHEMA = {
    "line": {"type": "integer", "description": "The first line, counted from 1."},
    "limit": {"type": "integer", "description": "How many lines."},
}
_READ_SCHEMA = {"path": _PATH_SCHEMA, **_LINES_SCHEMA}
_WRITE_SCHEMA = {"path": _PATH_SCHEMA, "content": {"type": "string"}}
_RUN_SCHEMA = {"command": {"type": "string", "description": "A line for the shell."}}
WORKSPACE_TOOLS: Sequence[str] = (READ_TOOL, WRITE_TOOL, RUN_TOOL)


class ClosableToolbox(Toolbox, Protocol):
    """The tools of one server of a session."""

    def close(self) -> None: ...


class _SessionTools:
    """What the editor provides to one session. Its servers are connected when a turn first needs them."""

    def __init__(
        self, workspace: Workspace, servers: Sequence[EditorToolServer], cwd: str, folders: Sequence[str]
    ) -> None:
        self.workspace = workspace
        self.servers = tuple(servers)
        self.cwd = cwd
        self.folders = (cwd, *folders)
        self.tools: list[ClosableToolbox] | None = None
        self.warning = ""


class EditorTools:
    """The toolbox of sessions that an editor has open: each turn gets the tools of its own session only."""

    def __init__(self) -> None:
        self._by_session: dict[SessionId, _SessionTools] = {}
        self._group: TaskGroup | None = None
        self._clock: Clock | None = None
        self._logs = Path()

    def attach(
        self,
        session: SessionId,
        workspace: Workspace,
        servers: Sequence[EditorToolServer],
        *,
        cwd: str,
        folders: Sequence[str] = (),
    ) -> None:
        before = self._by_session.get(session)
        session_tools = self._by_session[session] = _SessionTools(workspace, servers, cwd, folders)
        if before and (before.servers, before.cwd) == (session_tools.servers, cwd):
            session_tools.tools, session_tools.warning = before.tools, before.warning
        elif before:
            _close_tools(before)

    def detach(self, session: SessionId) -> None:
        session_tools = self._by_session.pop(session, None)
        if session_tools:
            _close_tools(session_tools)

    def find_cwd(self, session: SessionId) -> str | None:
        """Return the folder of a session that is open in the editor."""
        session_tools = self._by_session.get(session)
        return session_tools.cwd if session_tools else None

    @asynccontextmanager
    async def running(self, clock: Clock, *, logs: Path) -> AsyncGenerator[None]:
        """Allow connections to servers within the block; they end with it."""
        async with anyio.create_task_group() as self._group:
            self._clock, self._logs = clock, logs
            yield
            self._group.cancel_scope.cancel()

    async def specs(self, context: TurnContext) -> Sequence[ToolSpec]:
        session_tools = self._by_session.get(context.session)
        if session_tools is None:
            return ()
        specs = build_workspace_specs(session_tools.workspace)
        for tools in self._ensure_connected(session_tools):
            specs += await tools.specs(context)
        return specs

    def warnings(self, context: TurnContext) -> Sequence[str]:
        session_tools = self._by_session.get(context.session)
        if session_tools is None:
            return ()
        warnings = [text for tools in session_tools.tools or () for text in tools.warnings(context)]
        return [session_tools.warning, *warnings] if session_tools.warning else warnings

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> ToolOutput:
        session_tools = self._by_session.get(context.session)
        if session_tools is None:
            raise ToolFailed("The editor has closed this conversation, and its tools are gone.")
        if name in WORKSPACE_TOOLS:
            return ToolOutput(
                await call_workspace_tool(
                    session_tools.workspace, name, arguments, folders=session_tools.folders
                )
            )
        for tools in self._ensure_connected(session_tools):
            if name in {spec.name for spec in await tools.specs(context)}:
                return await tools.call(name, arguments, context)
        raise ToolFailed(f"There is no tool {name!r} any more.")

    def _ensure_connected(self, session_tools: _SessionTools) -> Sequence[ClosableToolbox]:
        if session_tools.tools is None:
            session_tools.tools = []
            if session_tools.servers and self._group and self._clock:
                self._connect(session_tools, self._group, self._clock)
        return session_tools.tools

    def _connect(self, session_tools: _SessionTools, group: TaskGroup, clock: Clock) -> None:
        try:
            from keryx.agents.mcp import connect  # noqa: PLC0415 an optional extra, and slow to import
        except ImportError:
            session_tools.warning = Phrase("editor.tools_extra", command=format_install_command("tools"))
            return
        used_names: set[str] = set()
        assert session_tools.tools is not None
        cwd = session_tools.cwd
        for server in session_tools.servers:
            plain = _INVALID_SERVER_NAME.sub("-", server.name.lower()).strip("-")
            plain = plain[:_LONGEST_SERVER_NAME] or "server"
            name = next(n for n in (plain, *(f"{plain}-{i}" for i in range(2, 1000))) if n not in used_names)
            used_names.add(name)
            config = ToolServerConfig(
                name=name,
                command=server.command,
                url=server.url,
                env={key: f"text:{value}" for key, value in server.env.items()},
                headers={key: f"text:{value}" for key, value in server.headers.items()},
                cwd=cwd if server.command and Path(cwd).is_dir() else "",
            )
            session_tools.tools.append(connect(config, group=group, clock=clock, logs=self._logs))


def _close_tools(session_tools: _SessionTools) -> None:
    for tools in session_tools.tools or ():
        tools.close()


class _ReadArguments(msgspec.Struct, frozen=True):
    path: str
    line: int | None = None
    limit: int | None = None


class _WriteArguments(msgspec.Struct, frozen=True):
    path: str
    content: str


class _RunArguments(msgspec.Struct, frozen=True):
    command: str


def build_workspace_specs(workspace: Workspace) -> list[ToolSpec]:
    """Return the tools for the capabilities of an editor. The user is asked before a file is changed or a command is run."""
    specs = (
        (
            workspace.can_read,
            _build_spec(READ_TOOL, "Read a text file, unsaved changes included.", _READ_SCHEMA, reads=True),
        ),
        (workspace.can_write, _build_spec(WRITE_TOOL, "Write the whole of a text file.", _WRITE_SCHEMA)),
        (
            workspace.can_run,
            _build_spec(RUN_TOOL, "Run a shell command in the working directory.", _RUN_SCHEMA),
        ),
    )
    return [spec for offered, spec in specs if offered]


async def call_workspace_tool(
    workspace: Workspace, name: str, arguments: Mapping[str, Any], *, folders: Sequence[str]
) -> str:
    """Run a tool. Paths are relative to the first folder, and must be in one of them."""
    try:
        match name:
            case "read_text_file":
                reading = msgspec.convert(arguments, _ReadArguments)
                return await workspace.read(
                    resolve_within(folders, reading.path), line=reading.line, limit=reading.limit
                )
            case "write_text_file":
                writing = msgspec.convert(arguments, _WriteArguments)
                await workspace.write(resolve_within(folders, writing.path), writing.content)
                return f"Wrote {len(writing.content)} characters."
            case _:
                return await workspace.run(msgspec.convert(arguments, _RunArguments).command, cwd=folders[0])
    except msgspec.ValidationError as exc:
        raise ToolFailed(f"The arguments are not right: {exc}.") from exc
    except ToolFailed:
        raise
    except KeryxError as exc:
        raise ToolFailed(f"{exc}.") from exc


def resolve_within(folders: Sequence[str], path: str) -> str:
    """Return the absolute path, relative to the first folder. Raise `ToolFailed` if it leads out of all folders, by dots or by
    links."""
    roots = [Path(folder).resolve() for folder in folders]
    wanted = Path(os.path.normpath(roots[0] / path))
    if not any(wanted.resolve().is_relative_to(root) for root in roots):
        raise ToolFailed(f"{path!r} is outside of {', '.join(folders)}: only files in there can be used.")
    return str(wanted)


def _build_spec(
    name: str, description: str, properties: Mapping[str, Any], *, reads: bool = False
) -> ToolSpec:
    required = [key for key in properties if key not in ("line", "limit")]
    return ToolSpec(
        name=name,
        description=description,
        parameters={"type": "object", "properties": dict(properties), "required": required},
        repeatable=reads,
        permission=Permission.ALLOW if reads else Permission.ASK,
    )
