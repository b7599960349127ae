"""A tool server as it is configured: a program that speaks MCP on its standard streams, or an address."""

import hashlib
import re
from datetime import timedelta

import msgspec

from keryx import secrets
from keryx.agents.tools import Permission

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}\Z")
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


class ToolServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
        if not _NAME.match(self.name):
            raise ValueError(f"{self.name!r} is not a name for tools: use lower-case letters, digits and -")
        if bool(self.command) is bool(self.url):
            raise ValueError(f"tools {self.name!r}: give either a command or a url")
        for name, reference in (*self.env.items(), *self.headers.items()):
            secrets.check(reference, f"{name} of tools {self.name!r}")

    @property
    def place(self) -> str:
        """Where the server is, as it may be shown: without a query, a user name or a password."""
        if self.command:
            return self.command[0]
        return re.sub(r"//[^/@]*@", "//", self.url).partition("?")[0]

    def tool_name(self, tool: str, *, taken: frozenset[str] = frozenset()) -> str:
        """The name under which a model calls a tool of this server: `server_tool`, of letters that providers accept."""
        name = _ODD.sub("_", f"{self.name}_{tool}")
        if len(name) <= _LONGEST_NAME and name not in taken:
            return name
        digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return f"{name[: _LONGEST_NAME - 9]}_{digest}"
