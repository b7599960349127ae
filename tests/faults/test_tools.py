"""A node with a real tool server is killed with -9 in the middle of a step: what had an effect has it once."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.endpoint import KEY, MODEL, Endpoint, answer, calls
from tests.fakes.platform import Platform
from tests.fakes.strict import Json
from tests.faults.node import Node

from keryx.core.messages import INTERRUPTED_OUTPUT

SERVER = Path(__file__).parents[1] / "agents" / "tool_server.py"
SECONDS = 60


class Scene:
    """A node, the model it asks, its tool server, and the platform it talks on."""

    def __init__(self, folder: Path, *scripts: list[Json]) -> None:
        self.runs = folder / "runs"
        self.gate = folder / "gate"
        self.platform = Platform()
        self.endpoint = Endpoint(*scripts)
        (folder / "keryx.toml").write_text(
            f'[[tools]]\nname = "test"\ncommand = ["{sys.executable}", "{SERVER}", "{self.runs}"]\n'
            '[permissions]\n"*" = "allow"\ntest_write = "ask"\n'
        )
        self._folder = folder

    def __enter__(self) -> "Scene":
        self.platform.__enter__()
        self.endpoint.__enter__()
        self.node = Node(
            self.platform.url,
            self._folder,
            KERYX_AGENT="llm",
            KERYX_LLM_BASE_URL=self.endpoint.base_url,
            KERYX_LLM_MODEL=MODEL,
            KERYX_LLM_API_KEY=KEY,
        )
        return self

    def __exit__(self, *exc: object) -> None:
        self.node.__exit__()
        self.endpoint.__exit__(None, None, None)
        self.platform.__exit__()

    def ran(self) -> list[str]:
        return self.runs.read_text().splitlines() if self.runs.exists() else []

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{self.ran()} {self.platform.texts('chat')}\n{self.node.log}"
            time.sleep(0.02)

    def results(self) -> dict[str, str]:
        """What the model was told in the end, by the id of the call."""
        # What comes after the answer, such as a request for a title, has no tools.
        asked = next(r for r in reversed(self.endpoint.requests) if r.get("tools"))
        return {m["tool_call_id"]: m["content"] for m in asked["messages"] if m["role"] == "tool"}


@pytest.fixture
def scene(tmp_path: Path) -> Callable[..., Scene]:
    return lambda *scripts: Scene(tmp_path, *scripts)


def test_a_kill_inside_a_step_runs_again_only_what_may_be_repeated(scene: Callable[..., Scene]) -> None:
    made = scene()
    gate = f'{{"path": "{made.gate}"}}'
    step = calls(("c1", "test_look", '{"q": "a"}'), ("c2", "test_wait", gate), ("c3", "test_stuck", gate))
    made.endpoint.scripts[:] = [step, answer("Done.")]
    with made:
        made.platform.say("chat", "go")
        made.node.start()
        made.until(lambda: len(made.ran()) == 3)
        # The finished call is stored before anything else can happen to it; its record takes a moment.
        time.sleep(1)
        made.node.kill()
        made.gate.touch()
        made.node.start()
        made.until(lambda: "Done." in made.platform.texts("chat"))
        assert sorted(made.ran()) == ["look a", "stuck", "wait", "wait"]
        assert made.results() == {"c1": "found a", "c2": "it is there", "c3": INTERRUPTED_OUTPUT}
        assert made.endpoint.refused == []


def test_a_call_that_waited_for_a_permission_had_not_begun(scene: Callable[..., Scene]) -> None:
    made = scene(calls(("c1", "test_write", '{"text": "x"}')), answer("Done."))
    with made:
        made.platform.say("chat", "go")
        made.node.start()
        made.until(lambda: any("May the agent use test_write?" in t for t in made.platform.texts("chat")))
        made.node.kill()
        made.platform.say("chat", "yes")
        made.node.start()
        made.until(lambda: "Done." in made.platform.texts("chat"))
        assert made.ran() == ["write x"]
        assert made.results() == {"c1": "wrote x"}


@pytest.mark.faults
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("label", ["question.ask", "question.take", "turn.progress"])
def test_the_process_dies_at_a_commit_of_a_step(scene: Callable[..., Scene], label: str, when: str) -> None:
    """Wherever it dies, a call that may not be repeated is run at most once, and the person gets an answer."""
    step = calls(("c1", "test_write", '{"text": "x"}'))
    # A step that was not stored is asked for again.
    unstored = [step] if (label, when) == ("turn.progress", "before") else []
    made = scene(*unstored, step, answer("Done."))
    with made:
        made.platform.say("chat", "go")
        made.node.start(wait=False, KERYX_TEST_FAULT=f"{label}:{when}:1")
        made.node.end()
        assert made.node.process.returncode == -9, f"the fault at {label} never struck"
        made.node.start()
        made.until(lambda: any("May the agent use" in t for t in made.platform.texts("chat")))
        made.platform.say("chat", "1")
        made.until(lambda: "Done." in made.platform.texts("chat"))
        assert made.ran() == ["write x"]
        assert made.results() == {"c1": "wrote x"}
        assert made.endpoint.refused == []
