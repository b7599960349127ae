"""An answer that grew is shown as the same answer that was there at once, at a cost that grows with the answer only."""

import random

import pytest

from keryx.core.changes import DraftChunk
from keryx.markdown import html
from keryx.surfaces.web.stream.incremental_renderer import IncrementalRenderer

TEXTS = (
    "# Title\n\nSome *text* here,\nand more.\n\n- one\n- two\n\n  still two\n\n```py\na = 1\n\nb = 2\n```\n\nEnd.\n",
    "A line\n=====\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n> more\n\n1. x\n2. y\n\n---\n\nlast",
    "```\nan open fence\n\nwith blank lines\n\n# no title\n",
    "word " * 2000,
    "- item\n" * 600 + "\n\npara\n\n" * 50,
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", range(5))
def test_an_answer_that_grew_ends_as_one_that_was_there_at_once(text: str, seed: int) -> None:
    chance, growing = random.Random(seed), IncrementalRenderer()
    shown: list[str] = []
    start = n = 0
    pending = False
    while start < len(text):
        size, n = chance.randrange(1, 60), n + 1
        for step in growing.add([DraftChunk(n, text[start : start + size])]):
            pending = step.blocks is None
            if step.blocks is not None:
                shown = [*shown[: step.keep], *step.blocks]
        start += size
    wanted = html.render_blocks(text, colours=False)
    if pending:
        shown, wanted = shown[:-1], wanted[: len(shown) - 1]
    assert shown == wanted


@pytest.mark.parametrize(
    "unit", ["# t\n\nSome **bold** text here.\n\n", "- item of a list\n", "word ", "x\n"]
)
def test_a_long_answer_costs_no_more_than_its_length_allows(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    growing, sent = IncrementalRenderer(), 0
    for n, start in enumerate(range(0, len(text), 200), start=1):
        for step in growing.add([DraftChunk(n, text[start : start + 200])]):
            sent += len(step.text) + sum(map(len, step.blocks or ()))
    assert sent < 12 * len("".join(html.render_blocks(text, colours=False)))


def test_reasoning_and_text_are_parts_of_their_own() -> None:
    growing = IncrementalRenderer()
    pieces = [
        DraftChunk(1, "hm", thought=True),
        DraftChunk(2, "well", thought=True),
        DraftChunk(3, "yes"),
        DraftChunk(4, "!"),
    ]
    steps = growing.add(pieces)
    assert [(s.part, s.thought, s.text, s.n) for s in steps] == [
        (0, True, "hmwell", 2),
        (1, False, "yes!", 4),
    ]
    assert growing.add(pieces) == []
