"""Answers on a terminal: lines that fit, words that stay whole, and nothing that could control the terminal."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.markdown.ansi import AnsiRenderer, StyledText, wrap_words
from keryx.markdown.split import measure_width

ANSWER = """\
# Ferries to Oslo

There are **two** ferries a day, see [the timetable](https://example.org/t). Use `--no-wait` if you *must* leave at once.

- from Kiel, at two in the afternoon, with a restaurant on board
- from Copenhagen
  1. in summer
  2. in winter

> Book early, the cabins are sold out by June in most years.

```python
def fare(people):
    return people * 40  # euros
```

| From | Leaves | Remarks |
|---|---|---|
| Kiel | 14:00 | arrives the next morning at ten, breakfast is included |
| Copenhagen | 16:30 | overnight |
"""
_SEQUENCES = re.compile(r"\x1b\[[0-9;]*m")


def render(text: str, width: int, *, colours: bool = False) -> str:
    return "\n".join(AnsiRenderer(width, colours=colours).render(text))


def test_an_answer_at_forty_columns() -> None:
    assert (
        render(ANSWER, 40)
        == """\
Ferries to Oslo

There are two ferries a day, see the
timetable (https://example.org/t). Use
`--no-wait` if you must leave at once.

• from Kiel, at two in the afternoon,
  with a restaurant on board
• from Copenhagen
  1. in summer
  2. in winter

▌ Book early, the cabins are sold out by
▌ June in most years.

  def fare(people):
      return people * 40  # euros

From       │ Leaves │ Remarks
───────────┼────────┼───────────────────
Kiel       │ 14:00  │ arrives the next
           │        │ morning at ten,
           │        │ breakfast is
           │        │ included
Copenhagen │ 16:30  │ overnight"""
    )


def test_styles_and_code_have_colours() -> None:
    shown = render(ANSWER, 80, colours=True)
    assert "\x1b[1;4mFerries to Oslo\x1b[0m" in shown
    assert "\x1b[1mtwo\x1b[0m" in shown
    assert "\x1b[36m--no-wait\x1b[0m" in shown
    assert "\x1b[35mdef\x1b[0m \x1b[34mfare\x1b[0m" in shown
    assert "\x1b[2m# euros\x1b[0m" in shown


def test_colours_change_nothing_but_colours() -> None:
    text = ANSWER.replace("`--no-wait`", "another")
    shown = _SEQUENCES.sub("", render(text, 60, colours=True)).split("\n")
    assert [line.rstrip() for line in shown] == render(text, 60).split("\n")


def test_a_table_that_is_too_wide_is_one_entry_for_each_row() -> None:
    wide = "| one | two | three | four |\n|---|---|---|---|\n| alphabetical | betaversion | gammaburst | deltawing |\n| a |"
    assert render(wide, 24) == (
        "one: alphabetical\ntwo: betaversion\nthree: gammaburst\nfour: deltawing\n\none: a"
    )


def test_a_table_without_rows_shows_its_header() -> None:
    assert render("| one | two |\n|---|---|", 40) == "one │ two\n────┼────"


def test_text_in_chinese_is_broken_between_characters() -> None:
    assert render("日本語" * 10, 20) == "\n".join(
        ["日本語日本語日本語日", "本語日本語日本語日本", "語日本語日本語日本語"]
    )


def test_a_word_that_is_longer_than_a_line_is_cut() -> None:
    assert render(f"see {'x' * 45} there", 20) == f"see\n{'x' * 20}\n{'x' * 20}\nxxxxx there"


@pytest.mark.parametrize("text", ["\x1b[2Jgone", "a\rb", "\u202eevil", "\x9b2J", "\x07"])
def test_nothing_controls_the_terminal(text: str) -> None:
    for given_text in (text, f"`{text}`", f"```\n{text}\n```", f"| {text} |\n|---|"):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", render(given_text, 40))


@given(st.text(st.sampled_from("ab *`_#->|1.\n日é\u0301👩‍👧"), max_size=200), st.integers(20, 100))
def test_every_line_of_prose_fits_and_no_letter_is_lost(text: str, width: int) -> None:
    lines = wrap_words([StyledText(text)], width)
    assert all(measure_width("".join(piece.text for piece in line)) <= width for line in lines)
    assert re.sub(r"\s", "", "".join(piece.text for line in lines for piece in line)) == re.sub(
        r"\s", "", text
    )


@given(st.text(st.sampled_from("ab *`_#->|1.\n日é~[]()"), max_size=200), st.integers(1, 100))
def test_any_text_can_be_shown(text: str, width: int) -> None:
    AnsiRenderer(width, colours=True).render(text)
