"""Clients of agent protocols for Node against a real node: AG-UI's own, and the conformance suite and the inspector of MCP."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from tests import left_out
from tests.cli.driver import WAIT, Cli
from tests.node_libraries import Library, find_node

# Those that need no tools, prompts or resources made for the suite; the how-to says why the others fail.
SCENARIOS = ("server-initialize", "ping", "tools-list", "dns-rebinding-protection")


def use(library: Library) -> Path:
    return left_out.use_library(library, "clients of agent protocols for Node")


def mcp_node() -> str:
    """Return the Node that runs the programs of MCP."""
    return find_node() or str(use(Library.NODE) / "bin" / "node")


def run(*command: str, **variables: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT, check=False, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_client_of_ag_ui_runs_repeats_and_goes_on(keryx: Cli) -> None:
    client = use(Library.AG_UI) / "dist" / "index.mjs"
    with keryx.serving() as node:
        script = Path(__file__).parent / "ag_ui_client.mjs"
        found = json.loads(run("node", str(script), str(client), node.address))
    assert (found["first"], found["second"]) == ("one two three", "four")
    assert (found["types"][0], found["types"][-1]) == ("RUN_STARTED", "RUN_FINISHED")
    assert found["same"] is True
    assert found["cut"] is True
    assert found["whole"] == "alpha beta gamma delta epsilon"
    assert "there is no model" in found["error"]
    assert len(keryx.json("sessions", "list")["sessions"]) == 2


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_conformance_suite_of_mcp_passes(keryx: Cli, scenario: str) -> None:
    suite = use(Library.CONFORMANCE) / "dist" / "index.js"
    with keryx.serving() as node:
        told = run(mcp_node(), str(suite), "server", "--url", f"{node.address}/mcp", "--scenario", scenario)
    assert "0 failed, 0 warnings" in told


def test_every_scenario_of_the_conformance_suite_is_run_or_explained() -> None:
    suite = use(Library.CONFORMANCE) / "dist" / "index.js"
    listed = re.findall(r"^ +- ([a-z0-9-]+) ", run(mcp_node(), str(suite), "list", "--server"), re.MULTILINE)
    told = (Path(__file__).parents[2] / "docs" / "how-to" / "agent-protocols.md").read_text()
    assert set(SCENARIOS) < set(listed)
    assert [name for name in listed if f"`{name}`" not in told] == []


def test_the_inspector_of_mcp_lists_and_calls_tools(keryx: Cli) -> None:
    inspector = use(Library.INSPECTOR)
    entry = inspector / json.loads((inspector / "package.json").read_text())["bin"]["mcp-inspector"]
    with keryx.serving() as node:
        command = (mcp_node(), str(entry), "--cli", f"{node.address}/mcp", "--transport", "http", "--method")
        home = str(keryx.home)
        listed = json.loads(run(*command, "tools/list", HOME=home))
        said = ("--tool-name", "say_in_conversation", "--tool-arg", "text=hello")
        answered = json.loads(run(*command, "tools/call", *said, HOME=home))
    assert [tool["name"] for tool in listed["tools"]][-1] == "say_in_conversation"
    assert answered["content"][0]["text"] == "hello"
