"""Search over message texts: the query parser for words, phrases, prefixes, boolean operators and filters. Every text is a valid query."""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from keryx.core import durations
from keryx.core.errors import Invalid
from keryx.core.search.tokens import is_cjk, tokenize_query
from keryx.core.texts import Phrase

LONGEST_QUERY = 2_000
MAX_DEPTH = 32

_FILTER_NAMES = "from|tool|project|tag|person|surface|before|after|is|has"
_LEXEME = re.compile(
    rf"""
      (?P<filter>-?(?:{_FILTER_NAMES}):(?:"[^"]*"?|[^\s()"]+))
    | (?P<phrase>-?"[^"]*"?)
    | (?P<open>-?\()
    | (?P<close>\))
    | (?P<word>[^\s()"]+)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OPERATORS = {"AND": "and", "OR": "or", "NOT": "not"}
_LOOKALIKES = str.maketrans({"“": '"', "”": '"', "„": '"', "＂": '"', "（": "(", "）": ")", "：": ":"})
# In a search `3m` means months, because minutes are of little use; `3min` means minutes.
_AGE_UNITS = {**durations.UNITS, "m": timedelta(days=30)}
_EARLIEST_TIME = datetime(1, 1, 1, tzinfo=UTC)
_YEAR_MONTH = re.compile(r"([0-9]{4})(?:-([0-9]{2}))?\Z")


class StateFilter(StrEnum):
    """What a message or its session can be."""

    PINNED = "pinned"
    ARCHIVED = "archived"
    RUNNING = "running"
    WAITING = "waiting"
    FAILED = "failed"
    # In the trash, where a search does not look.
    DELETED = "deleted"
    UNDONE = "undone"
    COMPACTED = "compacted"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"


SESSION_STATES = frozenset(
    {
        StateFilter.PINNED,
        StateFilter.ARCHIVED,
        StateFilter.RUNNING,
        StateFilter.WAITING,
        StateFilter.FAILED,
        StateFilter.DELETED,
    }
)


class ContentFilter(StrEnum):
    """What a message can hold."""

    IMAGE = "image"
    FILE = "file"
    AUDIO = "audio"
    TOOL = "tool"
    CODE = "code"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Term:
    """One word as it was typed: matches `words` in sequence, or the identifier `mark`. Never both empty."""

    words: tuple[str, ...]
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class WordSequence:
    """Two or more words in sequence."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prefix:
    """Words in sequence; the last one is a prefix."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class And:
    """Two or more items, no `And` among them. At least one is not a `Not`."""

    items: tuple["Expr", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Two or more items, neither `Or` nor `Not` among them."""

    items: tuple["Expr", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Occurs only within an `And` or as the whole query. Never contains another `Not`."""

    item: "Expr"


Expr: TypeAlias = Term | WordSequence | Prefix | And | Or | Not


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Names are kept as written."""

    # One of each of these must match.
    sender: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    surface: tuple[str, ...] = ()
    # Whose session it is: a name, `operator`, or the id of a principal.
    person: tuple[str, ...] = ()
    # Exclusive.
    before: datetime | None = None
    # Inclusive.
    after: datetime | None = None
    # Ages at the time of the search: at least, and at most.
    before_age: timedelta | None = None
    after_age: timedelta | None = None
    # All of these must match.
    is_: tuple[StateFilter, ...] = ()
    has: tuple[ContentFilter, ...] = ()
    tag: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    expr: Expr | None = None
    filters: Filters = field(default_factory=Filters)


def parse(text: str) -> Query:
    """Parse any text as a query. Never raises; text after the first `LONGEST_QUERY` characters is ignored."""
    filters = Filters()
    lexemes: deque[_Lexeme] = deque()
    for found in _LEXEME.finditer(text[:LONGEST_QUERY].translate(_LOOKALIKES)):
        body = found.group()
        negative = len(body) > 1 and body[0] == "-" and body[1] != "-"
        lexeme = _Lexeme(_OPERATORS.get(body, found.lastgroup or "word"), body[negative:], negative)
        negated = negative or (lexemes and lexemes[-1].kind == "not")
        narrowed = None if lexeme.kind != "filter" or negated else _add_filter(filters, lexeme.text)
        if narrowed is None:
            lexemes.append(lexeme)
        else:
            filters = narrowed
    return Query(_parse_or(lexemes, depth=0), filters)


def subtract_age(now: datetime, age: timedelta | None) -> datetime | None:
    """The time that was this long ago, at the earliest the first that there is."""
    return None if age is None else now - min(age, now - _EARLIEST_TIME)


def parse_list_filters(text: str) -> Filters:
    """Parse the filters of a list of sessions. Raise `Invalid` for words, and for filters that only messages match."""
    query = parse(text)
    of_messages = {"from": query.filters.sender, "tool": query.filters.tool, "has": query.filters.has}
    wrong = [f"{name}:" for name, values in of_messages.items() if values]
    wrong += [f"is:{state}" for state in query.filters.is_ if state not in SESSION_STATES]
    if query.expr is not None or wrong:
        what = ", ".join(wrong) or repr(text[:80])
        raise Invalid(Phrase("session.filter_unknown", what=what))
    return query.filters


class _Lexeme(NamedTuple):
    kind: str
    text: str
    negative: bool


def _parse_or(lexemes: deque[_Lexeme], *, depth: int) -> Expr | None:
    groups = [_parse_and(lexemes, depth=depth)]
    while lexemes and lexemes[0].kind == "or":
        lexemes.popleft()
        groups.append(_parse_and(lexemes, depth=depth))
    if lexemes:
        lexemes.popleft()
    return _build_or([group for group in groups if group is not None])


def _parse_and(lexemes: deque[_Lexeme], *, depth: int) -> Expr | None:
    """Parse up to the next OR or the end of the group, without consuming it."""
    items: list[Expr] = []
    negative = False
    while lexemes and lexemes[0].kind != "or" and (depth == 0 or lexemes[0].kind != "close"):
        lexeme = lexemes.popleft()
        negative ^= lexeme.negative or lexeme.kind == "not"
        if lexeme.kind in {"and", "not", "close"}:
            continue
        if lexeme.kind == "open":
            item = _parse_or(lexemes, depth=depth + 1) if depth < MAX_DEPTH else None
        else:
            item = _parse_atom(lexeme.text)
        if item is not None:
            items.append(_negate(item) if negative else item)
        negative = False
    return _build_and(items)


def _parse_atom(text: str) -> Expr | None:
    found = tokenize_query(text)
    words = tuple(found.words)
    if not words:
        return None
    if text.endswith("*") or (len(words[-1]) == 1 and is_cjk(words[-1])):
        return Prefix(words)
    if len(found.marks) == 1 and tuple(tokenize_query(found.marks[0]).words) == words:
        # A single letter is too common, so `C++` matches the identifier only.
        return Term(() if len("".join(words)) == 1 else words, found.marks[0])
    return Term(words) if len(words) == 1 else WordSequence(words)


def _build_and(items: list[Expr]) -> Expr | None:
    flat = [part for item in items for part in (item.items if isinstance(item, And) else (item,))]
    wanted, unwanted = _partition(flat)
    if not wanted:
        excluded = _build_or(unwanted)
        return None if excluded is None else Not(excluded)
    return _combine(And, wanted + [Not(item) for item in unwanted])


def _build_or(items: list[Expr]) -> Expr | None:
    """Combine with OR. A `Not` among the items is turned around by De Morgan's law."""
    wanted, unwanted = _partition(items)
    if unwanted:
        forbidden = _build_and([*unwanted, *map(_negate, wanted)])
        return None if forbidden is None else _negate(forbidden)
    flat = [part for item in wanted for part in (item.items if isinstance(item, Or) else (item,))]
    return _combine(Or, flat)


def _negate(item: Expr) -> Expr:
    return item.item if isinstance(item, Not) else Not(item)


def _partition(items: Iterable[Expr]) -> tuple[list[Expr], list[Expr]]:
    wanted: list[Expr] = []
    unwanted: list[Expr] = []
    for item in items:
        if isinstance(item, Not):
            unwanted.append(item.item)
        else:
            wanted.append(item)
    return wanted, unwanted


def _combine(kind: type[And] | type[Or], items: list[Expr]) -> Expr | None:
    unique = tuple(dict.fromkeys(items))
    if not unique:
        return None
    return unique[0] if len(unique) == 1 else kind(unique)


def _add_filter(filters: Filters, text: str) -> Filters | None:
    """Return the filters with one more, or `None` if its value is invalid."""
    name, _, value = text.partition(":")
    value = value.strip('"').strip()
    if not value:
        return None
    word, age, moment = value.lower(), durations.parse(value, units=_AGE_UNITS), _parse_moment(value)
    match name.lower():
        case "from":
            return replace(filters, sender=(*filters.sender, value))
        case "tool":
            return replace(filters, tool=(*filters.tool, value))
        case "project":
            return replace(filters, project=(*filters.project, value))
        case "tag":
            return replace(filters, tag=(*filters.tag, value))
        case "person":
            return replace(filters, person=(*filters.person, value))
        case "surface":
            return replace(filters, surface=(*filters.surface, value))
        case "is" if word in set(StateFilter):
            return replace(filters, is_=(*filters.is_, StateFilter(word)))
        case "has" if word in set(ContentFilter):
            return replace(filters, has=(*filters.has, ContentFilter(word)))
        case "before" if age is not None:
            return replace(filters, before_age=max(age, filters.before_age or age))
        case "before" if moment is not None:
            return replace(filters, before=min(moment, filters.before or moment))
        case "after" if age is not None:
            return replace(
                filters, after_age=age if filters.after_age is None else min(age, filters.after_age)
            )
        case "after" if moment is not None:
            return replace(filters, after=max(moment, filters.after or moment))
        case _:
            return None


def _parse_moment(value: str) -> datetime | None:
    """Parse a year, a month, a day or an ISO time, in UTC by default."""
    try:
        if found := _YEAR_MONTH.match(value):
            return datetime(int(found[1]), int(found[2] or 1), 1, tzinfo=UTC)
        moment = datetime.fromisoformat(value)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
