"""What each platform gets."""

import re
import time
from collections.abc import Callable

import pytest
from tests.markdown.plain_parts import plain_parts

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import (
    discord_markdown,
    email_html,
    feishu_markdown,
    matrix_html,
    parse,
    plain,
    signal_styles,
    telegram_entities,
    whatsapp_markup,
)
from keryx.markdown.split import LengthLimit, measure_length
from keryx.markdown.telegram_entities import TelegramEntity

SMALL = LengthLimit(1500, LengthUnit.UTF16)
STYLED = "# Title\n\n**bold _both_** ~~gone~~ `code` [text](https://x.org/a_b)"
LISTED = "3. one\n   - two\n\n     ```py\n     x = 1\n     ```\n4. three\n\n> said\n> twice"
TABLE = "| a | b |\n|---|---|\n| 1 | 漢字 |\n| 2 |"


def entities(markdown: str) -> tuple[str, list[TelegramEntity]]:
    (part,) = telegram_entities.render_parts(markdown)
    return part.text, list(part.entities)


def test_plain() -> None:
    assert plain.render(parse(STYLED)) == "Title\n\nbold both gone code text (https://x.org/a_b)"
    assert plain.render(parse(LISTED)) == "3. one\n   • two\nx = 1\n4. three\n\n> said\n> twice"
    assert plain.render(parse(TABLE)) == "a | b\n──┼─────\n1 | 漢字\n2"


def test_matrix() -> None:
    (part,) = matrix_html.render_parts(LISTED + "\n\n**a** `b` <i>\nc")
    assert part.body == plain.render(parse(LISTED + "\n\n**a** `b` <i>\nc"))
    assert part.formatted_body == (
        '<ol start="3"><li>one<ul><li>two<pre><code class="language-py">x = 1\n</code></pre></li></ul></li>'
        "<li>three</li></ol><blockquote><p>said<br>twice</p></blockquote>"
        "<p><strong>a</strong> <code>b</code> &lt;i&gt;<br>c</p>"
    )


def test_matrix_takes_no_html_and_no_script_from_the_message() -> None:
    (part,) = matrix_html.render_parts(
        '<img src=x onerror=y> [a](javascript:b) [c](http://x/"onclick=d) ```"><script>```'
    )
    tags = ["<p>", '<a href="http://x/%22onclick=d">', "</a>", "<code>", "</code>", "</p>"]
    assert re.findall(r"<[^>]+>", part.formatted_body) == tags


def test_feishu() -> None:
    assert feishu_markdown.render(parse(STYLED)) == (
        "# Title\n\n**bold *both*** ~~gone~~ `code` [text](https://x.org/a_b)"
    )
    assert feishu_markdown.render(parse(LISTED)) == (
        "3. one\n\n   - two\n\n     ```py\n     x = 1\n     ```\n4. three\n\n> said\n> twice"
    )
    assert feishu_markdown.render(parse(TABLE)) == "| a | b |\n|---|---|\n| 1 | 漢字 |\n| 2 |  |"


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("2 * 3 * 4 ~ 5 ~~ 6", "2 &#42; 3 &#42; 4 &#126; 5 &#126;&#126; 6"),
        ("snake_case _x", "snake_case &#95;x"),
        ("<font color='red'>a</font>", "&#60;font color='red'>a&#60;/font>"),
        ("a &lt;b&gt; &amp;amp; c & d", "a &#60;b> &amp;amp; c & d"),
        (
            "\\# no heading\n\\- no item\n1\\. none\n\\> none",
            "&#35; no heading\n&#45; no item\n1&#46; none\n&#62; none",
        ),
        ("hi <at id=ou_12ab></at>!", "hi <at id=ou_12ab></at>!"),
        ("<at id=all></at> <at id=ou_1 x></at>", "&#60;at id=all>&#60;/at> &#60;at id=ou_1 x>&#60;/at>"),
        ("![pic](https://x.org/a.png)", "[pic](https://x.org/a.png)"),
        ("[f](docs/a_b.md)", "f (docs/a_b.md)"),
        ("[a](https://x.org/(b))", "[a](https://x.org/%28b%29)"),
        ("`<at id=all></at> *`", "`<\u200bat id=all></at> *`"),
        ("```\n<AT user_id='all'>\n```", "```\n<\u200bAT user_id='all'>\n```"),
        ("``a`b``", "``a`b``"),
    ],
)
def test_feishu_shows_text_that_looks_like_markup_as_it_is(markdown: str, shown: str) -> None:
    [part] = feishu_markdown.render_parts(markdown)
    assert part.markdown == shown


