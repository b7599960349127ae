"""Writes a document as a text without marks and the ranges of its styles, whose positions count UTF-16 units."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import NamedTuple, assert_never

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import plain, tree
from keryx.markdown.split import measure_length


class StyleRange(NamedTuple):
    # The platform's name of the style.
    style: str
    start: int
    length: int = 0
    # Of a link.
    url: str | None = None
    # Of a code block.
    language: str | None = None


class RangeStyles(NamedTuple):
    """The platform's names of styles."""

    bold: str
    italic: str
    strike: str
    code: str
    code_block: str


class RangeWriter:
    """Writes one document. A subclass overrides what its platform shows in another way."""

    def __init__(self, styles: RangeStyles) -> None:
        self.styles = styles
        # Outermost first.
        self.open_ranges: dict[str, StyleRange] = {}
        self.position = 0
        # What each line begins with, and each line of code, which is not indented in a list.
        self._margin = self._code_margin = ""
        self._pieces: list[str] = []
        self._ranges: list[StyleRange] = []

    def write_document(self, document: tree.DocumentNode) -> tuple[str, list[StyleRange]]:
        """Return the text, and the ranges by their position, an outer one before an inner one."""
        self.write_blocks(document.blocks, "\n\n")
        text = "".join(self._pieces).rstrip()
        end = measure_length(text, LengthUnit.UTF16)
        # An inner range is recorded before the outer one, even if both cover the same text.
        trimmed = (one._replace(length=min(one.length, end - one.start)) for one in reversed(self._ranges))
        return text, sorted(
            (one for one in trimmed if one.length > 0), key=lambda one: (one.start, -one.length)
        )

    def write(self, text: str) -> None:
        if self._margin:
            text = text.replace("\n", f"\n{self._margin}")
        self._pieces.append(text)
        self.position += measure_length(text, LengthUnit.UTF16)

    @contextmanager
    def add_range(self, style: str, url: str | None = None, language: str | None = None) -> Generator[None]:
        """Cover what is written in the block with a style, unless it is open already."""
        if style in self.open_ranges:
            yield
            return
        self.open_ranges[style] = StyleRange(style, self.position, url=url, language=language)
        yield
        self.close_range(self.open_ranges.pop(style))

    def close_range(self, opened: StyleRange) -> None:
        if self.position > opened.start:
            self._ranges.append(opened._replace(length=self.position - opened.start))

    @contextmanager
    def set_margins(self, margin: str, code_margin: str) -> Generator[None]:
        outer = self._margin, self._code_margin
        self._margin, self._code_margin = margin, code_margin
        yield
        self._margin, self._code_margin = outer

    def write_blocks(self, blocks: Iterable[tree.Block], gap: str) -> None:
        for index, block in enumerate(blocks):
            if index:
                code = isinstance(block, tree.CodeBlockNode | tree.TableNode)
                with self.set_margins(self._code_margin if code else self._margin, self._code_margin):
                    self.write(gap)
            self.write_block(block)

    def write_block(self, block: tree.Block) -> None:
        match block:
            case tree.ParagraphNode():
                self.write_inlines(block.children)
            case tree.HeadingNode():
                with self.add_range(self.styles.bold):
                    self.write_inlines(block.children)
            case tree.CodeBlockNode():
                self.write_code("\n".join(block.lines), self.styles.code_block, block.lang)
            case tree.TableNode():
                self.write_code("\n".join(plain.render_table(block)), self.styles.code_block)
            case tree.QuoteNode():
                self.write_quote(block.blocks)
            case tree.ListNode():
                for index, item in enumerate(block.items):
                    self.write("\n" if index else "")
                    self.write_item(item)
            case tree.RuleNode():
                self.write(plain.RULE)
            case _:
                assert_never(block)

    def write_quote(self, blocks: Iterable[tree.Block]) -> None:
        self.write("> ")
        with self.set_margins(f"{self._margin}> ", f"{self._code_margin}> "):
            self.write_blocks(blocks, "\n\n")

    def write_item(self, item: tree.ListItemNode) -> None:
        marker = "• " if item.number is None else f"{item.number}. "
        indent = " " * len(marker)
        if item.blocks and isinstance(item.blocks[0], tree.CodeBlockNode | tree.TableNode):
            with self.set_margins(self._code_margin, self._code_margin):
                self.write("" if item.continued else f"{marker.rstrip()}\n")
        else:
            self.write(indent if item.continued else marker)
        with self.set_margins(self._margin + indent, self._code_margin):
            self.write_blocks(item.blocks, "\n")

    def write_code(self, text: str, style: str, language: str = "") -> None:
        with self.set_margins(self._code_margin, self._code_margin):
            with self.add_range(style, language=language or None):
                self.write(text)

    def write_inlines(self, children: Iterable[tree.Inline]) -> None:
        for node in children:
            self.write_inline(node)

    def write_inline(self, node: tree.Inline) -> None:
        match node:
            case tree.TextNode():
                self.write(node.text)
            case tree.BreakNode():
                self.write("\n")
            case tree.CodeNode():
                self.write_code(node.text, self.styles.code)
            case tree.BoldNode():
                self._write_style(self.styles.bold, node.children)
            case tree.ItalicNode():
                self._write_style(self.styles.italic, node.children)
            case tree.StrikeNode():
                self._write_style(self.styles.strike, node.children)
            case tree.LinkNode() | tree.ImageNode():
                self.write_link(node)
            case _:
                assert_never(node)

    def write_link(self, node: tree.LinkNode | tree.ImageNode) -> None:
        """Write the text, and after it the address, unless the rest of the text is in a later part."""
        self.write_inlines(node.children)
        self.write("" if node.bare or node.more else f" ({node.url})")

    def _write_style(self, style: str, children: Iterable[tree.Inline]) -> None:
        with self.add_range(style):
            self.write_inlines(children)
