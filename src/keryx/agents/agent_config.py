"""Configuration of agents and of MCP tool servers, as written in keryx.toml."""

import hashlib
import re
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

import msgspec

from keryx import secrets
from keryx.agents.tools import Permission
from keryx.core.source import SourceRule

_AGENT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")
_SERVER_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}\Z")
_INVALID_TOOL_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_TOOL_NAME = 64


class AgentKind(StrEnum):
    ECHO = "echo"
    LLM = "llm"
    LOCAL = "local"
    PYTHON = "python"
    ACP = "acp"


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`command` is the program of an ACP agent with its arguments, `path` the `package.module:object` of one in Python.

    `rules` are the places where it answers unless a conversation has chosen another. `env` holds references (`env:NAME`, `file:PATH`, `text:VALUE`). `cwd` is the folder of every conversation; without it
    each works in the folder of its session, or in one of its own. `folders` are more folders it may use. `shared`: one
    process for all conversations. `login` names the way to log in. `files` and `terminal` are offered to it within
    its folders. After `stall` without a word people are told; a process is ended when it was `idle` for this long, or
    when there are more than `processes`."""

    kind: AgentKind
    command: tuple[str, ...] = ()
    path: str = ""
    model: str = ""
    mode: str = ""
    login: str = ""
    env: dict[str, str] = {}
    cwd: str = ""
    folders: tuple[str, ...] = ()
    shared: bool = False
    files: bool = True
    terminal: bool = True
    stall: timedelta = timedelta(minutes=2)
    idle: timedelta = timedelta(minutes=10)
    processes: int = 16
    rules: tuple[SourceRule, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.command) is not (self.kind is AgentKind.ACP):
            raise ValueError("give a command to an agent of the kind acp, and to no other")
        if bool(self.path) is not (self.kind is AgentKind.PYTHON):
            raise ValueError("give a path to an agent of the kind python, and to no other")
        for folder in (self.cwd, *self.folders):
            if folder and not Path(folder).expanduser().is_absolute():
                raise ValueError(f"the folder {folder!r} is not absolute: write it from the root, or from ~")
        for name, reference in self.env.items():
            secrets.check_reference(reference, name)


def check_agent_name(name: str) -> None:
    """Refuse a name that a chat command could not name. The kinds themselves are names of agents already."""
    if not _AGENT_NAME.match(name) or name in {k.value for k in AgentKind} or name in ("auto", "default"):
        raise ValueError(f"{name!r} is not a name for an agent: use lower-case letters, digits, - and _")


class ToolServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`command` is a program with its arguments, `url` the address of a streamable HTTP server: one of the two.

    `env` and `headers` hold references (`env:NAME`, `file:PATH`, `text:VALUE`). `policy` is for tools that no rule under
    [permissions] names; without it, those that only read are allowed and the others ask. `repeatable` names tools
    that may be run twice, besides those which say so themselves. `profiles` limits the server to some profiles.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    cwd: str = ""
    timeout: timedelta = timedelta(seconds=60)
    policy: Permission | None = None
    repeatable: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _SERVER_NAME.match(self.name):
            raise ValueError(f"{self.name!r} is not a name for tools: use lower-case letters, digits and -")
        if bool(self.command) is bool(self.url):
            raise ValueError(f"tools {self.name!r}: give either a command or a url")
        for name, reference in (*self.env.items(), *self.headers.items()):
            secrets.check_reference(reference, f"{name} of tools {self.name!r}")

    @property
    def address(self) -> str:
        """Where the server is, as it may be shown: without a query, a user name or a password."""
        if self.command:
            return self.command[0]
        return re.sub(r"//[^/@]*@", "//", self.url).partition("?")[0]

    def tool_name(self, tool: str, *, taken: frozenset[str] = frozenset()) -> str:
        """The name under which a model calls a tool of this server: `server_tool`, of letters that providers accept."""
        name = _INVALID_TOOL_NAME.sub("_", f"{self.name}_{tool}")
        if len(name) <= _LONGEST_TOOL_NAME and name not in taken:
            return name
        digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return f"{name[: _LONGEST_TOOL_NAME - 9]}_{digest}"
