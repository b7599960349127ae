"""The real small model behind the real command line: stream, kill -9 in mid-answer, restart, ask again."""

import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests import left_out
from tests.cli.driver import Cli, Terminal

from keryx.agents.llm import local_model

pytestmark = [
    pytest.mark.skipif(
        not local_model.is_installed(),
        reason=left_out.reason(
            "tests with the small model", why="it is not installed", command=left_out.MODEL
        ),
    ),
    pytest.mark.timeout(400),
]

QUESTION = "Tell me a long story about a ship and its crew, in many sentences."
PATIENCE = 150.0
SETTINGS = f"""
model = "brief"
[[models]]
name = "brief"
base_url = "{local_model.MODEL.base_url}"
id = "{local_model.MODEL.id}"
context = {local_model.CONTEXT_TOKENS}
tools = false
titles = false
options = {{ max_tokens = 80, temperature = 0.2, repeat_penalty = 1.1, cache_prompt = true }}
"""


@pytest.fixture
def keryx(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home", KERYX_AGENT="local")


@pytest.fixture
def brief(tmp_path: Path) -> Cli:
    """The same model, whose answers end early, for a test that waits for their ends."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "keryx.toml").write_text(SETTINGS)
    return Cli(home, KERYX_AGENT="llm")


def test_a_kill_in_mid_answer_keeps_what_was_said_and_the_question_is_answered_whole(brief: Cli) -> None:
    with brief.serving() as node:
        session = str(brief.json("send", QUESTION)["session"])
        shown = read_draft(node.address, session)
        node.process.kill()
        node.process.wait()
    with brief.serving():
        partial, whole = (text(m) for m in answers(brief, session, ["interrupted", None]))
        assert partial.startswith(shown) and whole
        brief.ok("sessions", "retry", session)
        answers(brief, session, ["interrupted", None, None])
    # A long story may end at the limit of the model, which a notice then tells.
    standing = [m for m in messages(brief, session) if not m.get("undone") and m["role"] != "notice"]
    assert [(m["role"], m.get("mark")) for m in standing] == [("user", None), ("assistant", None)]
    assert brief("verify").code == 0


def see_some_words(terminal: Terminal) -> None:
    """Wait until an answer has been growing for a while: its sign is drawn anew with each piece of text, and with each tick."""
    for _ in range(30):
        terminal.see("Writing ")


def test_a_terminal_that_is_killed_in_mid_answer_comes_back_with_it_and_asks_again(keryx: Cli) -> None:
    with keryx.terminal("chat", QUESTION) as terminal:
        see_some_words(terminal)
        begun = terminal.show().split()
        terminal.kill()
    with keryx.terminal("chat", "--continue") as terminal:
        terminal.see("[interrupted")
        terminal.see("goes on after an interruption. Ctrl-C stops it.\n")
        see_some_words(terminal)
        terminal.type("\x03")
        terminal.see("[stopped]")
        terminal.see("› ")
        terminal.type("/retry\r")
        terminal.see("Thinking")
        see_some_words(terminal)
        terminal.type("\x03")
        terminal.see("[stopped]")
        terminal.type("\x04")
        terminal.exit()
    (session,) = (s["session"]["id"] for s in keryx.json("sessions", "list")["sessions"])
    partial, *_ = answers(keryx, session, ["interrupted", "cancelled", "cancelled"])
    # The line of the sign comes after the answer, and begins with a spinner.
    shown = begun[: begun.index("Writing") - 1]
    assert " ".join(shown[-3:]) in " ".join(text(partial).split())
    assert keryx("verify").code == 0


def test_the_terminal_shows_the_answer_as_it_grows_and_stops_it_in_the_middle(keryx: Cli) -> None:
    with keryx.terminal("chat", QUESTION) as terminal:
        see_some_words(terminal)
        terminal.type("\x03")
        terminal.see("[stopped]")
        terminal.type("\x04")
        terminal.exit()
    (session,) = (s["session"]["id"] for s in keryx.json("sessions", "list")["sessions"])
    (answer,) = answers(keryx, session, ["cancelled"])
    assert len(text(answer).split()) > 3


def read_draft(address: str, session: str) -> str:
    """What the model has said in mid-answer, once it is some words."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        draft: dict[str, Any] = httpx.get(f"{address}/api/sessions/{session}").json().get("draft") or {}
        words = "".join(part.get("text", "") for part in draft.get("parts", []))
        if len(words) > 40:
            return words
        time.sleep(0.1)
    raise AssertionError("the model has said nothing")


def messages(keryx: Cli, session: str) -> list[dict[str, Any]]:
    return keryx.json("sessions", "show", session)["messages"]


def answers(keryx: Cli, session: str, marks: list[str | None]) -> list[dict[str, Any]]:
    """The answers of a session, once they have these marks."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = [m for m in messages(keryx, session) if m["role"] == "assistant"]
        if [m.get("mark") for m in found] == marks:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def text(message: dict[str, Any]) -> str:
    return "".join(p["text"] for p in message["parts"] if p["type"] == "text")
