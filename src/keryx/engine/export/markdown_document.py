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
    Text,
    ToolCall,
    ToolResult,
    read_part,
)
from keryx.core.records import MessageRecord, SessionRecord
from keryx.core.text import replace_unwritable, to_single_line
from keryx.core.texts import Texts

_TICKS = re.compile(r"`{3,}")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|])")

SessionMessages = tuple[SessionRecord, Iterable[MessageRecord]]


def render(sessions: Iterable[SessionMessages], texts: Texts) -> Iterator[str]:
    """Yield the text of a file in pieces."""
    for n, (session, messages) in enumerate(sessions):
        yield "\n---\n\n" if n else ""
        facts = "".join(
            f"- {name}: {_escape_markdown(value)}\n" for name, value in list_facts(session, texts)
        )
        yield replace_unwritable(
            f"# {_escape_markdown(session.title or texts.say('export.untitled'))}\n\n{facts}\n"
        )
        epoch = 0
        for message in messages:
            if message.epoch != epoch:
                epoch = message.epoch
                summary = "".join(f"> {row}\n" for row in find_summary(session, epoch).splitlines())
                yield replace_unwritable(
                    f"*{texts.say('export.compacted_epoch', number=epoch)}*\n\n{summary}\n"
                )
            if not is_epoch_notice(message.parts):
                author = to_single_line(message.author) or texts.say(f"export.{message.role}")
                marks = "".join(f", {mark}" for mark in list_marks(message, texts))
                body = "".join(_render_part(part, texts) for part in message.parts)
                heading = f"## {_escape_markdown(author)} · {format_time(message.at)}{marks}"
                yield replace_unwritable(f"{heading}\n\n{body}")


def format_time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def list_marks(message: MessageRecord, texts: Texts) -> list[str]:
    """Return what a reader must know about a message beyond its text."""
    marks = [texts.say(f"mark.{message.mark.value}")] if message.mark else []
    marks += [texts.say("export.undone")] if message.undone else []
    marks += [texts.say("export.overheard")] if message.observed else []
    return marks


def list_facts(session: SessionRecord, texts: Texts) -> list[tuple[str, str]]:
    """Return the facts about a session in its header, by name."""
    tokens = session.tokens
    spent = tokens.input + tokens.output + tokens.reasoning + tokens.cache_read + tokens.cache_write
    facts = [
        (texts.say("export.session"), session.id),
        (texts.say("export.started"), format_time(session.created_at)),
        (texts.say("export.last_message"), format_time(session.active_at)),
        (texts.say("export.where"), session.surface),
        (texts.say("export.messages"), texts.say("export.count", count=session.messages)),
    ]
    if session.project:
        facts.append((texts.say("export.project"), to_single_line(session.project.name)))
    if session.parent:
        origin = texts.say("export.parent", session=session.parent, seq=session.parent_seq or 0)
        facts.append((texts.say("export.forked"), origin))
    if session.settings.model:
        facts.append((texts.say("export.model"), to_single_line(session.settings.model)))
    if spent:
        facts.append((texts.say("export.tokens"), texts.say("export.count", count=spent)))
    if session.cost is not None:
        status = texts.say(f"export.cost_{session.cost_status}")
        cost = texts.say("export.cost_with_status", cost=session.cost / 1e6, status=status)
        facts.append((texts.say("export.cost"), cost))
    return facts


def fence_code(text: str, language: str = "") -> str:
    """Return a code block with a fence that the text cannot close."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}\n\n"


def find_summary(session: SessionRecord, epoch: int) -> str:
    return next((e.summary for e in session.epochs if e.number == epoch), "")


def _render_part(part: Part, texts: Texts) -> str:
    match part:
        case Text():
            return f"{read_part(part, texts)}\n\n"
        case Notice():
            return f"*{_escape_markdown(to_single_line(describe_notice(part, texts)))}*\n\n"
        case Image() | File():
            name = _escape_markdown(to_single_line(part.name or part.media))
            return f"*{texts.say('export.attached', name=name)}*\n\n"
        case Audio():
            name = _escape_markdown(to_single_line(part.name or part.media))
            return f"*{texts.say('export.audio', name=name)}*\n\n{part.transcript}\n\n"
        case ToolCall():
            title = texts.say("export.calls", tool=_escape_markdown(to_single_line(part.name)))
            return f"**{title}**\n\n{fence_code(part.input, 'json')}"
        case ToolResult():
            tool = _escape_markdown(to_single_line(part.name))
            title = texts.say("export.tool_failed" if part.failed else "export.tool_answered", tool=tool)
            return f"**{title}**\n\n{fence_code(part.output)}"
        case Reasoning():
            return f"*{texts.say('export.reasoning')}*\n\n{fence_code(part.text)}" if part.text else ""
        case _:
            assert_never(part)


def _escape_markdown(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
