"""Markdown to sanitised HTML with highlighted code, for the page and for exported files."""

import hashlib
import logging
import re
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from html import escape

import nh3

from keryx.core.cache import LruCache
from keryx.core.text import replace_for_page
from keryx.markdown import MAX_CHARS, diagrams, highlight, mathml, parse_blocks, tree
from keryx.markdown.highlight import CodeTokenKind
from keryx.markdown.html_writer import HtmlWriter

log = logging.getLogger(__name__)

# In one text. The code after these is shown without colours.
_MAX_COLOURED_CHARS = 50_000
# In one text, the sources of diagrams. What comes after these is shown as it was written.
_MAX_DRAWN_CHARS = 20_000
# Bytes of HTML that are kept, and of one text among them.
_CACHE_BYTES = 32 << 20
_MAX_CACHED_BYTES = 4 << 20
_NO_MARKUP = re.compile(r"[^$`*_~\[\]<>&#|\\!+=:\-\n\r\x85\u2028\u2029/@]*\Z")
_LIST_OR_CODE = re.compile(r"\s*\d+[.)]|\t| {4}")
_URL_SCHEMES = {"http", "https", "mailto"}
_TAGS = {
    "p", "br", "hr", "em", "strong", "s", "sup", "code", "pre", "blockquote", "ul", "ol", "li", "a", "span", "details", "summary",
    "table", "thead", "tbody", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6",
    "math", "mrow", "mi", "mo", "mn", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msub", "msup", "msubsup", "munder",
    "mover", "munderover", "mtable", "mtr", "mtd",
    "figure", "svg", "rect", "circle", "polygon", "path", "text",
}  # fmt: skip
_ATTRIBUTES = {
    "a": {"href", "title", "target", "id"},
    "ol": {"start"},
    "pre": {"data-language"},
    "math": {"display"},
    "mi": {"mathvariant"},
    "mo": {"stretchy"},
    "mspace": {"width"},
    "mfrac": {"linethickness"},
    "svg": {"viewBox", "width", "height", "role", "aria-label"},
    "rect": {"x", "y", "width", "height", "rx"},
    "circle": {"cx", "cy", "r"},
    "polygon": {"points"},
    "path": {"d"},
    "text": {"x", "y", "font-size"},
}
# Drawings take their colours from the style sheet alone.
_PAINT = {"fill": {"none", "currentColor"}, "stroke": {"currentColor"}}
_ATTRIBUTE_VALUES = {
    **dict.fromkeys(("rect", "circle", "polygon", "path"), _PAINT),
    "text": {"fill": {"currentColor"}, "text-anchor": {"start", "middle"}},
}
_TOKEN_CLASSES = {kind: f"code-{kind.value}" for kind in CodeTokenKind}
_ALIGNMENT_CLASSES = {"to-left", "to-center", "to-right"}
_SHAPE_CLASSES = (
    "node", "edge", "dotted", "thick", "head", "back", "cluster", "frame", "note", "life", "slice",
    *(f"tone-{n}" for n in range(8)),
)  # fmt: skip
_CLASSES = {
    "span": {*_TOKEN_CLASSES.values(), "task", "done"},
    "pre": {"code", "plain"},
    "th": _ALIGNMENT_CLASSES,
    "td": _ALIGNMENT_CLASSES,
    "mtable": {"lines", "cases", "matrix"},
    "sup": {"note"},
    "figure": {"diagram"},
    "svg": {"diagram", "flowchart", "sequence", "pie"},
    "rect": {*_SHAPE_CLASSES},
    "circle": {*_SHAPE_CLASSES},
    "polygon": {*_SHAPE_CLASSES},
    "path": {*_SHAPE_CLASSES},
    "text": {"title", "label", "caption"},
}
# A footnote and its mark, and the part of a text that opens.
_NOTE = re.compile(r"\[\^([\w-]{1,40})\](:(?=\s))?")
_NOTE_BEGINNING = re.compile(r"^ {0,3}\[\^([\w-]{1,40})\]:\s", re.MULTILINE)
_SUMMARY = re.compile(r"<details(?: open)?>\s*<summary>(.*?)</summary>\s*\Z", re.DOTALL)
_DETAILS_END = "</details>"
_DETAILS_LINE = re.compile(r" {0,3}</?(?:details|summary)\b")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_MAX_DETAILS_DEPTH = 8
# Where no script does it: blocks take the direction of their text, and what is wider than the page is scrolled by keyboard.
_DIRECTED = ("p", "li", "blockquote", "td", "th", "summary", "h1", "h2", "h3", "h4", "h5", "h6")
_DOCUMENT_ATTRIBUTES = {
    **{tag: {"dir": "auto"} for tag in _DIRECTED},
    **{tag: {"tabindex": "0"} for tag in ("pre", "table", "figure")},
}
_NOTE_BLOCK = '<p><sup class="note"><a id="note-'
_TASK = re.compile(r"\[([ xX])\](?=\s)")
# By a hash of the text. Several threads render.
_cache: LruCache[bytes, str] = LruCache(_CACHE_BYTES, measure=sys.getsizeof)
_cache_lock = threading.Lock()
# Shorter texts take about a millisecond, less than the way to another process.
_LONG_CHARS = 2_000
_delegates: list[Callable[[str], str]] = []


