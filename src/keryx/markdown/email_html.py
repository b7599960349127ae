"""Mail: a plain text and an HTML document of the same tree, with the styles that mail programs need written out."""

from html import escape

import msgspec

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import MAX_CHARS, parse, plain, tree
from keryx.markdown.html_writer import HtmlWriter
from keryx.markdown.split import LengthLimit, has_visible_text, split_document

LIMIT = LengthLimit(MAX_CHARS, LengthUnit.CHARACTERS)
_URL_SCHEMES = frozenset({"http", "https", "mailto"})
_CODE_STYLE = "font-family:monospace;background:#f3f4f6"
_PRE_STYLE = f"{_CODE_STYLE};padding:8px;white-space:pre-wrap"
_QUOTE_STYLE = "margin:0 0 0 8px;padding-left:8px;border-left:2px solid #9ca3af"
_CELL_STYLE = "border:1px solid #9ca3af;padding:4px 8px;text-align:left"


class MailMarkup(msgspec.Struct, frozen=True):
    """The two alternatives of a mail."""

    plain: str
    # What is inside of the body of the document.
    html: str


def render_parts(markdown: str, limit: LengthLimit = LIMIT) -> list[MailMarkup]:
    """Return the mails in order; none if the text shows nothing. Almost every answer is one."""

    def render(document: tree.DocumentNode) -> MailMarkup:
        return MailMarkup(plain.render(document), _WRITER.blocks(document.blocks))

    parts = split_document(parse(markdown), render, lambda part: limit.fill_ratio(part.plain))
    return [part for part in parts if has_visible_text(part.plain)]


def render_plain(text: str) -> str:
    """Return a text as HTML as it is, without markup."""
    return escape(text).replace("\n", "<br>\n")


def render_quote(text: str) -> str:
    """Return a quotation of a mail as HTML."""
    return f'<blockquote type="cite" style="{_QUOTE_STYLE}">{render_plain(text)}</blockquote>'


class _MailWriter(HtmlWriter):
    strike_tag = "del"

    def code_block(self, block: tree.CodeBlockNode) -> str:
        return super().code_block(block).replace("<pre>", f'<pre style="{_PRE_STYLE}">', 1)

    def block(self, block: tree.Block) -> str:
        if isinstance(block, tree.QuoteNode):
            return f'<blockquote style="{_QUOTE_STYLE}">{self.blocks(block.blocks)}</blockquote>'
        return super().block(block)

    def inline(self, node: tree.Inline) -> str:
        if isinstance(node, tree.CodeNode):
            return f'<code style="{_CODE_STYLE}">{escape(node.text)}</code>'
        return super().inline(node)

    def table(self, table: tree.TableNode) -> str:
        rows = "".join(map(self.table_row, table.rows))
        for tag in ("th", "td"):
            rows = rows.replace(f"<{tag}>", f'<{tag} style="{_CELL_STYLE}">')
        return f'<table style="border-collapse:collapse">{rows}</table>'

    def link(self, node: tree.LinkNode | tree.ImageNode) -> str:
        text = self.inlines(node.children)
        if node.url.partition(":")[0].lower() not in _URL_SCHEMES:
            return text if node.bare else f"{text} ({escape(node.url)})"
        return f'<a href="{escape(node.url)}">{text}</a>'


_WRITER = _MailWriter()
