"""Agents, as `keryx agents` shows them, and a conversation that goes on over processes."""

import sys
from pathlib import Path

import pytest
from tests.agents.acp.conversation import PLAYER
from tests.cli.driver import Cli


@pytest.fixture
def set_up(keryx: Cli) -> Cli:
    keryx.home.mkdir(parents=True, exist_ok=True)
    store = keryx.home / "store"
    store.mkdir()
    (keryx.home / "keryx.toml").write_text(f"""


[agents.player]
kind = "acp"
command = ["{sys.executable}", "{PLAYER}", "{store}"]
stall = "5m"

[agents.wanting]
kind = "acp"
command = ["{sys.executable}", "{PLAYER}", "{store}", "bad=login"]

[agents.gone]
kind = "acp"
command = ["/no/such/program"]

[agents.copying]
kind = "acp"
command = ["cat"]

[profiles.quiet]
agent = "echoing"

[agents.echoing]
kind = "echo"
rules = [{{ platform = "telegram", chat = -42 }}]
""")
    keryx.variables["KERYX_AGENT"] = "player"
    return keryx


def test_a_list_shows_who_answers_where(set_up: Cli) -> None:
    shown = set_up("agents", "list").out.splitlines()
    assert shown[0].startswith("player (default) · ")
    assert shown[-1] == "echoing (profile quiet, platform telegram chat -42) · echo"


def test_a_check_shows_what_an_agent_can_do(set_up: Cli) -> None:
    done = set_up("agents", "check", "player")
    assert done.code == 0
    assert "Player 1.2" in done.out and "small, large" in done.out and "pictures" in done.out
    assert set_up.json("agents", "check", "player")["abilities"]["resume"] is True


def test_a_login_that_is_missing_is_told_with_what_to_run(set_up: Cli) -> None:
    done = set_up("agents", "check", "wanting")
    assert done.code == 1 and "bad=login login" in done.out.replace("\n", "")


def test_a_check_waits_as_long_as_it_is_told_to(set_up: Cli) -> None:
    assert set_up("agents", "check", "player", "--timeout", "1m").code == 0
    assert "did not answer within 0.001 s" in set_up("agents", "check", "player", "--timeout", "0.001s").out
    for wrong in ("0s", "60"):
        told = set_up("agents", "check", "player", "--timeout", wrong)
        assert told.code == 2 and f"--timeout {wrong} is not a time to wait. Write 30s" in told.err


def test_a_program_that_is_missing_is_told(set_up: Cli) -> None:
    done = set_up("agents", "check", "gone")
    assert done.code == 1 and "there is no program '/no/such/program'" in done.out


def test_a_program_that_copies_its_input_is_told_apart_from_an_agent(set_up: Cli) -> None:
    done = set_up("agents", "check", "copying")
    assert done.code == 1 and "does not speak the Agent Client Protocol (ACP)" in done.out
    assert "The agent copying does not work: it repeats" in done.out and "/retry" not in done.out


def test_an_agent_that_is_not_configured_is_refused(set_up: Cli) -> None:
    assert "keryx agents list" in set_up("agents", "check", "nobody").err
    assert "parameter NAME requires an argument" in set_up("agents", "check").err
    assert "part of Keryx" in set_up("agents", "check", "echoing").err


def test_a_conversation_goes_on_in_another_process(set_up: Cli, tmp_path: Path) -> None:
    first = set_up.json("send", "--wait", "remember this")
    heard = set_up("send", "--wait", "--session", first["session"], "history").out
    before, _, asked = heard.strip().rpartition(" | ")
    assert before.endswith("\nremember this") and asked.endswith("\nhistory")