def test_feishu_gets_no_more_tables_than_a_card_may_have() -> None:
    rendered = feishu_markdown.render(parse("\n\n".join([TABLE] * (feishu_markdown.MAX_TABLES + 2))))
    assert rendered.count("|---|---|") == feishu_markdown.MAX_TABLES and rendered.count("```") == 4


def test_discord() -> None:
    assert discord_markdown.render(parse(STYLED)) == (
        "# Title\n\n**bold *both*** ~~gone~~ `code` [text](https://x.org/a_b)"
    )
    assert discord_markdown.render(parse(LISTED)) == (
        "3. one\n   - two\n```py\nx = 1\n```\n4. three\n\n> said\n> twice"
    )
    assert discord_markdown.render(parse(TABLE)) == "```\na | b\n──┼─────\n1 | 漢字\n2\n```"
    assert discord_markdown.render(parse("#### deep\n\n> > a\n\n---")) == "**deep**\n\n> a\n\n———"


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("snake_case and 2 \\* 3", "snake\\_case and 2 \\* 3"),
        (
            "\\# no heading\n\\- no list\n1\\. no number\n\\> no quotation",
            "\\# no heading\n\\- no list\n1\\. no number\n\\> no quotation",
        ),
        ("-# small", "\\-# small"),
        ("||hidden||", "\\|\\|hidden\\|\\|"),
        ("`` a`b ``", "`` a`b ``"),
        ("<@123> <@!4> <#5> <@&6> <:x:7> <t:8>", "<@123> <@!4> <#5> \\<@&6> \\<:x:7> \\<t:8>"),
        ("https://x.org/a_b_c", "https://x.org/a_b_c"),
        ("[a](docs/b_c.md)", "a (docs/b\\_c.md)"),
        ("[a](<https://x.org/(b)>)", "[a](https://x.org/%28b%29)"),
        ("~~~\n```\n~~~", "```\n`\u200b`\u200b`\u200b\n```"),
    ],
)
def test_discord_shows_text_that_looks_like_markup_as_it_is(markdown: str, shown: str) -> None:
    assert discord_markdown.render_parts(markdown) == [shown]


def test_telegram_styles() -> None:
    text, found = entities(STYLED)
    assert text == "Title\n\nbold both gone code text"
    assert found == [
        TelegramEntity("bold", 0, 5),
        TelegramEntity("bold", 7, 9),
        TelegramEntity("italic", 12, 4),
        TelegramEntity("strikethrough", 17, 4),
        TelegramEntity("code", 22, 4),
        TelegramEntity("text_link", 27, 4, url="https://x.org/a_b"),
    ]


def test_telegram_counts_utf16_units_and_lets_code_stand_alone() -> None:
    text, found = entities("😀**a `b` c**\n\n> d\n\n```py\ne\n```")
    assert text == "😀a b c\n\nd\n\ne"
    assert found == [
        TelegramEntity("bold", 2, 2),
        TelegramEntity("code", 4, 1),
        TelegramEntity("bold", 5, 2),
        TelegramEntity("blockquote", 9, 1),
        TelegramEntity("pre", 12, 1, language="py"),
    ]


def test_telegram_lists() -> None:
    text, _ = entities(LISTED)
    assert text == "3. one\n   • two\nx = 1\n4. three\n\nsaid\ntwice"


