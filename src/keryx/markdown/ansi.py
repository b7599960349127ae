"""Text for terminals: lines that fit the width, wrapped between words, with styles and highlighted code as ANSI sequences."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple, assert_never

from keryx.core.text import replace_for_terminal
from keryx.markdown import highlight, parse_blocks, tree
from keryx.markdown.highlight import CodeTokenKind
from keryx.markdown.split import is_inside_cluster, measure_width

# Narrower terminals get lines of this width.
MIN_WIDTH = 20
# Of quotes and items of lists, however deep they are.
_MIN_INNER_WIDTH = 10
# The longest line of prose. Longer ones are hard to read.
MAX_TEXT_WIDTH = 100
_RESET = "\x1b[0m"
_BOLD, _DIM, _ITALIC, _UNDERLINE, _STRIKE, _CODE = "1", "2", "3", "4", "9", "36"
_TOKEN_STYLES = {
    CodeTokenKind.KEYWORD: "35",
    CodeTokenKind.NAME: "34",
    CodeTokenKind.STRING: "32",
    CodeTokenKind.NUMBER: "33",
    CodeTokenKind.COMMENT: _DIM,
    CodeTokenKind.DELETED: "31",
    CodeTokenKind.INSERTED: "32",
}
_BULLET, _QUOTE, _BAR, _LINE, _CROSS = "•", "▌ ", " │ ", "─", "─┼─"
_CODE_MARGIN = "  "
_TAB = "    "
# A table column is not made narrower than this; a table that does not fit then is shown as one entry for each row.
_MIN_COLUMN_WIDTH = 8
# A line may end with a wide character, as in Chinese and Japanese.
_WORDS = re.compile(
    r"\n|[^\S\n]+|[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]|[^\s\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]+"
)


class StyledText(NamedTuple):
    """A piece of text with its SGR codes, such as `1;4`; empty for none."""

    text: str
    style: str = ""


StyledLine = tuple[StyledText, ...]


class AnsiRenderer:
    """Renders blocks for one width. Without colours, code is shown in backticks and no sequence is written."""

    def __init__(self, width: int, *, colours: bool) -> None:
        self.width = max(MIN_WIDTH, width)
        self._colours = colours

    def render(self, markdown: str) -> list[str]:
        """Return the lines of a text, without empty ones at its end."""
        return self.render_blocks([block for _, block in parse_blocks(replace_for_terminal(markdown))])

    def render_blocks(self, blocks: Sequence[tree.Block]) -> list[str]:
        """Return the lines of blocks, with an empty line between them."""
        return [self._encode(line) for line in self._build_blocks(blocks, self.width, loose=True)]

    def wrap(self, text: str, style: str = "") -> list[str]:
        """Return the lines of a text that is not Markdown."""
        shown = replace_for_terminal(text).replace("\t", _TAB).rstrip("\n")
        width = min(self.width, MAX_TEXT_WIDTH)
        return [self._encode(line) for line in wrap_words([StyledText(shown, style)], width)]

    def _encode(self, line: StyledLine) -> str:
        if not self._colours:
            return "".join(piece.text for piece in line).rstrip()
        return "".join(f"\x1b[{style}m{text}{_RESET}" if style else text for text, style in line)

    def _build_blocks(self, blocks: Iterable[tree.Block], width: int, *, loose: bool) -> list[StyledLine]:
        lines: list[StyledLine] = []
        last: tree.Block | None = None
        for block in blocks:
            paragraphs = isinstance(last, tree.ParagraphNode) and isinstance(block, tree.ParagraphNode)
            if last is not None and (loose or paragraphs):
                lines.append(())
            lines += self._build_block(block, width)
            last = block
        return lines

    def _build_block(self, block: tree.Block, width: int) -> Iterable[StyledLine]:
        text_width = min(width, MAX_TEXT_WIDTH)
        match block:
            case tree.ParagraphNode():
                return wrap_words(self._build_inlines(block.children), text_width)
            case tree.HeadingNode():
                style = f"{_BOLD};{_UNDERLINE}" if block.level == 1 else _BOLD
                return wrap_words(self._build_inlines(block.children, style), text_width)
            case tree.CodeBlockNode():
                return _build_code(block)
            case tree.TableNode():
                return self._build_table(block, width)
            case tree.QuoteNode():
                inner = self._build_blocks(block.blocks, max(_MIN_INNER_WIDTH, width - 2), loose=True)
                return [(StyledText(_QUOTE, _DIM), *line) for line in inner]
            case tree.ListNode():
                return [line for item in block.items for line in self._build_item(item, width)]
            case tree.RuleNode():
                return [(StyledText(_LINE * text_width, _DIM),)]
            case _:
                assert_never(block)

    def _build_item(self, item: tree.ListItemNode, width: int) -> Iterator[StyledLine]:
        marker = f"{_BULLET} " if item.number is None else f"{item.number}. "
        inner = self._build_blocks(item.blocks, max(_MIN_INNER_WIDTH, width - len(marker)), loose=False) or [
            ()
        ]
        for number, line in enumerate(inner):
            margin = marker if number == 0 and not item.continued else " " * len(marker)
            yield (StyledText(margin), *line)

    def _build_inlines(self, nodes: Iterable[tree.Inline], style: str = "") -> Iterator[StyledText]:
        for node in nodes:
            match node:
                case tree.TextNode():
                    yield StyledText(node.text.replace("\t", _TAB), style)
                case tree.CodeNode():
                    text = node.text if self._colours else f"`{node.text}`"
                    yield StyledText(text, _add_style(style, _CODE))
                case tree.BreakNode():
                    yield StyledText("\n", style)
                case tree.BoldNode():
                    yield from self._build_inlines(node.children, _add_style(style, _BOLD))
                case tree.ItalicNode():
                    yield from self._build_inlines(node.children, _add_style(style, _ITALIC))
                case tree.StrikeNode():
                    yield from self._build_inlines(node.children, _add_style(style, _STRIKE))
                case tree.LinkNode() | tree.ImageNode():
                    yield from self._build_inlines(node.children, _add_style(style, _UNDERLINE))
                    if not (node.bare or node.more):
                        yield StyledText(f" ({node.url})", _add_style(style, _DIM))
                case _:
                    assert_never(node)

    def _build_table(self, table: tree.TableNode, width: int) -> Iterator[StyledLine]:
        rows = [
            (
                row.header,
                [tuple(self._build_inlines(c.children, _BOLD if row.header else "")) for c in row.cells],
            )
            for row in table.rows
        ]
        count = max(len(cells) for _, cells in rows)
        natural = [
            max((_measure(cells[n]) for _, cells in rows if n < len(cells)), default=0) for n in range(count)
        ]
        widths = _fit_columns(natural, width - len(_BAR) * (count - 1))
        if widths is None:
            yield from self._build_entries(rows, width)
            return
        for header, cells in rows:
            columns = [
                wrap_words(cells[n] if n < len(cells) else (), max(1, widths[n])) for n in range(count)
            ]
            for parts in zip_longest(*columns, fillvalue=()):
                line: list[StyledText] = []
                for n, part in enumerate(parts):
                    line += [StyledText(_BAR, _DIM)] if n else []
                    blank = " " * (widths[n] - _measure(part)) if n < count - 1 else ""
                    line += [*part, StyledText(blank)]
                yield tuple(line)
            if header:
                yield (StyledText(_CROSS.join(_LINE * size for size in widths), _DIM),)

    def _build_entries(
        self, rows: Sequence[tuple[bool, list[StyledLine]]], width: int
    ) -> Iterator[StyledLine]:
        """Yield each row as lines of `heading: value`, for a table that is wider than the terminal."""
        heads = next(cells for header, cells in rows if header)
        entries = [cells for header, cells in rows if not header] or [heads]
        for number, cells in enumerate(entries):
            if number:
                yield ()
            for n, cell in enumerate(cells):
                titled = n < len(heads) and heads[n] and cells is not heads
                head = (*heads[n], StyledText(": ", _BOLD)) if titled else ()
                for at, line in enumerate(wrap_words([*head, *cell], max(_MIN_INNER_WIDTH, width - 2))):
                    yield (StyledText(_CODE_MARGIN), *line) if at else line


def wrap_words(pieces: Iterable[StyledText], width: int) -> list[StyledLine]:
    """Break a text between words into lines of at most `width` columns. A longer word is cut."""
    lines: list[list[StyledText]] = [[]]
    column = 0
    blank = StyledText("")
    # A word may consist of pieces with different styles, so nothing is broken between two pieces without a blank.
    word: list[StyledText] = []
    word_width = 0

    def place_word() -> None:
        nonlocal column, blank, word, word_width
        if not word:
            return
        if column and column + len(blank.text) + word_width > width:
            lines.append([])
            column = 0
        elif blank.text:
            lines[-1].append(blank)
            column += len(blank.text)
        for piece in word:
            for part in _cut(piece, width, column):
                if column and column + measure_width(part.text) > width:
                    lines.append([])
                    column = 0
                lines[-1].append(part)
                column += measure_width(part.text)
        blank, word, word_width = StyledText(""), [], 0

    for text, style in pieces:
        for match in _WORDS.finditer(text):
            token = match.group()
            if token == "\n":
                place_word()
                lines.append([])
                column, blank = 0, StyledText("")
            elif token.isspace():
                place_word()
                # Blanks at the beginning of a line are kept, as in an indented list of a thought.
                blank = StyledText(token, style)
            else:
                if token[0] >= "\u2e80" and measure_width(token[0]) == 2:
                    place_word()
                word.append(StyledText(token, style))
                word_width += measure_width(token)
    place_word()
    return [tuple(_merge_styles(line)) for line in lines]


def _cut(piece: StyledText, width: int, column: int) -> Iterator[StyledText]:
    """Cut a word that is wider than a line, first to what is left of the line. Characters are not split."""
    text = piece.text
    room, start, remaining = width - column, 0, measure_width(text)
    while remaining > max(room, 1):
        if remaining <= width and column:
            break
        end, used = start, 0
        while end < len(text) and (used + measure_width(text[end]) <= room or end == start):
            used += measure_width(text[end])
            end += 1
        line = text[start : end + 1]
        while start < end < len(text) and is_inside_cluster(line, end - start):
            end -= 1
        end = len(text) if end == start else end
        yield StyledText(text[start:end], piece.style)
        remaining -= measure_width(text[start:end])
        room, column, start = width, 0, end
    if start < len(text):
        yield StyledText(text[start:], piece.style)


def _build_code(block: tree.CodeBlockNode) -> Iterator[StyledLine]:
    """Yield highlighted lines. They are not wrapped, so that they can be copied."""
    line: list[StyledText] = []
    code = "\n".join(block.lines).replace("\t", _TAB)
    for kind, text in highlight.scan(code, block.lang):
        first, *rest = text.split("\n")
        style = _TOKEN_STYLES[kind] if kind else ""
        line.append(StyledText(first, style))
        for more in rest:
            yield (StyledText(_CODE_MARGIN), *line)
            line = [StyledText(more, style)]
    yield (StyledText(_CODE_MARGIN), *line)


def _fit_columns(natural: Sequence[int], room: int) -> list[int] | None:
    """Return the widths of the columns of a table, the widest made narrower first; `None` if they do not fit."""
    if sum(min(size, _MIN_COLUMN_WIDTH) for size in natural) > room:
        return None
    widths = list(natural)
    while sum(widths) > room:
        widest = max(widths)
        second = max((size for size in widths if size < widest), default=_MIN_COLUMN_WIDTH)
        wide = [n for n, size in enumerate(widths) if size == widest]
        step = max(1, min(widest - second, (sum(widths) - room) // len(wide)))
        for n in wide:
            if sum(widths) > room:
                widths[n] -= step
    return widths


def _measure(pieces: Iterable[StyledText]) -> int:
    """Return the width of the widest line."""
    text = "".join(piece.text for piece in pieces)
    return max(map(measure_width, text.split("\n")))


def _add_style(style: str, more: str) -> str:
    return f"{style};{more}" if style else more


def _merge_styles(line: Sequence[StyledText]) -> Iterator[StyledText]:
    """Join neighbours of the same style, so that few sequences are written."""
    current: StyledText | None = None
    for piece in line:
        if current is not None and current.style == piece.style:
            current = StyledText(current.text + piece.text, piece.style)
        else:
            if current is not None and current.text:
                yield current
            current = piece
    if current is not None and current.text:
        yield current
