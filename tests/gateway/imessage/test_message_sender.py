"""Answers as bubbles of plain text."""

from hypothesis import given
from hypothesis import strategies as st

from keryx.surfaces.gateway.imessage import message_sender
from keryx.surfaces.gateway.imessage.message_sender import LIMIT


def render_bubbles(markdown: str) -> list[str]:
    return [part.text for part in message_sender.render_parts(markdown)]


def test_a_short_answer_is_one_bubble_of_plain_text() -> None:
    assert render_bubbles("**Yes.** See [here](https://example.org).\n\n- one\n- two") == [
        "Yes. See here (https://example.org).\n\n• one\n• two"
    ]


def test_a_long_answer_has_a_bubble_for_every_few_paragraphs() -> None:
    paragraphs = [f"{n} " + "word " * 60 for n in range(5)]
    bubbles = render_bubbles("\n\n".join(paragraphs))
    assert [bubble[0] for bubble in bubbles] == ["0", "1", "2", "3", "4"]
    assert render_bubbles("\n\n".join(f"{n} short" for n in range(5))) == [
        "\n\n".join(f"{n} short" for n in range(5))
    ]


def test_a_heading_stays_with_the_paragraph_below_it() -> None:
    bubbles = render_bubbles("intro " * 99 + "\n\n# Plan\n\n" + "step " * 110)
    assert [bubble.split()[0] for bubble in bubbles] == ["intro", "Plan"]
    assert len(render_bubbles("# Plan\n\n" + "step " * 300)) == 1


def test_a_very_long_answer_has_longer_bubbles_instead_of_more() -> None:
    bubbles = render_bubbles("\n\n".join("word " * 40 for _ in range(400)))
    assert len(bubbles) <= 25 and all(len(bubble) <= LIMIT.size for bubble in bubbles)


def test_what_looks_like_markup_is_shown_as_it_is() -> None:
    assert render_bubbles("use `a*b*c` and 2\\*3") == ["use a*b*c and 2*3"]


def test_what_no_message_can_hold_is_replaced() -> None:
    assert render_bubbles("a\x00b \ud83d c") == ["a\ufffdb \ufffd c"]


@given(
    st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=900), min_size=1, max_size=12)
)
def test_joining_the_bubbles_loses_no_character(paragraphs: list[str]) -> None:
    bubbles = render_bubbles("\n\n".join(paragraphs))
    assert "".join("".join(bubbles).split()) == "".join("".join(paragraphs).split())
