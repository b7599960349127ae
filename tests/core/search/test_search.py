import time
from datetime import UTC, datetime, timedelta
from typing import assert_never

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.search.model import matches

from keryx.core.search import (
    MAX_DEPTH,
    And,
    ContentFilter,
    Expr,
    Filters,
    Not,
    Or,
    Prefix,
    Query,
    StateFilter,
    Term,
    WordSequence,
    parse,
)
from keryx.core.search.snippets import highlight
from keryx.core.search.tokens import tokenize, tokenize_query

WORDS = 'a b c é foo.bar 東 東京 C++ 🎉 AND OR NOT " “ ( ) - * :'
FILTERS = "from: is: is:pinned has:code before:7d after:2024 after:\ud800"
SYNTAX = st.lists(st.sampled_from([" ", "\x00", *WORDS.split(), *FILTERS.split()]), max_size=30).map("".join)
ANY = st.one_of(st.text(), SYNTAX)
PLAIN = st.text(st.sampled_from("abcé. /@#東京都가ガ🎉👍🏽-+"), max_size=40)


def word(text: str) -> Term:
    return Term((text,))


def found(query: str, text: str) -> bool:
    return matches(parse(query), tokenize(text))


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("Hello", word("hello")),
        ("a b AND c", And((word("a"), word("b"), word("c")))),
        ("a OR b c", Or((word("a"), And((word("b"), word("c")))))),
        ('"Hello big world"', WordSequence(("hello", "big", "world"))),
        ("pre*", Prefix(("pre",))),
        ("foo.ba*", Prefix(("foo", "ba"))),
        ("foo.bar", Term(("foo", "bar"), "foo.bar")),
        ("it's", WordSequence(("it", "s"))),
        ("C++", Term((), "c++")),
        ("東京都", WordSequence(("東京", "京都"))),
        ("東京", word("東京")),
        ("東", Prefix(("東",))),
        ("B面", Prefix(("b", "面"))),
        ("a -b", And((word("a"), Not(word("b"))))),
        ("a NOT (b OR c)", And((word("a"), Not(Or((word("b"), word("c"))))))),
        ("NOT NOT a", word("a")),
        ('a -"b c"', And((word("a"), Not(WordSequence(("b", "c")))))),
        ("--verbose", word("verbose")),
        ("and or not", And((word("and"), word("or"), word("not")))),
        ("“smart quotes”", WordSequence(("smart", "quotes"))),
        ("a a", word("a")),
    ],
)
def test_the_grammar(text: str, expr: Expr) -> None:
    assert parse(text) == Query(expr)


@pytest.mark.parametrize(
    "text",
    ["", "  ", '"', '""', "()", ")(", "AND", "OR OR", "NOT", "-", "*", "... !!", "(((", "NOT (", "\x00"],
)
def test_a_text_without_words_asks_for_nothing(text: str) -> None:
    assert parse(text) == Query()


@pytest.mark.parametrize(
    "text", ["a OR", "OR a", "(a", "a)", '"a', "a AND", "((a) OR ())", "a OR ...", "AND a NOT"]
)
def test_dangling_syntax_is_passed_over(text: str) -> None:
    assert parse(text) == Query(word("a"))


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("NOT a", Not(word("a"))),
        ("-a -b", Not(Or((word("a"), word("b"))))),
        ("a OR NOT b", Not(And((word("b"), Not(word("a")))))),
    ],
)
def test_a_query_for_absence_is_marked(text: str, expr: Expr) -> None:
    assert parse(text) == Query(expr)


def test_deep_nesting_is_cut_off() -> None:
    assert parse("(" * 1_900 + "a") == Query(word("a"))
    assert parse("-(a " * 400).expr is not None


def test_filters_are_taken_out_of_the_words() -> None:
    query = parse(
        'trip from:ann FROM:"Bob Lee" tool:grep project:x surface:web is:pinned is:USER has:image has:link'
    )
    assert query.expr == word("trip")
    assert query.filters == Filters(
        sender=("ann", "Bob Lee"),
        tool=("grep",),
        project=("x",),
        surface=("web",),
        is_=(StateFilter.PINNED, StateFilter.USER),
        has=(ContentFilter.IMAGE, ContentFilter.LINK),
    )


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024", datetime(2024, 1, 1, tzinfo=UTC)),
        ("2024-05", datetime(2024, 5, 1, tzinfo=UTC)),
        ("2024-05-06", datetime(2024, 5, 6, tzinfo=UTC)),
        ("2024-05-06T10:30Z", datetime(2024, 5, 6, 10, 30, tzinfo=UTC)),
        ('"2024-05-06 10:30:00+02:00"', datetime(2024, 5, 6, 8, 30, tzinfo=UTC)),
    ],
)
def test_moments_are_utc(text: str, moment: datetime) -> None:
    assert parse(f"before:{text}").filters == Filters(before=moment)
    assert parse(f"after:{text}").filters == Filters(after=moment)


