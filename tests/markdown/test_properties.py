"""What holds for any message on any platform: nothing is lost, everything fits, nothing is left open."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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
from keryx.markdown.split import LengthLimit, measure_length, split_document
from keryx.markdown.tree import (
    BoldNode,
    BreakNode,
    CodeBlockNode,
    CodeNode,
    HeadingNode,
    ImageNode,
    ItalicNode,
    LinkNode,
    Node,
    QuoteNode,
    RuleNode,
    StrikeNode,
    TableNode,
    TextNode,
    child_nodes,
    visible_text,
)

SMALL = LengthLimit(1500, LengthUnit.UTF16)
CHARACTERS = LengthLimit(1500, LengthUnit.CHARACTERS)
CLUSTERS = [
    "👨‍👩‍👧‍👦",
    "👍🏽",
    "🇦🇹",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "❤️",
    "é",
    "o̲̅",
    "क्षि",
    "각",
    "한",
    "a",
    "漢",
    "ש",
    "م",
    "😀",
]
MARKUP = """
word, snake_case *a* **b** ***c*** ~~d~~ `e` ``f`g`` [h](https://x.org/a_b) ![i](http://y.org) [j](javascript:x)
** * _ ~~ ` ``` [ ] ( ) \\ \\* & &amp; < <b> <https://z.org> [k](docs/l.md) # - 1. | m|n
"""
WORDS = [
    *CLUSTERS,
    *MARKUP.split(),
    "這是一段中文，沒有空格。",
    "שלום עולם",
    "\ufffd",
    "\u200b",
    "\x00",
    "\ud800",
    "\x1b[31m",
    "*bold across\nlines*",
    "W" * 3000,
    "https://long.example/" + "p" * 1200,
]

words = st.lists(st.sampled_from(WORDS) | st.text(max_size=8), min_size=1, max_size=8).map(" ".join)
lines = words.map(lambda text: text.replace("\r", " "))
repeats = st.sampled_from([1, 1, 2, 12])


def paragraph(text: str, times: int) -> str:
    return " ".join([text] * times)


def heading(level: int, text: str) -> str:
    return "#" * level + " " + text


def code(lang: str, text: str, times: int) -> str:
    return f"~~~~{lang}\n" + "\n".join([f"  {text}"] * times) + "\n~~~~"


def table(cells: list[str], times: int) -> str:
    row = "| " + " | ".join(cell.replace("\n", " ").replace("|", "\\|") for cell in cells) + " |"
    return "\n".join([row, "|" + "---|" * len(cells), *[row] * times])


def listed(blocks: list[str], marker: str) -> str:
    return "\n".join(marker + block.replace("\n", "\n" + " " * len(marker)) for block in blocks)


def quoted(blocks: list[str]) -> str:
    return "\n".join("> " + line for line in "\n\n".join(blocks).split("\n"))


blocks = st.recursive(
    st.builds(paragraph, lines, repeats)
    | st.builds(heading, st.integers(1, 6), lines)
    | st.builds(code, st.sampled_from(["", "python", "c++", "a b"]), lines, repeats)
    | st.builds(table, st.lists(lines, min_size=1, max_size=4), repeats)
    | st.sampled_from(["---", "- ", "```", "> ", "    indented", "- - - 1. x", "[r]: http://x"]),
    lambda inner: (
        st.builds(listed, st.lists(inner, min_size=1, max_size=4), st.sampled_from(["- ", "7. ", "- [ ] "]))
        | st.builds(quoted, st.lists(inner, min_size=1, max_size=3))
    ),
    max_leaves=6,
)
messages = (
    st.lists(blocks, max_size=4).map("\n\n".join)
    | st.text(max_size=400)
    | st.just("a " + "W" * 10_000 + " b")
)

everything = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def solid(text: str) -> str:
    """The characters a reader sees."""
    return "".join(char for char in text if not char.isspace() and unicodedata.category(char)[0] != "C")


def follows(wanted: Iterable[object], given: Iterable[object]) -> bool:
    """Whether all that is wanted is given in the same order, maybe with other things between."""
    rest = iter(given)
    return all(one in rest for one in wanted)


def shown_in_html(markup: str) -> str:
    """The text of the HTML; only tags and addresses that Matrix allows may be in it."""
    texts: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag in ALLOWED, tag
            for name, value in attrs:
                assert (tag, name) in {("a", "href"), ("ol", "start"), ("code", "class")}
                assert name != "href" or str(value).lower().startswith(
                    ("http:", "https:", "mailto:", "ftp:", "magnet:")
                )

        def handle_data(self, data: str) -> None:
            texts.append(data)

    Reader().feed(markup)
    return "".join(texts)


