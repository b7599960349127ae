# Pygments has types for a part of itself only.
# pyright: reportUnknownVariableType=false
"""Render: Markdown as html in which nothing runs, nothing loads and nothing leaves its place."""

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

LONGEST = 300_000
_LONGEST_CODE = 60_000
_CACHED = 4_096
_CACHED_TEXT = 20_000
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_PLAIN = re.compile(r"[^`*_~\[\]<>&#|\\!+=:\-\n/@]*\Z")
_ADDRESS = re.compile(r"https?://[^\s<>\"`\\]{3,2000}")
_LANGUAGE = re.compile(r"[a-zA-Z0-9_+#.-]{1,30}\Z")
_LISTED = re.compile(r"\s*\d+[.)]|\t| {4}")
_TAGS = {
    "p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a", "span",
    "table", "thead", "tbody", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "title", "target"}, "ol": {"start"}, "pre": {"data-language"}}
_CLASSES = {"span": {name for name in STANDARD_TYPES.values() if name}, "pre": {"code", "plain"}}
_FORMATTER = HtmlFormatter[str](nowrap=True)


def html(text: str) -> str:
    """The html of a text. The same text is rendered once."""
    if len(text) > _CACHED_TEXT:
        return "".join(_blocks(text, True))
    return _kept(text)


def blocks(text: str, *, colours: bool = True) -> list[str]:
    """The html of a text, one piece for each block at its top; joined, they are what `html` gives."""
    return _blocks(text, colours)


def starts(text: str) -> list[int]:
    """The lines on which the blocks at the top of a text begin."""
    return [t.map[0] for t in _parser().parse(_shown(text)) if t.level == 0 and t.map and t.nesting >= 0]


def plain(text: str) -> str:
    """A text as it is, with nothing in it that could be markup."""
    return escape(_shown(text))


def marked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """A passage with `<mark>` around its hits."""
    out, end = list[str](), 0
    for start, stop in spans:
        out += (plain(text[end:start]), "<mark>", plain(text[start:stop]), "</mark>")
        end = stop
    return "".join((*out, plain(text[end:])))


@lru_cache(_CACHED)
def _kept(text: str) -> str:
    return "".join(_blocks(text, True))


def _blocks(text: str, colours: bool) -> list[str]:
    if len(text) > LONGEST:
        return [f'<pre class="plain">{plain(text)}</pre>']
    if _PLAIN.match(text) and not _LISTED.match(text):
        return [f"<p>{plain(text.strip())}</p>"] if text.strip() else []
    parser = _parser()
    tokens = parser.parse(_shown(text))
    environment: dict[str, Any] = {"colours": colours}
    return [_clean(parser.renderer.render(group, parser.options, environment)) for group in _groups(tokens)]


def _groups(tokens: list[Token]) -> list[list[Token]]:
    """The tokens of each block at the top."""
    groups: list[list[Token]] = []
    for token in tokens:
        if token.level == 0 and token.nesting >= 0:
            groups.append([])
        groups[-1].append(token)
    return groups


def _clean(markup: str) -> str:
    return nh3.clean(
        markup,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )


def _shown(text: str) -> str:
    return _CONTROLS.sub("\ufffd", text)


@lru_cache(1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "breaks": True, "maxNesting": 20})
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.push("addresses", _addresses)
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("code_block", _code_block)
    parser.add_render_rule("image", _image)
    parser.add_render_rule("link_open", _link)
    return parser


def _addresses(state: StateCore) -> None:
    """Bare web addresses become links."""
    for token in state.tokens:
        if token.type == "inline" and token.children and "://" in token.content:
            token.children = _linked(token.children)


def _linked(tokens: list[Token]) -> list[Token]:
    out: list[Token] = []
    within = 0
    for token in tokens:
        within += token.nesting if token.type.startswith("link_") else 0
        out += [token] if within or token.type != "text" else _cut(token)
    return out


def _cut(token: Token) -> list[Token]:
    """A text with the addresses in it as links; punctuation at the end is no part of an address."""
    out, end = list[Token](), 0
    for found in _ADDRESS.finditer(token.content):
        address = found[0].rstrip(".,;:!?'\"")
        address = address if "(" in address else address.rstrip(")")
        out.append(Token("text", "", 0, content=token.content[end : found.start()]))
        out.append(Token("link_open", "a", 1, attrs={"href": address}))
        out.append(Token("text", "", 0, content=address))
        out.append(Token("link_close", "a", -1))
        end = found.start() + len(address)
    return [*out, Token("text", "", 0, content=token.content[end:])] if out else [token]


def _fence(_: Any, tokens: Sequence[Token], index: int, options: Any, environment: dict[str, Any]) -> str:
    token = tokens[index]
    language = token.info.strip().split(maxsplit=1)[0] if token.info.strip() else ""
    return _code(token.content, language if _LANGUAGE.match(language) else "", environment["colours"])


def _code_block(
    _: Any, tokens: Sequence[Token], index: int, options: Any, environment: dict[str, Any]
) -> str:
    return _code(tokens[index].content, "", False)


def _code(code: str, language: str, colours: bool) -> str:
    inner = _coloured(code, language) if colours and language and len(code) <= _LONGEST_CODE else escape(code)
    return f'<pre class="code" data-language="{escape(language)}"><code>{inner}</code></pre>'


def _coloured(code: str, language: str) -> str:
    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return escape(code)
    return highlight(code, lexer, _FORMATTER)


def _image(_: Any, tokens: Sequence[Token], index: int, options: Any, environment: dict[str, Any]) -> str:
    """A picture of a foreign host is a link to it, so that nothing is loaded unasked."""
    token = tokens[index]
    source = str(token.attrGet("src") or "")
    return f'<a href="{escape(source)}" target="_blank">{escape(token.content or source)}</a>'


def _link(_: Any, tokens: Sequence[Token], index: int, options: Any, environment: dict[str, Any]) -> str:
    href, title = (str(tokens[index].attrGet(name) or "") for name in ("href", "title"))
    named = f' title="{escape(title)}"' if title else ""
    return f'<a href="{escape(href)}"{named} target="_blank">'