def test_telegram_takes_at_most_a_hundred_entities() -> None:
    parts = telegram_entities.render_parts("**a** b " * 250)
    assert [len(part.entities) for part in parts] == pytest.approx([97, 97, 56], abs=4)
    assert sum(len(part.entities) for part in parts) == 250


def test_a_long_code_block_is_closed_and_opened_again_with_its_language() -> None:
    lines = [f"line {number}" for number in range(1000)]
    parts = telegram_entities.render_parts("```py\n" + "\n".join(lines) + "\n```")
    assert [line for part in parts for line in part.text.split("\n")] == lines
    for part in parts:
        assert part.entities == (
            TelegramEntity("pre", 0, measure_length(part.text, LengthUnit.UTF16), language="py"),
        )


def test_numbers_go_on_and_an_item_that_was_cut_gets_no_second_marker() -> None:
    parts = plain_parts("\n".join(f"{number}. " + "word " * 250 for number in range(1, 9)), SMALL)
    joined = "\n".join(parts)
    assert re.findall(r"^(\d)\. ", joined, re.MULTILINE) == list("12345678")
    assert joined.count("word") == 2000
    assert all(part.startswith(("   word", *"12345678")) for part in parts)


def test_a_quotation_that_was_cut_is_a_quotation_again() -> None:
    parts = plain_parts("> " + "word " * 1500)
    assert len(parts) > 1
    assert all(part.startswith("> word") for part in parts)


def test_a_row_that_was_cut_goes_on_without_a_second_separator() -> None:
    parts = plain_parts(f"|a|b|c|\n|-|-|-|\n|{'x' * 1000}|{'y' * 1000}|{'z' * 1000}|", SMALL)
    assert re.sub(r"[\s─┼]", "", "".join(parts)) == f"a|b|c{'x' * 1000}|{'y' * 1000}|{'z' * 1000}"


def test_blocks_are_kept_whole_and_a_heading_stays_with_its_text() -> None:
    block = "word " * 150
    parts = plain_parts("\n\n".join(f"# Head {number}\n\n{block}" for number in range(4)), SMALL)
    assert [part.split("\n")[0] for part in parts] == ["Head 0", "Head 1", "Head 2", "Head 3"]


def test_an_address_is_told_once_where_its_text_ends() -> None:
    joined = "".join(plain_parts(f"[{'word ' * 1000}](https://x.org)", SMALL))
    assert joined.count("https://x.org") == 1
    assert joined.endswith("(https://x.org)")
    parts = telegram_entities.render_parts(f"[{'word ' * 1000}](https://x.org)", SMALL)
    assert [one.url for part in parts for one in part.entities] == ["https://x.org"] * len(parts)


def test_a_limit_too_small_for_a_link_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1500"):
        LengthLimit(100, LengthUnit.CHARACTERS)


PARTS = [
    email_html.render_parts,
    matrix_html.render_parts,
    plain_parts,
    signal_styles.render_parts,
    telegram_entities.render_parts,
]


