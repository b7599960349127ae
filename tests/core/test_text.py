import re
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.core import text

EVERY_CHARACTER = "".join(map(chr, range(sys.maxunicode + 1)))


@pytest.mark.parametrize(
    "replace",
    [text.replace_for_page, text.replace_for_terminal],
    ids=lambda f: f.__name__,
)
def test_replacing_is_one_for_one_and_leaves_tabs_and_newlines(replace: Callable[[str], str]) -> None:
    replaced = replace(EVERY_CHARACTER)
    assert len(replaced) == len(EVERY_CHARACTER)
    assert {"\t", "\n"} <= set(replaced)
    assert not re.search(
        "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]", replaced
    )


def test_a_terminal_is_spared_returns_and_changes_of_direction() -> None:
    assert text.replace_for_terminal("a\rb\u202ec\u2066d\x1b[2J") == "a\ufffdb\ufffdc\ufffdd\ufffd[2J"


def test_halves_of_a_character_are_joined_where_both_are_there() -> None:
    assert text.replace_unwritable("\ud83d\ude00 \ud83d \0") == "😀 \ufffd \ufffd"


@given(st.text(st.characters(exclude_categories=())))
def test_what_is_made_writable_can_be_encoded(value: str) -> None:
    writable = text.replace_unwritable(value)
    assert writable.encode().decode() == writable
    assert "\0" not in writable


@given(st.text(st.characters(exclude_categories=()), max_size=300), st.integers(1, 100))
def test_a_short_line_is_the_beginning_of_the_line(value: str, limit: int) -> None:
    assert text.to_short_line(value, limit) == text.truncate(text.to_single_line(value), limit)


def test_of_a_long_text_only_the_beginning_is_looked_at_for_a_short_line() -> None:
    assert text.to_short_line("a " * 1_000_000, 5) == "a a a"
    assert text.to_short_line(" " * 1_000_000 + "a", 5) == ""
