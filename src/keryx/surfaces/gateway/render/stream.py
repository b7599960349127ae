"""The leaves of a tree in reading order, so that any stretch of them can be made a tree again."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from keryx.surfaces.gateway.render.tree import (
    Bold,
    Break,
    Cell,
    Code,
    CodeBlock,
    Document,
    Heading,
    Image,
    Italic,
    Item,
    Link,
    List,
    Node,
    Paragraph,
    Quote,
    Row,
    Rule,
    Strike,
    Table,
    Text,
    below,
)

_Content = Text | Code | CodeBlock | Break | Rule


@dataclass(slots=True, eq=False)
class Frame:
    """A node that holds others: its place among its siblings, and where in the stream it starts and ends."""

    node: Node
    index: int
    start: int
    end: int = 0


@dataclass(frozen=True, slots=True)
class Leaf:
    """`node` is None where a node holds nothing, as an empty list item."""

    path: tuple[Frame, ...]
    node: _Content | None
    text: str
    start: int

    @property
    def end(self) -> int:
        """A leaf without text takes one place all the same."""
        return self.start + (len(self.text) or 1)


class Stream:
    """Places run from 0 to `end`, one for each visible character."""

    def __init__(self, document: Document) -> None:
        self.leaves: list[Leaf] = []
        self.end = 0
        for index, block in enumerate(document.blocks):
            self._add(block, index, ())
        self._starts = [leaf.start for leaf in self.leaves]

    def at(self, place: int) -> int:
        """The index of the leaf that the place is in."""
        return bisect_right(self._starts, place) - 1

    def document(self, start: int, end: int) -> Document:
        """The tree of what stands between two places."""
        build = _Build(start, end)
        for leaf in self.leaves[self.at(start) : self.at(end - 1) + 1]:
            build.add(leaf)
        return build.done()

    def _add(self, node: Node, index: int, path: tuple[Frame, ...]) -> None:
        match node:
            case Text() | Code() | CodeBlock():
                self._leaf(path, node, node.text)
            case Break() | Rule():
                self._leaf(path, node, "")
            case _:
                frame = Frame(node, index, self.end)
                children = below(node)
                for place, child in enumerate(children):
                    self._add(child, place, (*path, frame))
                if not children:
                    self._leaf((*path, frame), None, "")
                frame.end = self.end

    def _leaf(self, path: tuple[Frame, ...], node: _Content | None, text: str) -> None:
        leaf = Leaf(path, node, text, self.end)
        self.leaves.append(leaf)
        self.end = leaf.end


def common(one: Sequence[Frame | None], other: Sequence[Frame]) -> int:
    """How many frames, from the outermost, two paths share."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left is not right:
            break
        count += 1
    return count


class _Build:
    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end
        self._open = [_Open(None)]

    def add(self, leaf: Leaf) -> None:
        kept = common([opened.frame for opened in self._open[1:]], leaf.path)
        while len(self._open) > kept + 1:
            self._close()
        for frame in leaf.path[kept:]:
            if not self._open[-1].children:
                self._open[-1].first = frame.index
            self._open.append(_Open(frame))
        if leaf.node is not None:
            self._open[-1].children.append(self._cut(leaf, leaf.node))

    def done(self) -> Document:
        while len(self._open) > 1:
            self._close()
        return Document(tuple(self._open[0].children))

    def _cut(self, leaf: Leaf, node: _Content) -> Node:
        text = leaf.text[max(self._start - leaf.start, 0) : self._end - leaf.start]
        match node:
            case Text():
                return Text(text)
            case Code():
                return Code(text)
            case CodeBlock(lang=lang, more=more):
                return CodeBlock(text, lang, more or self._end < leaf.end)
            case Break() | Rule():
                return node

    def _close(self) -> None:
        opened = self._open.pop()
        frame, children = opened.frame, tuple(opened.children)
        assert frame is not None
        begun, more = frame.start < self._start, frame.end > self._end
        self._open[-1].children.append(_rebuilt(frame.node, children, opened.first, begun=begun, more=more))


@dataclass(slots=True)
class _Open:
    """Children are what the node took in the first place: a stretch of a tree nests as the tree does."""

    frame: Frame | None
    children: list[Any] = field(default_factory=list[Any])
    first: int = 0


def _rebuilt(node: Node, children: tuple[Any, ...], first: int, *, begun: bool, more: bool) -> Node:
    match node:
        case Item():
            return Item(children, node.number, node.continued or begun)
        case Link() | Image():
            return type(node)(children, node.url, node.bare, node.more or more)
        case Cell():
            return Cell(children, node.continued or begun)
        case Row():
            return Row(children, node.header, node.start + first)
        case Heading():
            return Heading(children, node.level)
        case Paragraph() | Quote() | List() | Table() | Bold() | Italic() | Strike() | Document():
            return type(node)(children)
        case Text() | Code() | CodeBlock() | Break() | Rule():
            raise AssertionError(f"{node!r} holds nothing")
