"""Splits a tree into parts that fit a length limit: between blocks first, then lines, words and characters. The visible text of all parts, joined, is that of the whole."""

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown.tree import (
    BoldNode,
    BreakNode,
    CodeBlockNode,
    CodeNode,
    DocumentNode,
    HeadingNode,
    ImageNode,
    ItalicNode,
    LinkNode,
    ListItemNode,
    ListNode,
    Node,
    ParagraphNode,
    QuoteNode,
    RuleNode,
    StrikeNode,
    TableCellNode,
    TableNode,
    TableRowNode,
    TextNode,
    child_nodes,
)

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
        """How much of the limit the text takes; above 1 it does not fit."""
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
    """Columns in a fixed-width font."""
    return sum(
        0 if _extends_cluster(char) else 1 + (unicodedata.east_asian_width(char) in "WF") for char in text
    )


def is_inside_cluster(text: str, at: int) -> bool:
    """Whether a place inside the text, not at one of its ends, is within one character as a reader sees it."""
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300":
        return before == "\r" and after == "\n"
    if _extends_cluster(after) or (before == _JOINER and not after.isspace()):
        return True
    if _is_regional_indicator(before) and _is_regional_indicator(after):
        return _count_flag_letters(text, at) % 2 == 1
    return _joins_syllable(before, after)


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


def _count_flag_letters(text: str, at: int) -> int:
    """Count the consecutive regional indicators before `at`; two of them make a flag."""
    start = at
    while start > 0 and at - start < _MAX_RUN_LENGTH and _is_regional_indicator(text[start - 1]):
        start -= 1
    return at - start


def _joins_syllable(before: str, after: str) -> bool:
    """Hangul letters of one syllable, and an Indic consonant joined to the next."""
    if unicodedata.combining(before) == _VIRAMA:
        return unicodedata.category(after) == "Lo"
    if "\u1100" <= before <= "\u115f":
        return "\u1100" <= after <= "\u11a7" or "\uac00" <= after <= "\ud7a3"
    if "\u1160" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3":
        return "\u1160" <= after <= "\u11ff"
    return False


_LeafNode = TextNode | CodeNode | CodeBlockNode | BreakNode | RuleNode


@dataclass(slots=True, eq=False)
class NodeSpan:
    """A node that holds others: its place among its siblings, and where in the stream it starts and ends."""

    node: Node
    index: int
    start: int
    end: int = 0


@dataclass(frozen=True, slots=True)
class Leaf:
    """`node` is None where a node holds nothing, as an empty list item."""

    path: tuple[NodeSpan, ...]
    node: _LeafNode | None
    text: str
    start: int

    @property
    def end(self) -> int:
        """A leaf without text takes one place all the same."""
        return self.start + (len(self.text) or 1)


class LeafSequence:
    """Places run from 0 to `end`, one for each visible character."""

    def __init__(self, document: DocumentNode) -> None:
        self.leaves: list[Leaf] = []
        self.end = 0
        for index, block in enumerate(document.blocks):
            self._add(block, index, ())
        self._starts = [leaf.start for leaf in self.leaves]

    def find_leaf(self, place: int) -> int:
        """The index of the leaf that the place is in."""
        return bisect_right(self._starts, place) - 1

    def build_slice(self, start: int, end: int) -> DocumentNode:
        """Return the tree of the text between two positions."""
        build = _TreeBuilder(start, end)
        for leaf in self.leaves[self.find_leaf(start) : self.find_leaf(end - 1) + 1]:
            build.add(leaf)
        return build.build()

    def _add(self, node: Node, index: int, path: tuple[NodeSpan, ...]) -> None:
        match node:
            case TextNode() | CodeNode() | CodeBlockNode():
                self._add_leaf(path, node, node.text)
            case BreakNode() | RuleNode():
                self._add_leaf(path, node, "")
            case _:
                frame = NodeSpan(node, index, self.end)
                children = child_nodes(node)
                for place, child in enumerate(children):
                    self._add(child, place, (*path, frame))
                if not children:
                    self._add_leaf((*path, frame), None, "")
                frame.end = self.end

    def _add_leaf(self, path: tuple[NodeSpan, ...], node: _LeafNode | None, text: str) -> None:
        leaf = Leaf(path, node, text, self.end)
        self.leaves.append(leaf)
        self.end = leaf.end


def count_common(one: Sequence[NodeSpan | None], other: Sequence[NodeSpan]) -> int:
    """How many frames, from the outermost, two paths share."""
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

    def build(self) -> DocumentNode:
        while len(self._open_nodes) > 1:
            self._close()
        return DocumentNode(tuple(self._open_nodes[0].children))

    def _cut_leaf(self, leaf: Leaf, node: _LeafNode) -> Node:
        text = leaf.text[max(self._start - leaf.start, 0) : self._end - leaf.start]
        match node:
            case TextNode():
                return TextNode(text)
            case CodeNode():
                return CodeNode(text)
            case CodeBlockNode(lang=lang, more=more):
                return CodeBlockNode(text, lang, more or self._end < leaf.end)
            case BreakNode() | RuleNode():
                return node

    def _close(self) -> None:
        opened = self._open_nodes.pop()
        frame, children = opened.span, tuple(opened.children)
        assert frame is not None
        begun, more = frame.start < self._start, frame.end > self._end
        self._open_nodes[-1].children.append(
            _rebuild(frame.node, children, opened.first, begun=begun, more=more)
        )


@dataclass(slots=True)
class _OpenNode:
    """Children are what the node took in the first place: a stretch of a tree nests as the tree does."""

    span: NodeSpan | None
    children: list[Any] = field(default_factory=list[Any])
    first: int = 0


