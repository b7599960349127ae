from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.core.errors import Invalid
from keryx.core.sessions import (
    LONGEST_TITLE,
    UNTITLED,
    clean_title,
    derive_title,
    number_title,
    split_title_number,
)
from keryx.core.text import to_single_line, truncate


def _can_be_seen(text: str) -> bool:
    try:
        return bool(clean_title(text))
    except Invalid:
        return False


TITLES = st.text(min_size=1).filter(_can_be_seen).map(clean_title)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("  A \n\t trip  ", "A trip"),
        ("evil\u202egnp.exe", "evilgnp.exe"),
        ("ze\u200bro\ufeff \u2066x\u2069", "zero x"),
        ("nul\x00 and \x1b[31m", "nul and [31m"),
        ("lone\ud800", "lone"),
        ("e\u0301te\u0301", "été"),
        ("🎉 ❤️", "🎉 ❤️"),
    ],
)
def test_a_title_is_cleaned(text: str, title: str) -> None:
    assert clean_title(text) == title


@pytest.mark.parametrize(
    "text", ["", " \n", "\u200b\u202e", "\ud800", "\u3164", "\u2800", "\u0301", "\ufe0f"]
)
def test_a_title_that_cannot_be_seen_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        clean_title(text)


def test_a_cut_keeps_characters_whole() -> None:
    assert truncate("abcx\u0323\u0324", 5) == "abc"
    assert truncate("abc👍🏽", 4) == "abc"
    assert truncate("🇩🇪🇫🇷", 3) == "🇩🇪"
    assert truncate("🇩🇪🇫🇷 x", 4) == "🇩🇪🇫🇷"
    assert truncate("a" + "\u0323" * 200, 100) == "a" + "\u0323" * 99
    assert truncate("ab cd", 3) == "ab"


@given(st.text())
def test_a_clean_title_is_short_visible_and_stays_as_it_is(text: str) -> None:
    try:
        title = clean_title(text)
    except Invalid:
        return
    assert 0 < len(title) <= LONGEST_TITLE
    assert clean_title(title) == title
    assert not {category(c) for c in title} & {"Cc", "Cs", "Zl", "Zp"}


@given(st.text())
def test_a_line_is_one_line(text: str) -> None:
    assert len(to_single_line(text).splitlines()) <= 1
    assert to_single_line(to_single_line(text)) == to_single_line(text)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Plan the **trip**\n\nmore", "Plan the trip"),
        ("Why does it fail? I tried twice.", "Why does it fail?"),
        ("Fix the parser. It is broken.", "Fix the parser"),
        ("Hi. Please help", "Hi. Please help"),
        ("\n\n> quoted [link](https://x.y) here", "quoted link here"),
        ("- [ ] buy `milk`", "buy milk"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("---\n***\nafter the rule", "after the rule"),
        ("look at __init__.py and snake_case_name", "look at __init__.py and snake_case_name"),
        ("今天天气很好。我们去公园", "今天天气很好"),
        ("#tag stays", "#tag stays"),
        ("🎉", "🎉"),
    ],
)
def test_an_automatic_title_is_the_first_sentence_without_markup(text: str, title: str) -> None:
    assert derive_title(text) == title


def test_an_automatic_title_ends_between_words() -> None:
    title = derive_title(
        "please rewrite the whole of the scheduler so that it survives a change of the clock"
    )
    assert title == "please rewrite the whole of the scheduler so that it…"


@pytest.mark.parametrize("text", ["", "\n \n", "...", "```\n```", "\u200b\u3164", "***"])
def test_without_words_there_is_still_a_title(text: str) -> None:
    assert derive_title(text) == UNTITLED


@given(st.one_of(st.text(), st.text(st.sampled_from("a*_`#[]()>- .\n\u0301\u200d🎉"), max_size=200)))
def test_any_message_has_an_automatic_title(text: str) -> None:
    title = derive_title(text)
    assert 0 < len(title) <= 62
    assert clean_title(title) == title


@pytest.mark.parametrize(
    ("title", "parts"),
    [
        ("Trip #3", ("Trip", 3)),
        ("Trip", ("Trip", 1)),
        ("Trip #1", ("Trip #1", 1)),
        ("Trip #02", ("Trip #02", 1)),
        ("#3", ("#3", 1)),
        ("a #2 #3", ("a #2", 3)),
        ("issue#3", ("issue#3", 1)),
    ],
)
def test_the_number_of_a_title_is_read_from_its_end(title: str, parts: tuple[str, int]) -> None:
    assert split_title_number(title) == parts


@given(TITLES)
def test_a_title_is_its_base_and_number(title: str) -> None:
    assert number_title(*split_title_number(title)) == title
