"""Plain text for terminals, webhooks and messages whose markup a platform refuses: links as `text (address)`, tables in columns of a fixed-width font."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, assert_never

from keryx.markdown import tree
from keryx.markdown.split import measure_width

# Columns are padded up to this width. A longer cell moves the rest of its row to the right.
MAX_COLUMN_WIDTH = 32
RULE_LINE, RULE_CROSS = "─", "┼"
RULE = "———"
_BULLET = "•"


def render_table(table: tree.TableNode) -> list[str]:
    """Return a line for each row, and a rule below the header. The rest of a cut row begins at its column."""
    rows = [
        (row, ["".join(map(tree.visible_text, cell.children)).replace("\n", " ") for cell in row.cells])
        for row in table.rows
    ]
    widths: list[int] = []
    for row, texts in rows:
        widths.extend([0] * (row.first_column + len(texts) - len(widths)))
        for column, text in enumerate(texts, row.first_column):
            widths[column] = max(widths[column], min(measure_width(text), MAX_COLUMN_WIDTH))
    lines: list[str] = []
    for row, texts in rows:
        line = ""
        for column, (cell, text) in enumerate(zip(row.cells, texts, strict=True), row.first_column):
            bar = "| " if column and not cell.continued else ""
            line += bar + text + " " * (widths[column] - measure_width(text) + 1)
        lines.append(line.rstrip())
        if row.header:
            lines.append((RULE_LINE + RULE_CROSS + RULE_LINE).join(RULE_LINE * size for size in widths))
    return lines


class _PlainLine(NamedTuple):
    text: str
    # A line of code is not indented in a list.
    code: bool = False


def render(document: tree.DocumentNode) -> str:
    """Return the text of a whole document."""
    return "\n".join(line.text for line in _render_blocks(document.blocks, loose=True)).strip("\n").rstrip()


def _render_inlines(children: Iterable[tree.Inline]) -> str:
    text = ""
    for node in children:
        match node:
            case tree.TextNode() | tree.CodeNode():
                text += node.text
            case tree.BreakNode():
                text += "\n"
            case tree.BoldNode() | tree.ItalicNode() | tree.StrikeNode():
                text += _render_inlines(node.children)
            case tree.LinkNode() | tree.ImageNode():
                # The address comes where the text of the link ends.
                text += _render_inlines(node.children)
                text += "" if node.bare or node.more else f" ({node.url})"
            case _:
                assert_never(node)
    return text


def _render_blocks(blocks: Iterable[tree.Block], *, loose: bool) -> list[_PlainLine]:
    """Return the lines of blocks, with an empty line between them; in a list only between paragraphs."""
    lines: list[_PlainLine] = []
    last: tree.Block | None = None
    for block in blocks:
        if last is not None and (
            loose or (isinstance(last, tree.ParagraphNode) and isinstance(block, tree.ParagraphNode))
        ):
            lines.append(_PlainLine(""))
        lines.extend(_render_block(block))
        last = block
    return lines


def _render_block(block: tree.Block) -> Iterable[_PlainLine]:
    match block:
        case tree.ParagraphNode() | tree.HeadingNode():
            return [
                _PlainLine(line) for line in _render_inlines(block.children).removesuffix("\n").split("\n")
            ]
        case tree.CodeBlockNode():
            return [_PlainLine(text, True) for text in block.lines]
        case tree.TableNode():
            return [_PlainLine(text, True) for text in render_table(block)]
        case tree.QuoteNode():
            return [_PlainLine(f"> {text}", code) for text, code in _render_blocks(block.blocks, loose=True)]
        case tree.ListNode():
            return [line for item in block.items for line in _render_item(item)]
        case tree.RuleNode():
            return [_PlainLine(RULE)]
        case _:
            assert_never(block)


def _render_item(item: tree.ListItemNode) -> Iterator[_PlainLine]:
    marker = _BULLET if item.number is None else f"{item.number}."
    margin = " " * (len(marker) + 1)
    lines = _render_blocks(item.blocks, loose=False) or [_PlainLine("")]
    if not item.continued and lines[0].code:
        yield _PlainLine(marker)
    for index, (text, code) in enumerate(lines):
        first = index == 0 and not item.continued
        yield _PlainLine(text if code else (f"{marker} " if first else margin) + text, code)
