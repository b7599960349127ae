"""Splits a tree into parts that fit a length limit: between blocks first, then lines, words and characters. The visible text of all parts, joined, is that of the whole."""

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import tree

# Code points kept together as one character. A longer run of combining marks is cut.
MAX_CLUSTER_LENGTH = 64
_MAX_RUN_LENGTH = 16_384
_JOINER = "\u200d"
_VIRAMA = 9
MIN_LIMIT = 1500
P = TypeVar("P")
_FIRST_GUESS = 2000
_FULL_ENOUGH = 0.94
_MAX_ESTIMATES = 4
_BREAK_CHARACTERS = frozenset(" \t\n\u3000。，、！？；：")
# The least share of a part that is used up by a cut of each rank: a better place is not worth a tiny part.
_MIN_FILL_RATIOS = (0.4, 0.5, 0.5, 0.1)
_BLOCK_CUT, _NESTED_CUT, _LINE_CUT, _WORD_CUT = range(4)


@dataclass(frozen=True, slots=True)
class LengthLimit:
    """The longest text of one message. Below `MIN_LIMIT` a link might not fit into a part."""

    size: int
    unit: LengthUnit

    def __post_init__(self) -> None:
        if self.size < MIN_LIMIT:
            raise ValueError(f"a limit of {self.size} is too small: at least {MIN_LIMIT}")

    def fill_ratio(self, text: str) -> float:
        """Return how much of the limit the text uses; above 1 it does not fit."""
        return measure_length(text, self.unit) / self.size


def measure_length(text: str, unit: LengthUnit) -> int:
    match unit:
        case LengthUnit.CHARACTERS:
            return len(text)
        case LengthUnit.UTF16:
            return len(text.encode("utf-16-le", "surrogatepass")) // 2
        case LengthUnit.BYTES:
            return len(text.encode("utf-8", "surrogatepass"))


def has_visible_text(text: str) -> bool:
    """Whether a reader sees anything of the text."""
    return any(not char.isspace() and unicodedata.category(char)[0] != "C" for char in text)


def joins_cluster(before: str, after: str) -> bool:
    """Whether the two texts meet within one character as a reader sees it."""
    return bool(before and after) and is_inside_cluster(
        before[-_MAX_RUN_LENGTH:] + after[0], min(len(before), _MAX_RUN_LENGTH)
    )


def measure_width(text: str) -> int:
    """Return the number of columns in a fixed-width font."""
    return sum(
        0 if _extends_cluster(char) else 1 + (unicodedata.east_asian_width(char) in "WF") for char in text
    )


def is_inside_cluster(text: str, at: int) -> bool:
    """Whether a position inside the text, not at one of its ends, is within one character as a reader sees it."""
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300":
        return before == "\r" and after == "\n"
    if _extends_cluster(after) or (before == _JOINER and not after.isspace()):
        return True
    if _is_regional_indicator(before) and _is_regional_indicator(after):
        # Two letters make a flag, so count those before the position.
        start = at - 1
        while start > 0 and at - start < _MAX_RUN_LENGTH and _is_regional_indicator(text[start - 1]):
            start -= 1
        return (at - start) % 2 == 1
    # An Indic consonant may be joined to the next, and Hangul letters to a syllable.
    if unicodedata.combining(before) == _VIRAMA:
        return unicodedata.category(after) == "Lo"
    if "\u1100" <= before <= "\u115f":
        return "\u1100" <= after <= "\u11a7" or "\uac00" <= after <= "\ud7a3"
    if "\u1160" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3":
        return "\u1160" <= after <= "\u11ff"
    return False


def _extends_cluster(char: str) -> bool:
    """Whether a character is a mark, joiner, variation selector, skin tone or flag tag, which extends the one before it."""
    if char < "\u0300":
        return False
    return (
        unicodedata.category(char)[0] == "M"
        or char in "\u200c\u200d"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U000e0020" <= char <= "\U000e007f"
    )


