"""A conversation that a program keeps: it grows on the open page, and goes on here if a person wants it."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.driver import House, tab
from tests.importers.samples import write_lines
from tests.watch.test_session_watcher import QUESTION, REPLY, append, claude_talk, orphan

__all__ = ["orphan"]

SETTINGS = """
[watch]
enabled = true
machine = "desk"
[agents.claude]
kind = "acp"
command = ["claude-agent-acp"]
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are read from /proc")
def test_the_page_shows_what_a_program_does_and_takes_over(
    browser: Browser, tmp_path: Path, orphan: tuple[Path, int]
) -> None:
    folder, _ = orphan
    home = tmp_path / "person"
    house = House(tmp_path / "keryx", HOME=str(home), CLAUDE_CONFIG_DIR="")
    house.cli.home.mkdir()
    (house.cli.home / "keryx.toml").write_text(SETTINGS)
    file = home / ".claude/projects/-work/s1.jsonl"
    talk = [*claude_talk(0, "", "hello there", "Hello."), *claude_talk(10, "w1", QUESTION, REPLY)]
    records = [{**record, "cwd": str(folder.resolve())} for record in talk]
    write_lines(file, records[:2])
    with house.serving(), tab(browser, house) as opened:
        opened.open()
        opened.page.get_by_text("hello there").first.click()
        expect(opened.answers).to_have_text(["Hello."])
        kept = opened.page.locator(".kept")
        expect(kept).to_contain_text("Claude Code is still open in a terminal")
        append(file, *records[2:])
        expect(opened.answers).to_have_text(["Hello.", REPLY])
        kept.get_by_role("button", name="Continue here").click()
        expect(kept).to_have_text("Claude Code on desk keeps this conversation, and is open there.")
