"""Conversations in a terminal: here stored messages as text with their marks; beside it live answers, the input line and the chat."""

import getpass
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.cells import cell_len

from keryx.cli import output
from keryx.core import compaction
from keryx.core.messages import (
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
    read_part,
)
from keryx.core.sessions import Session
from keryx.core.texts import Texts

if TYPE_CHECKING:
    from keryx.markdown.ansi import AnsiRenderer

_MARGIN = 2
_MAX_TOOL_COLUMNS = 100


def login_name() -> str:
    """Return the login name of the user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"


def format_heading(session: Session, texts: Texts) -> str:
    """Format a session: its title, id, surface and number of messages, on one line if the terminal has room."""
    name = output.sanitize(session.title, one_line=True) or texts.say("terminal.untitled")
    count = texts.say("session.messages", count=session.messages)
    facts = [session.id, session.surface, count]
    if session.end_reason:
        facts.append(texts.say("terminal.ended", reason=session.end_reason))
    about = " · ".join(facts)
    fits = not sys.stdout.isatty() or cell_len(f"{name} · {about}") <= output.screen_width()
    between = " · " if fits else "\n"
    return output.style_text(output.wrap(name), "bold") + output.style_text(
        between + output.wrap(about), "dim"
    )


def print_message(message: Message, texts: Texts) -> None:
    """Print a message: author and time, parts, marks. A user message follows an empty line."""
    if message.role is Role.USER:
        output.write("")
    speaker = output.style_text(
        format_speaker(message, texts), "name" if message.role is Role.USER else "bold"
    )
    output.write(speaker + output.style_text(f" · {output.format_time(message.at)} · #{message.seq}", "dim"))
    for part in message.parts:
        for line in _render_part(part, message.role, texts):
            output.write(output.indent(line, _MARGIN))
    for mark in format_marks(message, texts):
        for line in _render_mark(mark):
            output.write(output.indent(line, _MARGIN))


def build_renderer(*, margin: int = 0) -> "AnsiRenderer":
    """Return a renderer for the width of the terminal."""
    from keryx.markdown.ansi import AnsiRenderer  # noqa: PLC0415 the parser of Markdown takes long to load

    return AnsiRenderer(output.screen_width() - margin, colours=output.supports_colour(sys.stdout))


def _render_mark(mark: str) -> list[str]:
    """Return the lines of a mark, wrapped between words on a terminal."""
    if not sys.stdout.isatty():
        return [output.style_text(mark, "mark")]
    return build_renderer(margin=_MARGIN).wrap(mark, output.STYLES["mark"])


def _render_part(part: Part, role: Role, texts: Texts) -> list[str]:
    """Return the lines of a part: on a terminal, answers as Markdown, and other texts wrapped between words."""
    if not sys.stdout.isatty() or not isinstance(part, Text | Reasoning | Notice):
        return [line for line in (format_part(part, texts),) if line]
    renderer = build_renderer(margin=_MARGIN)
    if isinstance(part, Notice):
        return renderer.wrap(f"! {compaction.describe_notice(part, texts)}", output.STYLES["mark"])
    if isinstance(part, Text) and role is Role.ASSISTANT:
        return renderer.render(part.text)
    said = read_part(part, texts) if isinstance(part, Text) else part.text
    return renderer.wrap(said, output.STYLES["thought"] if isinstance(part, Reasoning) else "")


def format_parts(parts: tuple[Part, ...], texts: Texts) -> Iterator[str]:
    for part in parts:
        line = format_part(part, texts)
        if line:
            yield line


def format_part(part: Part, texts: Texts) -> str:
    """Format one part of a message; all but text and reasoning on one line."""
    match part:
        case Text():
            return output.sanitize(read_part(part, texts)).rstrip("\n")
        case Reasoning(text):
            return output.style_text(output.sanitize(text).rstrip("\n"), "thought")
        case ToolCall():
            return format_call(part)
        case ToolResult():
            return format_result(part, texts)
        case Notice():
            return output.style_text(f"! {output.sanitize(compaction.describe_notice(part, texts))}", "mark")
        case Image() | File() | Audio():
            kind = texts.say(f"kind.{type(part).__name__.lower()}")
            return output.style_text(f"[{kind} {part.name or part.mime or part.media}]", "dim")


def format_call(part: ToolCall) -> str:
    return output.style_text(output.truncate(f"⚙ {part.name} {part.input}", _tool_columns()), "dim")


def format_result(part: ToolResult, texts: Texts) -> str:
    failed = f"{texts.say('state.failed')}: " if part.failed else ""
    return "  " + output.style_text(output.truncate(f"↳ {failed}{part.output}", _tool_columns()), "dim")


def format_marks(message: Message, texts: Texts) -> Iterator[str]:
    if message.mark:
        yield f"[{texts.say(f'mark.{message.mark.value}')}]"
    if message.undone:
        yield f"[{texts.say('mark.undone')}]"
    if message.observed:
        yield f"[{texts.say('mark.observed')}]"


def format_speaker(message: Message, texts: Texts) -> str:
    """Return the speaker: the user by name and surface, the agent, a tool, or Keryx itself."""
    match message.role:
        case Role.USER:
            name = output.sanitize(message.author, one_line=True) or texts.say("speaker.person")
            if message.surface in ("", "cli"):
                return name
            return texts.say("speaker.via", name=name, surface=message.surface)
        case Role.ASSISTANT:
            return texts.say("speaker.agent")
        case Role.TOOL:
            return texts.say("speaker.tool")
        case Role.NOTICE:
            return texts.say("speaker.keryx")


def _tool_columns() -> int:
    return min(_MAX_TOOL_COLUMNS, output.terminal_width() - 4)
