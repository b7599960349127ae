"""Tokens of source code: what gets a colour, nothing lost, and linear time for any text in any language."""

import re
import subprocess
import sys
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hostile import budget, corpus

from keryx.markdown import html
from keryx.markdown.highlight import MAX_CODE_CHARS, MAX_TOKENS, CodeTokenKind, scan

LANGUAGES = [
    "python",
    "javascript",
    "typescript",
    "tsx",
    "json",
    "bash",
    "sh",
    "fish",
    "console",
    "html",
    "xml",
    "css",
    "sql",
    "go",
    "rust",
    "c",
    "c++",
    "java",
    "c#",
    "kotlin",
    "swift",
    "scala",
    "ruby",
    "php",
    "yaml",
    "toml",
    "ini",
    "diff",
    "dockerfile",
    "makefile",
    "lua",
    "markdown",
]
SAME_RULES = ("typescript", "tsx", "sh", "fish", "xml", "c++", "scala", "ini")
# Characters with a meaning in one of the languages.
PIECES = [
    '"',
    "'",
    "`",
    "\\",
    "/",
    "*",
    "#",
    "$",
    "@",
    "&",
    "%",
    "-",
    "--",
    "+",
    "=",
    ":",
    ";",
    ",",
    ".",
    "!",
    "?",
    "<",
    ">",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "|",
    "~",
    "^",
    "_",
    "a",
    "b1",
    "0x",
    "1e",
    "9",
    "r#",
    '"""',
    "'''",
    "<!--",
    "-->",
    "=begin",
    "=end",
    "def",
    "<?php",
]


def read(code: str, language: str) -> list[tuple[str, str]]:
    return [(token.kind.value, token.text) for token in scan(code, language) if token.kind]


@pytest.mark.parametrize(
    ("language", "code", "tokens"),
    [
        (
            "python",
            "@cache\ndef f(x):  # c\n    return f'a\\'b' + len(0x1F)",
            "name:@cache keyword:def name:f comment:#·c keyword:return string:f'a\\'b' name:len number:0x1F",
        ),
        ("tsx", "const a = `b ${c}`; // d", "keyword:const string:`b·${c}` comment://·d"),
        ("json", '{"a": [true, -1.5e3, "b"]}', 'name:"a" keyword:true number:1.5e3 string:"b"'),
        ("fish", 'set -x A "$b" # c', 'keyword:set name:-x string:"$b" comment:#·c'),
        ("console", "$ ls 'a'\nit's", "comment:$· string:'a'"),
        ("html", "<!-- a --><b c='d'>it's</b>", "comment:<!--·a--> keyword:<b name:c string:'d' keyword:> keyword:</b keyword:>"),
        ("css", ".a { color: #fff !important }", "name:.a name:color name:#fff keyword:!important"),
        ("sql", "SELECT a FROM b WHERE c = 'it''s' -- d", "keyword:SELECT keyword:FROM keyword:WHERE string:'it''s' comment:--·d"),
        ("go", "func F() { return `a` }", "keyword:func name:F keyword:return string:`a`"),
        ("rust", "fn f<'a>() -> char { 'b' }", "keyword:fn name:f name:'a name:char string:'b'"),
        ("c++", "#include <a>\nint b = 1; /* c */", "keyword:#include keyword:int number:1 comment:/*·c·*/"),
        ("c#", 'var a = $"b";', 'keyword:var string:$"b"'),
        ("kotlin", "fun f() = \"\"\"a\"b\"\"\"", 'keyword:fun name:f string:"""a"b"""'),
        ("swift", "let a: Int = 1", "keyword:let name:Int number:1"),
        ("ruby", "def f(a) = @b || :c", "keyword:def name:f name:@b name::c"),
        ("php", "<?php $a = 'b';", "keyword:<?php name:$a string:'b'"),
        ("yaml", "a: true # b\nc: it's", "name:a keyword:true comment:#·b name:c"),
        ("ini", "[a]\nb = 1", "keyword:[a] name:b number:1"),
        ("diff", "--- a\n@@ 1 @@\n-b\n+c", "keyword:---·a name:@@·1·@@ deleted:-b inserted:+c"),
        ("dockerfile", "FROM a\nrun --b", "keyword:FROM keyword:run name:--b"),
        ("makefile", "all: a\n\techo $@", "name:all name:$@"),
        ("lua", "local a = [[b]] --[[ c ]]", "keyword:local string:[[b]] comment:--[[·c·]]"),
        ("md", "# a\n- `b` [c](d)", "keyword:#·a keyword:- string:`b` name:[c]"),
    ],
)  # fmt: skip
def test_what_gets_a_colour(language: str, code: str, tokens: str) -> None:
    found = [f"{kind}:{text.replace(' ', '·')}" for kind, text in read(code, language)]
    assert found == tokens.replace("<!--·a-->", "<!--·a·-->").split(" ")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_is_known(language: str) -> None:
    assert any(read(f"{sample}\n", language) for sample in ("x = 1", "<a>", "+ a", "# a", "$ a"))


@given(st.sampled_from(LANGUAGES), st.lists(st.sampled_from([*PIECES, " ", "\n", "\t"]), max_size=40))
def test_no_character_is_lost_or_added(language: str, pieces: list[str]) -> None:
    code = "".join(pieces)
    assert "".join(token.text for token in scan(code, language)) == code
    assert all(token.text for token in scan(code, language))
    page = html.highlight_code(code, language)
    assert re.sub(r"</?span[^>]*>", "", page) == html.escape_text(code)


def test_unknown_languages_and_long_code_have_no_colours() -> None:
    assert scan("if x", "rst") == [(None, "if x")]
    assert scan("", "python") == []
    longer = "if " * (MAX_CODE_CHARS // 3 + 1)
    assert scan(longer, "python") == [(None, longer)]
    many = scan("1 " * (MAX_CODE_CHARS // 2), "python")
    assert sum(token.kind is CodeTokenKind.NUMBER for token in many) == MAX_TOKENS
    assert many[-1].kind is None


def test_a_text_has_a_limit_for_coloured_code() -> None:
    block = f"```python\n{'if x: pass; ' * 1_200}\n```\n\n"
    coloured = [block for block in html.render_blocks(block * 6) if "code-keyword" in block]
    assert len(coloured) == 3


@pytest.mark.parametrize("language", [name for name in LANGUAGES if name not in SAME_RULES])
def test_time_grows_with_the_length_only(language: str) -> None:
    work = partial(scan, language=language)
    makers = [*corpus.TEXTS.items(), *corpus.CODE.items()]
    assert (
        budget.find_slow(
            work, makers, milliseconds_per_kilobyte=6, sizes=(MAX_CODE_CHARS // 8, MAX_CODE_CHARS)
        )
        == []
    )


@pytest.mark.parametrize("language", sorted(corpus.CODE))
def test_a_message_with_hostile_code_is_rendered_at_once(language: str) -> None:
    makers = [(language, partial(corpus.build_fence, language))]
    assert budget.find_slow(html.render_blocks, makers, milliseconds_per_kilobyte=6) == []


def test_the_hub_does_not_load_another_highlighter() -> None:
    program = "import sys, keryx.app, keryx.cli.commands.serve, keryx.surfaces.web.server; print('pygments' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