def render(text: str) -> str:
    """Return the HTML of a text. It is kept for a while, because conversations are opened again and again."""
    key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    with _cache_lock:
        known = _cache.get(key)
    if known is not None:
        return known
    rendered = (
        _delegates[-1](text) if _delegates and len(text) > _LONG_CHARS else "".join(render_blocks(text))
    )
    if sys.getsizeof(rendered) <= _MAX_CACHED_BYTES:
        with _cache_lock:
            _cache.put(key, rendered)
    return rendered


@contextmanager
def delegate_long_texts(delegate: Callable[[str], str]) -> Generator[None]:
    """Make `render` call `delegate` for long texts while the block runs. Threads may call it at the same time."""
    _delegates.append(delegate)
    try:
        yield
    finally:
        _delegates.remove(delegate)


def render_blocks(text: str, *, colours: bool = True) -> list[str]:
    """Return the HTML of each top-level block, footnotes last; joined, it is the HTML of the text."""
    blocks, notes = list[str](), list[str]()
    for _, html in locate_blocks(_part_details(text), colours=colours):
        (notes if html.startswith(_NOTE_BLOCK) else blocks).append(html)
    return blocks + notes


def prepare_document(rendered: str, *, prefix: str) -> str:
    """Return the HTML of a text for a page without scripts, on which other texts stand, too: `prefix` is this one's own."""
    return _clean(rendered, set_tag_attribute_values=_DOCUMENT_ATTRIBUTES, prefix=prefix)


def locate_blocks(text: str, *, colours: bool = True) -> list[tuple[int, str]]:
    """Return the HTML of each top-level block with the number of the line on which the block begins. A text that cannot be
    rendered is returned as it is: it must not keep the others of its conversation or its stream from being shown."""
    try:
        return list(_locate_blocks(text, colours))
    except Exception:
        log.exception("a text of %d characters cannot be rendered: it is shown without markup", len(text))
        return [(0, render_plain(text))]


def _locate_blocks(text: str, colours: bool) -> Iterator[tuple[int, str]]:
    if len(text) > MAX_CHARS:
        yield 0, render_plain(text)
    elif _NO_MARKUP.match(text) and not _LIST_OR_CODE.match(text):
        if shown := text.strip(" \t"):
            yield 0, f"<p>{escape_text(shown)}</p>"
    else:
        writer = _PageWriter(_MAX_COLOURED_CHARS if colours else 0, frozenset(_NOTE_BEGINNING.findall(text)))
        for line, group in _group_details(list(parse_blocks(text))):
            end = "" if isinstance(group[0], tree.CodeBlockNode) else "\n"
            yield line, _clean(writer.group(group)) + end