@pytest.mark.parametrize(("text", "age"), [("12h", 0.5), ("7d", 7), ("2w", 14), ("3m", 90), ("1y", 365)])
def test_ages_stay_ages(text: str, age: float) -> None:
    assert parse(f"before:{text}").filters == Filters(before_age=timedelta(days=age))
    assert parse(f"after:{text}").filters == Filters(after_age=timedelta(days=age))


def test_the_narrowest_of_several_times_holds() -> None:
    filters = parse(
        "before:2024 before:2023 after:2020 after:2021 before:1d before:3d after:5d after:4d"
    ).filters
    assert (filters.before, filters.after) == (
        datetime(2023, 1, 1, tzinfo=UTC),
        datetime(2021, 1, 1, tzinfo=UTC),
    )
    assert (filters.before_age, filters.after_age) == (timedelta(days=3), timedelta(days=4))


@pytest.mark.parametrize(
    "text",
    [
        "is:odd",
        "has:nothing",
        "before:soon",
        "after:2024-13",
        "after:0000",
        "before:0001-01-01T00:00+05:00",
        "iſ:2024",
    ],
)
def test_a_filter_with_a_bad_value_is_plain_words(text: str) -> None:
    query = parse(text)
    assert query.filters == Filters()
    assert matches(query, tokenize(f"so {text} it is"))


def test_a_filter_is_plain_words_after_not_and_without_a_value() -> None:
    assert parse("NOT from:ann") == parse("-from:ann") == Query(Not(Term(("from", "ann"), "from:ann")))
    assert parse("from:") == Query(word("from"))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("ids.py", "see src/keryx/core/ids.py now"),
        ("core/ids", "see src/keryx/core/ids.py now"),
        ("creme", "Crème"),
        ("CRÈME", "creme"),
        ("京都", "東京都"),
        ("都", "東京都"),
        ("B面", "B面の曲"),
        ("@ann", "hello @Ann!"),
        ("example.org", "ann@example.org"),
        ("👩‍💻", "a 👩‍💻 works"),
        ('"big 🎉 party"', "Big 🎉 party"),
        ("ｶﾞｷﾞ", "ガギグ"),
        ("x" * 80, "x" * 80),
        ("a OR NOT b", "c"),
    ],
)
def test_it_is_found(query: str, text: str) -> None:
    assert found(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("C++", "c"),
        ("東都", "東京都"),
        ('"b a"', "a b"),
        ("a -b", "a b"),
        ("pre", "prefix"),
        ("👩", "👩‍💻"),
        ("a OR NOT b", "b"),
    ],
)
def test_it_is_not_found(query: str, text: str) -> None:
    assert not found(query, text)


@given(ANY)
def test_any_text_is_a_query_in_normal_form(text: str) -> None:
    query = parse(text)
    if query.expr is not None:
        assert_normal(query.expr.item if isinstance(query.expr, Not) else query.expr)
        assert isinstance(query.expr, Not) == matches(query, tokenize(""))


def assert_normal(expr: Expr, depth: int = 0) -> None:
    assert depth <= 3 * MAX_DEPTH
    match expr:
        case And(items):
            assert len(items) > 1 and not all(isinstance(item, Not) for item in items)
            for item in items:
                assert not isinstance(item, And)
                assert_normal(item.item if isinstance(item, Not) else item, depth + 1)
        case Or(items):
            assert len(items) > 1
            for item in items:
                assert not isinstance(item, Or)
                assert_normal(item, depth + 1)
        case Term(words, mark):
            assert words or mark
        case WordSequence(words):
            assert len(words) > 1
        case Prefix(words):
            assert words
        case Not():
            pytest.fail(f"{expr} where only a positive expression may stand")
        case _:
            assert_never(expr)


