"""Platforms that take marked-up text: the layout they share, and what each does its own way."""

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple, assert_never

from keryx.surfaces.gateway.render import table
from keryx.surfaces.gateway.render.tree import (
    Block,
    Bold,
    Break,
    Code,
    CodeBlock,
    Document,
    Heading,
    Image,
    Inline,
    Italic,
    Item,
    Link,
    List,
    Paragraph,
    Quote,
    Rule,
    Strike,
    Table,
    Text,
)

ZERO_WIDTH = "\u200b"
"""Stands where two signs must not meet: it shows nothing and belongs to no word."""

# The tree holds no control characters, so these can say where marked text begins and ends until the line is done.
_OPEN, _CLOSE = "\x01", "\x02"
_TOUCHING = re.compile(f"{_CLOSE}+{_OPEN}+|(?<=[\\w`]){_OPEN}+|{_CLOSE}+(?=[\\w`])")
_EDGES = re.compile(f"[{_OPEN}{_CLOSE}]")
_FENCE = re.compile("``(?=`)")


class Line(NamedTuple):
    """A line of code is not moved to the right in a list."""

    text: str
    code: bool = False


class Dialect:
    """Plain text. A platform changes what it does better."""

    bold: ClassVar[str] = ""
    italic: ClassVar[str] = ""
    strike: ClassVar[str] = ""
    edged: ClassVar[str] = ""
    """Marks that count only at the edge of a word."""
    bullet: ClassVar[str] = "•"
    rule: ClassVar[str] = "———"
    quotes_code: ClassVar[bool] = True

    def render(self, document: Document) -> str:
        lines = self._blocks(document.blocks, loose=True)
        return "\n".join(line.text for line in lines).strip("\n").rstrip()

    def text(self, text: str) -> str:
        return text

    def code(self, text: str) -> str:
        return text

    def fence(self, lines: list[str], lang: str) -> list[str]:
        return lines

    def heading(self, label: str, level: int) -> str:
        return self._marked(self.bold, label)

    def link(self, node: Link | Image) -> str:
        """The text, and the address where the text ends."""
        label = self.inline(node.children)
        return label if node.bare or node.more else f"{label} ({self.text(node.url)})"

    def inline(self, children: Iterable[Inline]) -> str:
        return "".join(map(self._inline, children))

    def _inline(self, node: Inline) -> str:
        match node:
            case Text():
                return self.text(node.text)
            case Code():
                return self.code(node.text)
            case Break():
                return "\n"
            case Bold():
                return self._marked(self.bold, self.inline(node.children))
            case Italic():
                return self._marked(self.italic, self.inline(node.children))
            case Strike():
                return self._marked(self.strike, self.inline(node.children))
            case Link() | Image():
                return self.link(node)
            case _:
                assert_never(node)

    def _marked(self, mark: str, text: str) -> str:
        """Each line between marks, with no space at their inner side: so every platform takes them."""
        if not mark:
            return text
        return "\n".join(self._marked_line(mark, line) for line in text.split("\n"))

    def _marked_line(self, mark: str, line: str) -> str:
        core = line.strip()
        if not _EDGES.sub("", core) or mark in (core[:1], core[-1:]):
            return line
        before, after = line[: len(line) - len(line.lstrip())], line[len(line.rstrip()) :]
        marked = edged(mark, core) if mark in self.edged else mark + core + mark
        return before + marked + after

    def _blocks(self, blocks: Iterable[Block], *, loose: bool) -> list[Line]:
        """Blocks with an empty line between them; in a list only between paragraphs."""
        lines: list[Line] = []
        last: Block | None = None
        for block in blocks:
            if last is not None and (loose or (isinstance(last, Paragraph) and isinstance(block, Paragraph))):
                lines.append(Line(""))
            lines.extend(self._block(block))
            last = block
        return lines

    def _block(self, block: Block) -> Iterable[Line]:
        match block:
            case Paragraph():
                return self._lines(self.inline(block.children))
            case Heading():
                return self._lines(self.heading(self.inline(block.children), block.level))
            case CodeBlock():
                return [Line(text, True) for text in self.fence(block.lines, block.lang)]
            case Table():
                return [Line(text, True) for text in self.fence(table.lines(block), "")]
            case Quote():
                return [self._quoted(line) for line in self._blocks(block.blocks, loose=True)]
            case List():
                return [line for item in block.items for line in self._item(item)]
            case Rule():
                return [Line(self.rule)]
            case _:
                assert_never(block)

    def _lines(self, text: str) -> Iterator[Line]:
        text = _EDGES.sub("", _TOUCHING.sub(ZERO_WIDTH, text.removesuffix("\n")))
        return (Line(line) for line in text.split("\n"))

    def _quoted(self, line: Line) -> Line:
        return line if line.code and not self.quotes_code else Line(f"> {line.text}", line.code)

    def _item(self, item: Item) -> Iterator[Line]:
        marker = self.bullet if item.number is None else f"{item.number}."
        margin = " " * (len(marker) + 1)
        lines = self._blocks(item.blocks, loose=False) or [Line("")]
        if not item.continued and lines[0].code:
            yield Line(marker)
        for index, (text, code) in enumerate(lines):
            first = index == 0 and not item.continued
            yield Line(text if code else (f"{marker} " if first else margin) + text, code)


def edged(mark: str, text: str) -> str:
    return _OPEN + mark + text + mark + _CLOSE


def unfenced(text: str) -> str:
    """The text with no three backticks in a row."""
    return _FENCE.sub(f"``{ZERO_WIDTH}", text)
