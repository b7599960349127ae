"""Rendering: nothing in a text runs or loads, and an answer that grows ends as the answer that was there at once."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.core.changes import DraftChunk
from keryx.surfaces.web import markdown_html
from keryx.surfaces.web.stream.incremental_renderer import IncrementalRenderer

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x)",
    "![x](javascript:alert(1))",
    '![x"onerror="alert(1)](http://a.example/)',
    "<a href='javascript:alert(1)'>x</a>",
    "<svg/onload=alert(1)>",
    "<iframe src=//evil.example></iframe>",
    "```<script>\nalert(1)\n```",
    '```"><script>alert(1)</script>\nx\n```',
    "```html\n<script>alert(1)</script>\n```",
    "<style>*{display:none}</style>",
    "<div style='position:fixed'>x</div>",
    "http://x.example/<script>",
    "https://x.example/'onmouseover='alert(1)",
    '<http://x.example/"onmouseover="alert(1)>',
    "[x]: javascript:alert(1)\n\n[x]",
    "<!--><script>alert(1)</script>-->",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<math><mtext><script>alert(1)</script></mtext></math>",
    "x\x00<scr\x00ipt>alert(1)</script>",
    "| a |\n|---|\n| <script>alert(1)</script> |",
    '[x](https://a.example "onclick=alert(1)")',
    "<details open ontoggle=alert(1)>",
    "<form action=javascript:alert(1)><button>x",
    '<base href="//evil.example/">',
    '<meta http-equiv=refresh content="0;url=javascript:alert(1)">',
)
_TAG = re.compile(r"<\s*/?\s*([a-zA-Z0-9]+)([^>]*)>")
_KNOWN = frozenset(
    [
        "p",
        "br",
        "hr",
        "em",
        "strong",
        "s",
        "code",
        "pre",
        "blockquote",
        "ul",
        "ol",
        "li",
        "a",
        "span",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
    ]
)
_ATTRIBUTES = frozenset({"href", "title", "target", "rel", "start", "data-language", "class"})


def assert_safe(html: str) -> None:
    for tag, attributes in _TAG.findall(html):
        assert tag in _KNOWN, html
        for name, value in re.findall(r'([\w-]+)="([^"]*)"', attributes):
            assert name in _ATTRIBUTES, html
            assert name != "href" or value.startswith(("http://", "https://", "mailto:")), html
        assert not re.search(r"\son\w+\s*=", re.sub(r'"[^"]*"', "", attributes)), html


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_hostile_comes_through(text: str) -> None:
    for shown in (text, f"before\n\n{text}\n\nafter", f"- {text}\n- b", f"> {text}"):
        assert_safe(markdown_html.render(shown))
        assert_safe("".join(markdown_html.render_blocks(shown, colours=False)))
    assert_safe(markdown_html.mark_spans(text, [(0, 3)]).replace("<mark>", "").replace("</mark>", ""))


@given(st.lists(st.sampled_from((*HOSTILE, "\n", " ", "`", "*", "[", "](", ")", "<", '"', "|")), max_size=8))
def test_no_mixture_of_hostile_text_comes_through(pieces: list[str]) -> None:
    assert_safe(markdown_html.render("".join(pieces)))


@given(st.text())
def test_any_text_is_rendered(text: str) -> None:
    assert_safe(markdown_html.render(text))
    assert "".join(markdown_html.render_blocks(text)) == markdown_html.render(text)


def test_code_is_coloured_addresses_are_links_and_pictures_are_not_loaded() -> None:
    html = markdown_html.render(
        "see https://a.example/x). ![cat](https://b.example/cat.png)\n\n```python\nx = 1\n```"
    )
    assert '<a href="https://a.example/x" target="_blank" rel="noopener noreferrer nofollow">' in html
    assert "<img" not in html
    assert '<a href="https://b.example/cat.png"' in html
    assert '<pre class="code" data-language="python"><code><span class="n">x</span>' in html


def test_a_very_long_text_is_shown_plainly() -> None:
    assert markdown_html.render("*" * 400_000).startswith('<pre class="plain">')


TEXTS = (
    "# Title\n\nSome *text* here,\nand more.\n\n- one\n- two\n\n  still two\n\n```py\na = 1\n\nb = 2\n```\n\nEnd.\n",
    "A line\n=====\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n> more\n\n1. x\n2. y\n\n---\n\nlast",
    "```\nan open fence\n\nwith blank lines\n\n# no title\n",
    "word " * 2000,
    "- item\n" * 600 + "\n\npara\n\n" * 50,
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", range(5))
def test_an_answer_that_grew_ends_as_one_that_was_there_at_once(text: str, seed: int) -> None:
    chance, growing = random.Random(seed), IncrementalRenderer()
    shown: list[str] = []
    start = n = 0
    pending = False
    while start < len(text):
        size, n = chance.randrange(1, 60), n + 1
        for step in growing.add([DraftChunk(n, text[start : start + size])]):
            pending = step.blocks is None
            if step.blocks is not None:
                shown = [*shown[: step.keep], *step.blocks]
        start += size
    wanted = markdown_html.render_blocks(text, colours=False)
    if pending:
        shown, wanted = shown[:-1], wanted[: len(shown) - 1]
    assert shown == wanted


@pytest.mark.parametrize(
    "unit", ["# t\n\nSome **bold** text here.\n\n", "- item of a list\n", "word ", "x\n"]
)
def test_a_long_answer_costs_no_more_than_its_length_allows(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    growing, sent = IncrementalRenderer(), 0
    for n, start in enumerate(range(0, len(text), 200), start=1):
        for step in growing.add([DraftChunk(n, text[start : start + 200])]):
            sent += len(step.text) + sum(map(len, step.blocks or ()))
    assert sent < 12 * len("".join(markdown_html.render_blocks(text, colours=False)))


def test_reasoning_and_text_are_parts_of_their_own() -> None:
    growing = IncrementalRenderer()
    pieces = [
        DraftChunk(1, "hm", thought=True),
        DraftChunk(2, "well", thought=True),
        DraftChunk(3, "yes"),
        DraftChunk(4, "!"),
    ]
    steps = growing.add(pieces)
    assert [(s.part, s.thought, s.text, s.n) for s in steps] == [
        (0, True, "hmwell", 2),
        (1, False, "yes!", 4),
    ]
    assert growing.add(pieces) == []
