"""What each platform gets."""

import re
import time
from collections.abc import Callable

import pytest

from keryx.surfaces.gateway.render import matrix, plain, telegram
from keryx.surfaces.gateway.render.measure import Limit, Unit, length
from keryx.surfaces.gateway.render.parser import parse
from keryx.surfaces.gateway.render.part import dumps, loads
from keryx.surfaces.gateway.render.telegram import Entity

SMALL = Limit(1500, Unit.UTF16)
STYLED = "# Title\n\n**bold _both_** ~~gone~~ `code` [text](https://x.org/a_b)"
LISTED = "3. one\n   - two\n\n     ```py\n     x = 1\n     ```\n4. three\n\n> said\n> twice"
TABLE = "| a | b |\n|---|---|\n| 1 | 漢字 |\n| 2 |"


def entities(markdown: str) -> tuple[str, list[Entity]]:
    (part,) = telegram.parts(markdown)
    return part.text, list(part.entities)


def test_plain() -> None:
    assert plain.render(parse(STYLED)) == "Title\n\nbold both gone code text (https://x.org/a_b)"
    assert plain.render(parse(LISTED)) == "3. one\n   • two\nx = 1\n4. three\n\n> said\n> twice"
    assert plain.render(parse(TABLE)) == "a | b\n──┼─────\n1 | 漢字\n2"


def test_matrix() -> None:
    (part,) = matrix.parts(LISTED + "\n\n**a** `b` <i>\nc")
    assert part.body == plain.render(parse(LISTED + "\n\n**a** `b` <i>\nc"))
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
    parts = telegram.parts("```py\n" + "\n".join(lines) + "\n```")
    assert [line for part in parts for line in part.text.split("\n")] == lines
    for part in parts:
        assert part.entities == (Entity("pre", 0, length(part.text, Unit.UTF16), language="py"),)


def test_numbers_go_on_and_an_item_that_was_cut_gets_no_second_marker() -> None:
    parts = plain.parts("\n".join(f"{number}. " + "word " * 250 for number in range(1, 9)), SMALL)
    joined = "\n".join(parts)
    assert re.findall(r"^(\d)\. ", joined, re.MULTILINE) == list("12345678")
    assert joined.count("word") == 2000
    assert all(part.startswith(("   word", *"12345678")) for part in parts)


def test_a_quotation_that_was_cut_is_a_quotation_again() -> None:
    parts = plain.parts("> " + "word " * 1500)
    assert len(parts) > 1
    assert all(part.startswith("> word") for part in parts)


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
    for part in matrix.parts(STYLED):
        assert loads(dumps(part), matrix.Rendered) == part


def test_a_limit_too_small_for_a_link_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1500"):
        Limit(100, Unit.RUNES)


PARTS = [matrix.parts, plain.parts, telegram.parts]


@pytest.mark.parametrize("parts", PARTS, ids=lambda parts: parts.__module__.rpartition(".")[2])
def test_a_long_message_is_quick(parts: Callable[[str], list[object]]) -> None:
    markdown = "\n\n".join([STYLED, LISTED, TABLE, "word " * 100] * 130)[:100_000]
    started = time.process_time()
    parts(markdown)
    assert time.process_time() - started < 1
