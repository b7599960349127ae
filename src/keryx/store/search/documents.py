"""What a search index stores for a message or a title: words, marks and tags, built the same way for every backend."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from itertools import pairwise
from typing import assert_never
from urllib.parse import quote

from keryx.core import codec
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
from keryx.core.search import ContentFilter, Filters, StateFilter
from keryx.core.search.tokens import TokenizedText
from keryx.core.search.tokens import tokenize as cut
from keryx.core.sessions import Session, Viewer

_SLICE_LENGTH = 50_000
# No token spans such a blank.
_SLICE_BORDER = re.compile(r"[ \t\r\n](?=[A-Za-z0-9])")
_LONGEST_TAG = 100
_LINK = re.compile(r"https?://", re.IGNORECASE)
# Earlier and later times are tagged like these.
_FIRST_DAY = date(2015, 1, 1)
_LAST_DAY = date(2045, 12, 31)
_TIME_FORMS = ("%Y", "%Y-%m", "%Y-%m-%d")
_ROLES = {
    StateFilter.USER: Role.USER,
    StateFilter.ASSISTANT: Role.ASSISTANT,
    StateFilter.TOOL: Role.TOOL,
    StateFilter.SYSTEM: Role.NOTICE,
}


@dataclass(frozen=True, slots=True)
class IndexDocument:
    # The id of the message's row, None for a title.
    id: int | None
    session: SessionId
    # Never change. Each is one token of printable ASCII without blanks and quotes.
    tags: list[str]
    words: list[str]
    marks: list[str]


def build_for_message(id: int, message: Message, session: Session) -> IndexDocument:
    text = extract_text(message)
    tokens = tokenize(text)
    tags = [*_session_tags(session), *_surface_tags(message.surface or session.surface, session)]
    day = _clamp_day(message.at)
    tags += [_make_tag("role", message.role), *(_make_tag("at", f"{day:{form}}") for form in _TIME_FORMS)]
    author = message.author.strip()
    tags += [_make_tag("from", name) for name in ([author, *author.split()] if author else [])]
    tools = {part.name for part in message.parts if isinstance(part, ToolCall | ToolResult)}
    tags += [_make_tag("tool", name) for name in tools]
    tags += [_make_tag("has", thing) for thing in _list_contents(message, text)]
    return IndexDocument(id, session.id, list(dict.fromkeys(tags)), tokens.words, tokens.marks)


def build_for_title(session: Session) -> IndexDocument:
    tokens = tokenize(session.title)
    tags = [*_session_tags(session), *_surface_tags(session.surface, session)]
    return IndexDocument(None, session.id, tags, tokens.words, tokens.marks)


def extract_text(message: Message) -> str:
    """Return the searched text of a message: its text, names of files, transcripts, tool input and output."""
    return "\n".join(filter(None, map(_extract_part_text, message.parts)))


def tokenize(text: str) -> TokenizedText:
    """Tokenize in slices, so that a huge text does not block other threads."""
    if len(text) <= _SLICE_LENGTH:
        return cut(text)
    borders = [0]
    while border := _SLICE_BORDER.search(text, borders[-1] + _SLICE_LENGTH):
        borders.append(border.end())
    words: list[str] = []
    marks: dict[str, None] = {}
    for start, end in pairwise([*borders, len(text)]):
        tokens = cut(text[start:end])
        words += tokens.words
        marks.update(dict.fromkeys(tokens.marks))
    return TokenizedText(words, list(marks))


def build_filter_tags(viewer: Viewer, filters: Filters) -> list[list[str]]:
    """Return lists of tags. A match has at least one of each list."""
    groups = [[_make_tag("profile", viewer.profile)]]
    if viewer.owner is not None:
        groups.append([_make_tag("owner", viewer.owner)])
    for kind, values in (("from", filters.sender), ("tool", filters.tool), ("surface", filters.surface)):
        if values:
            groups.append([_make_tag(kind, value) for value in dict.fromkeys(values)])
    groups += [[_make_tag("role", _ROLES[fact])] for fact in filters.is_ if fact in _ROLES]
    groups += [[_make_tag("has", thing)] for thing in filters.has]
    return groups


def build_time_tags(after: datetime | None, before: datetime | None) -> list[str]:
    """Return the tags of a time range, rounded outwards to days. The caller compares its ends exactly."""
    first = _clamp_day(after).isoformat() if after else ""
    last = _clamp_day(before).isoformat() if before else "9"
    ends = [end for end in (first, last) if len(end) > 1]
    years = [f"{year}" for year in range(_FIRST_DAY.year, _LAST_DAY.year + 1)]
    months = [f"{year}-{n:02}" for year in {end[:4] for end in ends} for n in range(1, 13)]
    days = [f"{month}-{n:02}" for month in {end[:7] for end in ends} for n in range(1, 32)]
    inner = [year for year in years if first[:4] < year < last[:4]]
    inner += [month for month in months if first[:7] < month < last[:7]]
    inner += [day for day in days if first <= day <= last]
    return [_make_tag("at", stretch) for stretch in inner or ["never"]]


def build_session_tag(session: SessionId) -> str:
    """The tag of all entries of a session."""
    return _make_tag("session", session)


def _session_tags(session: Session) -> list[str]:
    return [
        _make_tag("profile", session.profile),
        _make_tag("owner", session.owner),
        build_session_tag(session.id),
    ]


def _surface_tags(surface: str, session: Session) -> list[str]:
    """A surface goes by its name, and a chat platform by its own as well."""
    names = [surface, session.origin.platform if session.origin else ""]
    return [_make_tag("surface", name) for name in names if name]


def _clamp_day(moment: datetime) -> date:
    return max(_FIRST_DAY, min(moment.astimezone(UTC).date(), _LAST_DAY))


def _list_contents(message: Message, searched: str) -> Iterator[ContentFilter]:
    for kind, thing in (
        (Image, ContentFilter.IMAGE),
        (File, ContentFilter.FILE),
        (Audio, ContentFilter.AUDIO),
    ):
        if any(isinstance(part, kind) for part in message.parts):
            yield thing
    if any(isinstance(part, ToolCall | ToolResult) for part in message.parts):
        yield ContentFilter.TOOL
    if "```" in searched:
        yield ContentFilter.CODE
    if _LINK.search(searched):
        yield ContentFilter.LINK


@lru_cache(maxsize=10_000)
def _make_tag(kind: str, value: str) -> str:
    return f"{kind}:{quote(value.casefold()[:_LONGEST_TAG], safe='', errors='surrogatepass').lower()}"


def _extract_part_text(part: Part) -> str:
    match part:
        case Text(text) | Notice(text):
            return text
        case Image() | File():
            return part.name
        case Audio():
            return f"{part.name}\n{part.transcript}".strip()
        case ToolCall():
            return f"{part.name}\n{_flatten_json(part.input)}"
        case ToolResult():
            return _flatten_json(part.output)
        case Reasoning():
            return ""
        case _:
            assert_never(part)


def _flatten_json(text: str) -> str:
    """Return the names and values of JSON without its escapes, and any other text unchanged."""
    if not text.lstrip().startswith(("{", "[", '"')):
        return text
    try:
        return "\n".join(_walk_json(codec.loads(text, object)))
    except Invalid:
        return text


def _walk_json(value: object) -> Iterator[str]:
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