@pytest.mark.parametrize("parts", PARTS, ids=lambda parts: parts.__module__.rpartition(".")[2])
def test_a_long_message_is_quick(parts: Callable[[str], list[object]]) -> None:
    markdown = "\n\n".join([STYLED, LISTED, TABLE, "word " * 100] * 130)[:100_000]
    started = time.process_time()
    parts(markdown)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("it is **bold**, *italic* and ~~gone~~", "it is *bold*, _italic_ and ~gone~"),
        ("***both*** and **b *c* d**", "*_both_* and *b _c_ d*"),
        ("# Title", "*Title*"),
        ("**two\nlines**", "*two*\n*lines*"),
        ("within**a**word", "withinaword"),
        ("**a** b", "*a* b"),
        ("`co*de` and ``a`b``", "`co*de` and a`b"),
        ("```py\nx = 1\n```", "```\nx = 1\n```"),
        ("~~~\na ``` b\n~~~", "```\na `\u200b`\u200b` b\n```"),
        ("- a\n- b\n  1. c", "- a\n- b\n  1. c"),
        ("1. a\n\n   ```\n   x\n   ```", "1. a\n```\nx\n```"),
        ("1. ```\n   x\n   ```\n\n   a", "1.\n```\nx\n```\n   a"),
        ("> a\n> **b**", "> a\n> *b*"),
        ("[text](https://x.org/a_b) https://y.org/_c_", "text (https://x.org/a_b) https://y.org/_c_"),
        (r"\*not bold\* and \_this\_", "*\u200bnot bold* and _\u200bthis_"),
        ("snake_case and 2 * 3", "snake_case and 2 * 3"),
        (r"\> no quotation", "\u200b> no quotation"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "```\na | b\n──┼──\n1 | 2\n```"),
    ],
)
def test_whatsapp_markup(markdown: str, expected: str) -> None:
    assert whatsapp_markup.render_parts(markdown) == [expected]


def test_whatsapp_closes_and_opens_a_fence_where_code_is_cut() -> None:
    parts = whatsapp_markup.render_parts("```\n" + "word\n" * 2000 + "```")
    assert len(parts) > 1
    assert all(part.startswith("```\n") and part.endswith("\n```") for part in parts)


def styles(markdown: str) -> tuple[str, list[tuple[str, str]]]:
    """The text as Signal shows it, and its styled pieces."""
    (part,) = signal_styles.render_parts(markdown)
    units = part.text.encode("utf-16-le")
    pieces = [(one, units[2 * one.start : 2 * (one.start + one.length)]) for one in part.styles]
    return part.text, [(one.style.value, piece.decode("utf-16-le")) for one, piece in pieces]


def test_signal() -> None:
    assert styles(STYLED) == (
        "Title\n\nbold both gone code text (https://x.org/a_b)",
        [
            ("BOLD", "Title"),
            ("BOLD", "bold both"),
            ("ITALIC", "both"),
            ("STRIKETHROUGH", "gone"),
            ("MONOSPACE", "code"),
        ],
    )
    assert styles(LISTED) == (
        "3. one\n   • two\nx = 1\n4. three\n\n> said\n> twice",
        [("MONOSPACE", "x = 1")],
    )
    assert styles(TABLE) == ("a | b\n──┼─────\n1 | 漢字\n2", [("MONOSPACE", "a | b\n──┼─────\n1 | 漢字\n2")])


SIGNAL_STYLES: list[tuple[str, tuple[str, list[tuple[str, str]]]]] = [
    ("👋 **👩‍👩‍👧‍👦 b** c", ("👋 👩‍👩‍👧‍👦 b c", [("BOLD", "👩‍👩‍👧‍👦 b")])),
    ("**a **b** c**", ("a b c", [("BOLD", "a b c")])),
    ("***both***", ("both", [("BOLD", "both"), ("ITALIC", "both")])),
    ("> a\n>\n> ```\n> x\n> y\n> ```", ("> a\n> \n> x\n> y", [("MONOSPACE", "x\n> y")])),
    ("1. ```\n   x\n   ```\n2. b", ("1.\nx\n2. b", [("MONOSPACE", "x")])),
    (r"\*not bold\* and ||no spoiler||", ("*not bold* and ||no spoiler||", [])),
    ("<b>x</b> & y", ("<b>x</b> & y", [])),
]


@pytest.mark.parametrize(("markdown", "expected"), SIGNAL_STYLES)
def test_signal_styles(markdown: str, expected: tuple[str, list[tuple[str, str]]]) -> None:
    assert styles(markdown) == expected


def test_signal_takes_as_many_styles_as_apps_show() -> None:
    parts = signal_styles.render_parts("**a** b " * 400)
    assert len(parts) > 1 and all(len(part.styles) <= signal_styles.MAX_STYLES for part in parts)
    assert sum(len(part.styles) for part in parts) == 400
