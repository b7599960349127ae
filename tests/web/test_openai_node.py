"""The client of OpenAI for Node against a real node."""

import json
import subprocess
from pathlib import Path

import pytest
from tests import left_out
from tests.acp.sdk import Missing, library
from tests.cli.driver import WAIT, Cli
from tests.web.test_openai_api import PIXEL

SCRIPT = Path(__file__).parent / "openai_client.mjs"
VERSION = "6.49.0"


@pytest.fixture
def client() -> Path:
    try:
        return library("openai", VERSION) / "index.mjs"
    except Missing as exc:
        left_out.skip("the client of OpenAI for Node", why=str(exc), command=left_out.NODE)


def test_the_client_for_node_streams_retries_and_goes_on(keryx: Cli, client: Path) -> None:
    with keryx.serving() as node:
        done = subprocess.run(
            ["node", str(SCRIPT), str(client), node.address, PIXEL],
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
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
