"""The client of OpenAI for Node against a real node."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests import left_out
from tests.cli.driver import WAIT, Cli
from tests.node_libraries import Library
from tests.web.test_kills import WORDS
from tests.web.test_openai_api import PIXEL

SCRIPT = Path(__file__).parent / "openai_client.mjs"
KILL_SCRIPT = Path(__file__).parent / "openai_kill.mjs"


@pytest.fixture
def client() -> Path:
    return left_out.use_library(Library.OPENAI, "the client of OpenAI for Node") / "index.mjs"


def run_script(script: Path, *arguments: str) -> Any:
    done = subprocess.run(
        ["node", str(script), *arguments], capture_output=True, text=True, timeout=WAIT, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_client_for_node_streams_retries_and_goes_on(keryx: Cli, client: Path) -> None:
    with keryx.serving() as node:
        found = run_script(SCRIPT, str(client), node.address, PIXEL)
    assert found["repeated"] == "only once"
    assert found["connections"] == 2
    assert found["streamed"] == "one two three"
    assert found["response"] == "four five six"
    assert found["types"][0] == "response.created"
    assert found["types"][-1] == "response.completed"
    assert found["same"] is True
    assert found["items"] == ["user", "assistant", "user", "assistant"]
    assert found["error"] == [404, "NotFoundError"]
    titles = [s["session"]["title"] for s in keryx.json("sessions", "list")["sessions"]]
    assert sorted(titles) == ["four five six", "one two three", "only once"]


def test_the_client_for_node_continues_its_stream_after_a_kill(keryx: Cli, client: Path) -> None:
    with keryx.serving() as node:
        cut = run_script(KILL_SCRIPT, str(client), node.address, WORDS, str(node.process.pid))
        node.process.wait(WAIT)
    assert cut["error"]
    assert 0 < len(cut["text"]) < len(WORDS)
    with keryx.serving() as node:
        found = run_script(KILL_SCRIPT, str(client), node.address, WORDS, "", cut["id"], str(cut["last"]))
        sessions = keryx.json("sessions", "list", "--all")["sessions"]
    assert found["answer"].strip() == WORDS
    assert found["first"] > cut["last"]
    assert found["repeated"] == cut["id"]
    assert found["title"].startswith("### Task")
    assert len(sessions) == 1
