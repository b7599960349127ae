"""An agent as it is configured: what kind it is, and for an outside program how it is started and what it may do."""

import re
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

import msgspec

from keryx import secrets
from keryx.core.profiles import Where

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")


class Kind(StrEnum):
    ECHO = "echo"
    LLM = "llm"
    LOCAL = "local"
    PYTHON = "python"
    ACP = "acp"


class Configured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`command` is the program of an ACP agent with its arguments, `path` the `package.module:object` of one in Python.

    `rules` are the places where it answers unless a conversation has chosen another. `env` holds references (`env:NAME`, `file:PATH`, `text:VALUE`). `cwd` is the folder of every conversation; without it
    each works in the folder of its session, or in one of its own. `folders` are more folders it may use. `shared`: one
    process for all conversations. `login` names the way to log in. `files` and `terminal` are offered to it within
    its folders. After `stall` without a word people are told; a process is ended when it was `idle` for this long, or
    when there are more than `processes`."""

    kind: Kind
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
    rules: tuple[Where, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.command) is not (self.kind is Kind.ACP):
            raise ValueError("give a command to an agent of the kind acp, and to no other")
        if bool(self.path) is not (self.kind is Kind.PYTHON):
            raise ValueError("give a path to an agent of the kind python, and to no other")
        for folder in (self.cwd, *self.folders):
            if folder and not Path(folder).expanduser().is_absolute():
                raise ValueError(f"the folder {folder!r} is not absolute: write it from the root, or from ~")
        for name, reference in self.env.items():
            secrets.check(reference, name)


def check_name(name: str) -> None:
    """Refuse a name that a chat command could not name. The kinds themselves are names of agents already."""
    if not _NAME.match(name) or name in {k.value for k in Kind} or name in ("auto", "default"):
        raise ValueError(f"{name!r} is not a name for an agent: use lower-case letters, digits, - and _")
