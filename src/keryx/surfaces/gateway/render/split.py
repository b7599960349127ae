"""Cutting a tree into parts that fit: between blocks first, then lines, then words, then characters.

The visible text of the parts, joined, is the visible text of the whole, character for character.
"""

from collections.abc import Callable
from dataclasses import dataclass

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

Fill = Callable[[Document], float]
"""How full a part is with a tree; above 1 it does not fit."""

_FIRST_GUESS = 2000
_FULL = 0.94
_PATIENCE = 4
_SPACES = frozenset(" \t\n\u3000。，、！？；：")

# The least share of a part that is used up by a cut of each rank: a better place is not worth a tiny part.
_SHARES = (0.4, 0.5, 0.5, 0.1)
_BLOCK, _NESTED, _LINE, _WORD = range(4)


def split(document: Document, fill: Fill) -> list[Document]:
    """The parts in order; the whole if it fits. A single character that does not fit makes a part all the same."""
    stream = Stream(document)
    parts: list[Document] = []
    start, guess = 0, _FIRST_GUESS
    while start < stream.end:
        end = _Search(stream, fill, start).cut(guess)
        parts.append(stream.document(start, end))
        start, guess = end, max(end - start, 64)
    return parts


@dataclass(slots=True)
class _Search:
    """For one part: `fits` is the farthest place known to fit, `fails` the nearest known not to."""

    stream: Stream
    fill: Fill
    start: int

    def cut(self, guess: int) -> int:
        """A place after the start: good to cut at, and near the most that fits."""
        limit = self.stream.end + 1
        while True:
            reach = self._reach(guess, limit)
            if reach == self.stream.end:
                return reach
            place = _best(self.stream, self.start, reach)
            if place >= reach or self._share(place) <= 1:
                return place
            limit = place

    def _reach(self, guess: int, fails: int) -> int:
        fits, tries = self.start, 0
        size = guess
        while fails - fits > 1:
            tries += 1
            place = min(max(self.start + size, fits + 1), fails - 1)
            share = self._share(place)
            if share <= 1:
                fits = place
                if share >= _FULL:
                    break
            else:
                fails = place
            size = self._next(place, share, fits, fails, tries)
        return fits

    def _next(self, place: int, share: float, fits: int, fails: int, tries: int) -> int:
        """As many places as would fill the part if the text went on alike; later the middle, which always ends."""
        if tries <= _PATIENCE:
            return int((place - self.start) * 0.97 / max(share, 0.1))
        return (fits + fails) // 2 - self.start

    def _share(self, place: int) -> float:
        return self.fill(self.stream.document(self.start, place))


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
