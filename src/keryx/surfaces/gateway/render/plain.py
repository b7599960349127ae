"""Plain text: for terminals, webhooks and what a platform refused. Links read `text (address)`."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, assert_never

from keryx.surfaces.gateway.render import table
from keryx.surfaces.gateway.render.measure import Limit, Unit, inked
from keryx.surfaces.gateway.render.parser import parse
from keryx.surfaces.gateway.render.split import split
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

LIMIT = Limit(4096, Unit.UTF16)
RULE = "———"

_BULLET = "•"


class _Line(NamedTuple):
    """A line of code is not moved to the right in a list."""

    text: str
    code: bool = False


def parts(markdown: str, limit: Limit = LIMIT) -> list[str]:
    return [part for part in split(parse(markdown), render, limit.share) if inked(part)]


def render(document: Document) -> str:
    """The whole document, uncut."""
    return "\n".join(line.text for line in _blocks(document.blocks, loose=True)).strip("\n").rstrip()


def _inlines(children: Iterable[Inline]) -> str:
    return "".join(map(_inline, children))


def _inline(node: Inline) -> str:
    match node:
        case Text() | Code():
            return node.text
        case Break():
            return "\n"
        case Bold() | Italic() | Strike():
            return _inlines(node.children)
        case Link() | Image():
            # The text, and the address where the text ends.
            label = _inlines(node.children)
            return label if node.bare or node.more else f"{label} ({node.url})"
        case _:
            assert_never(node)


def _blocks(blocks: Iterable[Block], *, loose: bool) -> list[_Line]:
    """Blocks with an empty line between them; in a list only between paragraphs."""
    lines: list[_Line] = []
    last: Block | None = None
    for block in blocks:
        if last is not None and (loose or (isinstance(last, Paragraph) and isinstance(block, Paragraph))):
            lines.append(_Line(""))
        lines.extend(_block(block))
        last = block
    return lines


def _block(block: Block) -> Iterable[_Line]:
    match block:
        case Paragraph() | Heading():
            return [_Line(line) for line in _inlines(block.children).removesuffix("\n").split("\n")]
        case CodeBlock():
            return [_Line(text, True) for text in block.lines]
        case Table():
            return [_Line(text, True) for text in table.lines(block)]
        case Quote():
            return [_Line(f"> {text}", code) for text, code in _blocks(block.blocks, loose=True)]
        case List():
            return [line for item in block.items for line in _item(item)]
        case Rule():
            return [_Line(RULE)]
        case _:
            assert_never(block)


def _item(item: Item) -> Iterator[_Line]:
    marker = _BULLET if item.number is None else f"{item.number}."
    margin = " " * (len(marker) + 1)
    lines = _blocks(item.blocks, loose=False) or [_Line("")]
    if not item.continued and lines[0].code:
        yield _Line(marker)
    for index, (text, code) in enumerate(lines):
        first = index == 0 and not item.continued
        yield _Line(text if code else (f"{marker} " if first else margin) + text, code)
