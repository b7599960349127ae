"""Tools and their servers, as `keryx tools` shows them."""

import sys
from pathlib import Path

import pytest
from tests.cli.driver import Cli

SERVER = Path(__file__).parents[2] / "agents" / "tool_server.py"
FILE = f"""
[[tools]]
name = "test"
command = ["{sys.executable}", "{SERVER}", "runs"]
timeout = "5s"
env = {{ TOOL_SECRET = "text:s3cret" }}

[[tools]]
name = "gone"
command = ["/no/such/program"]

[[tools]]
name = "far"
url = "https://me:s3cret@far.example/mcp?key=s3cret"

[permissions]
"test_*" = "allow"

[permissions.gateway]
"test_*" = "deny"
"""


@pytest.fixture
def set_up(keryx: Cli) -> Cli:
    (keryx.home).mkdir(parents=True, exist_ok=True)
    (keryx.home / "keryx.toml").write_text(FILE)
    return keryx


def test_a_list_starts_nothing(set_up: Cli) -> None:
    shown = set_up.ok("tools", "list").out
    assert "search_conversations (allow, repeatable)" in shown and "send_message (ask)" in shown
    assert "gone · /no/such/program" in shown and "far · https://far.example/mcp\n" in shown


def test_a_check_shows_tools_and_errors(set_up: Cli) -> None:
    result = set_up("tools", "check", "test", "gone")
    assert result.code == 1
    assert "test_look (allow, repeatable) Look something up." in result.out
    assert "does not work now: there is no program '/no/such/program'." in result.out
    (test,) = set_up.json("tools", "check", "test", "--surface", "gateway")["tools"]
    assert {t["permission"] for t in test["tools"]} == {"deny"}


def test_tools_that_are_not_there(set_up: Cli) -> None:
    result = set_up("tools", "check", "nothing")
    assert result.code and "there are no tools 'nothing'" in result.err


def test_settings_show_no_secret_of_a_server(set_up: Cli) -> None:
    for arguments in (("config",), ("config", "--json"), ("tools", "list", "--json")):
        assert "s3cret" not in set_up.ok(*arguments).out


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[[tools]]\nname = "keryx"\ncommand = ["x"]', "tools[0].name = 'keryx' is taken"),
        ('[[tools]]\nname = "x"\ncommand = ["x"]\ntimeout = "soon"', "is not a duration"),
        ('[[tools]]\nname = "x"\ncommand = ["x"]\nheaders = { A = "b" }', "not the value itself"),
        ('[[tools]]\nname = "x"\ncommand = ["x"]\npolicy = "perhaps"', "perhaps"),
        ('[permissions]\n"x_*" = "maybe"', "maybe"),
    ],
)
def test_a_wrong_setting_is_named(keryx: Cli, text: str, why: str) -> None:
    keryx.home.mkdir(parents=True, exist_ok=True)
    (keryx.home / "keryx.toml").write_text(text)
    result = keryx("tools", "list")
    assert result.code and why in result.err