ALLOWED = frozenset(
    [
        "p",
        "pre",
        "code",
        "blockquote",
        "ul",
        "ol",
        "li",
        "table",
        "tr",
        "th",
        "td",
        "hr",
        "br",
        "strong",
        "em",
        "del",
        "a",
    ]
) | {f"h{level}" for level in range(1, 7)}


def matrix_parts(markdown: str) -> list[str]:
    return [shown_in_html(part.formatted_body) for part in matrix_html.render_parts(markdown, budget=6000)]


def email_parts(markdown: str) -> list[str]:
    parts = email_html.render_parts(markdown, SMALL)
    return [shown_in_html(re.sub(r' style="[^"]*"', "", part.html)) for part in parts]


def feishu_parts(markdown: str) -> list[str]:
    """What Feishu shows: entities are characters, except in code."""
    limit = LengthLimit(1500, LengthUnit.BYTES)
    return [visible_text(parse(part.markdown)) for part in feishu_markdown.render_parts(markdown, limit)]


PLATFORMS: dict[str, Callable[[str], list[str]]] = {
    "discord": lambda markdown: discord_markdown.render_parts(markdown, CHARACTERS),
    "email": email_parts,
    "feishu": feishu_parts,
    "matrix": matrix_parts,
    "signal": lambda markdown: [part.text for part in signal_styles.render_parts(markdown, SMALL)],
    "telegram": lambda markdown: [part.text for part in telegram_entities.render_parts(markdown, SMALL)],
    "whatsapp": lambda markdown: whatsapp_markup.render_parts(markdown, SMALL),
    "plain": lambda markdown: plain_parts(markdown, SMALL),
}


@everything
@given(messages, st.integers(1500, 3000), st.sampled_from(LengthUnit))
def test_the_parts_joined_are_the_whole_character_for_character(
    markdown: str, size: int, unit: LengthUnit
) -> None:
    document, limit = parse(markdown), LengthLimit(size, unit)
    parts = split_document(document, lambda part: part, lambda part: limit.fill_ratio(plain.render(part)))
    assert "".join(map(visible_text, parts)) == visible_text(document)
    assert all(limit.fill_ratio(plain.render(part)) <= 1 for part in parts)


@everything
@given(messages.map(lambda text: text.replace(">", "").replace("─", "").replace("┼", "")))
def test_the_plain_parts_joined_show_what_the_plain_whole_shows(markdown: str) -> None:
    marks = str.maketrans("", "", ">─┼")
    parts = "".join(plain_parts(markdown, SMALL))
    assert solid(parts).translate(marks) == solid(plain.render(parse(markdown))).translate(marks)


@pytest.mark.parametrize("platform", PLATFORMS)
@everything
@given(messages)
def test_a_platform_shows_every_character_in_order(platform: str, markdown: str) -> None:
    parts = PLATFORMS[platform](markdown)
    assert follows(solid(visible_text(parse(markdown))), "".join(parts))
    assert not parts or solid(plain.render(parse(markdown)))


@everything
@given(messages)
def test_every_part_and_its_plain_text_fit(markdown: str) -> None:
    for part in telegram_entities.render_parts(markdown):
        assert solid(part.text) and solid(part.plain)
        assert measure_length(part.text, telegram_entities.LIMIT.unit) <= telegram_entities.LIMIT.size
        assert measure_length(part.plain, telegram_entities.LIMIT.unit) <= telegram_entities.LIMIT.size
    for part in signal_styles.render_parts(markdown):
        assert measure_length(part.text, signal_styles.LIMIT.unit) <= signal_styles.LIMIT.size
        assert len(part.styles) <= signal_styles.MAX_STYLES
    for text in whatsapp_markup.render_parts(markdown):
        assert measure_length(text, whatsapp_markup.LIMIT.unit) <= whatsapp_markup.LIMIT.size
    for part in matrix_html.render_parts(markdown, budget=6000):
        assert matrix_html.measure_size(part) <= 6000
    for card in feishu_markdown.render_parts(markdown):
        assert solid(card.text)
        assert measure_length(card.markdown, LengthUnit.BYTES) <= feishu_markdown.LIMIT.size
    for text in discord_markdown.render_parts(markdown):
        assert solid(text) and len(text) <= discord_markdown.LIMIT.size
    for unit in LengthUnit:
        assert all(
            measure_length(part, unit) <= 1500 for part in plain_parts(markdown, LengthLimit(1500, unit))
        )


@everything
@given(messages)
def test_telegram_entities_are_in_the_text_and_nest(markdown: str) -> None:
    for part in telegram_entities.render_parts(markdown, SMALL):
        end = measure_length(part.text, LengthUnit.UTF16)
        places = {0, *edges(part.text)}
        assert len(part.entities) <= telegram_entities.MAX_ENTITIES
        for one in part.entities:
            assert one.length > 0
            assert one.offset + one.length <= end
            assert {one.offset, one.offset + one.length} <= places
        for index, one in enumerate(part.entities):
            assert all(apart(one, other) or nested(one, other) for other in part.entities[index + 1 :])


