"""Plain text for terminals, webhooks and messages whose markup a platform refuses: links as `text (address)`, tables in columns of a fixed-width font."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, assert_never

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown.parser import parse
from keryx.markdown.split import LengthLimit, has_visible_text, measure_width, split_document
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
    visible_text,
)

# Columns are padded up to this width. A longer cell moves the rest of its row to the right.
MAX_COLUMN_WIDTH = 32
RULE_LINE, RULE_CROSS = "─", "┼"
LIMIT = LengthLimit(4096, LengthUnit.UTF16)
RULE = "———"
_BULLET = "•"


def render_table(table: TableNode) -> list[str]:
    """One line for each row, and a rule below the header. The rest of a row that was cut starts where it was cut."""
    shown = [(row, [_render_cell(cell) for cell in row.cells]) for row in table.rows]
    widths = _measure_columns(shown)
    result: list[str] = []
    for row, cells in shown:
        result.append(_render_row(row, cells, widths))
        if row.header:
            result.append((RULE_LINE + RULE_CROSS + RULE_LINE).join(RULE_LINE * size for size in widths))
    return result


def _render_cell(cell: TableCellNode) -> str:
    return "".join(map(visible_text, cell.children)).replace("\n", " ")


def _measure_columns(shown: list[tuple[TableRowNode, list[str]]]) -> list[int]:
    widths: list[int] = []
    for row, cells in shown:
        widths.extend([0] * (row.first_column + len(cells) - len(widths)))
        for column, text in enumerate(cells, row.first_column):
            widths[column] = max(widths[column], min(measure_width(text), MAX_COLUMN_WIDTH))
    return widths


def _render_row(row: TableRowNode, cells: list[str], widths: list[int]) -> str:
    pieces: list[str] = []
    for column, (cell, text) in enumerate(zip(row.cells, cells, strict=True), row.first_column):
        if column and not cell.continued:
            pieces.append("| ")
        pieces.append(text + " " * (widths[column] - measure_width(text) + 1))
    return "".join(pieces).rstrip()


class _PlainLine(NamedTuple):
    """A line of code is not moved to the right in a list."""

    text: str
    code: bool = False


def render_parts(markdown: str, limit: LengthLimit = LIMIT) -> list[str]:
    return [
        part for part in split_document(parse(markdown), render, limit.fill_ratio) if has_visible_text(part)
    ]


def render(document: DocumentNode) -> str:
    """The whole document, uncut."""
    return "\n".join(line.text for line in _render_blocks(document.blocks, loose=True)).strip("\n").rstrip()


def _render_inlines(children: Iterable[Inline]) -> str:
    return "".join(map(_render_inline, children))


def _render_inline(node: Inline) -> str:
    match node:
        case TextNode() | CodeNode():
            return node.text
        case BreakNode():
            return "\n"
        case BoldNode() | ItalicNode() | StrikeNode():
            return _render_inlines(node.children)
        case LinkNode() | ImageNode():
            # The text, and the address where the text ends.
            label = _render_inlines(node.children)
            return label if node.bare or node.more else f"{label} ({node.url})"
        case _:
            assert_never(node)


def _render_blocks(blocks: Iterable[Block], *, loose: bool) -> list[_PlainLine]:
    """Blocks with an empty line between them; in a list only between paragraphs."""
    lines: list[_PlainLine] = []
    last: Block | None = None
    for block in blocks:
        if last is not None and (
            loose or (isinstance(last, ParagraphNode) and isinstance(block, ParagraphNode))
        ):
            lines.append(_PlainLine(""))
        lines.extend(_render_block(block))
        last = block
    return lines


def _render_block(block: Block) -> Iterable[_PlainLine]:
    match block:
        case ParagraphNode() | HeadingNode():
            return [
                _PlainLine(line) for line in _render_inlines(block.children).removesuffix("\n").split("\n")
            ]
        case CodeBlockNode():
            return [_PlainLine(text, True) for text in block.lines]
        case TableNode():
            return [_PlainLine(text, True) for text in render_table(block)]
        case QuoteNode():
            return [_PlainLine(f"> {text}", code) for text, code in _render_blocks(block.blocks, loose=True)]
        case ListNode():
            return [line for item in block.items for line in _render_item(item)]
        case RuleNode():
            return [_PlainLine(RULE)]
        case _:
            assert_never(block)


def _render_item(item: ListItemNode) -> Iterator[_PlainLine]:
    marker = _BULLET if item.number is None else f"{item.number}."
    margin = " " * (len(marker) + 1)
    lines = _render_blocks(item.blocks, loose=False) or [_PlainLine("")]
    if not item.continued and lines[0].code:
        yield _PlainLine(marker)
    for index, (text, code) in enumerate(lines):
        first = index == 0 and not item.continued
        yield _PlainLine(text if code else (f"{marker} " if first else margin) + text, code)
