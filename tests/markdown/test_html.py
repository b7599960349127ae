"""Sanitised HTML: nothing in a text runs or loads, and the markup is the one that the style sheet expects."""

import inspect
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.markdown import html

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
    r"$\text{<script>alert(1)</script>}$",
    r"$$<img src=x onerror=alert(1)> \mathrm{</math><svg onload=alert(1)>}$$",
    r"\(\begin{cases} <a href=javascript:alert(1)> & x \end{cases}\)",
    "- [x] <script>alert(1)</script>",
    "| a |\n|:-:|\n| <b onclick=alert(1)> |",
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
        "sup",
        "details",
        "summary",
        *[
            "math",
            "mrow",
            "mi",
            "mo",
            "mn",
            "mtext",
            "mspace",
            "mfrac",
            "msqrt",
            "mroot",
            "msub",
            "msup",
            "msubsup",
            "munder",
            "mover",
            "munderover",
        ],
        *["mtable", "mtr", "mtd"],
    ]
)
_ATTRIBUTES = frozenset(
    [
        "href",
        "title",
        "target",
        "rel",
        "start",
        "data-language",
        "class",
        "display",
        "mathvariant",
        "stretchy",
        "width",
        "linethickness",
    ]
)


def assert_safe(page: str) -> None:
    for tag, attributes in _TAG.findall(page):
        assert tag in _KNOWN, page
        for name, value in re.findall(r'([\w-]+)="([^"]*)"', attributes):
            assert name in _ATTRIBUTES, page
            assert name != "href" or value.startswith(("http://", "https://", "mailto:")), page
        assert not re.search(r"\son\w+\s*=", re.sub(r'"[^"]*"', "", attributes)), page


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_hostile_comes_through(text: str) -> None:
    for shown in (text, f"before\n\n{text}\n\nafter", f"- {text}\n- b", f"> {text}"):
        assert_safe(html.render(shown))
        assert_safe("".join(html.render_blocks(shown, colours=False)))
    assert_safe(html.mark_spans(text, [(0, 3)]).replace("<mark>", "").replace("</mark>", ""))


@given(st.lists(st.sampled_from((*HOSTILE, "\n", " ", "`", "*", "[", "](", ")", "<", '"', "|")), max_size=8))
def test_no_mixture_of_hostile_text_comes_through(pieces: list[str]) -> None:
    assert_safe(html.render("".join(pieces)))


@given(st.text())
def test_any_text_is_rendered(text: str) -> None:
    assert_safe(html.render(text))
    assert "".join(html.render_blocks(text)) == html.render(text)


def test_code_is_coloured_addresses_are_links_and_pictures_are_not_loaded() -> None:
    page = html.render("see https://a.example/x). ![cat](https://b.example/cat.png)\n\n```python\nx = 1\n```")
    assert '<a href="https://a.example/x" target="_blank" rel="noopener noreferrer nofollow">' in page
    assert "<img" not in page
    assert '<a href="https://b.example/cat.png"' in page
    assert '<pre class="code" data-language="python"><code>x = <span class="code-number">1</span>' in page


def test_a_very_long_text_is_shown_plainly() -> None:
    assert html.render("*" * 400_000).startswith('<pre class="plain">')


def test_the_elements_of_the_page() -> None:
    assert html.render("# a **b**\n\nc\nd ~~e~~\n\n> f") == (
        "<h1>a <strong>b</strong></h1>\n<p>c<br>d <s>e</s></p>\n<blockquote><p>f</p></blockquote>\n"
    )
    assert html.render("3. a\n   - b\n4. c") == (
        '<ol start="3"><li>a<ul><li>b</li></ul></li><li>c</li></ol>\n'
    )
    assert html.render("- a\n\n- b") == "<ul><li><p>a</p></li><li><p>b</p></li></ul>\n"
    assert html.render("|a|b|\n|-|-|\n|c|") == (
        "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>c</td><td></td></tr></tbody></table>\n"
    )
    assert html.render("|a|b|c|\n|:-|:-:|-:|\n|1|2|3|") == (
        '<table><thead><tr><th class="to-left">a</th><th class="to-center">b</th><th class="to-right">c</th></tr></thead>'
        '<tbody><tr><td class="to-left">1</td><td class="to-center">2</td><td class="to-right">3</td></tr></tbody></table>\n'
    )
    assert html.render("- [x] a\n- [ ] b\n- [c] d") == (
        '<ul><li><span class="task done">[x]</span> a</li><li><span class="task">[ ]</span> b</li><li>[c] d</li></ul>\n'
    )
    assert html.render("    <x>\n") == '<pre class="code" data-language=""><code>&lt;x&gt;\n</code></pre>'
    assert 'title="t" target="_blank"' in html.render('[a](https://x.org "t")')


