"""Markdown to the tree: any input, linear time, no text lost."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keryx.markdown import MAX_BLOCKS, MAX_CHARS, MAX_LINES, MAX_MARKS, MAX_TABLE_CELLS, MAX_URL_LENGTH, parse
from keryx.markdown.html import render_blocks
from keryx.markdown.tree import (
    Block,
    BoldNode,
    BreakNode,
    CodeBlockNode,
    CodeNode,
    DocumentNode,
    HeadingNode,
    ImageNode,
    Inline,
    ItalicNode,
    LinkNode,
    ListItemNode,
    ListNode,
    Node,
    ParagraphNode,
    QuoteNode,
    RuleNode,
    StrikeNode,
    TableCellNode,
    TableNode,
    TableRowNode,
    TextNode,
    child_nodes,
    visible_text,
)


def inlines(markdown: str) -> tuple[Inline, ...]:
    (block,) = parse(markdown).blocks
    assert isinstance(block, ParagraphNode)
    return block.children


def links(node: Node) -> list[LinkNode]:
    own = [node] if isinstance(node, LinkNode) else []
    return own + [link for child in child_nodes(node) for link in links(child)]


def only(markdown: str) -> Block:
    (block,) = parse(markdown).blocks
    return block


def test_blocks() -> None:
    assert parse("# a\n\n---\n\n> b") == DocumentNode(
        (HeadingNode((TextNode("a"),), 1), RuleNode(), QuoteNode((ParagraphNode((TextNode("b"),)),)))
    )
    assert only("```python title=x\na\n\nb\n```") == CodeBlockNode("a\n\nb", "python")
    assert only("    a\n    b") == CodeBlockNode("a\nb")


def test_lists_keep_their_numbers_and_nesting() -> None:
    a, b, c = (ParagraphNode((TextNode(text),), tight=True) for text in "abc")
    inner = ListNode((ListItemNode((b,), None),))
    assert only("7. a\n   - b\n8. c") == ListNode((ListItemNode((a, inner), 7), ListItemNode((c,), 8)))


def test_a_list_with_empty_lines_has_paragraphs() -> None:
    a, b = (ParagraphNode((TextNode(text),)) for text in "ab")
    assert only("- a\n\n- b") == ListNode((ListItemNode((a,)), ListItemNode((b,))))


def test_a_row_keeps_cells_beyond_the_header_and_drops_missing_ones() -> None:
    assert only("|a|b|\n|-|-|\n|c|d|e|\n|f|") == TableNode(
        (
            TableRowNode((TableCellNode((TextNode("a"),)), TableCellNode((TextNode("b"),))), header=True),
            TableRowNode((TableCellNode((TextNode("c"),)), TableCellNode((TextNode("d | e"),)))),
            TableRowNode((TableCellNode((TextNode("f"),)),)),
        )
    )


def count_cells(text: str) -> int:
    """Return the cells of all tables as the page shows them, with those that rows leave out."""
    return sum(html.count("<td>") + html.count("<th>") for html in render_blocks(text))


def test_a_table_with_too_many_cells_and_those_after_it_stay_as_text() -> None:
    small = "|a|b|\n|-|-|\n|c|d|\n"
    wide = f"{'|a' * 100}|\n{'|-' * 100}|\n" + "|\n" * 40_000
    assert count_cells(f"{small}\n{wide}") == 4
    assert visible_text(parse(wide)).count("|") == wide.count("|")
    assert count_cells(f"{wide}\n{small}") == 0
    # The whole text counts, not each table.
    tall = "|a|\n|-|\n" + "|b|\n" * (MAX_TABLE_CELLS // 2)
    assert MAX_TABLE_CELLS // 2 < count_cells("\n".join([tall] * 4)) <= MAX_TABLE_CELLS + 2


@pytest.mark.parametrize("unit", ["[a](", "![[", "_a__b", "**a*", "`a` ", "~~a~", "<a> "])
def test_a_text_with_too_many_marks_is_shown_as_it_is(unit: str) -> None:
    many = (unit * MAX_MARKS)[: 4 * MAX_MARKS].strip()
    assert inlines(many) == (TextNode(many),)
    assert inlines(f"a\n{many}") == (TextNode("a"), BreakNode(), TextNode(many))
    # The whole text counts, without its code blocks.
    assert len(parse(f"*a*\n\n{many}\n\n*b*").blocks) == 3
    assert [visible_text(block) for block in parse(f"*a*\n\n{many}\n\n*b*").blocks] == ["a", many, "*b*"]
    assert visible_text(parse(f"~~~\n{many}\n~~~\n*b*").blocks[1]) == "b"


BLOCKS = [
    "- a\n",
    "1. a\n",
    "- a\n\n",
    "-\n",
    "a\n\n",
    "# a\n",
    "a\n=\n",
    "---\n",
    "```\na\n```\n",
    "> a\n\n",
    "- - a\n",
]


def count_blocks(node: Node) -> int:
    return isinstance(node, Block | ListItemNode) + sum(map(count_blocks, child_nodes(node)))


@pytest.mark.parametrize("unit", BLOCKS)
def test_a_text_with_too_many_blocks_goes_on_as_plain_text(unit: str) -> None:
    many = unit * (MAX_CHARS // len(unit))
    tree = parse(many)
    # An item of a list may have a paragraph and a list in it.
    assert MAX_BLOCKS / 2 < count_blocks(tree) < 4 * MAX_BLOCKS
    assert visible_text(tree).count("a") == many.count("a")
    few = parse(unit * (MAX_BLOCKS // 4) + "\n\n*b*")
    assert few.blocks[-1] == ParagraphNode((ItalicNode((TextNode("b"),)),))


def test_the_rest_of_a_list_with_too_many_items_is_one_paragraph() -> None:
    tree = parse("- *a*\n" * (MAX_BLOCKS * 2))
    assert len(tree.blocks) == 2
    items, rest = tree.blocks
    assert isinstance(items, ListNode) and len(items.items) >= MAX_BLOCKS // 2
    assert isinstance(rest, ParagraphNode)
    assert rest.children[:3] == (TextNode("- *a*"), BreakNode(), TextNode("- *a*"))
    assert len(items.items) + (len(rest.children) + 1) // 2 == MAX_BLOCKS * 2


def test_a_paragraph_with_too_many_lines_goes_on_as_plain_text() -> None:
    beginning, rest = parse("\n".join(["&lt;"] * (MAX_LINES * 2))).blocks
    assert visible_text(beginning) == "\n".join(["<"] * (MAX_LINES + 1))
    assert visible_text(rest) == "\n".join(["&lt;"] * (MAX_LINES - 1))


def test_inline_styles() -> None:
    assert inlines("**a *b*** ~~c~~ `d`\ne") == (
        BoldNode((TextNode("a "), ItalicNode((TextNode("b"),)))),
        TextNode(" "),
        StrikeNode((TextNode("c"),)),
        TextNode(" "),
        CodeNode("d"),
        BreakNode(),
        TextNode("e"),
    )
    assert inlines("**a **b** c**") == (BoldNode((TextNode("a b c"),)),)


def test_links() -> None:
    assert inlines("[a](https://x.org)") == (LinkNode((TextNode("a"),), "https://x.org"),)
    assert inlines("<https://x.org>") == (LinkNode((TextNode("https://x.org"),), "https://x.org", bare=True),)
    assert inlines("![](https://x.org)") == (
        ImageNode((TextNode("https://x.org"),), "https://x.org", bare=True),
    )
    assert inlines("[![a](http://x)](http://y)") == (LinkNode((TextNode("a"),), "http://y"),)
    assert inlines("[a `]` [b](http://x) c](docs/y)")[-2:] == (
        LinkNode((TextNode("b"),), "http://x"),
        TextNode(" c](docs/y)"),
    )
    assert inlines('[a](https://x.org "b")') == (LinkNode((TextNode("a"),), "https://x.org", title="b"),)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("see https://x.org/a_b.", "https://x.org/a_b"),
        ("(https://x.org/a_(b))", "https://x.org/a_(b)"),
        ("(at https://x.org).", "https://x.org"),
        ("**https://x.org/?a=b&c=d**", "https://x.org/?a=b&c=d"),
        ("請看https://x.org/a。謝謝", "https://x.org/a"),
        ("http://[::1]:8080/a", "http://[::1]:8080/a"),
        ("| https://x.org |\n|---|", "https://x.org"),
        ("HTTPS://X.ORG", "HTTPS://X.ORG"),
    ],
)
def test_a_bare_address_is_a_link(text: str, url: str) -> None:
    assert links(parse(text)) == [LinkNode((TextNode(url),), url, bare=True)]


@pytest.mark.parametrize(
    "text",
    ["http://", "https://...", "xhttps://x.org", "`https://x.org`", "https://x.org/" + "a" * MAX_URL_LENGTH],
)
def test_no_link_is_seen_where_there_is_none(text: str) -> None:
    assert links(parse(text)) == []
    assert visible_text(parse(text)) == text.strip("`")


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "JaVaScRiPt:x", "data:text/html,x", "file:///etc", "docs/a.md"]
)
def test_an_address_nobody_should_follow_is_text(url: str) -> None:
    assert inlines(f"[a]({url})") == (TextNode(f"a ({url})"),)


def test_an_address_too_long_to_keep_whole_is_text() -> None:
    url = "https://x.org/" + "a" * MAX_URL_LENGTH
    assert inlines(f"[a]({url})") == (TextNode(f"a ({url})"),)


def test_html_and_reference_definitions_stay_visible() -> None:
    assert visible_text(parse("<b>a</b> <!-- c -->\n\n[d]: http://x")) == "<b>a</b> <!-- c -->[d]: http://x"


def test_every_line_separator_ends_a_line() -> None:
    assert visible_text(parse("a\r\nb\rc\x85d\u2028e\u2029f")) == "a\nb\nc\nd\ne\nf"


def test_characters_no_platform_takes_are_replaced_one_for_one() -> None:
    assert visible_text(parse("a\x00b\ud800c\x1bd\r\ne")) == "a\ufffdb\ufffdc\ufffdd\ne"


prefixes = st.lists(
    st.sampled_from(
        [
            *[
                ">",
                "-",
                "1.",
                "*",
                "7)",
                "#",
                "`",
                "**",
                "_",
                "~~",
                "[",
                "](",
                "![",
                "!",
                "\\\\",
                "<",
                "&",
                "|",
                "|",
            ],
            "    ",
            "  ",
            "\t",
        ]
    ),
    max_size=30,
).map(" ".join)
openers = st.sampled_from(["", "", "", "\n", "```\n", "~~~\n", "---\n", "===\n", "|-|\n|", "> ```\n> "])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(openers, prefixes, prefixes), max_size=12))
def test_every_word_of_the_source_is_shown_once_and_in_order(lines: list[tuple[str, str, str]]) -> None:
    words = [f"w{number:03}" for number in range(len(lines))]
    source = "\n".join(
        f"{opener}{before} {word} {after}" for (opener, before, after), word in zip(lines, words, strict=True)
    )
    assert re.findall(r"w\d{3}", visible_text(parse(source))) == words


def test_what_is_nested_too_deep_stays_as_text() -> None:
    assert visible_text(parse(">" * 500 + "a")).endswith(">>>>a")
    assert visible_text(parse("- " * 500 + "a")).endswith("- - a")
    assert visible_text(parse("![" * 500 + "a" + "](http://x)" * 500)).count("a") == 1


SIZE = 20_000
HOSTILE = {
    "brackets": "[",
    "pairs": "[]",
    "open pairs": "[[]",
    "links": "[a](",
    "escapes": "[\\]",
    "code in brackets": "[`]`",
    "images": "![",
    "stars": "*a",
    "mixed marks": "**a *b _c ~~d ",
    "stars and lines": "*_",
    "quotes": ">",
    "lists": "- ",
    "numbers": "1. ",
    "tags": "<a",
    "addresses": "<http://a",
    "bare addresses": "http://a",
    "brackets after addresses": "http://a))]](",
    "words before addresses": "a://http:/",
    "entities": "&a",
    "backslashes": "\\",
    "lines": "a\n",
    "items": "- a\n",
    "quotes and items": "> a\n- b\n",
    "fences": "```\n",
    "definitions": "[a]: b\n",
    "pipes": "|",
    "titles": '[a](x "',
    "tabs": "\t",
    "dollars": "$a ",
    "pairs of dollars": "$$x\n",
    "formulas": "$x$ ",
    "open formulas": "\\( ",
    "formulas alone": "\\[\n",
}


@pytest.mark.parametrize("pattern", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_input_takes_linear_time(pattern: str) -> None:
    started = time.process_time()
    parse(pattern * (SIZE // len(pattern)))
    assert time.process_time() - started < 2


def test_growing_runs_of_backticks_and_missing_cells_are_harmless() -> None:
    started = time.process_time()
    parse("".join("[" + "`" * size for size in range(1, 200)))
    parse("|".join("a" * 150) + "\n" + "|".join("-" * 150) + "\n" + "a\n" * 150)
    assert time.process_time() - started < 2