def _is_regional_indicator(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


_LeafNode = tree.TextNode | tree.CodeNode | tree.CodeBlockNode | tree.BreakNode | tree.RuleNode


@dataclass(slots=True, eq=False)
class NodeSpan:
    """A node with children, and the positions of its text."""

    node: tree.Node
    # Among its siblings.
    index: int
    start: int
    end: int = 0


@dataclass(frozen=True, slots=True)
class Leaf:
    path: tuple[NodeSpan, ...]
    # None within a node without children, such as an empty list item.
    node: _LeafNode | None
    text: str
    start: int

    @property
    def end(self) -> int:
        """A leaf without text has one position, too."""
        return self.start + (len(self.text) or 1)


class LeafSequence:
    """The leaves of a document in order. Positions go from 0 to `end`, one for each visible character."""

    def __init__(self, document: tree.DocumentNode) -> None:
        self.leaves: list[Leaf] = []
        self.end = 0
        for index, block in enumerate(document.blocks):
            self._add(block, index, ())
        self._starts = [leaf.start for leaf in self.leaves]

    def find_leaf(self, position: int) -> int:
        """Return the index of the leaf at a position."""
        return bisect_right(self._starts, position) - 1

    def is_inside_character(self, position: int) -> bool:
        if position == self.end:
            return False
        index = self.find_leaf(position)
        leaf = self.leaves[index]
        if position > leaf.start:
            return is_inside_cluster(leaf.text, position - leaf.start)
        return joins_cluster(self.leaves[index - 1].text, leaf.text)

    def build_slice(self, start: int, end: int) -> tree.DocumentNode:
        """Return the tree of the text between two positions."""
        build = _TreeBuilder(start, end)
        for leaf in self.leaves[self.find_leaf(start) : self.find_leaf(end - 1) + 1]:
            build.add(leaf)
        return build.build()

    def _add(self, node: tree.Node, index: int, path: tuple[NodeSpan, ...]) -> None:
        match node:
            case tree.TextNode() | tree.CodeNode() | tree.CodeBlockNode():
                self._add_leaf(path, node, node.text)
            case tree.BreakNode() | tree.RuleNode():
                self._add_leaf(path, node, "")
            case _:
                frame = NodeSpan(node, index, self.end)
                children = tree.child_nodes(node)
                for position, child in enumerate(children):
                    self._add(child, position, (*path, frame))
                if not children:
                    self._add_leaf((*path, frame), None, "")
                frame.end = self.end

    def _add_leaf(self, path: tuple[NodeSpan, ...], node: _LeafNode | None, text: str) -> None:
        leaf = Leaf(path, node, text, self.end)
        self.leaves.append(leaf)
        self.end = leaf.end


def count_common(one: Sequence[NodeSpan | None], other: Sequence[NodeSpan]) -> int:
    """Return how many nodes, from the outermost, two paths have in common."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left is not right:
            break
        count += 1
    return count


class _TreeBuilder:
    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end
        self._open_nodes = [_OpenNode(None)]

    def add(self, leaf: Leaf) -> None:
        kept = count_common([opened.span for opened in self._open_nodes[1:]], leaf.path)
        while len(self._open_nodes) > kept + 1:
            self._close()
        for frame in leaf.path[kept:]:
            if not self._open_nodes[-1].children:
                self._open_nodes[-1].first = frame.index
            self._open_nodes.append(_OpenNode(frame))
        if leaf.node is not None:
            self._open_nodes[-1].children.append(self._cut_leaf(leaf, leaf.node))

    def build(self) -> tree.DocumentNode:
        while len(self._open_nodes) > 1:
            self._close()
        return tree.DocumentNode(tuple(self._open_nodes[0].children))

    def _cut_leaf(self, leaf: Leaf, node: _LeafNode) -> tree.Node:
        text = leaf.text[max(self._start - leaf.start, 0) : self._end - leaf.start]
        match node:
            case tree.TextNode():
                return tree.TextNode(text)
            case tree.CodeNode():
                return tree.CodeNode(text)
            case tree.CodeBlockNode(lang=lang, more=more):
                return tree.CodeBlockNode(text, lang, more or self._end < leaf.end)
            case tree.BreakNode() | tree.RuleNode():
                return node

    def _close(self) -> None:
        """Add the innermost open node to its parent, marked if a part of it is missing."""
        opened = self._open_nodes.pop()
        span, children = opened.span, tuple(opened.children)
        assert span is not None
        begun, more = span.start < self._start, span.end > self._end
        match span.node:
            case tree.ListItemNode() as node:
                closed = tree.ListItemNode(children, node.number, node.continued or begun)
            case tree.LinkNode() | tree.ImageNode() as node:
                closed = replace(node, children=children, more=node.more or more)
            case tree.TableCellNode() as node:
                closed = tree.TableCellNode(children, node.continued or begun)
            case tree.TableRowNode() as node:
                closed = tree.TableRowNode(children, node.header, node.first_column + opened.first)
            case tree.HeadingNode() as node:
                closed = tree.HeadingNode(children, node.level)
            case tree.ParagraphNode() as node:
                closed = tree.ParagraphNode(children, node.tight)
            case (
                tree.TextNode()
                | tree.CodeNode()
                | tree.CodeBlockNode()
                | tree.BreakNode()
                | tree.RuleNode() as node
            ):
                raise AssertionError(f"{node!r} has no children")
            case node:
                closed = type(node)(children)
        self._open_nodes[-1].children.append(closed)


@dataclass(slots=True)
class _OpenNode:
    span: NodeSpan | None
    # Of the types that the node had as children in the document.
    children: list[Any] = field(default_factory=list[Any])
    # The index of the first child in the document.
    first: int = 0


def split_document(
    document: tree.DocumentNode, render: Callable[[tree.DocumentNode], P], share: Callable[[P], float]
) -> list[P]:
    """Return the rendered parts in order. `share` returns how much of the limit a part uses; above 1 it does not fit.

    A single character that does not fit is a part nevertheless.
    """
    stream = LeafSequence(document)
    parts: list[P] = []
    start, guess = 0, _FIRST_GUESS
    while start < stream.end:
        search = _CutSearch(stream, start, render, share)
        end = search.find_cut(guess)
        parts.append(search.render_part(end))
        start, guess = end, max(end - start, MAX_CLUSTER_LENGTH)
    return parts


class _CutSearch(Generic[P]):
    """Finds the end of one part: a good position for a cut, near the longest part that fits."""

    def __init__(
        self,
        stream: LeafSequence,
        start: int,
        render: Callable[[tree.DocumentNode], P],
        share: Callable[[P], float],
    ) -> None:
        self._stream, self._start = stream, start
        self._render, self._measure = render, share
        self._rendered: dict[int, P] = {}

    def render_part(self, end: int) -> P:
        if end not in self._rendered:
            self._rendered[end] = self._render(self._stream.build_slice(self._start, end))
        return self._rendered[end]

    def find_cut(self, guess: int) -> int:
        fails = self._stream.end + 1
        while True:
            reach = self._find_reach(guess, fails)
            if reach == self._stream.end:
                return reach
            position = self._find_best_cut(reach)
            if position >= reach or self._measure(self.render_part(position)) <= 1:
                return position
            fails = position

    def _find_reach(self, guess: int, fails: int) -> int:
        """Return an end that fits, close to the first one that does not; the start if nothing fits."""
        fits, size, tries = self._start, guess, 0
        while fails - fits > 1:
            position = min(max(self._start + size, fits + 1), fails - 1)
            share = self._measure(self.render_part(position))
            if share <= 1:
                fits = position
                if share >= _FULL_ENOUGH:
                    break
            else:
                fails = position
            tries += 1
            size = (
                self._estimate_size(position, share)
                if tries < _MAX_ESTIMATES
                else (fits + fails) // 2 - self._start
            )
        return fits

    def _estimate_size(self, position: int, share: float) -> int:
        """Return how many positions would fill the part if the rest of the text is like this."""
        return int((position - self._start) * 0.97 / max(share, 0.1))

    def _find_best_cut(self, reach: int) -> int:
        """Return the last position of the best rank up to `reach`, or the end of a character if there is none."""
        stream, start = self._stream, self._start
        found: dict[int, int] = {}
        for index in range(stream.find_leaf(reach), stream.find_leaf(start) - 1, -1):
            leaf = stream.leaves[index]
            _find_cuts_inside(leaf, max(start, leaf.start), min(reach, leaf.end), found)
            if start < leaf.start <= reach:
                rank = _rank_border(stream.leaves[index - 1], leaf)
                if rank is not None:
                    found.setdefault(rank, leaf.start)
        for rank, share in enumerate(_MIN_FILL_RATIOS):
            position = found.get(rank, start)
            if position > start and position - start >= share * (reach - start):
                return position
        return self._find_character_end(reach)

    def _find_character_end(self, reach: int) -> int:
        """Return the last end of a character up to `reach`, or the next one if nothing fits: no part is empty."""
        stream, start = self._stream, self._start
        for position in range(reach, max(start, reach - MAX_CLUSTER_LENGTH), -1):
            if not stream.is_inside_character(position):
                return position
        if reach > start:
            return reach
        ahead = range(start + 1, min(start + MAX_CLUSTER_LENGTH, stream.end) + 1)
        return next((position for position in ahead if not stream.is_inside_character(position)), ahead[-1])


def _rank_border(before: Leaf, after: Leaf) -> int | None:
    """Return the rank of a cut between two leaves, or `None` for no cut. A heading stays with the block after it."""
    shared = count_common(before.path, after.path)
    if len(before.path) > shared and isinstance(before.path[shared].node, tree.HeadingNode):
        return None
    if shared == 0:
        return _BLOCK_CUT
    if isinstance(
        after.path[shared - 1].node, tree.QuoteNode | tree.ListNode | tree.ListItemNode | tree.TableNode
    ):
        return _NESTED_CUT
    if isinstance(before.node, tree.BreakNode):
        return _LINE_CUT
    if before.text and (before.text[-1] not in _BREAK_CHARACTERS or joins_cluster(before.text, after.text)):
        return None
    return _WORD_CUT


def _find_cuts_inside(leaf: Leaf, start: int, end: int, found: dict[int, int]) -> None:
    """Add the last line end and the last space of a leaf between two positions, unless there are later ones."""
    first, last = start - leaf.start, end - leaf.start
    match leaf.node:
        case tree.CodeBlockNode(text=text) if _LINE_CUT not in found or _WORD_CUT not in found:
            line = text.rfind("\n", first, last) + 1
            if line > first:
                found.setdefault(_LINE_CUT, leaf.start + line)
        case tree.TextNode(text=text) | tree.CodeNode(text=text):
            pass
        case _:
            return
    if _WORD_CUT not in found:
        for position in range(min(last, len(text) - 1), first, -1):
            if text[position - 1] in _BREAK_CHARACTERS and not is_inside_cluster(text, position):
                found[_WORD_CUT] = leaf.start + position
                return
