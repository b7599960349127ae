"""A node is killed with -9 before and after each commit of a compaction: one chain of epochs, nothing lost, and the
conversation goes on."""

from pathlib import Path
from typing import Any

import pytest
from tests.cli.driver import Cli
from tests.fakes.endpoint import KEY, MODEL, Endpoint, Pause, Script, answer, finish, says
from tests.fakes.platform import Platform
from tests.fakes.strict import Json
from tests.faults.node import Node

from keryx.core.compaction import DONE_KIND, format_marker
from keryx.core.deliveries import REPEAT_MARK
from keryx.store.db import Engine

CHAT = "chat"
SUMMARY = "They spoke of w."
SETTINGS = """
[[models]]
name = "m"
base_url = "{url}"
id = "{model}"
key = "env:TEST_KEY"
context = 1500
tools = false
titles = false
[compaction]
at = 0.5
keep = 0.2
"""
# The first claim of a node finds nothing. The epoch is the first or second progress. A compaction that was asked for has one answer and no marker.
ASKED = (
    ("receive", 1),
    ("turn.claim", 1),
    ("turn.claim", 2),
    ("turn.progress", 1),
    ("turn.finish", 1),
    ("delivery.claim", 1),
    ("delivery.settle", 1),
)
BY_ITSELF = (
    *ASKED,
    ("turn.progress", 2),
    ("turn.progress", 3),
    ("delivery.claim", 2),
    ("delivery.settle", 2),
)
COMMITS = [*(("three", *at) for at in BY_ITSELF), *(("/compact", *at) for at in ASKED)]


class Model(Endpoint):
    """Answers each question at length with its own words, and sums up when it is asked to."""

    def choose(self, body: Json) -> Script:
        last = str(body["messages"][-1]["content"])
        if last.endswith("Write the new summary."):
            return answer(SUMMARY)
        word = last.rsplit(maxsplit=1)[-1]
        return [*says("to "), Pause(0.2), *says(word), Pause(0.2), *says(" " + "w" * 1600), *finish()]


class Scene:
    def __init__(self, folder: Path, database: str) -> None:
        self.platform = Platform()
        self.model = Model()
        self._folder = folder
        self._database = database
        self.keryx = Cli(folder, KERYX_DATABASE=database)

    def __enter__(self) -> "Scene":
        self.platform.__enter__()
        self.model.__enter__()
        settings = SETTINGS.format(url=self.model.base_url, model=MODEL)
        (self._folder / "keryx.toml").write_text(settings)
        self.node = Node(
            self.platform.url, self._folder, database=self._database, KERYX_AGENT="llm", TEST_KEY=KEY
        )
        return self

    def __exit__(self, *exc: object) -> None:
        self.node.__exit__()
        self.model.__exit__(None, None, None)
        self.platform.__exit__()

    def shown(self) -> list[str]:
        """What the chat shows, without repetitions that say so, each answer by its first words."""
        texts = [t for t in self.platform.texts(CHAT) if not t.startswith(REPEAT_MARK)]
        return [t.partition(" w")[0] if t.startswith("to ") else t for t in texts]

    def until(self, last: str) -> None:
        def seen() -> bool:
            return any(s.text.removeprefix(REPEAT_MARK).startswith(last) for s in self.platform.shown)

        assert self.platform.wait_for(seen, 60), f"{self.shown()}\n{self.node.log[-3000:]}"

    def messages(self) -> list[dict[str, Any]]:
        (entry,) = self.keryx.json("sessions", "list")["sessions"]
        return self.keryx.json("sessions", "show", entry["session"]["id"])["messages"]


@pytest.fixture
def scene(tmp_path: Path, engine: Engine, request: pytest.FixtureRequest) -> Scene:
    return Scene(tmp_path, "" if engine is Engine.SQLITE else request.getfixturevalue("own_postgres"))


@pytest.mark.faults
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_the_commit_of_an_epoch_leaves_one_chain(scene: Scene, when: str) -> None:
    killed_while_compacting(scene, "three", f"turn.progress:{when}:1")


@pytest.mark.faults
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("text", "label", "nth"), COMMITS)
def test_a_kill_at_any_commit_of_a_compaction_leaves_one_chain(
    scene: Scene, text: str, label: str, nth: int, when: str
) -> None:
    killed_while_compacting(scene, text, f"{label}:{when}:{nth}")


def killed_while_compacting(scene: Scene, text: str, fault: str) -> None:
    with scene:
        scene.node.start()
        for question in ("one", "two"):
            scene.platform.say(CHAT, question)
            scene.until(f"to {question}")
        scene.node.stop()
        scene.platform.say(CHAT, text)
        scene.node.start(wait=False, KERYX_TEST_FAULT=fault)
        scene.node.end()
        assert scene.node.process.returncode == -9, f"{fault} never struck\n{scene.node.log[-2000:]}"
        scene.node.start()
        scene.until("Compacted." if text == "/compact" else f"to {text}")
        scene.platform.say(CHAT, "four")
        scene.until("to four")
        scene.node.stop()
        judge(scene, text)


def judge(scene: Scene, text: str) -> None:
    assert scene.keryx("verify").code == 0
    found = scene.messages()
    asked = [m["parts"][0]["text"] for m in found if m["role"] == "user"]
    assert asked == ["one", "two", *([text] if text == "three" else []), "four"]
    said = [m["parts"][0]["text"].split()[1] for m in found if m["role"] == "assistant" and not m.get("mark")]
    assert said == asked
    told = [m for m in found if m["parts"][0].get("kind") == DONE_KIND]
    assert [m["epoch"] for m in told] == list(range(1, len(told) + 1))
    assert told[0]["parts"][0]["text"] == SUMMARY
    shown = scene.shown()
    assert len(shown) == len(set(shown) - {format_marker(SUMMARY)}) + shown.count(format_marker(SUMMARY))
    assert shown.count(format_marker(SUMMARY)) <= len(told)
    answers = list(
        dict.fromkeys(
            t.removeprefix(REPEAT_MARK).split()[1] for t in scene.platform.texts(CHAT) if "to " in t[:12]
        )
    )
    assert answers == asked
    assert SUMMARY in str(scene.model.requests[-1]["messages"]) and scene.model.refused == []
