"""Transcript: stored messages as a person reads them, with every mark."""

import getpass
from collections.abc import Iterator

from keryx.cli import output
from keryx.core import compaction
from keryx.core.messages import (
    Audio,
    File,
    Image,
    Mark,
    Message,
    Notice,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from keryx.core.sessions import Session

_MARKS = {
    Mark.INTERRUPTED: "interrupted: the process was gone before the end",
    Mark.CANCELLED: "stopped",
    Mark.FAILED: "failed before the end",
    Mark.LATE: "came too late, not sent",
    Mark.EDITED: "edited afterwards",
}
_TOOL_LINE = 100


def login() -> str:
    """The name of the person at this terminal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"


def heading(session: Session) -> str:
    """A session on one line: what it is called, where it began, how much it holds."""
    name = output.styled(output.plain(session.title, one_line=True) or "untitled", "bold")
    ended = f" · ended ({session.end_reason})" if session.end_reason else ""
    facts = f" · {session.id} · {session.surface} · {count(session.messages, 'message')}{ended}"
    return name + output.styled(facts, "dim")


def show(message: Message) -> None:
    """Print a message: who and when, then what, then its marks. Each question stands apart from what was before."""
    if message.role is Role.USER:
        output.write("")
    output.write(_header(message))
    for line in body(message.parts):
        output.write(output.indented(line, 2))
    for mark in marks(message):
        output.write(output.indented(output.styled(mark, "mark"), 2))


def body(parts: tuple[Part, ...]) -> Iterator[str]:
    for part in parts:
        line = piece(part)
        if line:
            yield line


def piece(part: Part) -> str:
    """One part of a message; everything but text stands on one line."""
    match part:
        case Text(text):
            return output.plain(text).rstrip("\n")
        case Reasoning(text):
            return output.styled(output.plain(text).rstrip("\n"), "thought")
        case ToolCall():
            return call(part)
        case ToolResult():
            return result(part)
        case Notice():
            return output.styled(f"! {output.plain(compaction.shown(part))}", "mark")
        case Image() | File() | Audio():
            return output.styled(
                f"[{type(part).__name__.lower()} {part.name or part.mime or part.media}]", "dim"
            )


def call(part: ToolCall) -> str:
    return output.styled(output.cut(f"⚙ {part.name} {part.input}", _line()), "dim")


def result(part: ToolResult) -> str:
    failed = "failed: " if part.failed else ""
    return "  " + output.styled(output.cut(f"↳ {failed}{part.output}", _line()), "dim")


def marks(message: Message) -> Iterator[str]:
    if message.mark:
        yield f"[{_MARKS[message.mark]}]"
    if message.undone:
        yield "[undone]"
    if message.observed:
        yield "[only heard: nobody asked for an answer]"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def speaker(message: Message) -> str:
    """Who speaks: the person by name and place, the agent, a tool, or Keryx itself."""
    match message.role:
        case Role.USER:
            name = output.plain(message.author, one_line=True) or "person"
            return f"{name} via {message.surface}" if message.surface not in ("", "cli") else name
        case Role.ASSISTANT:
            return "agent"
        case Role.TOOL:
            return "tool"
        case Role.NOTICE:
            return "keryx"


def _header(message: Message) -> str:
    who = output.styled(speaker(message), "name" if message.role is Role.USER else "bold")
    return who + output.styled(f" · {output.when(message.at)} · #{message.seq}", "dim")


def _line() -> int:
    return min(_TOOL_LINE, output.width() - 4)