def _clean(
    written: str,
    *,
    set_tag_attribute_values: dict[str, dict[str, str]] | None = None,
    prefix: str | None = None,
) -> str:
    def rename(_: str, attribute: str, value: str) -> str:
        return f"#{prefix}{value[1:]}" if attribute == "href" and value.startswith("#") else value

    return nh3.clean(
        written,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=rename if prefix else None,
        tag_attribute_values=_ATTRIBUTE_VALUES,
        set_tag_attribute_values=set_tag_attribute_values,
        allowed_classes=_CLASSES,
        url_schemes=_URL_SCHEMES,
        link_rel="noopener noreferrer nofollow",
        id_prefix=prefix,
    )


def _part_details(text: str) -> str:
    """Part the lines that begin and end a part that opens from their neighbours, so that they are blocks of their own."""
    if _DETAILS_END not in text:
        return text
    lines, fence = list[str](), ""
    for line in text.split("\n"):
        if found := _FENCE.match(line):
            if not fence:
                fence = found[1]
            elif found[1].startswith(fence) and not line.strip(" `~"):
                fence = ""
        elif not fence and _DETAILS_LINE.match(line):
            line = line.replace("</summary>", "</summary>\n\n").replace(
                _DETAILS_END, f"\n\n{_DETAILS_END}\n\n"
            )
            line = f"\n{line}" if line.lstrip().startswith("<details") else line
        lines.append(line)
    return "\n".join(lines)


def _group_details(blocks: Sequence[tuple[int, tree.Block]]) -> Iterator[tuple[int, Sequence[tree.Block]]]:
    """Yield each block alone, and those of a part that opens together: its summary, what is in it, and its end."""
    ends: dict[int, int] = {}
    begun: list[int] = []
    for n, (_, block) in enumerate(blocks):
        if isinstance(block, tree.ParagraphNode):
            text = tree.visible_text(block)
            if begun and text.strip() == _DETAILS_END:
                ends[begun.pop()] = n
            elif _SUMMARY.match(text):
                begun.append(n)
    at = 0
    while at < len(blocks):
        last = ends.get(at, at)
        yield blocks[at][0], [block for _, block in blocks[at : last + 1]]
        at = last + 1


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


# The signs of Markdown around words, as they are left when lines became one. What stands for several cells is one blank.
_MARKUP = re.compile(
    r"[ ]*\|[ |:-]*"
    r"|`+|\*\*+|~~|\$\$|!?\[(?=[^\]]{1,80}\]\()|(?<=[^\s\]])\]\([^)\s]*\)?"
    r"|(?:(?<=[ …])|^)(?:#{1,6}|-{3,}|[-*+] \[[ xX]\]) (?=\S)|^>"
    r"|(?<![\w*])\*(?=[^\s*])|(?<=[^\s*])\*(?![\w*])"
)


