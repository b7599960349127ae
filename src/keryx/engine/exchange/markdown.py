"""Markdown: a conversation as a person reads it, in a plain file. The text of messages is left as it was written."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import assert_never

from keryx.core.compaction import shown, shows_epoch
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
from keryx.core.titles import UNTITLED, line

_TICKS = re.compile(r"`{3,}")
_UNWRITABLE = re.compile("[\ud800-\udfff]")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|])")
NAMES = {Role.USER: "Person", Role.ASSISTANT: "Agent", Role.TOOL: "Tool", Role.NOTICE: "Notice"}

Told = tuple[SessionRecord, Iterable[MessageRecord]]


def document(told: Iterable[Told]) -> Iterator[str]:
    """The text of a file, in pieces."""
    for n, (session, messages) in enumerate(told):
        yield "\n---\n\n" if n else ""
        yield writable(_opening(session))
        epoch = 0
        for message in messages:
            if message.epoch != epoch:
                epoch = message.epoch
                yield writable(_compaction(session, epoch))
            if not shows_epoch(message.parts):
                yield writable(_message(message))


def when(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def marks(message: MessageRecord) -> list[str]:
    """What a person must know about a message beyond its text, in words."""
    found = [message.mark.value] if message.mark else []
    found += ["undone"] if message.undone else []
    found += ["overheard"] if message.observed else []
    return found


def facts(session: SessionRecord) -> list[tuple[str, str]]:
    """What is said about a session at its top, by name."""
    tokens = session.tokens
    spent = tokens.input + tokens.output + tokens.reasoning + tokens.cache_read + tokens.cache_write
    found = [
        ("Session", session.id),
        ("Started", when(session.created_at)),
        ("Last message", when(session.active_at)),
        ("Where", session.surface),
        ("Messages", f"{session.messages:,}"),
    ]
    if session.project:
        found.append(("Project", line(session.project.name)))
    if session.parent:
        found.append(("Forked from", f"{session.parent}, message {session.parent_seq}"))
    if session.settings.model:
        found.append(("Model", line(session.settings.model)))
    if spent:
        found.append(("Tokens", f"{spent:,}"))
    if session.cost is not None:
        found.append(("Cost", f"{session.cost / 1e6:.4f} ({session.cost_status})"))
    return found


def fenced(text: str, language: str = "") -> str:
    """A code block that no text can close from within."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}\n\n"


def writable(text: str) -> str:
    """Text that can be written as UTF-8: half an emoji becomes a replacement character, NUL its symbol."""
    return _UNWRITABLE.sub("\ufffd", text).replace("\0", "\u2400")


def summary(session: SessionRecord, epoch: int) -> str:
    return next((e.summary for e in session.epochs if e.number == epoch), "")


def _opening(session: SessionRecord) -> str:
    listed = "".join(f"- {name}: {_plain(value)}\n" for name, value in facts(session))
    return f"# {_plain(session.title or UNTITLED)}\n\n{listed}\n"


def _compaction(session: SessionRecord, epoch: int) -> str:
    text = summary(session, epoch)
    quoted = "".join(f"> {row}\n" for row in text.splitlines())
    return f"*What came before was compacted here (epoch {epoch}).*\n\n{quoted}\n"


def _message(message: MessageRecord) -> str:
    who = line(message.author) or NAMES[message.role]
    extra = "".join(f", {mark}" for mark in marks(message))
    body = "".join(_part(part) for part in message.parts)
    return f"## {_plain(who)} · {when(message.at)}{extra}\n\n{body}"


def _part(part: Part) -> str:
    match part:
        case Text(text):
            return f"{text}\n\n"
        case Notice():
            return f"*{_plain(line(shown(part)))}*\n\n"
        case Image() | File():
            return f"*Attached: {_plain(line(part.name or part.media))}*\n\n"
        case Audio():
            return f"*Audio: {_plain(line(part.name or part.media))}*\n\n{part.transcript}\n\n"
        case ToolCall():
            return f"**Calls {_plain(line(part.name))}**\n\n{fenced(part.input, 'json')}"
        case ToolResult():
            verb = "failed" if part.failed else "answered"
            return f"**{_plain(line(part.name))} {verb}**\n\n{fenced(part.output)}"
        case Reasoning():
            return "*Reasoning*\n\n" + fenced(part.text) if part.text else ""
        case _:
            assert_never(part)


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
