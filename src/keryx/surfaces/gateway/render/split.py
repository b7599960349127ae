"""Cutting a tree into parts that fit: between blocks first, then lines, then words, then characters.

The visible text of the parts, joined, is the visible text of the whole, character for character.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from keryx.surfaces.gateway.render.measure import LONGEST_CLUSTER, glued, within
from keryx.surfaces.gateway.render.stream import Leaf, Stream, common
from keryx.surfaces.gateway.render.tree import (
    Break,
    Code,
    CodeBlock,
    Document,
    Heading,
    Item,
    List,
    Quote,
    Table,
    Text,
)

P = TypeVar("P")

_FIRST_GUESS = 2000
_FULL = 0.94
_PATIENCE = 4
_SPACES = frozenset(" \t\n\u3000。，、！？；：")

# The least share of a part that is used up by a cut of each rank: a better place is not worth a tiny part.
_SHARES = (0.4, 0.5, 0.5, 0.1)
_BLOCK, _NESTED, _LINE, _WORD = range(4)


def split(document: Document, render: Callable[[Document], P], share: Callable[[P], float]) -> list[P]:
    """The rendered parts in order. A `share` above 1 means that a part does not fit.

    A single character that does not fit makes a part all the same.
    """
    stream = Stream(document)
    parts: list[P] = []
    start, guess = 0, _FIRST_GUESS
    while start < stream.end:
        search = _Search(stream, start, render, share)
        end = search.cut(guess)
        parts.append(search.part(end))
        start, guess = end, max(end - start, LONGEST_CLUSTER)
    return parts


class _Search(Generic[P]):
    """One part: from a place in the stream to a place that is good to cut at, near the most that fits."""

    def __init__(
        self, stream: Stream, start: int, render: Callable[[Document], P], share: Callable[[P], float]
    ) -> None:
        self._stream, self._start = stream, start
        self._render, self._share = render, share
        self._seen: dict[int, P] = {}

    def part(self, end: int) -> P:
        if end not in self._seen:
            self._seen[end] = self._render(self._stream.document(self._start, end))
        return self._seen[end]

    def cut(self, guess: int) -> int:
        fails = self._stream.end + 1
        while True:
            reach = self._reach(guess, fails)
            if reach == self._stream.end:
                return reach
            place = _best(self._stream, self._start, reach)
            if place >= reach or self._share(self.part(place)) <= 1:
                return place
            fails = place

    def _reach(self, guess: int, fails: int) -> int:
        """A place that fits and is near the nearest known not to; the start if nothing fits."""
        fits, size, tries = self._start, guess, 0
        while fails - fits > 1:
            place = min(max(self._start + size, fits + 1), fails - 1)
            share = self._share(self.part(place))
            if share <= 1:
                fits = place
                if share >= _FULL:
                    break
            else:
                fails = place
            tries += 1
            size = self._next(place, share) if tries < _PATIENCE else (fits + fails) // 2 - self._start
        return fits

    def _next(self, place: int, share: float) -> int:
        """How many places would fill the part if the text went on alike."""
        return int((place - self._start) * 0.97 / max(share, 0.1))


def _best(stream: Stream, start: int, reach: int) -> int:
    """The last place of the best rank in a stretch that fits; the end of a character if there is no other."""
    found: dict[int, int] = {}
    for index in range(stream.at(reach), stream.at(start) - 1, -1):
        leaf = stream.leaves[index]
        _look_inside(leaf, max(start, leaf.start), min(reach, leaf.end), found)
        if start < leaf.start <= reach:
            rank = _border(stream.leaves[index - 1], leaf)
            if rank is not None:
                found.setdefault(rank, leaf.start)
    for rank, share in enumerate(_SHARES):
        place = found.get(rank, start)
        if place > start and place - start >= share * (reach - start):
            return place
    return _character(stream, start, reach)


def _border(before: Leaf, after: Leaf) -> int | None:
    """The rank of a cut between two leaves. A heading stays with what it heads."""
    shared = common(before.path, after.path)
    if len(before.path) > shared and isinstance(before.path[shared].node, Heading):
        return None
    if shared == 0:
        return _BLOCK
    if isinstance(after.path[shared - 1].node, Quote | List | Item | Table):
        return _NESTED
    if isinstance(before.node, Break):
        return _LINE
    if before.text and (before.text[-1] not in _SPACES or glued(before.text, after.text)):
        return None
    return _WORD


def _look_inside(leaf: Leaf, start: int, end: int, found: dict[int, int]) -> None:
    """The last line end and the last space of a leaf between two places."""
    first, last = start - leaf.start, end - leaf.start
    match leaf.node:
        case CodeBlock(text=text) if _LINE not in found or _WORD not in found:
            line = text.rfind("\n", first, last) + 1
            if line > first:
                found.setdefault(_LINE, leaf.start + line)
        case Text(text=text) | Code(text=text):
            pass
        case _:
            return
    if _WORD not in found:
        for place in range(min(last, len(text) - 1), first, -1):
            if text[place - 1] in _SPACES and not within(text, place):
                found[_WORD] = leaf.start + place
                return


def _character(stream: Stream, start: int, reach: int) -> int:
    """Back from `reach` to the end of a character, or ahead if nothing fits: a part is never empty."""
    for place in range(reach, max(start, reach - LONGEST_CLUSTER), -1):
        if not _inside_character(stream, place):
            return place
    if reach > start:
        return reach
    ahead = range(start + 1, min(start + LONGEST_CLUSTER, stream.end) + 1)
    return next((place for place in ahead if not _inside_character(stream, place)), ahead[-1])


def _inside_character(stream: Stream, place: int) -> bool:
    if place == stream.end:
        return False
    index = stream.at(place)
    leaf = stream.leaves[index]
    if place > leaf.start:
        return within(leaf.text, place - leaf.start)
    return glued(stream.leaves[index - 1].text, leaf.text)
