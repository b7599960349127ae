"""Markdown as the cards and rich texts of Feishu show it. What only looks like markup is written as HTML entities, which is how Feishu escapes it. Mentions that an agent writes with an id stay mentions."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, assert_never

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import parse, plain, tree
from keryx.markdown.split import LengthLimit, has_visible_text, split_document

# A card may have 30 KB as JSON within JSON, where a character may take four bytes. Leaves room for its frame and buttons.
LIMIT = LengthLimit(6000, LengthUnit.BYTES)
# A card with more tables is refused; those behind them are text in columns.
MAX_TABLES = 5
# A mention of one person. Nobody may notify a whole chat, whatever the model was told.
_MENTION = re.compile(r"(<at id=ou_[A-Za-z0-9]{1,64}></at>)")
# In code, where nothing is escaped.
_BROADCAST = re.compile(r"<(?=at\b[^<>]*\ball\b)", re.IGNORECASE)
_ZERO_WIDTH_SPACE = "\u200b"
_ENTITY = re.compile(r"&(?=#?\w+;)")
_SPECIAL = re.compile(r"[\\*`~<\[\]]|(?<![^\W_])_|_(?![^\W_])")
_LINE_START = re.compile(r"^([ \t]*)(?:([-+=>#|])|(\d{1,9})([.)]))", re.MULTILINE)
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_BACKTICKS = re.compile("`+")
_LANGUAGE = re.compile(r"[A-Za-z0-9+#.-]{1,32}\Z")


class FeishuPart(NamedTuple):
    markdown: str
    # For a card that the platform refuses, and for previews.
    text: str


def render_parts(markdown: str, limit: LengthLimit = LIMIT) -> list[FeishuPart]:
    """Return the parts in order; none if the text shows nothing."""
    parts = split_document(
        parse(markdown),
        lambda part: FeishuPart(render(part), plain.render(part)),
        lambda part: limit.fill_ratio(part.markdown),
    )
    return [part for part in parts if has_visible_text(part.text)]


def render(document: tree.DocumentNode) -> str:
    """Return the whole document as one part of any length."""
    return _CardWriter().write(document)


def escape(text: str) -> str:
    """Return a text that Feishu shows as it is, except for mentions of one person."""
    pieces = _MENTION.split(text)
    pieces[::2] = [
        _SPECIAL.sub(lambda found: _encode(found[0]), _ENTITY.sub("&amp;", piece)) for piece in pieces[::2]
    ]
    return "".join(pieces)


class _CardWriter:
    """Writes one document, and counts its tables."""

    def __init__(self) -> None:
        self._tables = 0

    def write(self, document: tree.DocumentNode) -> str:
        return "\n".join(self._write_blocks(document.blocks)).strip("\n")

    def _write_blocks(self, blocks: Iterable[tree.Block]) -> list[str]:
        lines: list[str] = []
        for block in blocks:
            if lines:
                lines.append("")
            lines.extend(self._write_block(block))
        return lines

    def _write_block(self, block: tree.Block) -> Sequence[str]:
        match block:
            case tree.ParagraphNode():
                return _write_text(block.children).split("\n")
            case tree.HeadingNode():
                return [f"{'#' * block.level} {_write_text(block.children).replace(chr(10), ' ')}"]
            case tree.CodeBlockNode():
                return _write_fence(block.lines, block.lang if _LANGUAGE.match(block.lang) else "")
            case tree.QuoteNode():
                return [f"> {line}".rstrip() for line in self._write_blocks(block.blocks)]
            case tree.ListNode():
                return [line for item in block.items for line in self._write_item(item)]
            case tree.TableNode():
                return self._write_table(block)
            case tree.RuleNode():
                return ["---"]
            case _:
                assert_never(block)

    def _write_item(self, item: tree.ListItemNode) -> list[str]:
        """Return the lines of an item. The rest of one that began in an earlier part has no marker."""
        lines = self._write_blocks(item.blocks) or [""]
        if item.continued:
            return lines
        marker = "- " if item.number is None else f"{item.number}. "
        margin = " " * len(marker)
        return [(marker if index == 0 else margin if line else "") + line for index, line in enumerate(lines)]

    def _write_table(self, table: tree.TableNode) -> list[str]:
        """Return a table; what has no header, because it was cut, as text in columns."""
        self._tables += 1
        whole = table.rows[0].header and not any(
            row.first_column or cell.continued for row in table.rows for cell in row.cells
        )
        if not whole or self._tables > MAX_TABLES:
            return _write_fence(plain.render_table(table))
        width = max(len(row.cells) for row in table.rows)
        rows = [
            [_write_inlines(cell.children).replace("\n", " ").replace("|", "&#124;") for cell in row.cells]
            for row in table.rows
        ]
        lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in rows]
        return [lines[0], "|" + "---|" * width, *lines[1:]]


def _write_fence(lines: Sequence[str], lang: str = "") -> list[str]:
    longest = max((len(run) for line in lines for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{lang}", *map(_disarm, lines), fence]


def _write_text(children: Iterable[tree.Inline]) -> str:
    """Return inline markup. What begins a line like a block is escaped."""
    text = _INDENT.sub("", _write_inlines(children)).removesuffix("\n")
    return _LINE_START.sub(lambda m: m[1] + (_encode(m[2]) if m[2] else f"{m[3]}{_encode(m[4])}"), text)


def _write_inlines(children: Iterable[tree.Inline]) -> str:
    return "".join(map(_write_inline, children))


def _write_inline(node: tree.Inline) -> str:
    match node:
        case tree.TextNode():
            return escape(node.text)
        case tree.CodeNode():
            longest = max(map(len, _BACKTICKS.findall(node.text)), default=0)
            fence = "`" * (longest + 1)
            pad = " " if node.text[:1] in " `" or node.text[-1:] in " `" else ""
            return f"{fence}{pad}{_disarm(node.text)}{pad}{fence}" if node.text else ""
        case tree.BreakNode():
            return "\n"
        case tree.BoldNode():
            return _wrap(_write_inlines(node.children), "**")
        case tree.ItalicNode():
            return _wrap(_write_inlines(node.children), "*")
        case tree.StrikeNode():
            return _wrap(_write_inlines(node.children), "~~")
        case tree.LinkNode() | tree.ImageNode():
            # A picture is a link, too: a card takes uploaded ones only.
            label = _write_inlines(node.children).replace("\n", " ")
            if not node.url.lower().startswith(("http:", "https:")):
                # Feishu has no links to such an address, so it comes after the text.
                return label + ("" if node.bare or node.more else f" ({escape(node.url)})")
            address = node.url.replace("(", "%28").replace(")", "%29").replace(" ", "%20")
            return f"[{label if has_visible_text(label) else escape(node.url)}]({address})"
        case _:
            assert_never(node)


def _disarm(code: str) -> str:
    return _BROADCAST.sub(f"<{_ZERO_WIDTH_SPACE}", code)


def _wrap(text: str, mark: str) -> str:
    """Return a text between two marks. White space at its ends stays outside, or it would not be markup."""
    inner = text.strip()
    if not inner:
        return text
    start = text.index(inner)
    return f"{text[:start]}{mark}{inner}{mark}{text[start + len(inner) :]}"


def _encode(character: str) -> str:
    return f"&#{ord(character)};"
