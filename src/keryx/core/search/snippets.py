"""Result snippets: the passage of a text that shows why a query matches."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import assert_never

from keryx.core.search import And, Expr, Not, Or, Prefix, Query, Term, WordSequence
from keryx.core.search.tokens import Token, is_cjk, locate_tokens
from keryx.core.text import CONTROLS, LINE_SEPARATORS

SCAN_LIMIT = 10_000
# The terms of a query that are looked for. Each is compared with every word that is scanned.
MAX_TERMS = 16
# The words of one term that are looked for, in sequence, at each place where the first one is.
MAX_WORDS = 16
# The places of a text that are compared with the terms. A snippet shows a few of them.
MAX_PLACES = 100

# Replaced by a blank, one for one, so that a snippet stays on one line and the spans of its hits stay right.
_UNPRINTABLE = re.compile(f"[{CONTROLS}{LINE_SEPARATORS}\t\n\r\xa0]")
_ELLIPSIS = "…"
_SLACK = 20

_Atom = Term | WordSequence | Prefix


@dataclass(frozen=True, slots=True)
class Snippet:
    # One line.
    text: str
    # The hits, as ordered, disjoint ranges of characters.
    spans: tuple[tuple[int, int], ...] = ()


def highlight(text: str, query: Query, *, width: int = 160, scan: int = SCAN_LIMIT) -> Snippet:
    """Return the passage of about `width` characters with the most different hits, or the beginning if there are none.

    Of a long text, only `scan` characters around a likely hit are scanned, for the first `MAX_TERMS` terms, and of these
    only `MAX_PLACES` places, those around the rarest term.
    """
    terms = () if query.expr is None else dict.fromkeys(_list_atoms(query.expr))
    atoms = [_shorten(term) for term in islice(terms, MAX_TERMS)]
    start = _find_likely_start(text, atoms, scan)
    wanted = {atom.words[0] for atom in atoms if atom.words}
    wanted |= {atom.mark for atom in atoms if isinstance(atom, Term) and atom.mark is not None}
    longest = max((len(atom.words) for atom in atoms), default=0)
    runs = locate_tokens(text[start : start + scan], wanted, longest, MAX_PLACES) if atoms else ()
    found = {hit for run in runs for hit in _match_atoms(run, atoms)}
    hits = [(b + start, e + start, atom) for b, e, atom in sorted(found, key=lambda hit: hit[:2])]
    begin, end = _choose_window(text, hits, width)
    inside = [(max(b, begin), min(e, end)) for b, e, _ in hits if b < end and e > begin]
    front = _ELLIPSIS if begin > 0 else ""
    back = _ELLIPSIS if end < len(text) else ""
    shift = len(front) - begin
    spans: list[tuple[int, int]] = []
    for start, stop in sorted(inside):
        if spans and start + shift <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], stop + shift))
        else:
            spans.append((start + shift, stop + shift))
    return Snippet(front + _UNPRINTABLE.sub(" ", text[begin:end]) + back, tuple(spans))


def _list_atoms(expr: Expr) -> Iterator[_Atom]:
    """Yield the terms that may match, in the order of the query."""
    match expr:
        case And(items) | Or(items):
            for item in items:
                yield from _list_atoms(item)
        case Term() | WordSequence() | Prefix():
            yield expr
        case Not():
            return
        case _:
            assert_never(expr)


def _shorten(atom: _Atom) -> _Atom:
    if len(atom.words) <= MAX_WORDS:
        return atom
    words = atom.words[:MAX_WORDS]
    return Term(words, atom.mark) if isinstance(atom, Term) else WordSequence(words)


def _find_likely_start(text: str, atoms: list[_Atom], scan: int) -> int:
    """Return where to begin the scan of a long text: shortly before the term that occurs last, which is the rarest."""
    if len(text) <= scan:
        return 0
    lower = text.lower()
    wanted = [(isinstance(atom, Term) and atom.mark) or atom.words[0] for atom in atoms]
    place = max((lower.find(word) for word in wanted), default=0)
    if len(lower) != len(text):
        return 0
    near = max(0, place - scan // 2)
    blank = _find_blank(text, near, place)
    return near if blank is None or near == 0 else blank


def _match_atoms(run: list[Token], atoms: list[_Atom]) -> Iterator[tuple[int, int, _Atom]]:
    words = [token for token in run if not token.mark]
    names = [token.text for token in words]
    for atom in atoms:
        if isinstance(atom, Term) and atom.mark is not None:
            yield from ((t.start, t.end, atom) for t in run if t.mark and t.text == atom.mark)
        if atom.words:
            *wanted, wanted_last = atom.words
            for i, last in enumerate(words[len(wanted) :]):
                if names[i : i + len(wanted)] != wanted:
                    continue
                if last.text == wanted_last:
                    yield words[i].start, last.end, atom
                elif isinstance(atom, Prefix) and last.text.startswith(wanted_last):
                    # A CJK bigram that matches by its first character is a hit of that character only.
                    yield words[i].start, last.start + 1 if is_cjk(last.text) else last.end, atom


def _choose_window(text: str, hits: list[tuple[int, int, _Atom]], width: int) -> tuple[int, int]:
    """Return the range of `width` characters with the most different hits, then the most hits, then the first, cut
    between words if there is a blank nearby."""
    first = last = low = 0
    score = (0, 0)
    inside: Counter[_Atom] = Counter()
    for high, (_, end, atom) in enumerate(hits):
        inside[atom] += 1
        while hits[low][0] < end - width and low < high:
            inside[hits[low][2]] -= 1
            low += 1
        worth = (sum(count > 0 for count in inside.values()), high + 1 - low)
        if worth > score:
            first, last, score = hits[low][0], max(e for _, e, _ in hits[low : high + 1]), worth
    begin = max(0, min(first - (width - (last - first)) // 2, len(text) - width, first))
    end = min(len(text), begin + width)
    if begin > 0 and (blank := _find_blank(text, begin, min(begin + _SLACK, first))) is not None:
        begin = blank + 1
    if end < len(text):
        while end > max(last, begin + 1, begin + width - _SLACK) and not text[end].isspace():
            end -= 1
        if not text[end].isspace():
            end = min(len(text), begin + width)
    return begin, end


def _find_blank(text: str, start: int, stop: int) -> int | None:
    return next((i for i in range(start, stop) if text[i].isspace()), None)
