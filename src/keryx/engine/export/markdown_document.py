"""A session as a Markdown file. The text of messages is left as written."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import assert_never

from keryx.core.compaction import describe_notice, is_epoch_notice
from keryx.core.messages import (
    Audio,
    File,
    Image,
    Notice,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from keryx.core.records import MessageRecord, SessionRecord
from keryx.core.sessions import UNTITLED
from keryx.core.text import replace_unwritable, to_single_line
from keryx.core.texts import ENGLISH

_TICKS = re.compile(r"`{3,}")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|])")
ROLE_NAMES = {Role.USER: "Person", Role.ASSISTANT: "Agent", Role.TOOL: "Tool", Role.NOTICE: "Notice"}

SessionMessages = tuple[SessionRecord, Iterable[MessageRecord]]


def render(sessions: Iterable[SessionMessages]) -> Iterator[str]:
    """Yield the text of a file in pieces."""
    for n, (session, messages) in enumerate(sessions):
        yield "\n---\n\n" if n else ""
        facts = "".join(f"- {name}: {_escape_markdown(value)}\n" for name, value in list_facts(session))
        yield replace_unwritable(f"# {_escape_markdown(session.title or UNTITLED)}\n\n{facts}\n")
        epoch = 0
        for message in messages:
            if message.epoch != epoch:
                epoch = message.epoch
                summary = "".join(f"> {row}\n" for row in find_summary(session, epoch).splitlines())
                yield replace_unwritable(
                    f"*What came before was compacted here (epoch {epoch}).*\n\n{summary}\n"
                )
            if not is_epoch_notice(message.parts):
                author = to_single_line(message.author) or ROLE_NAMES[message.role]
                marks = "".join(f", {mark}" for mark in list_marks(message))
                body = "".join(_render_part(part) for part in message.parts)
                heading = f"## {_escape_markdown(author)} · {format_time(message.at)}{marks}"
                yield replace_unwritable(f"{heading}\n\n{body}")


def format_time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def list_marks(message: MessageRecord) -> list[str]:
    """Return what a reader must know about a message beyond its text."""
    marks = [ENGLISH.say(f"mark.{message.mark.value}")] if message.mark else []
    marks += ["undone"] if message.undone else []
    marks += ["overheard"] if message.observed else []
    return marks


def list_facts(session: SessionRecord) -> list[tuple[str, str]]:
    """Return the facts about a session in its header, by name."""
    tokens = session.tokens
    spent = tokens.input + tokens.output + tokens.reasoning + tokens.cache_read + tokens.cache_write
    facts = [
        ("Session", session.id),
        ("Started", format_time(session.created_at)),
        ("Last message", format_time(session.active_at)),
        ("Where", session.surface),
        ("Messages", f"{session.messages:,}"),
    ]
    if session.project:
        facts.append(("Project", to_single_line(session.project.name)))
    if session.parent:
        facts.append(("Forked from", f"{session.parent}, message {session.parent_seq}"))
    if session.settings.model:
        facts.append(("Model", to_single_line(session.settings.model)))
    if spent:
        facts.append(("Tokens", f"{spent:,}"))
    if session.cost is not None:
        facts.append(("Cost", f"{session.cost / 1e6:.4f} ({session.cost_status})"))
    return facts


def fence_code(text: str, language: str = "") -> str:
    """Return a code block with a fence that the text cannot close."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}\n\n"


def find_summary(session: SessionRecord, epoch: int) -> str:
    return next((e.summary for e in session.epochs if e.number == epoch), "")


def _render_part(part: Part) -> str:
    match part:
        case Text(text):
            return f"{text}\n\n"
        case Notice():
            return f"*{_escape_markdown(to_single_line(describe_notice(part, ENGLISH)))}*\n\n"
        case Image() | File():
            return f"*Attached: {_escape_markdown(to_single_line(part.name or part.media))}*\n\n"
        case Audio():
            return f"*Audio: {_escape_markdown(to_single_line(part.name or part.media))}*\n\n{part.transcript}\n\n"
        case ToolCall():
            return (
                f"**Calls {_escape_markdown(to_single_line(part.name))}**\n\n{fence_code(part.input, 'json')}"
            )
        case ToolResult():
            verb = "failed" if part.failed else "answered"
            return f"**{_escape_markdown(to_single_line(part.name))} {verb}**\n\n{fence_code(part.output)}"
        case Reasoning():
            return "*Reasoning*\n\n" + fence_code(part.text) if part.text else ""
        case _:
            assert_never(part)


def _escape_markdown(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
