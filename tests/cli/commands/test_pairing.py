"""`keryx pairing`: strangers at a real node are let in and sent away from the command line."""

import re
from collections.abc import Iterator

import pytest
from tests.cli.driver import WAIT, Cli
from tests.fakes.platform import Platform
from tests.faults.node import Node

from keryx.core.deliveries import REPEAT_MARK


@pytest.fixture
def platform() -> Iterator[Platform]:
    with Platform() as platform:
        yield platform


@pytest.fixture
def node(keryx: Cli, platform: Platform) -> Iterator[Node]:
    """A node that knows nobody."""
    with Node(platform.url, keryx.home, KERYX_FAKE_ALLOW="nobody") as node:
        node.start()
        yield node


def wait_for_texts(platform: Platform, count: int) -> list[str]:
    """What a person sees, without what a killed node had to repeat."""

    def texts() -> list[str]:
        return [s.text for s in platform.shown if not s.text.startswith(REPEAT_MARK)]

    assert platform.wait_for(lambda: len(texts()) >= count, WAIT), platform.shown
    return texts()


def test_a_stranger_is_let_in_by_code_and_sent_away_again(keryx: Cli, platform: Platform, node: Node) -> None:
    platform.say("42", "hello?", user="ann")
    found = re.search(r"keryx (pairing approve fake [A-Z2-9]{8})\n", wait_for_texts(platform, 1)[0])
    assert found
    node.kill()
    waiting = keryx.json("pairing", "list")["waiting"]
    assert [(p["platform"], p["person"]) for p in waiting] == [("fake", "ann")]
    assert "1 person waits" in keryx("doctor").out
    assert keryx("pairing", "approve", "fake", "AAAAAAAA").code == 3
    assert "ann may talk on fake now" in keryx.ok(*found[1].split()).out
    node.start()
    platform.say("42", "hello again", user="ann")
    assert wait_for_texts(platform, 3)[1:] == [
        "You have access now. Say something; /help lists the commands.",
        "hello again",
    ]
    assert "in since" in keryx.ok("pairing").out
    keryx.ok("pairing", "revoke", "fake", "ann")
    platform.say("42", "and now?", user="ann")
    assert "keryx pairing approve" in wait_for_texts(platform, 4)[-1]
    assert keryx.json("pairing", "deny", "fake", "ann")["result"] == "Forgotten."
    assert keryx("pairing", "deny", "fake", "ann").code == 3
    assert keryx.ok("pairing", "clear").out == "0 forgotten.\n"
    assert keryx.json("pairing", "clear", "fake") == {"forgotten": 0}
    assert "hello?" not in (keryx.home / "keryx.db").read_bytes().decode("latin-1")


def test_who_may_talk_is_shown_and_can_be_set_by_a_variable(keryx: Cli) -> None:
    keryx.variables["KERYX_TELEGRAM_ALLOW"] = "7, 8"
    found = keryx.json("config")["settings"]["access.telegram.allow"]
    assert found == {"value": ["7", "8"], "source": "KERYX_TELEGRAM_ALLOW"}
    keryx.session()
    assert "telegram: 2 listed, 0 by pairing" in keryx("doctor").out
    assert "unknown setting" not in keryx("doctor").out


def test_doctor_shows_the_roles_that_let_people_in(keryx: Cli) -> None:
    keryx.session()
    (keryx.home / "keryx.toml").write_text('[access.webhook]\nroles = ["support", "sales"]\n')
    assert "webhook: 0 listed, 0 by pairing, roles: support, sales, no groups" in keryx("doctor").out


def test_ids_may_be_written_as_numbers_and_wrong_rules_are_refused(keryx: Cli) -> None:
    keryx.home.mkdir(parents=True)
    file = keryx.home / "keryx.toml"
    file.write_text("[access.telegram]\nallow = [7]\ngroups = [-100, '*']\n")
    assert keryx.json("config")["settings"]["access.telegram.groups"]["value"] == ["-100", "*"]
    file.write_text("[access.local]\nroles = ['boss']\n")
    for command in (("serve", "--port", "0"), ("doctor",)):
        told = keryx(*command)
        assert "there are no roles on local" in told.out + told.err and told.code != 0
    file.write_text("[access.telegram]\noperators = ['*']\n")
    assert "name each person by id" in keryx("config").err
    file.write_text("[access.telegram]\nalow = [7]\n")
    assert "alow" in keryx("config").err
    file.write_text("[profiles.main]\ninstructions = 'x'\n")
    assert "profile name" in keryx("config").err
