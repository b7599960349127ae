"""A node whose event loop stands still: the log tells where, the process ends by setting, and a signal ends it in any case."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.driver import WAIT, Cli, Node
from tests.cli.hostile_agents import configure_hostile_agent

from keryx import config
from keryx.cli import watchdog_process
from keryx.core.errors import Invalid
from keryx.process_group import list_descendants

ROOT = Path(__file__).parents[3]
# A kill by the watchdog is what the supervisor of a node sees.
KILLED = -signal.SIGKILL
# What stands in a report of the turn that blocks the loop. Before it comes, a busy machine may have led to others.
AGENT = "hostile_agents.py"
QUICK = {
    "KERYX_WATCHDOG_REPORT": "1s",
    "KERYX_WATCHDOG_EXIT": "0s",
    "KERYX_WATCHDOG_STOP": "1s",
    "KERYX_DRAIN": "0.2s",
    "KERYX_LIMITS_SETTLE": "0s",
    "PYTHONPATH": str(ROOT),
}


@contextmanager
def serving(keryx: Cli, agent: str, **variables: str) -> Generator[Node]:
    chosen = configure_hostile_agent(keryx.home, agent)
    with keryx.serving(**QUICK | variables | chosen) as node:
        yield node


def read_until(node: Node, words: str) -> str:
    """Read the log of a node up to a line with these words."""
    assert node.process.stderr
    text = ""
    for line in node.process.stderr:
        text += line
        if words in line:
            return text
    raise AssertionError(text)


@pytest.mark.parametrize("agent", ["expression", "busy"])
def test_the_log_tells_where_a_blocked_loop_stands(keryx: Cli, agent: str) -> None:
    with serving(keryx, agent) as node:
        keryx.ok("send", "freeze")
        text = read_until(node, AGENT)
    assert "the event loop has not turned for" in text
    assert "most recent call first" in text


def test_the_report_has_the_format_of_the_log(keryx: Cli) -> None:
    with serving(keryx, "expression", KERYX_LOG_FORMAT="json") as node:
        keryx.ok("send", "freeze")
        entry = json.loads(read_until(node, AGENT).splitlines()[-1])
    assert entry["level"] == "error"
    assert "not turned" in entry["message"]
    assert AGENT in entry["error"]


@pytest.mark.parametrize("agent", ["expression", "busy"])
def test_a_signal_ends_a_node_whose_loop_is_blocked(keryx: Cli, agent: str) -> None:
    with serving(keryx, agent) as node:
        keryx.ok("send", "freeze")
        read_until(node, AGENT)
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(WAIT) == KILLED
        assert "did not end in time" in read_until(node, "killed")


def test_a_signal_ends_a_node_that_is_stuck_in_its_end(keryx: Cli) -> None:
    with serving(keryx, "stuck_end", KERYX_WATCHDOG_REPORT="0s") as node:
        keryx.ok("send", "freeze")
        keryx.until("running", "turns")
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(WAIT) == KILLED


def test_a_second_signal_does_not_wait_for_a_blocked_loop(keryx: Cli) -> None:
    with serving(keryx, "expression", KERYX_WATCHDOG_STOP="1h") as node:
        keryx.ok("send", "freeze")
        read_until(node, AGENT)
        node.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        node.process.send_signal(signal.SIGINT)
        assert node.process.wait(WAIT) == KILLED


def test_a_message_that_freezes_the_node_is_set_aside(keryx: Cli) -> None:
    session = keryx.json("send", "freeze")["session"]
    agent = {**configure_hostile_agent(keryx.home, "expression"), "KERYX_WATCHDOG_EXIT": "2s"}
    for _ in range(3):
        process = keryx.start("serve", **QUICK | agent)
        process.communicate(timeout=WAIT)
        assert process.returncode == KILLED
    with serving(keryx, "expression", KERYX_WATCHDOG_EXIT="2s") as node:
        keryx.until("set aside", "sessions", "show", session)
        other = keryx.json("send", "hello")["session"]
        keryx.until("working is done", "sessions", "show", other)
        assert node.process.poll() is None


def test_a_suspended_node_is_not_killed(keryx: Cli) -> None:
    with serving(keryx, "expression", KERYX_WATCHDOG_EXIT="1s") as node:
        node.process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        node.process.send_signal(signal.SIGCONT)
        assert keryx.json("send", "--wait", "hello")["session"]
        assert node.process.poll() is None


def test_a_signal_shows_where_a_healthy_node_stands(keryx: Cli) -> None:
    with serving(keryx, "expression") as node:
        os.kill(node.process.pid, signal.SIGUSR2)
        assert "where every thread stands" in read_until(node, "_run_writer")
        assert node.process.poll() is None


def test_the_signal_for_a_dump_ends_no_node_that_is_not_watched(keryx: Cli) -> None:
    with serving(keryx, "expression") as node:
        (watcher,) = list_descendants(node.process.pid)
        os.kill(watcher, signal.SIGKILL)
        read_until(node, "has ended, and is started again")
        os.kill(node.process.pid, signal.SIGUSR2)
        assert keryx.json("send", "--wait", "hello")["session"]
        assert node.process.poll() is None


def test_a_full_disk_for_the_log_does_not_end_the_watching() -> None:
    readers, writers = zip(*(os.pipe() for _ in range(3)), strict=True)
    limits = ("0", "0", "0", "text")
    with open("/dev/full", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, watchdog_process.__file__, *map(str, readers), *limits],
            pass_fds=readers,
            stderr=log,
        )
    for reader in readers:
        os.close(reader)
    # It logs the first half of this before it reads the second, and the pipe holds neither.
    with os.fdopen(writers[2], "wb") as dumps:
        dumps.write(b"." * 400_000)
    os.close(writers[0])
    assert process.wait(WAIT) == 0
    os.close(writers[1])


def test_a_wrong_limit_is_refused() -> None:
    with pytest.raises(Invalid, match="at least 1s"):
        config.read({"KERYX_WATCHDOG_STOP": "0s", "KERYX_HOME": "/nowhere"})
