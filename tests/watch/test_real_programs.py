"""A conversation that begins in a terminal with the real program, is seen live, goes on in a chat, and comes back to the terminal.
Each test runs where its programs are installed."""

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.driver import Cli, Node
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.importers.fake_model import ANSWER, serve_model
from tests.importers.real_programs import Place, find_program

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

WAIT = 150.0


def wait_for(what: str, find: Callable[[], Any], show: Callable[[], Any] = str) -> Any:
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        if found := find():
            return found
        threading.Event().wait(0.2)
    raise AssertionError(f"not within {WAIT} s: {what}: {show()}")


class LivePage:
    """What a page sees of a node: the list, a conversation, and the events of the stream."""

    def __init__(self, node: Node) -> None:
        self._address = node.address
        self.events: list[dict[str, Any]] = []

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._address}{path}", timeout=30) as answer:
            return json.loads(answer.read())

    def find_session(self, surface: str) -> dict[str, Any] | None:
        listed = self.get(f"/api/sessions?surface={surface}")["sessions"]
        return listed[0] if listed else None

    def read_texts(self, session: str) -> list[tuple[str, str]]:
        """The roles and texts of a conversation, without tools."""
        shown = self.get(f"/api/sessions/{session}")["messages"]
        texts = [
            (m["role"], "".join(p.get("text", "") for p in m["parts"] if p["type"] == "text")) for m in shown
        ]
        return [(role, text.strip('"')) for role, text in texts if text and role in ("user", "assistant")]

    @contextmanager
    def following(self, cursor: str) -> Generator[None]:
        """Collect the events of the stream within the block."""
        stream = urllib.request.urlopen(f"{self._address}/api/stream?cursor={cursor}", timeout=WAIT)

        def read() -> None:
            try:
                for line in stream:
                    if line.startswith(b"data:"):
                        self.events.append(json.loads(line[5:]))
            except (OSError, ValueError, AttributeError):
                return

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield
        finally:
            stream.close()
            reader.join(5)


def write_settings(home: Path, telegram: FakeTelegram, agent: dict[str, Any]) -> None:
    env = ", ".join(f"{name} = {json.dumps('text:' + value)}" for name, value in agent["env"].items())
    home.mkdir(parents=True, exist_ok=True)
    (home / "keryx.toml").write_text(
        f"""
[telegram]
base_url = "{telegram.url}"
[access.telegram]
allow = ["7"]
[watch]
enabled = true
person = "telegram:7"
machine = "this-machine"
[agents.coder]
kind = "acp"
command = {json.dumps(agent["command"])}
env = {{ {env} }}
"""
    )


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with serve_model() as model:
        yield Place(tmp_path / "home", model)


def build_claude(place: Place) -> tuple[dict[str, Any], Callable[..., str]]:
    find_program("claude")
    env = place.set_up_claude()
    agent = {"command": [find_program("claude-agent-acp")], "env": {**env, "HOME": str(place.home)}}

    def talk(text: str, *, again: bool) -> str:
        return place.run("claude", *(["-c"] if again else []), "-p", text, **env)

    return agent, talk


def build_opencode(place: Place) -> tuple[dict[str, Any], Callable[..., str]]:
    place.set_up_opencode()
    agent = {"command": [find_program("opencode"), "acp"], "env": {"HOME": str(place.home)}}

    def talk(text: str, *, again: bool) -> str:
        return place.run("opencode", "run", *(["-c"] if again else []), text)

    return agent, talk


def build_qwen(place: Place) -> tuple[dict[str, Any], Callable[..., str]]:
    env = place.set_up_qwen()
    agent = {"command": [find_program("qwen"), "--acp"], "env": {**env, "HOME": str(place.home)}}

    def talk(text: str, *, again: bool) -> str:
        return place.run("qwen", *(["-c"] if again else []), "-p", text, **env)

    return agent, talk


def build_codex(place: Place) -> tuple[dict[str, Any], Callable[..., str]]:
    env = place.set_up_codex("gpt-6.1-sol")
    program = find_program("codex")
    # The agent runs the program that the terminal has.
    agent = {
        "command": [find_program("codex-acp")],
        "env": {**env, "HOME": str(place.home), "CODEX_PATH": program},
    }

    def talk(text: str, *, again: bool) -> str:
        resume = ("resume", "--last") if again else ()
        return place.run("codex", "exec", "--skip-git-repo-check", *resume, text, **env)

    return agent, talk


