"""Plain text for terminals, webhooks and messages whose markup a platform refuses: links as `text (address)`, tables in columns of a fixed-width font. The markup of platforms that take text with marks in it is written by subclasses of `PlainWriter`."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, assert_never

from keryx.markdown import tree
from keryx.markdown.split import measure_width

# Columns are padded up to this width. A longer cell moves the rest of its row to the right.
MAX_COLUMN_WIDTH = 32
RULE_LINE, RULE_CROSS = "─", "┼"
RULE = "———"
# What most platforms write around styles.
MARKS: Mapping[type[tree.Inline], str] = {tree.BoldNode: "**", tree.ItalicNode: "*", tree.StrikeNode: "~~"}


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


class TextLine(NamedTuple):
    text: str
    # A line of code is not indented in a list.
    code: bool = False


class PlainWriter:
    """Writes a document line by line. A subclass overrides what its markup writes in another way."""

    bullet = "•"
    rule = RULE
    # What is written before and after a style.
    marks: Mapping[type[tree.Inline], str] = {}

    def write(self, document: tree.DocumentNode) -> str:
        """Return the text of a whole document, without empty lines around it."""
        return "\n".join(line.text for line in self.write_blocks(document.blocks)).strip("\n")

    def write_blocks(self, blocks: Iterable[tree.Block], *, loose: bool = True) -> list[TextLine]:
        """Return the lines of blocks, with an empty line between them; in a list only between paragraphs."""
        lines: list[TextLine] = []
        last: tree.Block | None = None
        for block in blocks:
            if last is not None and (
                loose or (isinstance(last, tree.ParagraphNode) and isinstance(block, tree.ParagraphNode))
            ):
                lines.append(TextLine(""))
            lines.extend(self.write_block(block))
            last = block
        return lines

    def write_block(self, block: tree.Block) -> list[TextLine]:
        match block:
            case tree.ParagraphNode():
                return self.write_paragraph(block.children)
            case tree.HeadingNode():
                return self.write_heading(block)
            case tree.CodeBlockNode():
                return self.write_code_block(block.lines, block.lang)
            case tree.TableNode():
                return self.write_table(block)
            case tree.QuoteNode():
                return self.write_quote(self.write_blocks(block.blocks))
            case tree.ListNode():
                return [line for item in block.items for line in self.write_item(item)]
            case tree.RuleNode():
                return [TextLine(self.rule)]
            case _:
                assert_never(block)

    def write_paragraph(self, children: Iterable[tree.Inline]) -> list[TextLine]:
        text = self.write_inlines(children).removesuffix("\n")
        return [TextLine(line) for line in text.split("\n")]

    def write_heading(self, heading: tree.HeadingNode) -> list[TextLine]:
        return self.write_paragraph(heading.children)

    def write_code_block(self, lines: Iterable[str], lang: str = "") -> list[TextLine]:
        return [TextLine(line, True) for line in lines]

    def write_table(self, table: tree.TableNode) -> list[TextLine]:
        return self.write_code_block(render_table(table))

    def write_quote(self, lines: Iterable[TextLine]) -> list[TextLine]:
        return [TextLine(f"> {text}", code) for text, code in lines]

    def write_item(self, item: tree.ListItemNode) -> list[TextLine]:
        marker = self.bullet if item.number is None else f"{item.number}."
        margin = " " * (len(marker) + 1)
        lines = self.write_blocks(item.blocks, loose=False) or [TextLine("")]
        written: list[TextLine] = []
        if not item.continued and lines[0].code:
            written.append(TextLine(marker))
        for index, (text, code) in enumerate(lines):
            first = index == 0 and not item.continued
            written.append(TextLine(text if code else (f"{marker} " if first else margin) + text, code))
        return written

    def write_inlines(self, children: Iterable[tree.Inline]) -> str:
        return "".join(map(self.write_inline, children))

    def write_inline(self, node: tree.Inline) -> str:
        match node:
            case tree.TextNode():
                return self.escape(node.text)
            case tree.CodeNode():
                return self.write_code(node.text)
            case tree.BreakNode():
                return "\n"
            case tree.BoldNode() | tree.ItalicNode() | tree.StrikeNode():
                return surround(self.write_inlines(node.children), self.marks.get(type(node), ""))
            case tree.LinkNode() | tree.ImageNode():
                return self.write_link(node)
            case _:
                assert_never(node)

    def escape(self, text: str) -> str:
        """Return what shows the text as it is."""
        return text

    def write_code(self, text: str) -> str:
        return text

    def write_link(self, node: tree.LinkNode | tree.ImageNode) -> str:
        """Return the text, and after it the address, unless the rest of the text is in a later part."""
        text = self.write_inlines(node.children)
        return text if node.bare or node.more else f"{text} ({self.escape(node.url)})"


def render(document: tree.DocumentNode) -> str:
    """Return the text of a whole document."""
    return PlainWriter().write(document).rstrip()


def surround(text: str, mark: str) -> str:
    """Return a text between two marks. White space at its ends stays outside, or it would not be markup."""
    inner = text.strip()
    if not inner:
        return text
    start = text.index(inner)
    return f"{text[:start]}{mark}{inner}{mark}{text[start + len(inner) :]}"
