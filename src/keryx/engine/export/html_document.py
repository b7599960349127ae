"""A session as one self-contained HTML file with its style sheet: no scripts, no requests to other hosts, all foreign text escaped or sanitised."""

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

import msgspec

from keryx.core.compaction import describe_notice, is_epoch_notice
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
    read_part,
)
from keryx.core.records import MessageRecord, SessionRecord
from keryx.core.text import to_single_line
from keryx.core.texts import Texts
from keryx.engine.export.markdown_document import (
    SessionMessages,
    find_summary,
    format_time,
    list_facts,
    list_marks,
)
from keryx.markdown import html

_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_STYLE_SHEET = """
:root { color-scheme: light dark; --bg: #f6f7f9; --card: #fff; --ink: #1c2128; --soft: #5c6672; --line: #dfe3e8;
  --mine: #e7f0fe; --mine-line: #c8dcfb; --accent: #2559b8; --code: #f3f4f7; --warn: #9a5b00;
  --keyword: #7a2fa8; --string: #1f6b34; --name: #1d56a8; --number: #96430b; --deleted: #b3261e; --inserted: #1f6b34; }
@media (prefers-color-scheme: dark) { :root { --bg: #111418; --card: #1a1f26; --ink: #e3e7ec; --soft: #97a1ad;
  --line: #2c333c; --mine: #17283f; --mine-line: #26406a; --accent: #86b1ff; --code: #12161b; --warn: #e3a94f;
  --keyword: #cda4f0; --string: #9fd4a4; --name: #9cc3f5; --number: #efb283; --deleted: #f2a49c; --inserted: #9fd4a4; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 16px/1.6 system-ui, sans-serif; }
main { max-width: 54rem; margin: 0 auto; padding: 2rem 1rem 5rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .75rem; overflow-wrap: anywhere; }
article { margin-bottom: 4rem; }
article + article { border-top: 1px solid var(--line); padding-top: 2.5rem; }
dl { display: flex; flex-wrap: wrap; gap: .15rem 1.5rem; margin: 0 0 2rem; font-size: .85rem; color: var(--soft); }
dl div { display: flex; gap: .4rem; }
dt::after { content: ":"; }
dd { margin: 0; color: var(--ink); overflow-wrap: anywhere; }
nav { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: .75rem 1.25rem; margin-bottom: 3rem; }
nav ol { margin: 0; padding-left: 1.5rem; }
nav span { color: var(--soft); font-size: .85rem; }
a { color: var(--accent); }
.m { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: .6rem 1rem .75rem;
  margin: 0 0 .9rem; overflow-wrap: anywhere; unicode-bidi: isolate; }
.m.user { background: var(--mine); border-color: var(--mine-line); margin-left: 3rem; }
.m.assistant { margin-right: 3rem; }
.m.tool { margin-right: 3rem; border-style: dashed; }
.m.notice { background: none; border: none; color: var(--soft); text-align: center; font-size: .9rem; }
.m.notice header { justify-content: center; }
.m.undone > div { opacity: .5; text-decoration: line-through; }
.m header { display: flex; flex-wrap: wrap; gap: .5rem; align-items: baseline; font-size: .82rem; color: var(--soft);
  margin-bottom: .15rem; }
.m header b { color: var(--ink); font-weight: 600; unicode-bidi: isolate; }
.m header a { color: inherit; text-decoration: none; margin-left: auto; }
.mark { color: var(--warn); border: 1px solid currentColor; border-radius: 99px; padding: 0 .5rem; font-size: .75rem; }
.m p { margin: .4rem 0; white-space: pre-line; }
.m pre { background: var(--code); border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem; overflow-x: auto;
  font: .86rem/1.5 ui-monospace, monospace; margin: .5rem 0; }
.m pre.plain { white-space: pre-wrap; }
.m code { font: .9em ui-monospace, monospace; background: var(--code); border-radius: 4px; padding: .1em .3em; }
.m pre code { background: none; padding: 0; font-size: 1em; }
.code-keyword { color: var(--keyword); }
.code-string { color: var(--string); }
.code-name { color: var(--name); }
.code-number { color: var(--number); }
.code-comment { color: var(--soft); font-style: italic; }
.code-deleted { color: var(--deleted); }
.code-inserted { color: var(--inserted); }
.m figure { margin: .5rem 0; overflow-x: auto; }
.diagram .node { fill: var(--card); }
.diagram .head { fill: currentColor; }
.diagram .back { fill: var(--card); stroke: none; }
.m.user .diagram .back { fill: var(--mine); }
.diagram .dotted, .diagram .life { stroke-dasharray: 4 4; }
.diagram .thick { stroke-width: 2.5; }
.diagram .note { fill: var(--code); }
.diagram .tone-0 { fill: #5b7fd6; } .diagram .tone-1 { fill: #4bb3a8; } .diagram .tone-2 { fill: #e2a95c; }
.diagram .tone-3 { fill: #b36fc0; } .diagram .tone-4 { fill: #e07f63; } .diagram .tone-5 { fill: #6fb36f; }
.diagram .tone-6 { fill: #4f93bd; } .diagram .tone-7 { fill: #8b8f98; }
.m blockquote { margin: .5rem 0; padding-left: 1rem; border-left: 3px solid var(--line); color: var(--soft); }
.m table { border-collapse: collapse; display: block; overflow-x: auto; overflow-wrap: normal; }
.m .to-left { text-align: left; }
.m .to-center { text-align: center; }
.m .to-right { text-align: right; }
.m .note a { text-decoration: none; }
.m th, .m td { border: 1px solid var(--line); padding: .3rem .6rem; }
.m h1, .m h2, .m h3, .m h4, .m h5, .m h6 { font-size: 1.05rem; margin: .8rem 0 .3rem; }
details { margin: .4rem 0; font-size: .92rem; }
summary { cursor: pointer; color: var(--soft); }
summary b { color: var(--ink); font-family: ui-monospace, monospace; font-weight: 600; }
.chip { display: inline-block; border: 1px solid var(--line); border-radius: 8px; padding: .15rem .6rem; font-size: .88rem; }
.fold { border-top: 1px dashed var(--line); color: var(--soft); text-align: center; font-size: .85rem; margin: 1.75rem 0; padding-top: .3rem; }
.fold details { text-align: left; }
footer { color: var(--soft); font-size: .8rem; text-align: center; }
@media (max-width: 40rem) { .m.user { margin-left: 0; } .m.assistant, .m.tool { margin-right: 0; } }
@media print { body { background: none; } .m { break-inside: avoid-page; } }
"""


