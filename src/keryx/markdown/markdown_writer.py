"""Writes a document as Markdown again, for platforms that take it: with tables, fences as long as their code needs, and everything escaped that only looks like a block."""

import re
from collections.abc import Iterable

from keryx.markdown import plain, tree
from keryx.markdown.plain import MARKS, TextLine

_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
# What makes a list, a quotation, a heading or a table at the beginning of a line, after a number or not.
_LINE_START = re.compile(r"^(\d{1,9}(?=[.)])|(?=[-+=>#|]))(.)", re.MULTILINE)
_BACKTICKS = re.compile("`+")


class MarkdownWriter(plain.PlainWriter):
    bullet = "-"
    rule = "---"
    marks = MARKS

    def escape_mark(self, mark: str) -> str:
        """Return a character that would begin a block or end a cell."""
        return f"\\{mark}"

    def write_text(self, children: Iterable[tree.Inline]) -> str:
        """Return inline markup. What begins a line like a block is escaped."""
        text = _INDENT.sub("", self.write_inlines(children)).removesuffix("\n")
        return _LINE_START.sub(lambda found: found[1] + self.escape_mark(found[2]), text)

    def write_cell(self, cell: tree.TableCellNode) -> str:
        return self.write_text(cell.children)

    def write_blocks(self, blocks: Iterable[tree.Block], *, loose: bool = True) -> list[TextLine]:
        lines: list[TextLine] = []
        for block in blocks:
            if lines:
                lines.append(TextLine(""))
            lines.extend(self.write_block(block))
        return lines

    def write_paragraph(self, children: Iterable[tree.Inline]) -> list[TextLine]:
        return [TextLine(line) for line in self.write_text(children).split("\n")]

    def write_heading(self, heading: tree.HeadingNode) -> list[TextLine]:
        text = self.write_text(heading.children).replace("\n", " ")
        return [TextLine(f"{'#' * heading.level} {text}")]

    def write_code_block(self, lines: Iterable[str], lang: str = "") -> list[TextLine]:
        code = list(lines)
        fence = "`" * max(3, _count_backticks("\n".join(code)) + 1)
        return [TextLine(line) for line in (f"{fence}{lang}", *code, fence)]

    def write_quote(self, lines: Iterable[TextLine]) -> list[TextLine]:
        return [TextLine(f"> {line.text}".rstrip()) for line in lines]

    def write_item(self, item: tree.ListItemNode) -> list[TextLine]:
        """Return the lines of an item. The rest of one that began in an earlier part has no marker."""
        lines = self.write_blocks(item.blocks) or [TextLine("")]
        if item.continued:
            return lines
        marker = f"{self.bullet} " if item.number is None else f"{item.number}. "
        margin = " " * len(marker)
        return [
            TextLine((marker if index == 0 else margin if line.text else "") + line.text)
            for index, line in enumerate(lines)
        ]

    def write_table(self, table: tree.TableNode) -> list[TextLine]:
        """Return a table; what has no header, because it was cut, as text in columns."""
        whole = table.rows[0].header and not any(
            row.first_column or cell.continued for row in table.rows for cell in row.cells
        )
        if not whole:
            return super().write_table(table)
        width = max(len(row.cells) for row in table.rows)
        rows = [
            [
                self.write_cell(cell).replace("\n", " ").replace("|", self.escape_mark("|"))
                for cell in row.cells
            ]
            for row in table.rows
        ]
        lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in rows]
        return [TextLine(line) for line in (lines[0], "|" + "---|" * width, *lines[1:])]

    def write_code(self, text: str) -> str:
        fence = "`" * (_count_backticks(text) + 1)
        pad = " " if text[:1] in " `" or text[-1:] in " `" else ""
        return f"{fence}{pad}{text}{pad}{fence}" if text else ""


def _count_backticks(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max(map(len, _BACKTICKS.findall(text)), default=0)
