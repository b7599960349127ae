"""Conversations in a terminal: here stored messages as text with their marks; beside it live answers, the input line and the chat."""

import getpass
from collections.abc import Iterator

from keryx.cli import output
from keryx.core import compaction
from keryx.core.messages import (
    MARK_TEXTS,
    Audio,
    File,
    Image,
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

_MAX_TOOL_COLUMNS = 100


def login_name() -> str:
    """Return the login name of the user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"


def format_heading(session: Session) -> str:
    """Format a session on one line: its title, id, surface and number of messages."""
    name = output.style_text(output.sanitize(session.title, one_line=True) or "untitled", "bold")
    ended = f" · ended ({session.end_reason})" if session.end_reason else ""
    facts = f" · {session.id} · {session.surface} · {output.format_count(session.messages, 'message')}{ended}"
    return name + output.style_text(facts, "dim")


def print_message(message: Message) -> None:
    """Print a message: author and time, parts, marks. A user message follows an empty line."""
    if message.role is Role.USER:
        output.write("")
    speaker = output.style_text(format_speaker(message), "name" if message.role is Role.USER else "bold")
    output.write(speaker + output.style_text(f" · {output.format_time(message.at)} · #{message.seq}", "dim"))
    for line in format_parts(message.parts):
        output.write(output.indent(line, 2))
    for mark in format_marks(message):
        output.write(output.indent(output.style_text(mark, "mark"), 2))


def format_parts(parts: tuple[Part, ...]) -> Iterator[str]:
    for part in parts:
        line = format_part(part)
        if line:
            yield line


def format_part(part: Part) -> str:
    """Format one part of a message; all but text and reasoning on one line."""
    match part:
        case Text(text):
            return output.sanitize(text).rstrip("\n")
        case Reasoning(text):
            return output.style_text(output.sanitize(text).rstrip("\n"), "thought")
        case ToolCall():
            return format_call(part)
        case ToolResult():
            return format_result(part)
        case Notice():
            return output.style_text(f"! {output.sanitize(compaction.describe_notice(part))}", "mark")
        case Image() | File() | Audio():
            return output.style_text(
                f"[{type(part).__name__.lower()} {part.name or part.mime or part.media}]", "dim"
            )


def format_call(part: ToolCall) -> str:
    return output.style_text(output.truncate(f"⚙ {part.name} {part.input}", _tool_columns()), "dim")


def format_result(part: ToolResult) -> str:
    failed = "failed: " if part.failed else ""
    return "  " + output.style_text(output.truncate(f"↳ {failed}{part.output}", _tool_columns()), "dim")


def format_marks(message: Message) -> Iterator[str]:
    if message.mark:
        yield f"[{MARK_TEXTS[message.mark]}]"
    if message.undone:
        yield "[undone]"
    if message.observed:
        yield "[only heard: nobody asked for an answer]"


def format_speaker(message: Message) -> str:
    """Return the speaker: the user by name and surface, the agent, a tool, or Keryx itself."""
    match message.role:
        case Role.USER:
            name = output.sanitize(message.author, one_line=True) or "person"
            return f"{name} via {message.surface}" if message.surface not in ("", "cli") else name
        case Role.ASSISTANT:
            return "agent"
        case Role.TOOL:
            return "tool"
        case Role.NOTICE:
            return "keryx"


def _tool_columns() -> int:
    return min(_MAX_TOOL_COLUMNS, output.terminal_width() - 4)
