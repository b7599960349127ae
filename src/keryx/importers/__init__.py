"""Readers of the conversations of other programs, one module for each. A reader turns files into values, and neither writes
nor runs anything."""

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

import msgspec

from keryx.core.errors import Invalid, NotFound
from keryx.importers.conversation import ForeignSession, ImportLog


class _Reader(Protocol):
    """The module of a program."""

    def find_places(self, home: Path, env: dict[str, str]) -> list[Path]: ...

    def read(self, path: Path, log: ImportLog) -> Iterator[ForeignSession]: ...


class Program(msgspec.Struct, frozen=True):
    """A program whose conversations can be imported. Its module is loaded when it is used: a server rarely needs one."""

    name: str
    title: str
    # Programs with the same key share their sessions: what both have is imported once.
    key: str

    def find_places(self, home: Path, env: dict[str, str]) -> list[Path]:
        """Return the folders that it keeps its conversations in by default, from the home folder and the environment."""
        return self._load().find_places(home, env)

    def read(self, path: Path, log: ImportLog) -> Iterator[ForeignSession]:
        """Yield the conversations of a source. It may be a symbolic link itself; links in it are not followed."""
        return self._load().read(Path(os.path.realpath(path)), log)

    def _load(self) -> _Reader:
        return cast(_Reader, import_module(f"{__name__}.{self.name.replace('-', '_')}"))


PROGRAMS: Mapping[str, Program] = {
    name: Program(name, title, key)
    for name, title, key in (
        ("hermes", "Hermes Agent", "hermes"),
        ("hermes-webui", "hermes-webui", "hermes"),
        ("openclaw", "OpenClaw", "openclaw"),
        ("claude-code", "Claude Code", "claude-code"),
        ("codex", "Codex", "codex"),
        ("opencode", "opencode", "opencode"),
        ("goose", "goose", "goose"),
        ("gemini", "Gemini CLI", "gemini"),
        ("qwen", "Qwen Code", "qwen"),
        ("pi", "pi", "pi"),
        ("open-webui", "Open WebUI", "open-webui"),
        ("librechat", "LibreChat", "librechat"),
        ("chatgpt", "ChatGPT", "chatgpt"),
        ("claude-ai", "Claude.ai", "claude-ai"),
    )
}


def find_program(name: str) -> Program:
    """Return a program by name. Raise `NotFound` with the list for an unknown one."""
    if name not in PROGRAMS:
        raise NotFound(f"there is no importer for {name[:80]!r}: choose one of {', '.join(PROGRAMS)}")
    return PROGRAMS[name]


def find_source(program: Program, path: str, *, home: Path, env: Mapping[str, str]) -> Path:
    """Return the source that a user named, or the first default place of a program that exists. Raise `Invalid` if there is
    none."""
    if path:
        named = Path(path).expanduser()
        if not named.exists():
            raise Invalid(f"{named} does not exist: give the file or folder of {program.title}")
        return named
    places = program.find_places(home, dict(env))
    if found := next((place for place in places if place.exists()), None):
        return found
    if not places:
        raise Invalid(f"{program.title} has no place of its own: give the file or folder of the export")
    looked = " or ".join(map(str, places))
    raise Invalid(f"there is nothing of {program.title} at {looked}: give the file or folder")
