"""Entries: what a search index keeps of a message or a title, made the same way for every index."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import assert_never
from urllib.parse import quote

from keryx.core import wire
from keryx.core.errors import Invalid
from keryx.core.ids import SessionId
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
)
from keryx.core.query import Filters, Has, Is
from keryx.core.sessions import Session, Viewer
from keryx.core.tokens import Document
from keryx.core.tokens import document as cut

_SLICE = 50_000
# Nothing that is cut, folded or composed reaches over such a blank.
_BORDER = re.compile(r"[ \t\r\n](?=[A-Za-z0-9])")
_LONGEST_TAG = 100
_LINK = re.compile(r"https?://", re.IGNORECASE)
# Earlier and later times are tagged like these.
_FIRST = date(2015, 1, 1)
_LAST = date(2045, 12, 31)
_ROLES = {Is.USER: Role.USER, Is.ASSISTANT: Role.ASSISTANT, Is.TOOL: Role.TOOL, Is.SYSTEM: Role.NOTICE}


@dataclass(frozen=True, slots=True)
class Entry:
    """`id` is the number of the message's row, and `None` for a title. `tags` never change in its life,
    each is one token of printable ASCII without blanks and quotes."""

    id: int | None
    session: SessionId
    tags: list[str]
    words: list[str]
    marks: list[str]


def of_message(id: int, message: Message, session: Session) -> Entry:
    searched = text(message)
    found = document(searched)
    return Entry(id, session.id, _message_tags(message, session, searched), found.words, found.marks)


def of_title(session: Session) -> Entry:
    found = document(session.title)
    return Entry(None, session.id, [*_session_tags(session), *_surfaces(session.surface, session)], found.words, found.marks)  # fmt: skip


def text(message: Message) -> str:
    """All that is searched of a message: what was said, names of files, transcripts, tool input and output."""
    return "\n".join(filter(None, map(_text, message.parts)))


def document(text: str) -> Document:
    """As the one tokenizer cuts it, but in slices, so that a huge text does not keep other threads waiting."""
    if len(text) <= _SLICE:
        return cut(text)
    words: list[str] = []
    marks: dict[str, None] = {}
    for piece in _slices(text):
        found = cut(piece)
        words += found.words
        marks.update(dict.fromkeys(found.marks))
    return Document(words, list(marks))


def wanted(viewer: Viewer, filters: Filters) -> list[list[str]]:
    """The tags that an entry must have: of each list at least one."""
    groups = [[_tag("profile", viewer.profile)]]
    if viewer.owner is not None:
        groups.append([_tag("owner", viewer.owner)])
    for kind, values in (("from", filters.sender), ("tool", filters.tool), ("surface", filters.surface)):
        if values:
            groups.append([_tag(kind, value) for value in dict.fromkeys(values)])
    groups += [[_tag("role", _ROLES[fact])] for fact in filters.is_ if fact in _ROLES]
    groups += [[_tag("has", thing)] for thing in filters.has]
    return groups


def within(after: datetime | None, before: datetime | None) -> list[str]:
    """The tags of a stretch of time, which may reach a little further. Its ends are compared exactly elsewhere."""
    first = _day(after).isoformat() if after else ""
    last = _day(before).isoformat() if before else "9"
    ends = [end for end in (first, last) if len(end) > 1]
    years = [f"{year}" for year in range(_FIRST.year, _LAST.year + 1)]
    months = [f"{year}-{n:02}" for year in {end[:4] for end in ends} for n in range(1, 13)]
    days = [f"{month}-{n:02}" for month in {end[:7] for end in ends} for n in range(1, 32)]
    inner = [year for year in years if first[:4] < year < last[:4]]
    inner += [month for month in months if first[:7] < month < last[:7]]
    inner += [day for day in days if first <= day <= last]
    return [_tag("at", stretch) for stretch in inner or ["never"]]


def of_session(session: SessionId) -> str:
    """The tag of all entries of a session."""
    return _tag("session", session)


def _message_tags(message: Message, session: Session, searched: str) -> list[str]:
    tags = [*_session_tags(session), *_surfaces(message.surface or session.surface, session)]
    tags += [_tag("role", message.role), *_times(message.at)]
    author = message.author.strip()
    tags += [_tag("from", name) for name in ([author, *author.split()] if author else [])]
    tools = {part.name for part in message.parts if isinstance(part, ToolCall | ToolResult)}
    tags += [_tag("tool", name) for name in tools]
    tags += [_tag("has", thing) for thing in _things(message, searched)]
    return list(dict.fromkeys(tags))


def _session_tags(session: Session) -> list[str]:
    return [_tag("profile", session.profile), _tag("owner", session.owner), of_session(session.id)]


def _surfaces(surface: str, session: Session) -> list[str]:
    """A surface goes by its name, and a chat platform by its own as well."""
    names = [surface, session.origin.platform if session.origin else ""]
    return [_tag("surface", name) for name in names if name]


def _times(at: datetime) -> list[str]:
    return _stretches(_day(at))


@lru_cache(maxsize=1_000)
def _stretches(day: date) -> list[str]:
    return [_tag("at", f"{day:{form}}") for form in ("%Y", "%Y-%m", "%Y-%m-%d")]


def _day(moment: datetime) -> date:
    return max(_FIRST, min(moment.astimezone(UTC).date(), _LAST))


def _things(message: Message, searched: str) -> Iterator[Has]:
    for kind, thing in ((Image, Has.IMAGE), (File, Has.FILE), (Audio, Has.AUDIO)):
        if any(isinstance(part, kind) for part in message.parts):
            yield thing
    if any(isinstance(part, ToolCall | ToolResult) for part in message.parts):
        yield Has.TOOL
    if "```" in searched:
        yield Has.CODE
    if _LINK.search(searched):
        yield Has.LINK


@lru_cache(maxsize=10_000)
def _tag(kind: str, value: str) -> str:
    return f"{kind}:{quote(value.casefold()[:_LONGEST_TAG], safe='', errors='surrogatepass').lower()}"


def _text(part: Part) -> str:
    match part:
        case Text(text) | Notice(text):
            return text
        case Image() | File():
            return part.name
        case Audio():
            return f"{part.name}\n{part.transcript}".strip()
        case ToolCall():
            return f"{part.name}\n{_plain(part.input)}"
        case ToolResult():
            return _plain(part.output)
        case Reasoning():
            return ""
        case _:
            assert_never(part)


def _plain(text: str) -> str:
    """The names and values in JSON without its escapes; any other text as it is."""
    if not text.lstrip().startswith(("{", "[", '"')):
        return text
    try:
        return "\n".join(_leaves(wire.loads(text, object)))
    except Invalid:
        return text


def _leaves(value: object) -> Iterator[str]:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str(text):
                yield text
            case dict(fields):  # pyright: ignore[reportUnknownVariableType]
                waiting += [each for pair in reversed(fields.items()) for each in reversed(pair)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            case list(items):  # pyright: ignore[reportUnknownVariableType]
                waiting += reversed(items)  # pyright: ignore[reportUnknownArgumentType]
            case None:
                pass
            case other:
                yield str(other)


def _slices(text: str) -> Iterator[str]:
    start = 0
    while border := _BORDER.search(text, start + _SLICE):
        yield text[start : border.end()]
        start = border.end()
    yield text[start:]
