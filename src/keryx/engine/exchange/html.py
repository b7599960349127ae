# Pygments has types for a part of itself only.
# pyright: reportUnknownVariableType=false
"""HTML: a conversation as one file that needs nothing else. No script, no foreign host; foreign text stays text."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from typing import assert_never

import msgspec
import nh3
from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from keryx.core.compaction import shown, shows_epoch
from keryx.core.ids import SessionId
from keryx.core.messages import (
    Audio,
    File,
    Image,
    Notice,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from keryx.core.records import MessageRecord, SessionRecord
from keryx.core.titles import UNTITLED, line
from keryx.engine.exchange import style
from keryx.engine.exchange.markdown import NAMES, Told, facts, marks, summary, when, writable

_LONGEST_MARKDOWN = 200_000
_LONGEST_CODE = 50_000
_CONTROLS = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_PLAIN = re.compile(r"[^`*_~\[\]<>&#|\\!+>=:-]*\Z")
_LISTED = re.compile(r"^\s*(?:\d+[.)]|\t| {4})", re.M)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_TAGS = {
    "p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a", "span", "div",
    "table", "thead", "tbody", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
_FORMATTER = HtmlFormatter[str](nowrap=True)


class Heading(msgspec.Struct, frozen=True):
    """A line of the table of contents."""

    id: SessionId
    title: str
    when: str

    @classmethod
    def of(cls, session: SessionRecord) -> "Heading":
        return cls(session.id, session.title or UNTITLED, when(session.active_at))


def document(contents: Sequence[Heading], told: Iterable[Told]) -> Iterator[str]:
    """The text of a file, in pieces."""
    yield _head(contents[0].title if len(contents) == 1 else f"{len(contents)} conversations")
    if len(contents) > 1:
        yield _contents(contents)
    for session, messages in told:
        yield _opening(session)
        epoch = 0
        for message in messages:
            if message.epoch != epoch:
                epoch = message.epoch
                yield _compaction(session, epoch)
            if not shows_epoch(message.parts):
                yield _message(message)
        yield "</article>\n"
    yield "<footer>Exported by Keryx</footer>\n</main>\n</body>\n</html>\n"


def rendered(text: str) -> str:
    """Markdown as HTML in which nothing runs, loads or leaves its place."""
    if len(text) > _LONGEST_MARKDOWN:
        return f'<pre class="plain">{_text(text)}</pre>'
    if _PLAIN.match(text) and not _LISTED.search(text):
        return "".join(f"<p>{_text(block)}</p>" for block in re.split(r"\n{2,}", text) if block.strip())
    return nh3.clean(
        _markdown().render(_shown(text)),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        allowed_classes={"span": _classes(), "pre": {"hl"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )


def _head(title: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_label(title)}</title>\n<style>{style.sheet()}</style>\n</head>\n<body>\n<main>\n"
    )


def _contents(contents: Sequence[Heading]) -> str:
    items = "".join(
        f'<li><a href="#{_label(h.id)}">{_label(h.title)}</a> <span>{h.when}</span></li>\n' for h in contents
    )
    return f'<nav aria-label="Conversations">\n<ol>\n{items}</ol>\n</nav>\n'


def _opening(session: SessionRecord) -> str:
    listed = "".join(
        f"<div><dt>{name}</dt><dd>{_label(value)}</dd></div>\n" for name, value in facts(session)
    )
    title = _label(session.title or UNTITLED)
    return f'<article id="{_label(session.id)}">\n<h1 dir="auto">{title}</h1>\n<dl>\n{listed}</dl>\n'


def _compaction(session: SessionRecord, epoch: int) -> str:
    text = summary(session, epoch)
    told = f"<details><summary>Summary</summary>{rendered(text)}</details>" if text else ""
    return f'<div class="fold">What came before was compacted here{told}</div>\n'


def _message(message: MessageRecord) -> str:
    who = _label(message.author or NAMES[message.role])
    badges = "".join(f' <span class="mark">{mark}</span>' for mark in marks(message))
    body = "".join(_part(part) for part in message.parts)
    place = f"{_label(message.session)}-{message.seq}"
    classes = f"m {message.role.value}{' undone' if message.undone else ''}"
    head = (
        f'<header><b>{who}</b> <time datetime="{message.at:%Y-%m-%dT%H:%M:%SZ}">{when(message.at)}</time>'
        f'{badges} <a href="#{place}" aria-label="Link to message {message.seq}">#{message.seq}</a></header>'
    )
    if message.role is Role.NOTICE:
        head = ""
    return f'<section class="{classes}" id="{place}">{head}<div dir="auto">{body}</div></section>\n'


def _part(part: Part) -> str:
    match part:
        case Text(text):
            return rendered(text)
        case Notice():
            return f"<p>{_text(shown(part))}</p>"
        case Image() | File():
            return f'<p><span class="chip">Attached: {_label(part.name or part.media)}</span></p>'
        case Audio():
            chip = f'<p><span class="chip">Audio: {_label(part.name or part.media)}</span></p>'
            return chip + (f"<p>{_text(part.transcript)}</p>" if part.transcript else "")
        case ToolCall():
            return _folded(f"Calls <b>{_label(part.name)}</b>", _code(part.input, "json"))
        case ToolResult():
            verb = "failed" if part.failed else "answered"
            return _folded(f"<b>{_label(part.name)}</b> {verb}", _text(part.output))
        case Reasoning():
            return _folded("Reasoning", _text(part.text)) if part.text else ""
        case _:
            assert_never(part)


def _folded(title: str, body: str) -> str:
    return f'<details><summary>{title}</summary><pre class="plain hl">{body}</pre></details>'


def _label(text: str) -> str:
    """Foreign text on one line, fit for an attribute too."""
    return escape(_shown(line(text)))


def _text(text: str) -> str:
    return escape(_shown(text))


def _shown(text: str) -> str:
    """Text that a page may hold: what cannot be written or seen becomes a replacement character."""
    return _CONTROLS.sub("\ufffd", writable(text))


def _code(text: str, language: str) -> str:
    if len(text) > _LONGEST_CODE or not language:
        return _text(text)
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except (ClassNotFound, ValueError):
        return _text(text)
    return str(highlight(_shown(text), lexer, _FORMATTER))


@cache
def _markdown() -> MarkdownIt:
    """Images are left as links: a page that loads them would tell a foreign host who reads it."""
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.disable(["image", "html_block", "html_inline"])
    parser.add_render_rule("fence", _fence)
    return parser


def _fence(renderer: object, tokens: Sequence[object], index: int, options: object, env: object) -> str:
    token = tokens[index]
    language = str(getattr(token, "info", "")).strip().split(" ", 1)[0][:40]
    return f'<pre class="hl"><code>{_code(str(getattr(token, "content", "")), language)}</code></pre>\n'


@cache
def _classes() -> set[str]:
    """Every class that the highlighter writes, and no other."""
    return {rule.split()[1].lstrip(".") for rule in style.sheet().splitlines() if rule.startswith(".hl .")}
