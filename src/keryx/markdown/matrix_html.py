"""Matrix markup: a plain body, and the HTML that the specification allows."""

import json
from html import escape

import msgspec

from keryx.markdown import parse, plain, tree
from keryx.markdown.html_writer import HtmlWriter
from keryx.markdown.split import has_visible_text, split_document

# Bytes of both bodies as JSON. An event may have 65,536; encryption adds a third and some keys.
MAX_BODY_BYTES = 40_000


class MatrixText(msgspec.Struct, frozen=True):
    """The two bodies of an `m.text` event."""

    # Plain text.
    body: str
    # In the format `org.matrix.custom.html`.
    formatted_body: str


def render_parts(markdown: str, budget: int = MAX_BODY_BYTES) -> list[MatrixText]:
    """Return the parts in order; none if the text shows nothing."""

    def render(document: tree.DocumentNode) -> MatrixText:
        return MatrixText(plain.render(document), _WRITER.blocks(document.blocks))

    parts = split_document(parse(markdown), render, lambda part: measure_size(part) / budget)
    return [part for part in parts if has_visible_text(part.body)]


def render_plain(text: str) -> MatrixText:
    """Return a text as it is, without markup."""
    return MatrixText(text, escape(text).replace("\n", "<br>"))


def measure_size(part: MatrixText) -> int:
    """Return the size of both bodies in canonical JSON, in bytes."""
    return sum(
        len(json.dumps(text, ensure_ascii=False).encode()) for text in (part.body, part.formatted_body)
    )


class _MatrixWriter(HtmlWriter):
    """Writes the elements that the specification of Matrix names, and lists as its clients show them best."""

    strike_tag = "del"

    def list_item(self, item: tree.ListItemNode) -> str:
        """Write the first paragraph without a tag: clients would show a gap after the marker."""
        match item.blocks:
            case (tree.ParagraphNode(children=children), *rest):
                return self.inlines(children) + self.blocks(rest)
            case blocks:
                return self.blocks(blocks)


_WRITER = _MatrixWriter()
