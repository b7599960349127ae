"""Matrix markup: a plain body, and the HTML that the specification allows."""

import json
from collections.abc import Iterable
from html import escape
from typing import assert_never

import msgspec

from keryx.markdown import plain
from keryx.markdown.parser import parse
from keryx.markdown.split import has_visible_text, split_document
from keryx.markdown.tree import (
    Block,
    BoldNode,
    BreakNode,
    CodeBlockNode,
    CodeNode,
    DocumentNode,
    HeadingNode,
    ImageNode,
    Inline,
    ItalicNode,
    LinkNode,
    ListItemNode,
    ListNode,
    ParagraphNode,
    QuoteNode,
    RuleNode,
    StrikeNode,
    TableCellNode,
    TableNode,
    TableRowNode,
    TextNode,
)

MAX_BODY_BYTES = 40_000
"""Bytes of both bodies as JSON. An event may have 65,536; encrypted, it grows by a third and some keys."""


class MatrixText(msgspec.Struct, frozen=True):
    """`body` and `formatted_body` of an `m.text` event with the format `org.matrix.custom.html`."""

    body: str
    formatted_body: str


def render_parts(markdown: str, budget: int = MAX_BODY_BYTES) -> list[MatrixText]:
    """Parts that show something, in order; none if the whole shows nothing."""
    pieces = split_document(parse(markdown), _render, lambda part: measure_size(part) / budget)
    return [part for part in pieces if has_visible_text(part.body)]


def measure_size(part: MatrixText) -> int:
    """Bytes of both bodies in canonical JSON."""
    return sum(
        len(json.dumps(text, ensure_ascii=False).encode()) for text in (part.body, part.formatted_body)
    )


def _render(document: DocumentNode) -> MatrixText:
    return MatrixText(plain.render(document), _render_blocks(document.blocks))


def _render_blocks(blocks: Iterable[Block]) -> str:
    return "".join(map(_render_block, blocks))


def _render_block(block: Block) -> str:
    match block:
        case ParagraphNode():
            return f"<p>{_render_inlines(block.children)}</p>"
        case HeadingNode():
            return f"<h{block.level}>{_render_inlines(block.children)}</h{block.level}>"
        case CodeBlockNode():
            lang = f' class="language-{escape(block.lang)}"' if block.lang else ""
            code = escape("\n".join(block.lines))
            return f"<pre><code{lang}>{code}\n</code></pre>"
        case QuoteNode():
            return f"<blockquote>{_render_blocks(block.blocks)}</blockquote>"
        case ListNode():
            return _render_list(block)
        case TableNode():
            return f"<table>{''.join(map(_render_row, block.rows))}</table>"
        case RuleNode():
            return "<hr>"
        case _:
            assert_never(block)


def _render_list(block: ListNode) -> str:
    number = block.items[0].number if block.items else None
    items = "".join(f"<li>{_render_item(item)}</li>" for item in block.items)
    if number is None:
        return f"<ul>{items}</ul>"
    return f'<ol start="{number}">{items}</ol>' if number != 1 else f"<ol>{items}</ol>"


def _render_item(item: ListItemNode) -> str:
    """The only paragraph of an item needs no tag, which would set it apart."""
    match item.blocks:
        case (ParagraphNode(children=children), *rest):
            return _render_inlines(children) + _render_blocks(rest)
        case blocks:
            return _render_blocks(blocks)


def _render_row(row: TableRowNode) -> str:
    tag = "th" if row.header else "td"
    cells = (*(TableCellNode(()) for _ in range(row.first_column)), *row.cells)
    return "<tr>" + "".join(f"<{tag}>{_render_inlines(cell.children)}</{tag}>" for cell in cells) + "</tr>"


def _render_inlines(children: Iterable[Inline]) -> str:
    return "".join(map(_render_inline, children))


def _render_inline(node: Inline) -> str:
    match node:
        case TextNode():
            return escape(node.text)
        case CodeNode():
            return f"<code>{escape(node.text)}</code>"
        case BreakNode():
            return "<br>"
        case BoldNode():
            return f"<strong>{_render_inlines(node.children)}</strong>"
        case ItalicNode():
            return f"<em>{_render_inlines(node.children)}</em>"
        case StrikeNode():
            return f"<del>{_render_inlines(node.children)}</del>"
        case LinkNode() | ImageNode():
            return f'<a href="{escape(node.url)}">{_render_inlines(node.children)}</a>'
        case _:
            assert_never(node)
