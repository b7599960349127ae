"""Markdown to sanitised HTML with highlighted code, for the page and for exported files."""

import hashlib
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from html import escape

import nh3

from keryx.core.cache import LruCache
from keryx.core.text import replace_for_page
from keryx.markdown import MAX_CHARS, highlight, parse_blocks, tree
from keryx.markdown.highlight import CodeTokenKind
from keryx.markdown.html_writer import HtmlWriter

# In one text. The code after these is shown without colours.
_MAX_COLOURED_CHARS = 50_000
# Bytes of HTML that are kept, and of one text among them.
_CACHE_BYTES = 32 << 20
_MAX_CACHED_BYTES = 4 << 20
_NO_MARKUP = re.compile(r"[^`*_~\[\]<>&#|\\!+=:\-\n\r\x85\u2028\u2029/@]*\Z")
_LIST_OR_CODE = re.compile(r"\s*\d+[.)]|\t| {4}")
_URL_SCHEMES = {"http", "https", "mailto"}
_TAGS = {
    "p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a", "span",
    "table", "thead", "tbody", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "title", "target"}, "ol": {"start"}, "pre": {"data-language"}}
_TOKEN_CLASSES = {kind: f"code-{kind.value}" for kind in CodeTokenKind}
_CLASSES = {"span": set(_TOKEN_CLASSES.values()), "pre": {"code", "plain"}}
# By a hash of the text. Several threads render.
_cache: LruCache[bytes, str] = LruCache(_CACHE_BYTES, measure=sys.getsizeof)
_cache_lock = threading.Lock()


def render(text: str) -> str:
    """Return the HTML of a text. It is kept for a while, because conversations are opened again and again."""
    key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    with _cache_lock:
        known = _cache.get(key)
    if known is not None:
        return known
    rendered = "".join(render_blocks(text))
    if sys.getsizeof(rendered) <= _MAX_CACHED_BYTES:
        with _cache_lock:
            _cache.put(key, rendered)
    return rendered


def render_blocks(text: str, *, colours: bool = True) -> list[str]:
    """Return the HTML of each top-level block; joined, it is the HTML of the text."""
    return [html for _, html in locate_blocks(text, colours=colours)]


def locate_blocks(text: str, *, colours: bool = True) -> Iterator[tuple[int, str]]:
    """Yield the HTML of each top-level block with the number of the line on which the block begins."""
    if len(text) > MAX_CHARS:
        yield 0, render_plain(text)
    elif _NO_MARKUP.match(text) and not _LIST_OR_CODE.match(text):
        if shown := text.strip(" \t"):
            yield 0, f"<p>{escape_text(shown)}</p>"
    else:
        writer = _PageWriter(_MAX_COLOURED_CHARS if colours else 0)
        for line, block in parse_blocks(text):
            end = "" if isinstance(block, tree.CodeBlockNode) else "\n"
            html = nh3.clean(
                writer.block(block),
                tags=_TAGS,
                attributes=_ATTRIBUTES,
                allowed_classes=_CLASSES,
                url_schemes=_URL_SCHEMES,
                link_rel="noopener noreferrer nofollow",
            )
            yield line, html + end


def render_plain(text: str) -> str:
    """Return the HTML of a text that is shown as it is, without markup."""
    return f'<pre class="plain">{escape_text(text)}</pre>'


def escape_text(text: str) -> str:
    """Return a text as HTML without markup."""
    return escape(replace_for_page(text))


def mark_spans(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return a text as HTML with `<mark>` around the spans."""
    out, end = list[str](), 0
    for start, stop in spans:
        out += (escape_text(text[end:start]), "<mark>", escape_text(text[start:stop]), "</mark>")
        end = stop
    return "".join((*out, escape_text(text[end:])))


def highlight_code(code: str, language: str) -> str:
    """Return code as HTML, with a `span` for each token if the language is known and the code not too long."""
    return "".join(
        f'<span class="{_TOKEN_CLASSES[kind]}">{escape(text)}</span>' if kind else escape(text)
        for kind, text in highlight.scan(replace_for_page(code), language)
    )


class _PageWriter(HtmlWriter):
    def __init__(self, coloured_chars: int) -> None:
        self._coloured_chars = coloured_chars

    def code_block(self, block: tree.CodeBlockNode) -> str:
        text = f"{block.text}\n" if block.text else ""
        self._coloured_chars -= len(text)
        code = highlight_code(text, block.lang if self._coloured_chars >= 0 else "")
        return f'<pre class="code" data-language="{escape(block.lang)}"><code>{code}</code></pre>'

    def table(self, table: tree.TableNode) -> str:
        columns = max(len(row.cells) for row in table.rows)
        head, body = (
            "".join(self.table_row(row, columns) for row in table.rows if row.header is header)
            for header in (True, False)
        )
        return f"<table><thead>{head}</thead>{f'<tbody>{body}</tbody>' if body else ''}</table>"

    def link(self, node: tree.LinkNode | tree.ImageNode) -> str:
        text = self.inlines(node.children)
        if node.url.partition(":")[0].lower() not in _URL_SCHEMES:
            return text if node.bare else f"{text} ({escape(node.url)})"
        title = f' title="{escape(node.title)}"' if node.title else ""
        return f'<a href="{escape(node.url)}"{title} target="_blank">{text}</a>'
