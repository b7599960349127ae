"""Long texts are rendered in a process of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from keryx.markdown import html
from keryx.markdown.render_process import RenderProcess, render_long_texts_apart

LONG = "**bold** \ud800 é\n\n" * 400


@pytest.fixture
def process() -> Iterator[RenderProcess]:
    process = RenderProcess()
    yield process
    process.close()


def find_children() -> list[int]:
    found = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "pid=,args="], capture_output=True, text=True, check=True
    )
    return [int(line.split()[0]) for line in found.stdout.splitlines() if "render_process" in line]


def test_a_long_text_is_rendered_as_in_this_process(process: RenderProcess) -> None:
    assert process.render(LONG) == "".join(html.render_blocks(LONG))


def test_a_process_that_was_killed_is_started_again(process: RenderProcess) -> None:
    expected = process.render(LONG)
    (child,) = find_children()
    os.kill(child, signal.SIGKILL)
    assert process.render(LONG) == expected
    assert find_children() != [child]


def test_an_idle_process_ends_and_starts_again() -> None:
    process = RenderProcess(idle=0)
    try:
        assert process.render(LONG) == process.render(LONG) == "".join(html.render_blocks(LONG))
    finally:
        process.close()


def test_a_text_that_takes_too_long_is_shown_without_markup() -> None:
    process = RenderProcess(timeout=0)
    try:
        assert process.render(LONG) == html.render_plain(LONG)
        assert not find_children()
    finally:
        process.close()


def test_only_long_texts_leave_this_process() -> None:
    with render_long_texts_apart():
        assert html.render("**short**") == "<p><strong>short</strong></p>\n"
        assert not find_children()
        assert html.render(LONG + "x") == "".join(html.render_blocks(LONG + "x"))
        assert len(find_children()) == 1
    assert not find_children()


def test_it_ends_with_its_parent() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "keryx.markdown.render_process", "600"], input=b"", timeout=60
    )
    assert ended.returncode == 0
