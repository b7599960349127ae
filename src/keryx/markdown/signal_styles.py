"""Signal markup: text with style ranges whose positions count UTF-16 units. Signal reads no markup, so nothing is escaped."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

import msgspec

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import parse, plain, tree
from keryx.markdown.split import LengthLimit, has_visible_text, measure_length, split_document

# What a message holds itself. A longer text would be an attachment that each device has to fetch.
LIMIT = LengthLimit(2000, LengthUnit.BYTES)
# Apps ignore the ranges after these.
MAX_STYLES = 250
_QUOTE_MARGIN = "> "


class SignalStyle(StrEnum):
    BOLD = "BOLD"
    ITALIC = "ITALIC"
    STRIKETHROUGH = "STRIKETHROUGH"
    MONOSPACE = "MONOSPACE"
    SPOILER = "SPOILER"


class StyleRange(msgspec.Struct, frozen=True):
    start: int
    length: int
    style: SignalStyle


class SignalText(msgspec.Struct, frozen=True):
    text: str
    styles: tuple[StyleRange, ...] = ()


def render_parts(markdown: str, limit: LengthLimit = LIMIT) -> list[SignalText]:
    """Return the parts in order; none if the text shows nothing."""

    def share(part: SignalText) -> float:
        return max(limit.fill_ratio(part.text), len(part.styles) / MAX_STYLES)

    return [part for part in split_document(parse(markdown), render, share) if has_visible_text(part.text)]


def render(document: tree.DocumentNode) -> SignalText:
    """Return the whole document as one part of any length."""
    writer = _StyleWriter()
    writer.write_blocks(document.blocks, "\n\n")
    text = "".join(writer.pieces).rstrip()
    end = measure_length(text, LengthUnit.UTF16)
    trimmed = (msgspec.structs.replace(one, length=min(one.length, end - one.start)) for one in writer.styles)
    ranges = sorted(
        (one for one in trimmed if one.length > 0), key=lambda one: (one.start, -one.length, one.style)
    )
    return SignalText(text, tuple(ranges))


@dataclass(slots=True)
class _StyleWriter:
    pieces: list[str] = field(default_factory=list[str])
    styles: list[StyleRange] = field(default_factory=list[StyleRange])
    # Where each style that is open began.
    open_styles: dict[SignalStyle, int] = field(default_factory=dict[SignalStyle, int])
    # What each line begins with, and each line of code, which is not indented in a list.
    margin: str = ""
    code_margin: str = ""
    position: int = 0

    def write(self, text: str) -> None:
        if self.margin:
            text = text.replace("\n", f"\n{self.margin}")
        self.pieces.append(text)
        self.position += measure_length(text, LengthUnit.UTF16)

    @contextmanager
    def add_style(self, style: SignalStyle) -> Generator[None]:
        """Cover what is written in the block with a style, unless it is open already."""
        if style in self.open_styles:
            yield
            return
        self.open_styles[style] = self.position
        yield
        start = self.open_styles.pop(style)
        if self.position > start:
            self.styles.append(StyleRange(start, self.position - start, style))

    @contextmanager
    def set_margin(self, margin: str, code_margin: str) -> Generator[None]:
        outer = self.margin, self.code_margin
        self.margin, self.code_margin = margin, code_margin
        yield
        self.margin, self.code_margin = outer

    def write_blocks(self, blocks: Iterable[tree.Block], gap: str) -> None:
        for index, block in enumerate(blocks):
            if index:
                code = isinstance(block, tree.CodeBlockNode | tree.TableNode)
                with self.set_margin(self.code_margin if code else self.margin, self.code_margin):
                    self.write(gap)
            self.write_block(block)

    def write_block(self, block: tree.Block) -> None:
        match block:
            case tree.ParagraphNode():
                self.write_inlines(block.children)
            case tree.HeadingNode():
                with self.add_style(SignalStyle.BOLD):
                    self.write_inlines(block.children)
            case tree.CodeBlockNode():
                self.write_code(block.lines)
            case tree.TableNode():
                self.write_code(plain.render_table(block))
            case tree.QuoteNode():
                self.write(_QUOTE_MARGIN)
                with self.set_margin(self.margin + _QUOTE_MARGIN, self.code_margin + _QUOTE_MARGIN):
                    self.write_blocks(block.blocks, "\n\n")
            case tree.ListNode():
                for index, item in enumerate(block.items):
                    self.write("\n" if index else "")
                    self.write_item(item)
            case tree.RuleNode():
                self.write(plain.RULE)
            case _:
                assert_never(block)

    def write_item(self, item: tree.ListItemNode) -> None:
        marker = "• " if item.number is None else f"{item.number}. "
        indent = " " * len(marker)
        if item.blocks and isinstance(item.blocks[0], tree.CodeBlockNode | tree.TableNode):
            with self.set_margin(self.code_margin, self.code_margin):
                self.write("" if item.continued else f"{marker.rstrip()}\n")
        else:
            self.write(indent if item.continued else marker)
        with self.set_margin(self.margin + indent, self.code_margin):
            self.write_blocks(item.blocks, "\n")

    def write_code(self, lines: Iterable[str]) -> None:
        with self.set_margin(self.code_margin, self.code_margin), self.add_style(SignalStyle.MONOSPACE):
            self.write("\n".join(lines))

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
                with self.add_style(SignalStyle.MONOSPACE):
                    self.write(node.text)
            case tree.BoldNode():
                self._write_styled(SignalStyle.BOLD, node.children)
            case tree.ItalicNode():
                self._write_styled(SignalStyle.ITALIC, node.children)
            case tree.StrikeNode():
                self._write_styled(SignalStyle.STRIKETHROUGH, node.children)
            case tree.LinkNode() | tree.ImageNode():
                # Signal has no links with a text of their own, and finds addresses itself.
                self.write_inlines(node.children)
                self.write("" if node.bare or node.more else f" ({node.url})")
            case _:
                assert_never(node)

    def _write_styled(self, style: SignalStyle, children: Iterable[tree.Inline]) -> None:
        with self.add_style(style):
            self.write_inlines(children)
