"""Readers of the conversations of other programs, one module for each. A reader turns files into values, and neither writes
nor runs anything."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from keryx.core.errors import Invalid, NotFound
from keryx.importers import (
    chatgpt,
    claude_ai,
    claude_code,
    codex,
    gemini,
    goose,
    hermes,
    hermes_webui,
    librechat,
    open_webui,
    openclaw,
    opencode,
    pi,
    qwen,
)
from keryx.importers.conversation import ForeignSession, ImportLog


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program whose conversations can be imported."""

    name: str
    title: str
    # Returns the folders that it keeps its conversations in by default, from the home folder and the environment.
    find_places: Callable[[Path, dict[str, str]], list[Path]]
    read: Callable[[Path, ImportLog], Iterator[ForeignSession]]
    # Programs with the same key share their sessions: what both have is imported once.
    key: str


_MODULES = (
    (hermes, "Hermes Agent", hermes.NAME),
    (hermes_webui, "hermes-webui", hermes.NAME),
    (openclaw, "OpenClaw", openclaw.NAME),
    (claude_code, "Claude Code", claude_code.NAME),
    (codex, "Codex", codex.NAME),
    (opencode, "opencode", opencode.NAME),
    (goose, "goose", goose.NAME),
    (gemini, "Gemini CLI", gemini.NAME),
    (qwen, "Qwen Code", qwen.NAME),
    (pi, "pi", pi.NAME),
    (open_webui, "Open WebUI", open_webui.NAME),
    (librechat, "LibreChat", librechat.NAME),
    (chatgpt, "ChatGPT", chatgpt.NAME),
    (claude_ai, "Claude.ai", claude_ai.NAME),
)
PROGRAMS: Mapping[str, Program] = {
    module.NAME: Program(
        name=module.NAME, title=title, find_places=module.find_places, read=module.read, key=key
    )
    for module, title, key in _MODULES
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
