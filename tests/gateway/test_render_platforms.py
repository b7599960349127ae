"""What each platform gets."""

import re
import time
from collections.abc import Callable

import pytest

from keryx.surfaces.gateway.render import discord, matrix, plain, slack, telegram, whatsapp
from keryx.surfaces.gateway.render.measure import Limit, Unit, length
from keryx.surfaces.gateway.render.part import Rendered, dumps, loads
from keryx.surfaces.gateway.render.telegram import Entity

SMALL = Limit(1500, Unit.UTF16)
STYLED = "# Title\n\n**bold _both_** ~~gone~~ `code` [text](https://x.org/a_b)"
LISTED = "3. one\n   - two\n\n     ```py\n     x = 1\n     ```\n4. three\n\n> said\n> twice"
TABLE = "| a | b |\n|---|---|\n| 1 | 漢字 |\n| 2 |"


def one(parts: list[Rendered]) -> str:
    (part,) = parts
    return part.text


def entities(markdown: str) -> tuple[str, list[Entity]]:
    (part,) = telegram.parts(markdown)
    return part.text, list(part.entities)


def test_plain() -> None:
    assert plain.text(STYLED) == "Title\n\nbold both gone code text (https://x.org/a_b)"
    assert plain.text(LISTED) == "3. one\n   • two\nx = 1\n4. three\n\n> said\n> twice"
    assert plain.text(TABLE) == "a | b\n──┼─────\n1 | 漢字\n2"


def test_slack() -> None:
    assert one(slack.parts(STYLED)) == "*Title*\n\n*bold _both_* ~gone~ `code` <https://x.org/a_b|text>"
    assert one(slack.parts(LISTED)) == "3. one\n   • two\n```\nx = 1\n```\n4. three\n\n> said\n> twice"
    assert one(slack.parts("<!channel> & <@U1> a_b")) == "&lt;!channel&gt; &amp; &lt;@U1&gt; a_b"
    assert one(slack.parts("[a|b>](https://x.org/?a=1&b=|)")) == "<https://x.org/?a=1&amp;b=%7C|a|b&gt;>"


def test_marks_within_a_word_are_set_apart_where_a_platform_needs_it() -> None:
    assert one(slack.parts("這是**重要**的")) == "這是\u200b*重要*\u200b的"
    assert one(whatsapp.parts("這是**重要**的")) == "這是\u200b*重要*\u200b的"
    assert one(discord.parts("這是**重要**的")) == "這是**重要**的"


def test_discord() -> None:
    assert (
        one(discord.parts(STYLED)) == "# Title\n\n**bold _both_** ~~gone~~ `code` [text](<https://x.org/a_b>)"
    )
    assert one(discord.parts(LISTED)) == "3. one\n   - two\n```py\nx = 1\n```\n4. three\n\n> said\n> twice"
    assert one(discord.parts("a_b \\*c\\* https://x.org/a_b")) == "a\\_b \\*c\\* https://x.org/a_b"
    assert one(discord.parts("@everyone <@1>")) == "@\u200beveryone <\u200b@1>"
    assert one(discord.parts("[a](mailto:b@c.org)")) == "a (mailto:b@c.org)"
    assert one(discord.parts("``a`b``")) == "`` a`b ``"


def test_whatsapp() -> None:
    assert one(whatsapp.parts(STYLED)) == "*Title*\n\n*bold _both_* ~gone~ `code` text (https://x.org/a_b)"
    assert one(whatsapp.parts("```py\nx\n```")) == "```\nx\n```"


def test_matrix() -> None:
    (part,) = matrix.parts(LISTED + "\n\n**a** `b` <i>\nc")
    assert part.plain == part.body == plain.text(LISTED + "\n\n**a** `b` <i>\nc")
    assert part.formatted_body == (
        '<ol start="3"><li>one<ul><li>two<pre><code class="language-py">x = 1\n</code></pre></li></ul></li>'
        "<li>three</li></ol><blockquote><p>said<br>twice</p></blockquote>"
        "<p><strong>a</strong> <code>b</code> &lt;i&gt;<br>c</p>"
    )


def test_matrix_takes_no_html_and_no_script_from_the_message() -> None:
    (part,) = matrix.parts(
        '<img src=x onerror=y> [a](javascript:b) [c](http://x/"onclick=d) ```"><script>```'
    )
    tags = ["<p>", '<a href="http://x/%22onclick=d">', "</a>", "<code>", "</code>", "</p>"]
    assert re.findall(r"<[^>]+>", part.formatted_body) == tags


