"""Workspaces: what an editor lends to the agent of its turns: its files, its terminal, and the tool servers it names."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from keryx.core.ids import SessionId


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A tool server that an editor named: a program with its arguments, or an address. `env` and `headers` hold values,
    so it lives in memory only."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}


class Workspace(Protocol):
    """Paths are absolute. Errors of Keryx say why something could not be done."""

    @property
    def reads(self) -> bool: ...

    @property
    def writes(self) -> bool: ...

    @property
    def runs(self) -> bool: ...

    async def read(self, path: str, *, line: int | None = None, limit: int | None = None) -> str:
        """The text of a file as the editor has it, unsaved changes included. Lines count from 1."""
        ...

    async def write(self, path: str, content: str) -> None: ...

    async def run(self, command: str, *, cwd: str) -> str:
        """Run a shell command in the editor's terminal to its end; gives its output and how it ended."""
        ...


class Lender(Protocol):
    """Where workspaces are left for agents. What is lent to a session is there for every model it may choose."""

    def lend(self, session: SessionId, workspace: Workspace, servers: Sequence[Server], *, cwd: str) -> None:
        """Lend to a session, in place of what was lent to it before."""
        ...

    def withdraw(self, session: SessionId) -> None: ...
