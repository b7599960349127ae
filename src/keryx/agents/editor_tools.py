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
from keryx.core.errors import KeryxError
from keryx.core.ids import SessionId
from keryx.core.ports.agent import EditorToolServer, TurnContext, Workspace

EXTRA_MISSING = "The editor's tool servers need an extra: pip install 'keryx[tools]'."
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
    """The tools of one server that was started for a session."""

    def close(self) -> None: ...


class _SessionTools:
    """What one session was lent. Its servers are connected when a turn first needs them."""

    def __init__(self, workspace: Workspace, servers: Sequence[EditorToolServer], cwd: str) -> None:
        self.workspace = workspace
        self.servers = tuple(servers)
        self.cwd = cwd
        self.tools: list[ClosableToolbox] | None = None
        self.warning = ""


class EditorTools:
    """Offers to a turn what its session was lent, and nothing to any other."""

    def __init__(self) -> None:
        self._by_session: dict[SessionId, _SessionTools] = {}
        self._group: TaskGroup | None = None
        self._clock: Clock | None = None
        self._logs = Path()

    def attach(
        self, session: SessionId, workspace: Workspace, servers: Sequence[EditorToolServer], *, cwd: str
    ) -> None:
        before = self._by_session.get(session)
        loan = self._by_session[session] = _SessionTools(workspace, servers, cwd)
        if before and (before.servers, before.cwd) == (loan.servers, cwd):
            loan.tools, loan.warning = before.tools, before.warning
        elif before:
            _close_tools(before)

    def detach(self, session: SessionId) -> None:
        loan = self._by_session.pop(session, None)
        if loan:
            _close_tools(loan)

    def find_cwd(self, session: SessionId) -> str | None:
        """Where a session works while it is open in the editor."""
        loan = self._by_session.get(session)
        return loan.cwd if loan else None

    @asynccontextmanager
    async def running(self, clock: Clock, *, logs: Path) -> AsyncGenerator[None]:
        """Servers can be connected while the block runs, and are ended with it."""
        async with anyio.create_task_group() as self._group:
            self._clock, self._logs = clock, logs
            yield
            self._group.cancel_scope.cancel()

    async def specs(self, context: TurnContext) -> Sequence[ToolSpec]:
        loan = self._by_session.get(context.session)
        if loan is None:
            return ()
        found = build_workspace_specs(loan.workspace)
        for tools in self._ensure_connected(loan):
            found += await tools.specs(context)
        return found

    def warnings(self, context: TurnContext) -> Sequence[str]:
        loan = self._by_session.get(context.session)
        if loan is None:
            return ()
        told = [text for tools in loan.tools or () for text in tools.warnings(context)]
        return [loan.warning, *told] if loan.warning else told

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> ToolOutput:
        loan = self._by_session.get(context.session)
        if loan is None:
            raise ToolFailed("The editor has closed this conversation, and its tools are gone.")
        if name in WORKSPACE_TOOLS:
            return ToolOutput(await call_workspace_tool(loan.workspace, name, arguments, cwd=loan.cwd))
        for tools in self._ensure_connected(loan):
            if name in {spec.name for spec in await tools.specs(context)}:
                return await tools.call(name, arguments, context)
        raise ToolFailed(f"There is no tool {name!r} any more.")

    def _ensure_connected(self, loan: _SessionTools) -> Sequence[ClosableToolbox]:
        if loan.tools is None:
            loan.tools = []
            if loan.servers and self._group and self._clock:
                self._connect(loan, self._group, self._clock)
        return loan.tools

    def _connect(self, loan: _SessionTools, group: TaskGroup, clock: Clock) -> None:
        try:
            from keryx.agents.mcp import servers  # noqa: PLC0415 an optional extra, and slow to import
        except ImportError:
            loan.warning = EXTRA_MISSING
            return
        taken: set[str] = set()
        assert loan.tools is not None
        for given in loan.servers:
            server = _build_config(given, loan.cwd, taken)
            taken.add(server.name)
            loan.tools.append(servers.connect(server, group=group, clock=clock, logs=self._logs))


def _build_config(given: EditorToolServer, cwd: str, taken: set[str]) -> ToolServerConfig:
    """A server of the editor as if it were configured, under a name of its own."""
    plain = _INVALID_SERVER_NAME.sub("-", given.name.lower()).strip("-")[:_LONGEST_SERVER_NAME] or "server"
    name = next(n for n in (plain, *(f"{plain}-{i}" for i in range(2, 1000))) if n not in taken)
    return ToolServerConfig(
        name=name,
        command=given.command,
        url=given.url,
        env={key: f"text:{value}" for key, value in given.env.items()},
        headers={key: f"text:{value}" for key, value in given.headers.items()},
        cwd=cwd if given.command and Path(cwd).is_dir() else "",
    )


def _close_tools(loan: _SessionTools) -> None:
    for tools in loan.tools or ():
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
    """The tools that an editor offers: it is asked before a file is changed or a command is run."""
    found = (
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
    return [spec for offered, spec in found if offered]


async def call_workspace_tool(
    workspace: Workspace, name: str, arguments: Mapping[str, Any], *, cwd: str
) -> str:
    try:
        match name:
            case "read_text_file":
                asked = msgspec.convert(arguments, _ReadArguments)
                return await workspace.read(
                    resolve_within(cwd, asked.path), line=asked.line, limit=asked.limit
                )
            case "write_text_file":
                given = msgspec.convert(arguments, _WriteArguments)
                await workspace.write(resolve_within(cwd, given.path), given.content)
                return f"Wrote {len(given.content)} characters."
            case _:
                return await workspace.run(msgspec.convert(arguments, _RunArguments).command, cwd=cwd)
    except msgspec.ValidationError as exc:
        raise ToolFailed(f"The arguments are not right: {exc}.") from exc
    except ToolFailed:
        raise
    except KeryxError as exc:
        raise ToolFailed(f"{exc}.") from exc


def resolve_within(folder: str, path: str) -> str:
    """A path as an absolute one. `ToolFailed` if it leads out of the folder, by dots or by links."""
    root = Path(folder).resolve()
    wanted = Path(os.path.normpath(root / path))
    if not wanted.resolve().is_relative_to(root):
        raise ToolFailed(f"{path!r} is outside of {folder}: only files in there can be used.")
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