def build_goose(place: Place) -> tuple[dict[str, Any], Callable[..., str]]:
    env = place.set_up_goose()
    agent = {"command": [find_program("goose"), "acp"], "env": {**env, "HOME": str(place.home)}}

    def talk(text: str, *, again: bool) -> str:
        return place.run("goose", "run", "-n", "demo", *(["-r"] if again else []), "-t", text, **env)

    return agent, talk


BUILDERS = {
    "claude-code": build_claude,
    "codex": build_codex,
    "goose": build_goose,
    "opencode": build_opencode,
    "qwen": build_qwen,
}


@pytest.mark.parametrize(("surface", "build"), list(BUILDERS.items()), ids=list(BUILDERS))
def test_a_conversation_moves_from_the_terminal_to_a_chat_and_back(
    place: Place,
    tmp_path: Path,
    surface: str,
    build: Callable[[Place], tuple[dict[str, Any], Callable[..., str]]],
) -> None:
    agent, talk = build(place)
    with FakeTelegram() as telegram:
        write_settings(tmp_path / "keryx", telegram, agent)
        keryx = Cli(tmp_path / "keryx", HOME=str(place.home), KERYX_TELEGRAM_TOKEN=TOKEN, XDG_DATA_HOME="")
        with keryx.serving() as node:
            page = LivePage(node)
            talk("hello there", again=False)
            session = wait_for("the session in the list", lambda: page.find_session(surface))
            id_ = session["id"]
            wait_for("the first answer", lambda: len(page.read_texts(id_)) == 2, lambda: page.read_texts(id_))
            begun = [("user", "hello there"), ("assistant", ANSWER)]
            assert page.read_texts(id_) == begun
            hits = page.get("/api/search?q=hello")["hits"]
            assert any(hit["session"]["id"] == id_ for hit in hits)

            with page.following(page.get(f"/api/sessions/{id_}")["cursor"]):
                talk("one more thing", again=True)
                wait_for(
                    "the second question on the open page",
                    lambda: any("one more thing" in json.dumps(event) for event in page.events),
                )
            wait_for("the second answer", lambda: len(page.read_texts(id_)) == 4)

            wait_for(
                "the end of the program", lambda: not page.get(f"/api/sessions/{id_}/program").get("refusal")
            )
            telegram.say(f"/resume {id_}")
            wait_for("the chat is in the conversation", lambda: telegram.bubbles)
            assert "this-machine keeps it" in telegram.bubbles[0].text
            telegram.say("and now from the chat")
            # Until then it may show that the agent works.
            wait_for(
                "the answer in the chat",
                lambda: telegram.bubbles[-1].text == ANSWER,
                lambda: [bubble.text for bubble in telegram.bubbles],
            )
            told = [bubble.text for bubble in telegram.bubbles]
            assert len(told) == 2, told
            wait_for("the end of the turn", lambda: not page.get(f"/api/sessions/{id_}").get("running"))

            talk("back in the terminal", again=True)
            wait_for("what was said in the terminal", lambda: len(page.read_texts(id_)) >= 8)
            shown = page.read_texts(id_)
            assert [text for role, text in shown if role == "user"] == [
                "hello there",
                "one more thing",
                "and now from the chat",
                "back in the terminal",
            ]
            assert [text for role, text in shown if role == "assistant"] == [ANSWER] * 4
            assert page.get(f"/api/sessions?surface={surface}")["sessions"][0]["id"] == id_
            assert len(page.get(f"/api/sessions?surface={surface}")["sessions"]) == 1

            wait_for(
                "the end of the program", lambda: not page.get(f"/api/sessions/{id_}/program").get("refusal")
            )
            telegram.say("the last word")
            wait_for(
                "the last answer in the chat", lambda: [b.text for b in telegram.bubbles][2:] == [ANSWER]
            )
    done = keryx.json("verify")
    assert done is not None