@everything
@given(messages)
def test_styles_of_signal_are_in_the_text_and_on_what_the_tree_styles(markdown: str) -> None:
    shown: list[Styled] = []
    for part in signal_styles.render_parts(markdown, SMALL):
        end, places = measure_length(part.text, LengthUnit.UTF16), {0, *edges(part.text)}
        for one in part.styles:
            assert one.length > 0 and one.start + one.length <= end
            assert {one.start, one.start + one.length} <= places
        at = 0
        for char, after in zip(part.text, edges(part.text), strict=True):
            around = (one for one in part.styles if one.start <= at < one.start + one.length)
            shown.append((char, frozenset(one.style.value for one in around)))
            at = after
    wanted = (pair for pair in in_signal_tree(parse(markdown), frozenset()) if solid(pair[0]))
    assert follows(wanted, iter(shown))


@everything
@given(messages)
def test_telegram_styles_each_character_as_the_tree_does(markdown: str) -> None:
    parts = telegram_entities.render_parts(markdown, SMALL)
    assert telegram_entities.render_parts(markdown, SMALL) == parts
    wanted = (pair for pair in in_tree(parse(markdown), frozenset()) if solid(pair[0]))
    assert follows(wanted, (pair for part in parts for pair in in_part(part)))


@everything
@given(st.lists(st.sampled_from(CLUSTERS), min_size=1, max_size=40), st.integers(1, 120))
def test_no_character_as_a_reader_sees_it_is_cut(clusters: list[str], times: int) -> None:
    text = "".join(clusters) * times
    starts, at = {0}, 0
    for cluster in clusters * times:
        at += len(cluster)
        starts.add(at)
    at = 0
    for part in telegram_entities.render_parts(text, SMALL):
        at += len(part.text)
        assert at in starts


def edges(text: str) -> Iterator[int]:
    at = 0
    for char in text:
        at += 1 + (char > "\uffff")
        yield at


def apart(one: telegram_entities.TelegramEntity, other: telegram_entities.TelegramEntity) -> bool:
    return one.offset + one.length <= other.offset or other.offset + other.length <= one.offset


def nested(one: telegram_entities.TelegramEntity, other: telegram_entities.TelegramEntity) -> bool:
    """Only a quotation holds code; a style or a link holds only styles and links of other types."""
    inside = one.offset <= other.offset and other.offset + other.length <= one.offset + one.length
    if {one.type, other.type} & {"code", "pre"}:
        return inside and one.type == "blockquote"
    same = one.offset == other.offset and one.length == other.length
    return one.type != other.type and (inside or same)


Styled = tuple[str, frozenset[str]]


def in_part(part: telegram_entities.TelegramText) -> Iterator[Styled]:
    at = 0
    for char, end in zip(part.text, edges(part.text), strict=True):
        around = (one for one in part.entities if one.offset <= at < one.offset + one.length)
        yield char, frozenset(one.type for one in around)
        at = end


def in_tree(node: Node, styles: frozenset[str]) -> Iterator[Styled]:
    around = styles & {"blockquote"}
    match node:
        case TextNode():
            yield from ((char, styles) for char in node.text)
        case CodeNode():
            yield from ((char, styles if "text_link" in styles else around | {"code"}) for char in node.text)
        case CodeBlockNode() | TableNode():
            yield from ((char, around | {"pre"}) for char in visible_text(node))
        case BreakNode() | RuleNode():
            return
        case _:
            for child in child_nodes(node):
                yield from in_tree(child, styles | own_style(node))


def own_style(node: Node) -> set[str]:
    match node:
        case HeadingNode() | BoldNode():
            return {"bold"}
        case ItalicNode():
            return {"italic"}
        case StrikeNode():
            return {"strikethrough"}
        case QuoteNode():
            return {"blockquote"}
        case LinkNode() | ImageNode() if node.url.startswith("http"):
            return {"text_link"}
        case _:
            return set()


def in_signal_tree(node: Node, styles: frozenset[str]) -> Iterator[Styled]:
    match node:
        case TextNode():
            yield from ((char, styles) for char in node.text)
        case CodeNode() | CodeBlockNode() | TableNode():
            yield from ((char, styles | {"MONOSPACE"}) for char in visible_text(node))
        case BreakNode() | RuleNode():
            return
        case _:
            own = {style.upper() for style in own_style(node)} & {"BOLD", "ITALIC", "STRIKETHROUGH"}
            for child in child_nodes(node):
                yield from in_signal_tree(child, styles | own)


def test_an_empty_message_has_no_parts() -> None:
    for markdown in ("", " \n\n", "\u200b", "```\n\n```"):
        assert all(make(markdown) == [] for make in PLATFORMS.values())