class ContentsEntry(msgspec.Struct, frozen=True):
    """A line of the table of contents."""

    id: SessionId
    title: str
    when: str

    @classmethod
    def from_session(cls, session: SessionRecord, texts: Texts) -> "ContentsEntry":
        return cls(session.id, session.title or texts.say("export.untitled"), format_time(session.active_at))


def render(
    contents: Sequence[ContentsEntry], sessions: Iterable[SessionMessages], texts: Texts
) -> Iterator[str]:
    """Yield the text of a file in pieces."""
    head = contents[0].title if len(contents) == 1 else texts.say("export.several", count=len(contents))
    yield (
        f'<!doctype html>\n<html lang="{texts.language}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_SECURITY_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{_escape_line(head)}</title>\n<style>{_STYLE_SHEET}</style>\n</head>\n<body>\n<main>\n"
    )
    if len(contents) > 1:
        items = "".join(
            f'<li><a href="#{_escape_line(c.id)}">{_escape_line(c.title)}</a> <span>{c.when}</span></li>\n'
            for c in contents
        )
        yield f'<nav aria-label="{texts.say("export.conversations")}">\n<ol>\n{items}</ol>\n</nav>\n'
    for session, messages in sessions:
        facts = "".join(
            f"<div><dt>{name}</dt><dd>{_escape_line(value)}</dd></div>\n"
            for name, value in list_facts(session, texts)
        )
        title = _escape_line(session.title or texts.say("export.untitled"))
        yield f'<article id="{_escape_line(session.id)}">\n<h1 dir="auto">{title}</h1>\n<dl>\n{facts}</dl>\n'
        epoch = 0
        for message in messages:
            if message.epoch != epoch:
                epoch = message.epoch
                summary = find_summary(session, epoch)
                if summary:
                    heading = texts.say("export.summary")
                    summary = f"<details><summary>{heading}</summary>{render_markdown(summary)}</details>"
                yield f'<div class="fold">{texts.say("export.compacted")}{summary}</div>\n'
            if not is_epoch_notice(message.parts):
                yield _render_message(message, texts)
        yield "</article>\n"
    yield f"<footer>{texts.say('export.footer')}</footer>\n</main>\n</body>\n</html>\n"


def render_markdown(text: str, *, prefix: str = "") -> str:
    """Return a text as on the page. The cache of the page is not used: an export reads each text once. `prefix` begins its
    anchors."""
    return html.prepare_document("".join(html.render_blocks(text)), prefix=prefix)


def _render_message(message: MessageRecord, texts: Texts) -> str:
    author = _escape_line(message.author or texts.say(f"export.{message.role}"))
    badges = "".join(f' <span class="mark">{mark}</span>' for mark in list_marks(message, texts))
    anchor = f"{_escape_line(message.session)}-{message.seq}"
    body = "".join(_render_part(part, anchor, texts) for part in message.parts)
    classes = f"m {message.role.value}{' undone' if message.undone else ''}"
    head = (
        f'<header><b>{author}</b> <time datetime="{message.at:%Y-%m-%dT%H:%M:%SZ}">{format_time(message.at)}</time>'
        f'{badges} <a href="#{anchor}" aria-label="{texts.say("export.link", seq=message.seq)}">#{message.seq}</a></header>'
    )
    if message.role is Role.NOTICE:
        head = ""
    return f'<section class="{classes}" id="{anchor}">{head}<div dir="auto">{body}</div></section>\n'


def _render_part(part: Part, anchor: str, texts: Texts) -> str:
    match part:
        case Text():
            return render_markdown(read_part(part, texts), prefix=f"{anchor}-")
        case Notice():
            return f"<p>{html.escape_text(describe_notice(part, texts))}</p>"
        case Image() | File():
            name = _escape_line(part.name or part.media)
            return f'<p><span class="chip">{texts.say("export.attached", name=name)}</span></p>'
        case Audio():
            name = _escape_line(part.name or part.media)
            chip = f'<p><span class="chip">{texts.say("export.audio", name=name)}</span></p>'
            return chip + (f"<p>{html.escape_text(part.transcript)}</p>" if part.transcript else "")
        case ToolCall():
            title = texts.say("export.calls", tool=f"<b>{_escape_line(part.name)}</b>")
            return _render_details(title, html.highlight_code(part.input, "json"))
        case ToolResult():
            tool = f"<b>{_escape_line(part.name)}</b>"
            title = texts.say("export.tool_failed" if part.failed else "export.tool_answered", tool=tool)
            return _render_details(title, html.escape_text(part.output))
        case Reasoning():
            if not part.text:
                return ""
            return _render_details(texts.say("export.reasoning"), html.escape_text(part.text))
        case _:
            assert_never(part)


def _render_details(title: str, body: str) -> str:
    return f'<details><summary>{title}</summary><pre class="plain code">{body}</pre></details>'


def _escape_line(text: str) -> str:
    """Return foreign text on one line, safe in an attribute too."""
    return html.escape_text(to_single_line(text))
