"""Markdown as Slack takes it."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keryx.core.ports.adapter import LengthUnit
from keryx.markdown import clean_text, parse, slack_markdown, tree
from keryx.markdown.split import LengthLimit, measure_length

LIMIT = LengthLimit(1500, LengthUnit.UTF16)
PIECES = [
    "word",
    "snake_case",
    "*a*",
    "**b c**",
    "~~d~~",
    "`e`",
    "``f`g``",
    "[h](https://x.org/a_b)",
    "![i](http://y.org)",
    "https://z.org/q?a=b",
    "2 * 3 * 4",
    "a_b_ _c",
    "[x](y",
    "&amp; <b> \\* # 1. | m|n",
    "👩‍👩‍👧‍👦",
    "漢字",
]
BLOCKS = [
    "{}",
    "# {}",
    "- {}\n- {}",
    "1. {}\n2. {}",
    "> {}",
    "```py\n{}\n```",
    "| a | b |\n|---|---|\n| {} | x |",
    "---",
]
pieces = st.lists(st.sampled_from(PIECES), min_size=1, max_size=40).map(" ".join)
blocks = st.tuples(st.sampled_from(BLOCKS), pieces).map(lambda pair: pair[0].replace("{}", pair[1]))
documents = st.lists(blocks, min_size=1, max_size=12).map("\n\n".join)


def letters(text: str) -> str:
    return "".join(char for char in text if char.isalnum())


def visible(markdown: str) -> str:
    return letters(tree.visible_text(parse(markdown)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents)
def test_the_parts_fit_and_lose_no_letter(text: str) -> None:
    parts = slack_markdown.render_parts(text, LIMIT)
    assert all(measure_length(part, LIMIT.unit) <= LIMIT.size for part in parts)
    assert "".join(map(visible, parts)) == visible(text)


@settings(max_examples=60, deadline=None)
@given(documents)
def test_a_document_that_is_written_anew_reads_the_same(text: str) -> None:
    assert visible(slack_markdown.render(parse(text))) == visible(text)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_while_a_text_grows_each_version_begins_with_the_one_before(text: str) -> None:
    text = clean_text(text).replace("<!", "").replace("\r", "")
    shown = ""
    for end in range(1, len(text)):
        for part in slack_markdown.render_parts(text[:end], LIMIT):
            assert part.startswith(shown)
            shown = part


def test_text_that_only_looks_like_markup_stays_text() -> None:
    for odd in (
        "2 * 3 * 4",
        "a_b_ _c_d",
        "1. no list",
        "# no heading",
        "- no item",
        "> no quote",
        "<b>",
        "&amp;amp;",
    ):
        paragraph = tree.DocumentNode((tree.ParagraphNode((tree.TextNode(odd),)),))
        assert parse(slack_markdown.render(paragraph)) == paragraph


def test_an_answer_notifies_no_channel() -> None:
    assert slack_markdown.render_parts(
        "<!channel> <!here|here> <!subteam^S1|@ops> <!DOCTYPE html>", LIMIT
    ) == ["@channel @here @ops <!DOCTYPE html>"]
    assert slack_markdown.render_parts("ask <@U023BECGF>", LIMIT) == ["ask <@U023BECGF>"]


def test_code_is_closed_and_opened_again_with_its_language() -> None:
    text = "```python\n" + "x = 1\n" * 600 + "```"
    parts = slack_markdown.render_parts(text, LIMIT)
    assert len(parts) > 1
    assert all(part.startswith("```python\n") and part.endswith("\n```") for part in parts)


def test_the_rest_of_a_cut_table_keeps_its_columns() -> None:
    row = "| " + "word " * 20 + "| x |\n"
    parts = slack_markdown.render_parts("| a | b |\n|---|---|\n" + row * 40, LIMIT)
    assert parts[0].startswith("| a | b |\n|---|---|") and parts[1].startswith("```\n")