FORMULA = st.recursive(
    st.sampled_from("abc"),
    lambda inner: st.one_of(
        inner.map(lambda x: f"NOT ({x})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda xs: "(" + " OR ".join(xs) + ")"),
        st.lists(inner, min_size=2, max_size=3).map(lambda xs: "(" + " AND ".join(xs) + ")"),
    ),
    max_leaves=8,
)


@given(FORMULA, st.sets(st.sampled_from("abc")))
def test_normal_form_keeps_the_meaning(formula: str, present: set[str]) -> None:
    names = {letter: letter in present for letter in "abc"}
    python = formula.replace("NOT", "not").replace("OR", "or").replace("AND", "and")
    assert matches(parse(formula), tokenize(" ".join(present))) == bool(eval(python, {}, names))


@given(PLAIN)
def test_a_text_is_found_by_each_of_its_words(text: str) -> None:
    for part in text.split():
        assert found(f'"{part}"', text), part


@given(PLAIN, st.data())
def test_a_text_is_found_by_words_side_by_side(text: str, data: st.DataObject) -> None:
    parts = text.split()
    start = data.draw(st.integers(0, len(parts)))
    phrase = " ".join(parts[start : data.draw(st.integers(start, len(parts)))])
    assert found(f'"{phrase}"', text)


@given(st.text(st.sampled_from("abcd"), min_size=1), st.integers(1, 5))
def test_a_word_is_found_by_its_beginnings(text: str, size: int) -> None:
    assert found(text[:size] + "*", f"x {text} y")


@given(PLAIN)
def test_what_is_looked_for_never_asks_for_more_than_the_text_has(text: str) -> None:
    assert set(tokenize_query(text).words) <= set(tokenize(text).words)


def shown(text: str, query: str, width: int = 160) -> list[str]:
    snippet = highlight(text, parse(query), width=width)
    return [snippet.text[start:end] for start, end in snippet.spans]


@pytest.mark.parametrize(
    ("text", "query", "hits"),
    [
        ("The Crème is here", "creme", ["Crème"]),
        ("Die Straße dort", "strasse", ["Straße"]),
        ("see src/keryx/core/ids.py.", "ids.py", ["ids.py"]),
        ("C++ is not c", "C++", ["C++"]),
        ("foobar food bar", "foo*", ["foobar", "food"]),
        ("今天去公园散步", "公园散步", ["公园散步"]),
        ("関東平野", "東", ["東"]),
        ("so big 👩‍💻 world", '"big 👩‍💻"', ["big 👩‍💻"]),
        ("ｶﾞｷﾞｸﾞ", "ギグ", ["ｷﾞｸﾞ"]),
        ("a b c", "a NOT b", ["a"]),
        ("nothing here", "else", []),
    ],
)
def test_hits_are_shown_as_written(text: str, query: str, hits: list[str]) -> None:
    assert shown(text, query) == hits


def test_the_passage_with_the_most_different_hits_is_shown() -> None:
    text = "zebra zebra zebra " + "filler " * 100 + "a lion met a zebra " + "filler " * 100
    snippet = highlight(text, parse("zebra lion"), width=80)
    assert "lion met a zebra" in snippet.text
    assert snippet.text.startswith("…filler") and snippet.text.endswith("filler…")
    assert len(snippet.text) <= 82


def test_a_snippet_is_one_line() -> None:
    assert highlight("a\n\tb\x00\u2028c", parse("b")).text == "a  b  c"


def test_a_hit_deep_in_a_long_text_is_shown_at_once() -> None:
    text = "word soup é " * 400_000 + "zebra" + " tail" * 10_000
    start = time.process_time()
    assert shown(text, "soup zebra")[-1] == "zebra"
    assert time.process_time() - start < 1


@given(st.one_of(st.text(), PLAIN), ANY, st.integers(1, 50))
def test_spans_lie_in_the_snippet_apart_and_in_order(text: str, query: str, width: int) -> None:
    snippet = highlight(text, parse(query), width=width)
    assert len(snippet.text) <= width + 2
    edges = [edge for span in snippet.spans for edge in span]
    assert edges == sorted(set(edges))
    assert all(0 <= edge <= len(snippet.text) for edge in edges)


@given(PLAIN)
def test_a_word_that_is_found_is_shown(text: str) -> None:
    for part in text.split():
        if tokenize_query(part).words:
            assert shown(text, f'"{part}"')
