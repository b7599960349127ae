"""What a person looks for: words, "phrases", prefix*, AND, OR, NOT or -, parentheses, and filters.

Every text is a query. What cannot be read as syntax is read as words, and an operator without operands is
passed over. A filter holds for the whole query, wherever it stands; after NOT or - it is plain words.
"""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from keryx.core.tokens import cjk, needle

LONGEST_QUERY = 2_000
DEEPEST = 32

_NAMES = "from|tool|project|surface|before|after|is|has"
_LEXEME = re.compile(
    rf"""
      (?P<filter>-?(?:{_NAMES}):(?:"[^"]*"?|[^\s()"]+))
    | (?P<phrase>-?"[^"]*"?)
    | (?P<open>-?\()
    | (?P<close>\))
    | (?P<word>[^\s()"]+)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OPERATORS = {"AND": "and", "OR": "or", "NOT": "not"}
_LOOKALIKES = str.maketrans({"“": '"', "”": '"', "„": '"', "＂": '"', "（": "(", "）": ")", "：": ":"})
_AGE = re.compile(r"([0-9]{1,4})([hdwmy])\Z", re.IGNORECASE)
_UNITS = {
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "m": timedelta(days=30),
    "y": timedelta(days=365),
}
_YEAR_MONTH = re.compile(r"([0-9]{4})(?:-([0-9]{2}))?\Z")


class Is(StrEnum):
    """What a message or its session can be."""

    PINNED = "pinned"
    ARCHIVED = "archived"
    UNDONE = "undone"
    COMPACTED = "compacted"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"


class Has(StrEnum):
    """What a message can hold."""

    IMAGE = "image"
    FILE = "file"
    AUDIO = "audio"
    TOOL = "tool"
    CODE = "code"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Term:
    """One word as it was typed: `words` side by side, or `mark` among the marks. Never both empty."""

    words: tuple[str, ...]
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class Phrase:
    """Two or more words side by side."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prefix:
    """Words side by side, of which the last may go on."""

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
    """Stands only within an `And`, or at the very top of a query. Never holds another `Not`."""

    item: "Expr"


Expr: TypeAlias = Term | Phrase | Prefix | And | Or | Not


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Any of several senders, tools, projects or surfaces will do; all of `is_` and `has` must hold.

    Names are as written. `after` includes its moment, `before` does not. An age counts back from the time of
    asking: `before_age` is "at least so old", `after_age` is "at most so old".
    """

    sender: tuple[str, ...] = ()
    tool: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    surface: tuple[str, ...] = ()
    before: datetime | None = None
    after: datetime | None = None
    before_age: timedelta | None = None
    after_age: timedelta | None = None
    is_: tuple[Is, ...] = ()
    has: tuple[Has, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    expr: Expr | None = None
    filters: Filters = field(default_factory=Filters)


def parse(text: str) -> Query:
    """Read any text as a query. Never raises; characters after the first `LONGEST_QUERY` are not read."""
    filters = Filters()
    lexemes: deque[_Lexeme] = deque()
    for lexeme in _lexemes(text[:LONGEST_QUERY].translate(_LOOKALIKES)):
        negated = lexeme.negative or (lexemes and lexemes[-1].kind == "not")
        narrowed = None if lexeme.kind != "filter" or negated else _narrow(filters, lexeme.text)
        if narrowed is None:
            lexemes.append(lexeme)
        else:
            filters = narrowed
    return Query(_alternatives(lexemes, depth=0), filters)


class _Lexeme(NamedTuple):
    kind: str
    text: str
    negative: bool


def _lexemes(text: str) -> Iterable[_Lexeme]:
    for found in _LEXEME.finditer(text):
        body = found.group()
        negative = len(body) > 1 and body[0] == "-" and body[1] != "-"
        yield _Lexeme(_OPERATORS.get(body, found.lastgroup or "word"), body[negative:], negative)


def _alternatives(lexemes: deque[_Lexeme], *, depth: int) -> Expr | None:
    groups = [_together(lexemes, depth=depth)]
    while lexemes and lexemes[0].kind == "or":
        lexemes.popleft()
        groups.append(_together(lexemes, depth=depth))
    if lexemes:
        lexemes.popleft()
    return _any([group for group in groups if group is not None])


def _together(lexemes: deque[_Lexeme], *, depth: int) -> Expr | None:
    """Read up to the next OR, or the end of the group, and leave that standing."""
    items: list[Expr] = []
    negative = False
    while lexemes and lexemes[0].kind != "or" and (depth == 0 or lexemes[0].kind != "close"):
        lexeme = lexemes.popleft()
        negative ^= lexeme.negative or lexeme.kind == "not"
        if lexeme.kind in {"and", "not", "close"}:
            continue
        if lexeme.kind == "open":
            item = _alternatives(lexemes, depth=depth + 1) if depth < DEEPEST else None
        else:
            item = _atom(lexeme.text)
        if item is not None:
            items.append(_negated(item) if negative else item)
        negative = False
    return _all(items)


def _atom(text: str) -> Expr | None:
    found = needle(text)
    words = tuple(found.words)
    if not words:
        return None
    if text.endswith("*") or (len(words[-1]) == 1 and cjk(words[-1])):
        return Prefix(words)
    if len(found.marks) == 1 and tuple(needle(found.marks[0]).words) == words:
        # A single letter says nothing, so `C++` is looked for as written only.
        return Term(() if len("".join(words)) == 1 else words, found.marks[0])
    return Term(words) if len(words) == 1 else Phrase(words)


def _all(items: list[Expr]) -> Expr | None:
    flat = [part for item in items for part in (item.items if isinstance(item, And) else (item,))]
    wanted, unwanted = _sorted(flat)
    if not wanted:
        held = _any(unwanted)
        return None if held is None else Not(held)
    return _one_or(And, wanted + [Not(item) for item in unwanted])


def _any(items: list[Expr]) -> Expr | None:
    """Any of the items. With a `Not` among them: not (all that it forbids, and none of the others)."""
    wanted, unwanted = _sorted(items)
    if unwanted:
        forbidden = _all([*unwanted, *map(_negated, wanted)])
        return None if forbidden is None else _negated(forbidden)
    flat = [part for item in wanted for part in (item.items if isinstance(item, Or) else (item,))]
    return _one_or(Or, flat)


def _negated(item: Expr) -> Expr:
    return item.item if isinstance(item, Not) else Not(item)


def _sorted(items: Iterable[Expr]) -> tuple[list[Expr], list[Expr]]:
    wanted: list[Expr] = []
    unwanted: list[Expr] = []
    for item in items:
        if isinstance(item, Not):
            unwanted.append(item.item)
        else:
            wanted.append(item)
    return wanted, unwanted


def _one_or(kind: type[And] | type[Or], items: list[Expr]) -> Expr | None:
    unique = tuple(dict.fromkeys(items))
    if not unique:
        return None
    return unique[0] if len(unique) == 1 else kind(unique)


def _narrow(filters: Filters, text: str) -> Filters | None:
    """The filters with one more, or `None` if its value means nothing."""
    name, _, value = text.partition(":")
    value = value.strip('"').strip()
    if not value:
        return None
    match name.lower():
        case "from":
            return replace(filters, sender=(*filters.sender, value))
        case "tool":
            return replace(filters, tool=(*filters.tool, value))
        case "project":
            return replace(filters, project=(*filters.project, value))
        case "surface":
            return replace(filters, surface=(*filters.surface, value))
        case "is":
            return (
                replace(filters, is_=(*filters.is_, Is(value.lower()))) if value.lower() in set(Is) else None
            )
        case "has":
            return (
                replace(filters, has=(*filters.has, Has(value.lower())))
                if value.lower() in set(Has)
                else None
            )
        case "before":
            return _before(filters, value)
        case "after":
            return _after(filters, value)
        case _:
            return None


def _before(filters: Filters, value: str) -> Filters | None:
    if (age := _age(value)) is not None:
        return replace(filters, before_age=max(age, filters.before_age or age))
    if (moment := _moment(value)) is not None:
        return replace(filters, before=min(moment, filters.before or moment))
    return None


def _after(filters: Filters, value: str) -> Filters | None:
    if (age := _age(value)) is not None:
        return replace(filters, after_age=age if filters.after_age is None else min(age, filters.after_age))
    if (moment := _moment(value)) is not None:
        return replace(filters, after=max(moment, filters.after or moment))
    return None


def _age(value: str) -> timedelta | None:
    found = _AGE.match(value)
    return int(found[1]) * _UNITS[found[2].lower()] if found else None


def _moment(value: str) -> datetime | None:
    """A year, a month, a day or an ISO time. UTC unless the time says otherwise."""
    try:
        if found := _YEAR_MONTH.match(value):
            return datetime(int(found[1]), int(found[2] or 1), 1, tzinfo=UTC)
        moment = datetime.fromisoformat(value)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