def _rebuild(node: Node, children: tuple[Any, ...], first: int, *, begun: bool, more: bool) -> Node:
    match node:
        case ListItemNode():
            return ListItemNode(children, node.number, node.continued or begun)
        case LinkNode() | ImageNode():
            return replace(node, children=children, more=node.more or more)
        case TableCellNode():
            return TableCellNode(children, node.continued or begun)
        case TableRowNode():
            return TableRowNode(children, node.header, node.first_column + first)
        case HeadingNode():
            return HeadingNode(children, node.level)
        case ParagraphNode():
            return ParagraphNode(children, node.tight)
        case (
            QuoteNode() | ListNode() | TableNode() | BoldNode() | ItalicNode() | StrikeNode() | DocumentNode()
        ):
            return type(node)(children)
        case TextNode() | CodeNode() | CodeBlockNode() | BreakNode() | RuleNode():
            raise AssertionError(f"{node!r} holds nothing")


def split_document(
    document: DocumentNode, render: Callable[[DocumentNode], P], share: Callable[[P], float]
) -> list[P]:
    """The rendered parts in order. A `share` above 1 means that a part does not fit.

    A single character that does not fit makes a part all the same.
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
    """One part: from a place in the stream to a place that is good to cut at, near the most that fits."""

    def __init__(
        self,
        stream: LeafSequence,
        start: int,
        render: Callable[[DocumentNode], P],
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
            place = _find_best_cut(self._stream, self._start, reach)
            if place >= reach or self._measure(self.render_part(place)) <= 1:
                return place
            fails = place

    def _find_reach(self, guess: int, fails: int) -> int:
        """A place that fits and is near the nearest known not to; the start if nothing fits."""
        fits, size, tries = self._start, guess, 0
        while fails - fits > 1:
            place = min(max(self._start + size, fits + 1), fails - 1)
            share = self._measure(self.render_part(place))
            if share <= 1:
                fits = place
                if share >= _FULL_ENOUGH:
                    break
            else:
                fails = place
            tries += 1
            size = (
                self._estimate_size(place, share)
                if tries < _MAX_ESTIMATES
                else (fits + fails) // 2 - self._start
            )
        return fits

    def _estimate_size(self, place: int, share: float) -> int:
        """How many places would fill the part if the text went on alike."""
        return int((place - self._start) * 0.97 / max(share, 0.1))


def _find_best_cut(stream: LeafSequence, start: int, reach: int) -> int:
    """Return the last position of the best rank up to `reach`, or the end of a character if there is none."""
    found: dict[int, int] = {}
    for index in range(stream.find_leaf(reach), stream.find_leaf(start) - 1, -1):
        leaf = stream.leaves[index]
        _find_cuts_inside(leaf, max(start, leaf.start), min(reach, leaf.end), found)
        if start < leaf.start <= reach:
            rank = _rank_border(stream.leaves[index - 1], leaf)
            if rank is not None:
                found.setdefault(rank, leaf.start)
    for rank, share in enumerate(_MIN_FILL_RATIOS):
        place = found.get(rank, start)
        if place > start and place - start >= share * (reach - start):
            return place
    return _find_character_end(stream, start, reach)


def _rank_border(before: Leaf, after: Leaf) -> int | None:
    """The rank of a cut between two leaves. A heading stays with what it heads."""
    shared = count_common(before.path, after.path)
    if len(before.path) > shared and isinstance(before.path[shared].node, HeadingNode):
        return None
    if shared == 0:
        return _BLOCK_CUT
    if isinstance(after.path[shared - 1].node, QuoteNode | ListNode | ListItemNode | TableNode):
        return _NESTED_CUT
    if isinstance(before.node, BreakNode):
        return _LINE_CUT
    if before.text and (before.text[-1] not in _BREAK_CHARACTERS or joins_cluster(before.text, after.text)):
        return None
    return _WORD_CUT


def _find_cuts_inside(leaf: Leaf, start: int, end: int, found: dict[int, int]) -> None:
    """The last line end and the last space of a leaf between two places."""
    first, last = start - leaf.start, end - leaf.start
    match leaf.node:
        case CodeBlockNode(text=text) if _LINE_CUT not in found or _WORD_CUT not in found:
            line = text.rfind("\n", first, last) + 1
            if line > first:
                found.setdefault(_LINE_CUT, leaf.start + line)
        case TextNode(text=text) | CodeNode(text=text):
            pass
        case _:
            return
    if _WORD_CUT not in found:
        for place in range(min(last, len(text) - 1), first, -1):
            if text[place - 1] in _BREAK_CHARACTERS and not is_inside_cluster(text, place):
                found[_WORD_CUT] = leaf.start + place
                return


def _find_character_end(stream: LeafSequence, start: int, reach: int) -> int:
    """Back from `reach` to the end of a character, or ahead if nothing fits: a part is never empty."""
    for place in range(reach, max(start, reach - MAX_CLUSTER_LENGTH), -1):
        if not _is_inside_character(stream, place):
            return place
    if reach > start:
        return reach
    ahead = range(start + 1, min(start + MAX_CLUSTER_LENGTH, stream.end) + 1)
    return next((place for place in ahead if not _is_inside_character(stream, place)), ahead[-1])


def _is_inside_character(stream: LeafSequence, place: int) -> bool:
    if place == stream.end:
        return False
    index = stream.find_leaf(place)
    leaf = stream.leaves[index]
    if place > leaf.start:
        return is_inside_cluster(leaf.text, place - leaf.start)
    return joins_cluster(stream.leaves[index - 1].text, leaf.text)