def test_footnotes_stand_at_the_end_with_links_between_them_only_if_the_text_has_them() -> None:
    def mark(name: str, to: str) -> str:
        return f'<sup class="note"><a id="{name}" href="#{to}" rel="noopener noreferrer nofollow">1</a></sup>'

    first, note = mark("note-from-1", "note-1"), mark("note-1", "note-from-1")
    assert html.render("a[^1] b[^z] `[^1]`\n\n[^1]: c\n\nd") == (
        f"<p>a{first} b[^z] <code>[^1]</code></p>\n<p>d</p>\n<p>{note} c</p>\n"
    )
    twice = html.render("a[^1] b[^1]\n\n[^1]: c")
    assert twice.count('href="#note-1"') == 2 and twice.count('id="note-from-1"') == 1
    assert html.render("not [^a-z] one") == "<p>not [^a-z] one</p>\n"


def test_a_part_that_opens_needs_its_end() -> None:
    assert html.render("<details>\n<summary>A <b></summary>\n\n*b*\n\n- c\n\n</details>\n\nd") == (
        "<details><summary>A &lt;b&gt;</summary><p><em>b</em></p><ul><li>c</li></ul></details>\n<p>d</p>\n"
    )
    assert "<details" not in html.render("<details>\n<summary>A</summary>\n\nb")
    assert "<details" not in html.render("b\n\n</details>")


def test_parts_that_open_contain_others_and_need_no_empty_lines() -> None:
    nested = "<details>\n<summary>A</summary>\na **b**\n<details><summary>B</summary>\nc\n</details>\nd\n</details>\ne"
    assert html.render(nested) == (
        "<details><summary>A</summary><p>a <strong>b</strong></p>"
        "<details><summary>B</summary><p>c</p></details><p>d</p></details>\n<p>e</p>\n"
    )
    code = "```text\n<details><summary>A</summary>b</details>\n```"
    assert "&lt;/summary&gt;b&lt;/details&gt;\n</code>" in html.render(code)
    deep = "<details><summary>x</summary>\n" * 200 + "y" + "\n</details>" * 200
    assert html.render(deep).count("<details>") == 8


def test_a_page_without_scripts_has_directions_and_links_of_its_own() -> None:
    text = 'a[^1] [x](https://x.org "<p onclick=alert(1) y")\n\n|a|\n|-|\n|b|\n\n[^1]: c'
    page = html.prepare_document(html.render(text), prefix="m7-")
    assert '<p dir="auto">a<sup class="note"><a id="m7-note-from-1" href="#m7-note-1"' in page
    assert '<table tabindex="0">' in page and '<td dir="auto">b</td>' in page
    assert "&lt;p onclick=alert(1) y" in page and "<p onclick" not in page
    assert html.prepare_document(page, prefix="") == page


def test_an_address_that_the_page_does_not_follow_is_shown() -> None:
    assert html.render("[a](magnet:?x) <ftp://b.example>") == "<p>a (magnet:?x) ftp://b.example</p>\n"


def test_the_html_of_a_long_text_is_kept() -> None:
    text = "- a\n\n" * 15_000
    assert html.render(text) is html.render(text)
    assert html.render(text) == "".join(html.render_blocks(text))


def test_a_text_that_cannot_be_rendered_is_shown_as_it_is() -> None:
    text = "> " * 14 + "- *a*"
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 60)
    try:
        shown = html.render_blocks(text)
    finally:
        sys.setrecursionlimit(limit)
    assert shown == [html.render_plain(text)]
    assert html.render_blocks(text)[0].startswith("<blockquote>")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("…its **lease** runs `out`", "…its <mark>lease</mark> runs out"),
        ("# The lease ## and - [x] done - so", "The <mark>lease</mark> and done - so"),
        ("| a | b | |---|--:| | 1 | lease |", "a b 1 <mark>lease</mark> "),
        ("[the lease](https://a.example/b) *is* 2 * 3 <b>", "the <mark>lease</mark> is 2 * 3 &lt;b&gt;"),
        ("a|lease|b --- __init__.py", "a <mark>lease</mark> b __init__.py"),
    ],
)
def test_a_line_is_marked_without_markup(text: str, shown: str) -> None:
    start = text.index("lease")
    assert html.mark_words(text, [(start, start + 5)]) == shown
