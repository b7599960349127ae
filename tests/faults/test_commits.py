"""A node dies with -9 at the commits of its chores: begun again, its store is in order and each answer is there once."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.fakes.platform import Platform
from tests.faults.node import Node

from keryx.core.deliveries import REPEAT_MARK
from keryx.store.admin.verify import StoreProblem, verify
from keryx.store.db.sqlite import SqliteDatabase

CHAT = "chat"
SECONDS = 30


@dataclass(frozen=True, slots=True)
class Case:
    """What is said before the node that dies is started, and what is shown in the end. A life before that ends at a
    commit, too, if one is named. `reply` is said once the node is there again."""

    said: Sequence[str]
    shown: Sequence[str]
    before: str = ""
    reply: str = ""


# What every node writes while it starts.
STARTING = (
    "salt",
    "leases.renew",
    "workers.forget",
    "connections.put",
    "final.take",
    "inbox.trim",
    "feed.trim",
    "gates.trim",
    "previews.trim",
    "sign_ins.trim",
    "codes.trim",
    "runs.trim",
    "lanes.drop",
    "media.let_go",
)
QUESTION = "May the echo agent go on?"
CASES = {
    **dict.fromkeys(STARTING, Case(["hello"], ["hello"])),
    "turn.fail": Case(["!fail No luck."], ["No luck."]),
    "turn.hold": Case(["!limit 4"], ["The limit of echo", "The limit has reset."]),
    # Once it was given, it belongs to what was asked, and the next attempt has it from the beginning.
    "turn.steer": Case(["!wait 2", "/steer left"], ["Waiting. "]),
    "turn.recover": Case(["slow 1 hello there"], ["hello there"], before="turn.progress:after:1"),
    "delivery.recover": Case(["hello"], ["hello"], before="delivery.settle:before:1"),
    "question.ask": Case(["!ask rm"], [QUESTION, "Answered: allow"], reply="1"),
    "question.take": Case(["!ask rm"], [QUESTION, "Answered: allow"], reply="1"),
    "job.begin": Case(["/jobs add {soon} news"], ["news"]),
}


@pytest.mark.faults
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("label", CASES)
def test_a_node_that_died_at_a_commit_goes_on(tmp_path: Path, label: str, when: str) -> None:
    case = CASES[label]
    soon = (datetime.now(UTC) + timedelta(seconds=10)).strftime("%Y-%m-%dT%H:%M:%S")
    with Platform() as platform, Node(platform.url, tmp_path) as node:
        for text in case.said:
            platform.say(CHAT, text.format(soon=soon))
        if case.before:
            died(node, case.before)
        died(node, f"{label}:{when}:1")
        node.start()
        for text in case.shown:
            assert platform.wait_for(lambda text=text: showing(platform, text), SECONDS), platform.texts(CHAT)
            if case.reply and text == case.shown[0]:
                platform.say(CHAT, case.reply)
        node.kill()
        unmarked = [text for text in platform.texts(CHAT) if not text.startswith(REPEAT_MARK)]
    assert len(unmarked) == len(set(unmarked))
    assert asyncio.run(problems(tmp_path / "keryx.db")) == []


def died(node: Node, fault: str) -> None:
    node.start(wait=False, KERYX_TEST_FAULT=fault)
    node.end()
    assert node.process.returncode == -9, f"the fault {fault} never struck"


def showing(platform: Platform, text: str) -> bool:
    return any(text in shown.text for shown in platform.shown if shown.chat == CHAT)


async def problems(store: Path) -> list[StoreProblem]:
    async with SqliteDatabase(store) as database:
        return await verify(database)
