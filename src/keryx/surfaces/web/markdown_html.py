# Pygments has types for a part of itself only.
# pyright: reportUnknownVariableType=false
"""Markdown to sanitised HTML, whole or block by block, with highlighted code. Moves to keryx/markdown later."""

import re
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

from keryx.core.text import replace_for_page

MAX_CHARS = 300_000
_MAX_CODE_CHARS = 60_000
_CACHE_SIZE = 4_096
_MAX_CACHED_CHARS = 20_000
_NO_MARKUP = re.compile(r"[^`*_~\[\]<>&#|\\!+=:\-\n/@]*\Z")
_URL = re.compile(r"https?://[^\s<>\"`\\]{3,2000}")
_LANGUAGE = re.compile(r"[a-zA-Z0-9_+#.-]{1,30}\Z")
_LIST_OR_CODE = re.compile(r"\s*\d+[.)]|\t| {4}")
_TAGS = {
    "p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a", "span",
    "table", "thead", "tbody", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "title", "target"}, "ol": {"start"}, "pre": {"data-language"}}
_CLASSES = {"span": {name for name in STANDARD_TYPES.values() if name}, "pre": {"code", "plain"}}
_FORMATTER = HtmlFormatter[str](nowrap=True)


def render(text: str) -> str:
    """The html of a text. The same text is rendered once."""
    if len(text) > _MAX_CACHED_CHARS:
        return "".join(_render_blocks(text, True))
    return _render_cached(text)


def render_blocks(text: str, *, colours: bool = True) -> list[str]:
    """The html of a text, one piece for each block at its top; joined, they are what `html` gives."""
    return _render_blocks(text, colours)


def find_block_starts(text: str) -> list[int]:
    """The lines on which the blocks at the top of a text begin."""
    return [
        t.map[0]
        for t in _get_parser().parse(replace_for_page(text))
        if t.level == 0 and t.map and t.nesting >= 0
    ]


def escape_text(text: str) -> str:
    """A text as it is, with nothing in it that could be markup."""
    return escape(replace_for_page(text))


def mark_spans(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """A passage with `<mark>` around its hits."""
    out, end = list[str](), 0
    for start, stop in spans:
        out += (escape_text(text[end:start]), "<mark>", escape_text(text[start:stop]), "</mark>")
        end = stop
    return "".join((*out, escape_text(text[end:])))


@lru_cache(_CACHE_SIZE)
def _render_cached(text: str) -> str:
    return "".join(_render_blocks(text, True))


def _render_blocks(text: str, colours: bool) -> list[str]:
    if len(text) > MAX_CHARS:
        return [f'<pre class="plain">{escape_text(text)}</pre>']
    if _NO_MARKUP.match(text) and not _LIST_OR_CODE.match(text):
        return [f"<p>{escape_text(text.strip())}</p>"] if text.strip() else []
    parser = _get_parser()
    tokens = parser.parse(replace_for_page(text))
    environment: dict[str, Any] = {"colours": colours}
    return [
        _sanitize(parser.renderer.render(group, parser.options, environment))
        for group in _group_by_block(tokens)
    ]


def _group_by_block(tokens: list[Token]) -> list[list[Token]]:
    """The tokens of each block at the top."""
    groups: list[list[Token]] = []
    for token in tokens:
        if token.level == 0 and token.nesting >= 0:
            groups.append([])
        groups[-1].append(token)
    return groups


def _sanitize(markup: str) -> str:
    return nh3.clean(
        markup,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )


@lru_cache(1)
def _get_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "breaks": True, "maxNesting": 20})
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.push("addresses", _linkify)
    parser.add_render_rule("fence", _render_fence)
    parser.add_render_rule("code_block", _render_code_block)
    parser.add_render_rule("image", _render_image)
    parser.add_render_rule("link_open", _render_link)
    return parser


def _linkify(state: StateCore) -> None:
    """Bare web addresses become links."""
    for token in state.tokens:
        if token.type == "inline" and token.children and "://" in token.content:
            token.children = _linkify_tokens(token.children)


def _linkify_tokens(tokens: list[Token]) -> list[Token]:
    out: list[Token] = []
    within = 0
    for token in tokens:
        within += token.nesting if token.type.startswith("link_") else 0
        out += [token] if within or token.type != "text" else _linkify_text(token)
    return out


def _linkify_text(token: Token) -> list[Token]:
    """A text with the addresses in it as links; punctuation at the end is no part of an address."""
    out, end = list[Token](), 0
    for found in _URL.finditer(token.content):
        address = found[0].rstrip(".,;:!?'\"")
        address = address if "(" in address else address.rstrip(")")
        out.append(Token("text", "", 0, content=token.content[end : found.start()]))
        out.append(Token("link_open", "a", 1, attrs={"href": address}))
        out.append(Token("text", "", 0, content=address))
        out.append(Token("link_close", "a", -1))
        end = found.start() + len(address)
    return [*out, Token("text", "", 0, content=token.content[end:])] if out else [token]


def _render_fence(
    _: Any, tokens: Sequence[Token], index: int, options: Any, environment: dict[str, Any]
) -> str:
    token = tokens[index]
    language = token.info.strip().split(maxsplit=1)[0] if token.info.strip() else ""
    return _render_code(token.content, language if _LANGUAGE.match(language) else "", environment["colours"])


def _render_code_block(
    _: Any, tokens: Sequence[Token], index: int, options: Any, environment: dict[str, Any]
) -> str:
    return _render_code(tokens[index].content, "", False)


def _render_code(code: str, language: str, colours: bool) -> str:
    inner = (
        _highlight_code(code, language)
        if colours and language and len(code) <= _MAX_CODE_CHARS
        else escape(code)
    )
    return f'<pre class="code" data-language="{escape(language)}"><code>{inner}</code></pre>'


def _highlight_code(code: str, language: str) -> str:
    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return escape(code)
    return highlight(code, lexer, _FORMATTER)


def _render_image(
    _: Any, tokens: Sequence[Token], index: int, options: Any, environment: dict[str, Any]
) -> str:
    """A picture of a foreign host is a link to it, so that nothing is loaded unasked."""
    token = tokens[index]
    source = str(token.attrGet("src") or "")
    return f'<a href="{escape(source)}" target="_blank">{escape(token.content or source)}</a>'


def _render_link(
    _: Any, tokens: Sequence[Token], index: int, options: Any, environment: dict[str, Any]
) -> str:
    href, title = (str(tokens[index].attrGet(name) or "") for name in ("href", "title"))
    named = f' title="{escape(title)}"' if title else ""
    return f'<a href="{escape(href)}"{named} target="_blank">'
