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
from keryx.core.turns import Count

_AGENT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")
_SERVER_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}\Z")
_INVALID_TOOL_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_TOOL_NAME = 64
_ADAPTERS = {"claude-agent-acp": "claude-code", "claude-code-acp": "claude-code", "codex-acp": "codex"}
# Not Gemini CLI: it deletes sessions that its own agent has opened.
_PROGRAMS = frozenset({"opencode", "goose", "qwen"})
# Those that refuse to open a session that another process has opened, until a minute after it was closed.
_LOCKING_PROGRAMS = frozenset({"codex"})


class AgentKind(StrEnum):
    ECHO = "echo"
    LLM = "llm"
    LOCAL = "local"
    PYTHON = "python"
    ACP = "acp"


class Isolation(StrEnum):
    PROCESS = "process"
    THREAD = "thread"


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: AgentKind
    # The program of an ACP agent with its arguments.
    command: tuple[str, ...] = ()
    # The `package.module:object` of a Python agent.
    path: str = ""
    # Where a Python agent runs: in a process of its own, or in a thread of the hub. A thread needs less memory, but what
    # computes for long there slows all conversations, and what crashes ends the hub.
    isolation: Isolation = Isolation.PROCESS
    model: str = ""
    mode: str = ""
    # The id of the login method to use.
    login: str = ""
    # References: `env:NAME`, `file:PATH` or `text:VALUE`.
    env: dict[str, str] = {}
    # The folder of every conversation. Without it each has the folder of its session, or its own.
    cwd: str = ""
    # More folders that it may use.
    folders: tuple[str, ...] = ()
    # One process serves all conversations.
    shared: bool = False
    # Whether it may read and write files, and run commands, within its folders.
    files: bool = True
    terminal: bool = True
    # The user is warned after this long without a message.
    stall: timedelta = timedelta(minutes=2)
    # A process is stopped when it was idle for this long, or when more than `processes` run.
    idle: timedelta = timedelta(minutes=10)
    processes: Count = 16
    # The program whose conversations it continues, such as claude-code. By default the command tells.
    continues: str = ""
    # Where it answers, unless a conversation has chosen another agent.
    rules: tuple[SourceRule, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.command) is not (self.kind is AgentKind.ACP):
            raise ValueError("give a command to an agent of the kind acp, and to no other")
        if bool(self.path) is not (self.kind is AgentKind.PYTHON):
            raise ValueError("give a path to an agent of the kind python, and to no other")
        for name, folder in (("cwd", self.cwd), *(("folders", folder) for folder in self.folders)):
            if folder and not Path(folder).expanduser().is_absolute():
                raise ValueError(f"{name}: the folder {folder!r} is not absolute; write it from / or from ~")
        for name, reference in self.env.items():
            secrets.check_reference(reference, f"env.{name}")

    @property
    def program(self) -> str:
        """The program whose sessions the agent opens, empty if none is known."""
        if self.continues or self.kind is not AgentKind.ACP:
            return self.continues
        names = [Path(word).name.partition("@")[0] or Path(word).name for word in self.command]
        adapter = next((_ADAPTERS[name] for name in names if name in _ADAPTERS), "")
        # These speak the protocol themselves if they are told to.
        own = names[0] if names[0] in _PROGRAMS and any("acp" in word for word in self.command[1:]) else ""
        return adapter or own

    @property
    def locks_sessions(self) -> bool:
        """Whether only one process may have a session open, and must end before another one may."""
        return self.program in _LOCKING_PROGRAMS


def check_agent_name(name: str) -> None:
    """Raise `ValueError` for a name that a chat command cannot use. The kinds are names of agents already."""
    if not _AGENT_NAME.match(name) or name in {k.value for k in AgentKind} or name in ("auto", "default"):
        raise ValueError(f"{name!r} is not a name for an agent: use lower-case letters, digits, - and _")


class ToolServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    # Either a program with its arguments, or the address of a streamable HTTP server.
    command: tuple[str, ...] = ()
    url: str = ""
    # References: `env:NAME`, `file:PATH` or `text:VALUE`.
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    cwd: str = ""
    timeout: timedelta = timedelta(seconds=60)
    # For tools without a rule under [permissions]. By default read-only tools are allowed, and others ask.
    policy: Permission | None = None
    # Tools that may be run twice, besides those that declare it.
    repeatable: tuple[str, ...] = ()
    # Its tools need the ids of chats, people and messages, so the model sees them.
    ids: bool = False
    # Limits the server to some profiles.
    profiles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _SERVER_NAME.match(self.name):
            raise ValueError(
                f"name: {self.name!r} is not a name for tools; use lower-case letters, digits and -"
            )
        if bool(self.command) is bool(self.url):
            raise ValueError("give either a command or a url")
        for table, references in (("env", self.env), ("headers", self.headers)):
            for name, reference in references.items():
                secrets.check_reference(reference, f"{table}.{name}")

    @property
    def address(self) -> str:
        """The program or the address without query, user name and password, so that it can be shown."""
        if self.command:
            return self.command[0]
        return re.sub(r"//[^/@]*@", "//", self.url).partition("?")[0]

    def tool_name(self, tool: str, *, taken: frozenset[str] = frozenset()) -> str:
        """Return the name of a tool for the model: `server_tool`, with characters that providers accept."""
        name = _INVALID_TOOL_NAME.sub("_", f"{self.name}_{tool}")
        if len(name) <= _LONGEST_TOOL_NAME and name not in taken:
            return name
        digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return f"{name[: _LONGEST_TOOL_NAME - 9]}_{digest}"