def test_telegram_styles() -> None:
    text, found = entities(STYLED)
    assert text == "Title\n\nbold both gone code text"
    assert found == [
        Entity("bold", 0, 5),
        Entity("bold", 7, 9),
        Entity("italic", 12, 4),
        Entity("strikethrough", 17, 4),
        Entity("code", 22, 4),
        Entity("text_link", 27, 4, url="https://x.org/a_b"),
    ]


def test_telegram_counts_utf16_units_and_lets_code_stand_alone() -> None:
    text, found = entities("😀**a `b` c**\n\n> d\n\n```py\ne\n```")
    assert text == "😀a b c\n\nd\n\ne"
    assert found == [
        Entity("bold", 2, 2),
        Entity("code", 4, 1),
        Entity("bold", 5, 2),
        Entity("blockquote", 9, 1),
        Entity("pre", 12, 1, language="py"),
    ]


def test_telegram_lists() -> None:
    text, _ = entities(LISTED)
    assert text == "3. one\n   • two\nx = 1\n4. three\n\nsaid\ntwice"


def test_telegram_takes_at_most_a_hundred_entities() -> None:
    parts = telegram.parts("**a** b " * 250)
    assert [len(part.entities) for part in parts] == pytest.approx([97, 97, 56], abs=4)
    assert sum(len(part.entities) for part in parts) == 250


def test_a_long_code_block_is_closed_and_opened_again_with_its_language() -> None:
    lines = [f"line {number}" for number in range(1000)]
    parts = discord.parts("```py\n" + "\n".join(lines) + "\n```")
    assert all(re.fullmatch(r"```py\n(line \d+\n)+```", part.text) for part in parts)
    assert [line for part in parts for line in part.text.split("\n")[1:-1]] == lines
    for part in telegram.parts("```py\n" + "\n".join(lines) + "\n```"):
        assert part.entities == (Entity("pre", 0, length(part.text, Unit.UTF16), language="py"),)


def test_numbers_go_on_and_an_item_that_was_cut_gets_no_second_marker() -> None:
    parts = plain.parts("\n".join(f"{number}. " + "word " * 250 for number in range(1, 9)), SMALL)
    joined = "\n".join(parts)
    assert re.findall(r"^(\d)\. ", joined, re.MULTILINE) == list("12345678")
    assert joined.count("word") == 2000
    assert all(part.startswith(("   word", *"12345678")) for part in parts)


def test_a_quotation_that_was_cut_is_a_quotation_again() -> None:
    parts = slack.parts("> " + "word " * 1500)
    assert len(parts) > 1
    assert all(part.text.startswith("> word") for part in parts)


def test_a_row_that_was_cut_goes_on_without_a_second_separator() -> None:
    parts = plain.parts(f"|a|b|c|\n|-|-|-|\n|{'x' * 1000}|{'y' * 1000}|{'z' * 1000}|", SMALL)
    assert re.sub(r"[\s─┼]", "", "".join(parts)) == f"a|b|c{'x' * 1000}|{'y' * 1000}|{'z' * 1000}"


def test_blocks_are_kept_whole_and_a_heading_stays_with_its_text() -> None:
    block = "word " * 150
    parts = plain.parts("\n\n".join(f"# Head {number}\n\n{block}" for number in range(4)), SMALL)
    assert [part.split("\n")[0] for part in parts] == ["Head 0", "Head 1", "Head 2", "Head 3"]


def test_an_address_is_told_once_where_its_text_ends() -> None:
    joined = "".join(plain.parts(f"[{'word ' * 1000}](https://x.org)", SMALL))
    assert joined.count("https://x.org") == 1
    assert joined.endswith("(https://x.org)")
    parts = telegram.parts(f"[{'word ' * 1000}](https://x.org)", SMALL)
    assert [one.url for part in parts for one in part.entities] == ["https://x.org"] * len(parts)


def test_a_part_travels_as_one_string() -> None:
    for part in slack.parts(STYLED):
        assert loads(dumps(part), Rendered) == part
    for part in matrix.parts(STYLED):
        assert loads(dumps(part), matrix.Rendered) == part


def test_a_limit_too_small_for_a_link_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1500"):
        Limit(100, Unit.RUNES)


PARTS = [discord.parts, matrix.parts, plain.parts, slack.parts, telegram.parts, whatsapp.parts]


@pytest.mark.parametrize("parts", PARTS, ids=lambda parts: parts.__module__.rpartition(".")[2])
def test_a_long_message_is_quick(parts: Callable[[str], list[object]]) -> None:
    markdown = "\n\n".join([STYLED, LISTED, TABLE, "word " * 100] * 130)[:100_000]
    started = time.process_time()
    parts(markdown)
    assert time.process_time() - started < 1
