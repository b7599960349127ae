"""Markdown as the cards and rich texts of Feishu show it. What only looks like markup is written as HTML entities, which is how Feishu escapes it. Mentions that an agent writes with an id stay mentions."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import parse, plain, tree
from keryx.markdown.markdown_writer import MarkdownWriter
from keryx.markdown.plain import TextLine
from keryx.markdown.split import LengthLimit, has_visible_text, split_document

# A card may have 30 KB as JSON within JSON, where a character may take four bytes. Leaves room for its frame and buttons.
LIMIT = LengthLimit(6000, LengthUnit.BYTES)
# A card with more tables is refused; those behind them are text in columns.
MAX_TABLES = 5
# A mention of one person. An answer must not notify a whole chat, even if the model was asked to.
_MENTION = re.compile(r"(<at id=ou_[A-Za-z0-9]{1,64}></at>)")
# In code, where nothing is escaped.
_BROADCAST = re.compile(r"<(?=at\b[^<>]*\ball\b)", re.IGNORECASE)
_ZERO_WIDTH_SPACE = "\u200b"
_ENTITY = re.compile(r"&(?=#?\w+;)")
_SPECIAL = re.compile(r"[\\*`~<\[\]]|(?<![^\W_])_|_(?![^\W_])")
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


class _CardWriter(MarkdownWriter):
    """Writes one document, and counts its tables."""

    def __init__(self) -> None:
        self._tables = 0

    def escape_mark(self, mark: str) -> str:
        return _encode(mark)

    def escape(self, text: str) -> str:
        return escape(text)

    def write_cell(self, cell: tree.TableCellNode) -> str:
        return self.write_inlines(cell.children)

    def write_code_block(self, lines: Iterable[str], lang: str = "") -> list[TextLine]:
        return super().write_code_block(map(_disarm, lines), lang if _LANGUAGE.match(lang) else "")

    def write_table(self, table: tree.TableNode) -> list[TextLine]:
        self._tables += 1
        if self._tables > MAX_TABLES:
            return self.write_code_block(plain.render_table(table))
        return super().write_table(table)

    def write_code(self, text: str) -> str:
        return super().write_code(_disarm(text))

    def write_link(self, node: tree.LinkNode | tree.ImageNode) -> str:
        """Return a web address as a link, and any other address after the text: Feishu has no links to it. A picture is a
        link, too: a card takes uploaded ones only."""
        if not node.web:
            return super().write_link(node).replace("\n", " ")
        label = self.write_inlines(node.children).replace("\n", " ")
        address = node.url.replace("(", "%28").replace(")", "%29").replace(" ", "%20")
        return f"[{label if has_visible_text(label) else escape(node.url)}]({address})"


def _disarm(code: str) -> str:
    return _BROADCAST.sub(f"<{_ZERO_WIDTH_SPACE}", code)


def _encode(character: str) -> str:
    return f"&#{ord(character)};"
