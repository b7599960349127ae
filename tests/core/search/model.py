"""A slow and plain model of search, which every index has to agree with."""

from typing import assert_never

from keryx.core.search import And, Expr, Not, Or, Prefix, Query, Term, WordSequence
from keryx.core.search.tokens import TokenizedText


def matches(query: Query, document: TokenizedText) -> bool:
    """Whether the words of the query fit the document. Filters are not looked at: they are about more than text."""
    return query.expr is None or _holds(query.expr, document)


def _holds(expr: Expr, document: TokenizedText) -> bool:
    match expr:
        case And(items):
            return all(_holds(item, document) for item in items)
        case Or(items):
            return any(_holds(item, document) for item in items)
        case Not(item):
            return not _holds(item, document)
        case Term(words, mark):
            return mark in document.marks or _side_by_side(words, document.words)
        case WordSequence(words):
            return _side_by_side(words, document.words)
        case Prefix(words):
            return _side_by_side(words, document.words, open_end=True)
        case _:
            assert_never(expr)


def _side_by_side(wanted: tuple[str, ...], words: list[str], *, open_end: bool = False) -> bool:
    if not wanted:
        return False
    return any(_begins(wanted, words[i : i + len(wanted)], open_end) for i in range(len(words)))


def _begins(wanted: tuple[str, ...], words: list[str], open_end: bool) -> bool:
    if len(words) != len(wanted) or list(wanted[:-1]) != words[:-1]:
        return False
    return words[-1].startswith(wanted[-1]) if open_end else words[-1] == wanted[-1]
