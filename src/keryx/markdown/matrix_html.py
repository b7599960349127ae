"""Matrix markup: a plain body, and the HTML that the specification allows."""

import json
from html import escape

import msgspec

from keryx.markdown import plain
from keryx.markdown.html_writer import HtmlWriter
from keryx.markdown.parser import parse
from keryx.markdown.split import has_visible_text, split_document
from keryx.markdown.tree import DocumentNode, ListItemNode, ParagraphNode

# Bytes of both bodies as JSON. An event may have 65,536; encryption adds a third and some keys.
MAX_BODY_BYTES = 40_000


class MatrixText(msgspec.Struct, frozen=True):
    """`body` and `formatted_body` of an `m.text` event with the format `org.matrix.custom.html`."""

    body: str
    formatted_body: str


def render_parts(markdown: str, budget: int = MAX_BODY_BYTES) -> list[MatrixText]:
    """Return the parts in order; none if the text shows nothing."""
    pieces = split_document(parse(markdown), _render, lambda part: measure_size(part) / budget)
    return [part for part in pieces if has_visible_text(part.body)]


def render_plain(text: str) -> MatrixText:
    """Return a text as it is, without markup."""
    return MatrixText(text, escape(text).replace("\n", "<br>"))


def measure_size(part: MatrixText) -> int:
    """Return the size of both bodies in canonical JSON, in bytes."""
    return sum(
        len(json.dumps(text, ensure_ascii=False).encode()) for text in (part.body, part.formatted_body)
    )


def _render(document: DocumentNode) -> MatrixText:
    return MatrixText(plain.render(document), _WRITER.blocks(document.blocks))


class _MatrixWriter(HtmlWriter):
    strike_tag = "del"

    def list_item(self, item: ListItemNode) -> str:
        """Write the first paragraph without a tag: clients would show a gap after the marker."""
        match item.blocks:
            case (ParagraphNode(children=children), *rest):
                return self.inlines(children) + self.blocks(rest)
            case blocks:
                return self.blocks(blocks)


_WRITER = _MatrixWriter()