def mark_words(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return a line of a message as HTML with `<mark>` around the spans, without the signs of Markdown. What is marked is kept
    as it is."""
    plain, places, end = list[str](), [0] * (len(text) + 1), 0
    length = 0
    for found in _MARKUP.finditer(text):
        start, stop = found.span()
        if any(begin < stop and start < close for begin, close in spans):
            continue
        blank = " " if "|" in found[0] and start else ""
        places[end:stop] = [
            *range(length, length + start - end),
            *[length + start - end] * (stop - start),
        ]
        plain += (text[end:start], blank)
        length += start - end + len(blank)
        end = stop
    places[end:] = range(length, length + len(text) - end + 1)
    plain.append(text[end:])
    return mark_spans("".join(plain), [(places[start], places[stop]) for start, stop in spans])


def highlight_code(code: str, language: str) -> str:
    """Return code as HTML, with a `span` for each token if the language is known and the code not too long."""
    return "".join(
        f'<span class="{_TOKEN_CLASSES[kind]}">{escape(text)}</span>' if kind else escape(text)
        for kind, text in highlight.scan(replace_for_page(code), language)
    )


class _PageWriter(HtmlWriter):
    def __init__(self, coloured_chars: int, notes: frozenset[str]) -> None:
        self._coloured_chars = coloured_chars
        self._diagram_chars = _MAX_DRAWN_CHARS
        # The footnotes that the text has, and the ends of links between them that are written.
        self._notes = notes
        self._anchors: set[str] = set()
        self._depth = 0

    def code_block(self, block: tree.CodeBlockNode) -> str:
        if block.lang.lower() == diagrams.LANGUAGE and (drawn := self._draw(block.text)):
            return drawn
        text = f"{block.text}\n" if block.text else ""
        self._coloured_chars -= len(text)
        code = highlight_code(text, block.lang if self._coloured_chars >= 0 else "")
        return f'<pre class="code" data-language="{escape(block.lang)}"><code>{code}</code></pre>'

    def _draw(self, source: str) -> str | None:
        """Write a diagram with its source below; `None` if it cannot be drawn, or if the text has too many."""
        self._diagram_chars -= len(source)
        drawn = diagrams.draw(source) if self._diagram_chars >= 0 else None
        if drawn is None:
            return None
        code = f'<pre class="code" data-language="{diagrams.LANGUAGE}"><code>{escape(source)}\n</code></pre>'
        return f'<figure class="diagram">{drawn}</figure><details><summary>Mermaid</summary>{code}</details>'

    def group(self, blocks: Sequence[tree.Block]) -> str:
        """Write a block, or a part that opens: of its first line, its blocks and its last line."""
        if len(blocks) == 1 or self._depth >= _MAX_DETAILS_DEPTH:
            return self.blocks(blocks)
        summary = _SUMMARY.match(tree.visible_text(blocks[0]))
        assert summary is not None
        self._depth += 1
        inside = "".join(self.group(group) for _, group in _group_details([(0, b) for b in blocks[1:-1]]))
        self._depth -= 1
        return f"<details><summary>{escape(summary[1].strip())}</summary>{inside}</details>"

    def inline(self, node: tree.Inline) -> str:
        if isinstance(node, tree.MathNode) and (drawn := mathml.convert(node.tex, display=node.display)):
            return drawn
        if isinstance(node, tree.TextNode) and self._notes:
            return _NOTE.sub(self._note, escape(node.text))
        return super().inline(node)

    def _note(self, found: re.Match[str]) -> str:
        """Write the mark of a footnote, at its text and where it is named. Each leads to the other one."""
        name = found[1]
        if name not in self._notes:
            return found[0]
        here, there = (
            (f"note-{name}", f"note-from-{name}") if found[2] else (f"note-from-{name}", f"note-{name}")
        )
        anchor = "" if here in self._anchors else f' id="{here}"'
        self._anchors.add(here)
        return f'<sup class="note"><a{anchor} href="#{there}">{name}</a></sup>'

    def list_item(self, item: tree.ListItemNode) -> str:
        """Write an item. The brackets of a task stay in the text, and the style sheet shows them as a box."""
        match item.blocks:
            case (tree.ParagraphNode((tree.TextNode(text), *others)) as first, *blocks) if (
                found := _TASK.match(text)
            ):
                state = "task" if found[1] == " " else "task done"
                rest = self.inlines((tree.TextNode(text[found.end() :]), *others))
                task = f'<span class="{state}">{escape(found[0])}</span>{rest}'
                return (task if first.tight else f"<p>{task}</p>") + self.blocks(blocks)
            case _:
                return super().list_item(item)

    def table(self, table: tree.TableNode) -> str:
        columns = max(len(row.cells) for row in table.rows)
        classes = [f"to-{alignment}" if alignment else "" for alignment in table.alignments]
        head, body = (
            "".join(self.table_row(row, columns, classes) for row in table.rows if row.header is header)
            for header in (True, False)
        )
        return f"<table><thead>{head}</thead>{f'<tbody>{body}</tbody>' if body else ''}</table>"

    def link(self, node: tree.LinkNode | tree.ImageNode) -> str:
        text = self.inlines(node.children)
        if node.url.partition(":")[0].lower() not in _URL_SCHEMES:
            return text if node.bare else f"{text} ({escape(node.url)})"
        title = f' title="{escape(node.title)}"' if node.title else ""
        return f'<a href="{escape(node.url)}"{title} target="_blank">{text}</a>'
