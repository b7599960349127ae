"""Matrix: a plain body, and the HTML that the specification allows."""

import json
from collections.abc import Iterable
from html import escape
from typing import assert_never

import msgspec

from keryx.surfaces.gateway.render import plain
from keryx.surfaces.gateway.render.measure import inked
from keryx.surfaces.gateway.render.parser import parse
from keryx.surfaces.gateway.render.split import split
from keryx.surfaces.gateway.render.tree import (
    Block,
    Bold,
    Break,
    Cell,
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
    Row,
    Rule,
    Strike,
    Table,
    Text,
)

BUDGET = 40_000
"""Bytes of both bodies as JSON. An event may have 65,536; encrypted, it grows by a third and some keys."""


class Rendered(msgspec.Struct, frozen=True):
    """`body` and `formatted_body` of an `m.text` event with the format `org.matrix.custom.html`."""

    body: str
    formatted_body: str


def parts(markdown: str, budget: int = BUDGET) -> list[Rendered]:
    """Parts that show something, in order; none if the whole shows nothing."""
    pieces = split(parse(markdown), _render, lambda part: size(part) / budget)
    return [part for part in pieces if inked(part.body)]


def size(part: Rendered) -> int:
    """Bytes of both bodies in canonical JSON."""
    return sum(
        len(json.dumps(text, ensure_ascii=False).encode()) for text in (part.body, part.formatted_body)
    )


def _render(document: Document) -> Rendered:
    return Rendered(plain.render(document), _blocks(document.blocks))


def _blocks(blocks: Iterable[Block]) -> str:
    return "".join(map(_block, blocks))


def _block(block: Block) -> str:
    match block:
        case Paragraph():
            return f"<p>{_inlines(block.children)}</p>"
        case Heading():
            return f"<h{block.level}>{_inlines(block.children)}</h{block.level}>"
        case CodeBlock():
            lang = f' class="language-{escape(block.lang)}"' if block.lang else ""
            code = escape("\n".join(block.lines))
            return f"<pre><code{lang}>{code}\n</code></pre>"
        case Quote():
            return f"<blockquote>{_blocks(block.blocks)}</blockquote>"
        case List():
            return _list(block)
        case Table():
            return f"<table>{''.join(map(_row, block.rows))}</table>"
        case Rule():
            return "<hr>"
        case _:
            assert_never(block)


def _list(block: List) -> str:
    number = block.items[0].number if block.items else None
    items = "".join(f"<li>{_item(item)}</li>" for item in block.items)
    if number is None:
        return f"<ul>{items}</ul>"
    return f'<ol start="{number}">{items}</ol>' if number != 1 else f"<ol>{items}</ol>"


def _item(item: Item) -> str:
    """The only paragraph of an item needs no tag, which would set it apart."""
    match item.blocks:
        case (Paragraph(children=children), *rest):
            return _inlines(children) + _blocks(rest)
        case blocks:
            return _blocks(blocks)


def _row(row: Row) -> str:
    tag = "th" if row.header else "td"
    cells = (*(Cell(()) for _ in range(row.start)), *row.cells)
    return "<tr>" + "".join(f"<{tag}>{_inlines(cell.children)}</{tag}>" for cell in cells) + "</tr>"


def _inlines(children: Iterable[Inline]) -> str:
    return "".join(map(_inline, children))


def _inline(node: Inline) -> str:
    match node:
        case Text():
            return escape(node.text)
        case Code():
            return f"<code>{escape(node.text)}</code>"
        case Break():
            return "<br>"
        case Bold():
            return f"<strong>{_inlines(node.children)}</strong>"
        case Italic():
            return f"<em>{_inlines(node.children)}</em>"
        case Strike():
            return f"<del>{_inlines(node.children)}</del>"
        case Link() | Image():
            return f'<a href="{escape(node.url)}">{_inlines(node.children)}</a>'
        case _:
            assert_never(node)
