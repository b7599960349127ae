"""`keryx relay`: instances are added, given chats, listed and removed from the command line."""

import pytest
from tests.cli.driver import Cli

from keryx.core.ports.relay import parse_key


@pytest.fixture
def connector(keryx: Cli) -> Cli:
    return Cli(keryx.home, KERYX_RELAY_LISTEN="127.0.0.1:7338")


def test_a_key_is_shown_once(connector: Cli) -> None:
    added = connector.json("relay", "add", "anna", "--platform", "telegram", "--user", "4711")
    assert added["name"] == "anna" and parse_key(added["key"]).id
    [listed] = connector.json("relay", "list")["instances"]
    assert listed["rules"] == [{"platform": "telegram", "person": "4711"}]
    assert listed["key_id"] == parse_key(added["key"]).id
    shown = connector("relay", "list").out + connector("relay", "status").out + str(listed)
    assert "anna" in shown and added["key"] not in shown and parse_key(added["key"]).secret.hex() not in shown


def test_chats_are_assigned_and_released(connector: Cli) -> None:
    connector.ok("relay", "add", "anna")
    connector.ok("relay", "assign", "anna", "--platform", "slack", "--chat", "C1", "--chat", "C2")
    assert connector("relay", "add", "ben", "--platform", "slack", "--chat", "C1").code == 4
    connector.ok("relay", "release", "anna", "--platform", "slack", "--chat", "C1")
    connector.ok("relay", "add", "ben", "--platform", "slack", "--chat", "C1")
    rules = {x["name"]: x["rules"] for x in connector.json("relay", "list")["instances"]}
    assert rules == {
        "anna": [{"platform": "slack", "chat": "C2"}],
        "ben": [{"platform": "slack", "chat": "C1"}],
    }


def test_a_new_key_replaces_the_old_one(connector: Cli) -> None:
    old = connector.json("relay", "add", "anna")["key"]
    new = connector.json("relay", "renew", "anna")["key"]
    assert parse_key(old).id != parse_key(new).id
    [listed] = connector.json("relay", "list")["instances"]
    assert listed["key_id"] == parse_key(new).id


def test_an_instance_is_removed_after_a_yes(connector: Cli) -> None:
    connector.ok("relay", "add", "anna")
    assert connector("relay", "revoke", "anna").code != 0
    assert connector.json("relay", "revoke", "anna", "--yes") == {"name": "anna", "dropped": 0}
    assert "no instances" in connector("relay", "list").out
    assert connector("relay", "revoke", "anna", "--yes").code == 3


def test_chats_need_a_platform_and_names_are_plain(connector: Cli) -> None:
    refused = connector("relay", "add", "anna", "--user", "4711")
    assert refused.code != 0 and "--platform" in refused.err
    assert "lower-case" in connector("relay", "add", "Anna").err


def test_a_keryx_without_listen_says_how_to_become_a_connector(keryx: Cli) -> None:
    added = keryx("relay", "add", "anna", "--platform", "telegram")
    assert added.code == 0 and "listen" in added.err
    assert "neither" in keryx("relay", "status").out


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"KERYX_RELAY_LISTEN": "7338"}, "HOST:PORT"),
        ({"KERYX_RELAY_URL": "https://relay.example.org"}, "wss://"),
        ({"KERYX_RELAY_URL": "ws://relay.example.org"}, "not encrypted"),
        ({"KERYX_RELAY_KEY_FROM": "krx_0"}, "env:NAME"),
        ({"KERYX_RELAY_EVENTS": "0"}, "from 1 on"),
    ],
)
def test_wrong_settings_are_named(keryx: Cli, variables: dict[str, str], words: str) -> None:
    refused = Cli(keryx.home, **variables)("relay", "list")
    assert refused.code != 0 and words in refused.err


def test_an_instance_that_has_never_reached_its_connector_does_not_start(keryx: Cli) -> None:
    missing = Cli(keryx.home, KERYX_RELAY_URL="ws://127.0.0.1:9")("serve")
    assert missing.code != 0 and "KERYX_RELAY_KEY" in missing.err
    key = keryx.json("relay", "add", "anna")["key"]
    away = Cli(keryx.home, KERYX_RELAY_URL="ws://127.0.0.1:9", KERYX_RELAY_KEY=key)("serve")
    assert away.code != 0 and "cannot be reached" in away.err and key not in away.err
