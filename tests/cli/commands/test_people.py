"""`keryx people`: who has talked, and everything of one of them."""

import json
from collections.abc import Iterator

import pytest
from tests.cli.driver import WAIT, Cli
from tests.fakes.platform import Platform
from tests.faults.node import Node


@pytest.fixture
def keryx_with_people(keryx: Cli) -> Iterator[Cli]:
    """Two people have talked to a node that is gone now."""
    with Platform() as platform, Node(platform.url, keryx.home) as node:
        node.start()
        platform.say("1", "the plan of ann", user="@ann:example.org")
        platform.say("2", "the plan of bob", user="bob")
        assert platform.wait_for(lambda: len(platform.shown) >= 2, WAIT)
        node.stop()
        yield keryx


def test_people_are_listed_shown_linked_and_cut(keryx_with_people: Cli) -> None:
    found = keryx_with_people.json("people", "list")["people"]
    assert sorted(p["principal"]["identities"][0]["person"] for p in found) == ["@ann%3Aexample.org", "bob"]
    assert "bob" in keryx_with_people.ok("people").out
    assert keryx_with_people.json("people", "show", "fake:@ann:example.org")["sessions"] == 1
    assert "one person now" in keryx_with_people.ok("people", "link", "fake:bob", "fake:@ann:example.org").out
    assert keryx_with_people.json("people", "show", "fake:bob")["sessions"] == 2
    assert "known as" in keryx_with_people.ok("people", "show", "fake:bob").out
    keryx_with_people.ok("people", "unlink", "fake:bob")
    assert keryx_with_people.json("people", "show", "fake:bob")["sessions"] == 1
    assert keryx_with_people("people", "unlink", "fake:bob").code == 4
    assert keryx_with_people("people", "show", "fake:carl").code == 3
    assert "PLATFORM:ID" in keryx_with_people("people", "show", "carl").err
    keryx_with_people.ok("verify")


def test_everything_of_a_person_leaves_and_is_erased(keryx_with_people: Cli) -> None:
    lines = keryx_with_people.ok("people", "export", "fake:bob").out.splitlines()
    records = [json.loads(line)["record"] for line in lines]
    assert records[:3] == ["person", "header", "session"] and "message" in records
    assert "plan of bob" in "".join(lines) and "plan of ann" not in "".join(lines)
    assert "needs a yes" in keryx_with_people("people", "erase", "fake:bob").err
    keryx_with_people.ok("people", "erase", "fake:bob", "--yes")
    assert keryx_with_people("people", "show", "fake:bob").code == 3
    assert [s["session"]["title"] for s in keryx_with_people.json("sessions", "list")["sessions"]] == [
        "the plan of ann"
    ]
    assert keryx_with_people.ok("people", "export", "fake:@ann:example.org").out
    keryx_with_people.ok("verify")
