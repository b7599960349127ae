"""Workspace: an editor's files and terminal as tools of an agent, all within the folder of the session."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from keryx.agents.tools import Permission, Spec, ToolFailed
from keryx.core.errors import KeryxError
from keryx.core.workspaces import Workspace

READ = "read_text_file"
WRITE = "write_text_file"
RUN = "run_in_terminal"

_PATH = {"type": "string", "description": "A path, absolute or from the working directory."}


class _Read(msgspec.Struct, frozen=True):
    path: str
    line: int | None = None
    limit: int | None = None


class _Write(msgspec.Struct, frozen=True):
    path: str
    content: str


class _Run(msgspec.Struct, frozen=True):
    command: str


def specs(workspace: Workspace) -> list[Spec]:
    """The tools that an editor offers: it is asked before a file is changed or a command is run."""
    found = (
        (workspace.reads, _spec(READ, "Read a text file, unsaved changes included.", _READ, reads=True)),
        (workspace.writes, _spec(WRITE, "Write the whole of a text file.", _WRITE)),
        (workspace.runs, _spec(RUN, "Run a shell command in the working directory.", _RUN)),
    )
    return [spec for offered, spec in found if offered]


async def call(workspace: Workspace, name: str, arguments: Mapping[str, Any], *, cwd: str) -> str:
    try:
        match name:
            case "read_text_file":
                asked = msgspec.convert(arguments, _Read)
                return await workspace.read(within(cwd, asked.path), line=asked.line, limit=asked.limit)
            case "write_text_file":
                given = msgspec.convert(arguments, _Write)
                await workspace.write(within(cwd, given.path), given.content)
                return f"Wrote {len(given.content)} characters."
            case _:
                return await workspace.run(msgspec.convert(arguments, _Run).command, cwd=cwd)
    except msgspec.ValidationError as exc:
        raise ToolFailed(f"The arguments are not right: {exc}.") from exc
    except ToolFailed:
        raise
    except KeryxError as exc:
        raise ToolFailed(f"{exc}.") from exc


def within(folder: str, path: str) -> str:
    """A path as an absolute one. `ToolFailed` if it leads out of the folder, by dots or by links."""
    root = Path(folder).resolve()
    wanted = Path(os.path.normpath(root / path))
    if not wanted.resolve().is_relative_to(root):
        raise ToolFailed(f"{path!r} is outside of {folder}: only files in there can be used.")
    return str(wanted)


def _spec(name: str, description: str, properties: Mapping[str, Any], *, reads: bool = False) -> Spec:
    required = [key for key in properties if key not in ("line", "limit")]
    return Spec(
        name=name,
        description=description,
        parameters={"type": "object", "properties": dict(properties), "required": required},
        repeatable=reads,
        permission=Permission.ALLOW if reads else Permission.ASK,
    )


_LINES = {
    "line": {"type": "integer", "description": "The first line, counted from 1."},
    "limit": {"type": "integer", "description": "How many lines."},
}
_READ = {"path": _PATH, **_LINES}
_WRITE = {"path": _PATH, "content": {"type": "string"}}
_RUN = {"command": {"type": "string", "description": "A line for the shell."}}


NAMES: Sequence[str] = (READ, WRITE, RUN)
