"""Lent: the tools that an editor lends to its sessions, as a toolbox. They end with the editor's hold on the session."""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup

from keryx.agents import workspace as files
from keryx.agents.tools import Output, Spec, Toolbox, ToolFailed
from keryx.agents.toolserver import ToolServer
from keryx.core.ids import SessionId
from keryx.core.ports import Clock, TurnContext
from keryx.core.workspaces import Server, Workspace

MISSING = "The editor's tool servers need an extra: pip install 'keryx[tools]'."

_ODD = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 24


class Tools(Toolbox, Protocol):
    """The tools of one server that was started for a session."""

    def end(self) -> None: ...


class _Loan:
    """What one session was lent. Its servers are connected when a turn first needs them."""

    def __init__(self, workspace: Workspace, servers: Sequence[Server], cwd: str) -> None:
        self.workspace = workspace
        self.servers = tuple(servers)
        self.cwd = cwd
        self.tools: list[Tools] | None = None
        self.trouble = ""


class Lent:
    """Offers to a turn what its session was lent, and nothing to any other."""

    def __init__(self) -> None:
        self._loans: dict[SessionId, _Loan] = {}
        self._group: TaskGroup | None = None
        self._clock: Clock | None = None
        self._logs = Path()

    def lend(self, session: SessionId, workspace: Workspace, servers: Sequence[Server], *, cwd: str) -> None:
        before = self._loans.get(session)
        loan = self._loans[session] = _Loan(workspace, servers, cwd)
        if before and (before.servers, before.cwd) == (loan.servers, cwd):
            loan.tools, loan.trouble = before.tools, before.trouble
        elif before:
            _end(before)

    def withdraw(self, session: SessionId) -> None:
        loan = self._loans.pop(session, None)
        if loan:
            _end(loan)

    def folder(self, session: SessionId) -> str | None:
        """Where a session works while it is open in the editor."""
        loan = self._loans.get(session)
        return loan.cwd if loan else None

    @asynccontextmanager
    async def running(self, clock: Clock, *, logs: Path) -> AsyncGenerator[None]:
        """Servers can be connected while the block runs, and are ended with it."""
        async with anyio.create_task_group() as self._group:
            self._clock, self._logs = clock, logs
            yield
            self._group.cancel_scope.cancel()

    async def specs(self, context: TurnContext) -> Sequence[Spec]:
        loan = self._loans.get(context.session)
        if loan is None:
            return ()
        found = files.specs(loan.workspace)
        for tools in self._connected(loan):
            found += await tools.specs(context)
        return found

    def troubles(self, context: TurnContext) -> Sequence[str]:
        loan = self._loans.get(context.session)
        if loan is None:
            return ()
        told = [text for tools in loan.tools or () for text in tools.troubles(context)]
        return [loan.trouble, *told] if loan.trouble else told

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> Output:
        loan = self._loans.get(context.session)
        if loan is None:
            raise ToolFailed("The editor has closed this conversation, and its tools are gone.")
        if name in files.NAMES:
            return Output(await files.call(loan.workspace, name, arguments, cwd=loan.cwd))
        for tools in self._connected(loan):
            if name in {spec.name for spec in await tools.specs(context)}:
                return await tools.call(name, arguments, context)
        raise ToolFailed(f"There is no tool {name!r} any more.")

    def _connected(self, loan: _Loan) -> Sequence[Tools]:
        if loan.tools is None:
            loan.tools = []
            if loan.servers and self._group and self._clock:
                self._connect(loan, self._group, self._clock)
        return loan.tools

    def _connect(self, loan: _Loan, group: TaskGroup, clock: Clock) -> None:
        try:
            from keryx.agents import servers  # noqa: PLC0415 an optional extra, and slow to import
        except ImportError:
            loan.trouble = MISSING
            return
        taken: set[str] = set()
        assert loan.tools is not None
        for given in loan.servers:
            server = _configured(given, loan.cwd, taken)
            taken.add(server.name)
            loan.tools.append(servers.connect(server, group=group, clock=clock, logs=self._logs))


def _configured(given: Server, cwd: str, taken: set[str]) -> ToolServer:
    """A server of the editor as if it were configured, under a name of its own."""
    plain = _ODD.sub("-", given.name.lower()).strip("-")[:_LONGEST_NAME] or "server"
    name = next(n for n in (plain, *(f"{plain}-{i}" for i in range(2, 1000))) if n not in taken)
    return ToolServer(
        name=name,
        command=given.command,
        url=given.url,
        env={key: f"text:{value}" for key, value in given.env.items()},
        headers={key: f"text:{value}" for key, value in given.headers.items()},
        cwd=cwd if given.command and Path(cwd).is_dir() else "",
    )


def _end(loan: _Loan) -> None:
    for tools in loan.tools or ():
        tools.end()
