"""A node is killed with -9 while messages stream in and answers go out."""

from pathlib import Path

import pytest
from tests.fakes.platform import BETWEEN_PARTS, Platform
from tests.faults.node import Node
from tests.faults.storm import Storm

from keryx.core.deliveries import REPEAT_MARK
from keryx.testing.fault_injection import PlatformFaults

ROUGH = PlatformFaults(duplicate=0.05, throttle=0.02, broken=0.02, lost_reply=0.02)


def test_a_few_kills_lose_nothing_and_double_nothing_on_sqlite(tmp_path: Path) -> None:
    with Platform(ROUGH, seed=7) as platform, Node(platform.url, tmp_path) as node:
        report = Storm(platform, node, seed=7).run(8, between=(0.05, 0.6))
    assert report.clean, f"{report}\n{report.lost[:5]} {report.silent_duplicates[:5]} {report.inversions[:5]}"
    assert report.said > 20


@pytest.mark.faults
def test_a_few_kills_lose_nothing_and_double_nothing_on_postgresql(tmp_path: Path, own_postgres: str) -> None:
    with Platform(ROUGH, seed=8) as platform, Node(platform.url, tmp_path, database=own_postgres) as node:
        report = Storm(platform, node, seed=8).run(6, between=(0.05, 0.6))
    assert report.clean, f"{report}\n{report.lost[:5]} {report.silent_duplicates[:5]} {report.inversions[:5]}"
    assert report.said > 20


@pytest.mark.faults
def test_a_platform_with_its_own_keys_shows_no_repeat_at_all(tmp_path: Path) -> None:
    faults = PlatformFaults(duplicate=0.05, lost_reply=0.1)
    with Platform(faults, seed=9, idempotent=True) as platform:
        with Node(platform.url, tmp_path, KERYX_TEST_NATIVE="1") as node:
            report = Storm(platform, node, seed=9).run(5, between=(0.05, 0.6))
    assert report.clean, str(report)
    assert report.marked == 0


LABELS = (
    "receive",
    "turn.claim",
    "turn.progress",
    "turn.finish",
    "delivery.claim",
    "delivery.part",
    "delivery.settle",
)


@pytest.mark.faults
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("label", LABELS)
def test_the_process_dies_at_a_commit(tmp_path: Path, label: str, nth: int, when: str) -> None:
    answers = [f"message {n}{BETWEEN_PARTS}more of {n}" for n in range(5)]
    expected = [part for text in answers for part in text.split(BETWEEN_PARTS)]
    with Platform() as platform, Node(platform.url, tmp_path) as node:
        for text in answers:
            # What comes at once is stored with the end of its turn; only a slow answer makes progress before.
            platform.say("chat", f"slow 0.5 {text}")
        node.start(wait=False, KERYX_TEST_FAULT=f"{label}:{when}:{nth}")
        node.end()
        assert node.process.returncode == -9, f"the fault at {label} never struck"
        node.start()
        platform.wait_for(
            lambda: {s.text.removeprefix(REPEAT_MARK) for s in platform.shown} >= set(expected), 30
        )
        node.kill()
        shown = platform.texts("chat")
    assert list(dict.fromkeys(text.removeprefix(REPEAT_MARK) for text in shown)) == expected
    unmarked = [text for text in shown if not text.startswith(REPEAT_MARK)]
    assert len(unmarked) == len(set(unmarked))
