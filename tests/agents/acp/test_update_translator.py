"""Changes of files as an agent tells them: a unified diff, in a time that no agent can stretch."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.agents.acp.update_translator import ToolCallTracker, format_diff
from keryx.core.ports.agent import ToolResultEvent

LINES = st.lists(st.sampled_from(["a", "b", "c", "@@ -1 +1 @@", "--- x"]), max_size=12)


def diff(old: list[str], new: list[str]) -> str:
    return "\n".join(difflib.unified_diff(old, new, "f", "f", lineterm="", n=2))


def apply(old: list[str], text: str) -> list[str]:
    """Apply a unified diff to the lines of a file."""
    new, at = list[str](), 0
    for line in text.splitlines()[2:]:
        if line.startswith("@@ -"):
            begin, _, count = line.split()[1][1:].partition(",")
            first = int(begin) - (count != "0")
            new += old[at:first]
            at = first
        elif line.startswith("+"):
            new.append(line[1:])
        else:
            assert old[at] == line[1:]
            at += 1
            new += [line[1:]] * line.startswith(" ")
    return new + old[at:]


@given(LINES, LINES, LINES, LINES)
def test_a_diff_leads_from_the_old_lines_to_the_new_ones(
    head: list[str], old: list[str], new: list[str], tail: list[str]
) -> None:
    before, after = [*head, *old, *tail], [*head, *new, *tail]
    for compare in (True, False):
        text = format_diff("\n".join(before), "\n".join(after), "f", compare=compare)
        expected = "\n".join(after).splitlines()
        known = "\n".join(before).splitlines()
        assert apply(known, text) == expected


def test_a_small_change_of_a_long_file_is_shown_as_ever() -> None:
    before = [f"line {n}" for n in range(5_000)]
    after = [*before[:4_000], "new", *before[4_003:]]
    assert format_diff("\n".join(before), "\n".join(after), "f") == diff(before, after)


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_a_long_change_shows_what_was_removed_and_then_what_was_added(size: int) -> None:
    before, after = ["same", *(f"{n % 7}" for n in range(size))], ["same", *(f"{n % 5}" for n in range(size))]
    lines = format_diff("\n".join(before), "\n".join(after), "f").splitlines()
    assert lines[2].startswith("@@ -")
    assert apply(before, "\n".join(lines)) == after


def test_what_a_finished_call_held_is_let_go() -> None:
    tracker = ToolCallTracker(lambda _: "")
    content = [{"type": "content", "content": {"type": "text", "text": "x" * 1_000_000}}]
    events = tracker.update({"toolCallId": "1", "title": "read", "status": "completed", "content": content})
    assert isinstance(events[-1], ToolResultEvent)
    assert tracker.find("1") == {"status": "completed"}
    assert tracker.update({"toolCallId": "1", "status": "completed", "content": content}) == []
