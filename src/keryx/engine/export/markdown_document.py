"""A session as a Markdown file. The text of messages is left as written."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import assert_never

from keryx.core.compaction import describe_notice, is_epoch_notice
from keryx.core.messages import Audio, File, Image, Notice, Part, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.core.records import MessageRecord, SessionRecord
from keryx.core.sessions import UNTITLED
from keryx.core.text import replace_unwritable, to_single_line

_TICKS = re.compile(r"`{3,}")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|])")
ROLE_NAMES = {Role.USER: "Person", Role.ASSISTANT: "Agent", Role.TOOL: "Tool", Role.NOTICE: "Notice"}

SessionMessages = tuple[SessionRecord, Iterable[MessageRecord]]


def render(told: Iterable[SessionMessages]) -> Iterator[str]:
    """The text of a file, in pieces."""
    for n, (session, messages) in enumerate(told):
        yield "\n---\n\n" if n else ""
        yield replace_unwritable(_render_header(session))
        epoch = 0
        for message in messages:
            if message.epoch != epoch:
                epoch = message.epoch
                yield replace_unwritable(_render_compaction(session, epoch))
            if not is_epoch_notice(message.parts):
                yield replace_unwritable(_render_message(message))


def format_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def list_marks(message: MessageRecord) -> list[str]:
    """What a person must know about a message beyond its text, in words."""
    found = [message.mark.value] if message.mark else []
    found += ["undone"] if message.undone else []
    found += ["overheard"] if message.observed else []
    return found


def list_facts(session: SessionRecord) -> list[tuple[str, str]]:
    """What is said about a session at its top, by name."""
    tokens = session.tokens
    spent = tokens.input + tokens.output + tokens.reasoning + tokens.cache_read + tokens.cache_write
    found = [
        ("Session", session.id),
        ("Started", format_time(session.created_at)),
        ("Last message", format_time(session.active_at)),
        ("Where", session.surface),
        ("Messages", f"{session.messages:,}"),
    ]
    if session.project:
        found.append(("Project", to_single_line(session.project.name)))
    if session.parent:
        found.append(("Forked from", f"{session.parent}, message {session.parent_seq}"))
    if session.settings.model:
        found.append(("Model", to_single_line(session.settings.model)))
    if spent:
        found.append(("Tokens", f"{spent:,}"))
    if session.cost is not None:
        found.append(("Cost", f"{session.cost / 1e6:.4f} ({session.cost_status})"))
    return found


def fence_code(text: str, language: str = "") -> str:
    """A code block that no text can close from within."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}\n\n"


def find_summary(session: SessionRecord, epoch: int) -> str:
    return next((e.summary for e in session.epochs if e.number == epoch), "")


def _render_header(session: SessionRecord) -> str:
    listed = "".join(f"- {name}: {_escape_markdown(value)}\n" for name, value in list_facts(session))
    return f"# {_escape_markdown(session.title or UNTITLED)}\n\n{listed}\n"


def _render_compaction(session: SessionRecord, epoch: int) -> str:
    text = find_summary(session, epoch)
    quoted = "".join(f"> {row}\n" for row in text.splitlines())
    return f"*What came before was compacted here (epoch {epoch}).*\n\n{quoted}\n"


def _render_message(message: MessageRecord) -> str:
    who = to_single_line(message.author) or ROLE_NAMES[message.role]
    extra = "".join(f", {mark}" for mark in list_marks(message))
    body = "".join(_render_part(part) for part in message.parts)
    return f"## {_escape_markdown(who)} · {format_time(message.at)}{extra}\n\n{body}"


def _render_part(part: Part) -> str:
    match part:
        case Text(text):
            return f"{text}\n\n"
        case Notice():
            return f"*{_escape_markdown(to_single_line(describe_notice(part)))}*\n\n"
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
