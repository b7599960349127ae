"""A node that strangers and its own guests try to starve: it lives, says so briefly, and serves the others."""

import json
import os
import resource
import socket
import subprocess
import time
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from tests.cli.driver import WAIT, Cli, Node, end
from tests.cli.hostile_agents import ENOUGH, configure_hostile_agent
from tests.fork_server import build_command

ROOT = Path(__file__).parents[3]


@contextmanager
def serving(keryx: Cli, log: Path, *, descriptors: int, **variables: str) -> Generator[Node]:
    """A node that may open this many files. Its log goes to a file."""
    limited = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(descriptors), *build_command("serve", "--json")]
    with log.open("w") as errors:
        process = subprocess.Popen(
            limited,
            env=keryx.environment(PYTHONPATH=str(ROOT), **variables),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout
        try:
            yield Node(process, json.loads(process.stdout.readline())["address"])
        finally:
            end(process)


def is_healthy(node: Node) -> bool:
    with urllib.request.urlopen(f"{node.address}/healthz", timeout=WAIT) as answer:
        return answer.status == 200


def connect(node: Node) -> socket.socket:
    host, _, port = node.address.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WAIT)


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + WAIT
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_silent_connections_do_not_end_a_node(keryx: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    try:
        with serving(keryx, log, descriptors=512) as node, ExitStack() as stack:
            for _ in range(700):
                stack.enter_context(connect(node))
            assert is_healthy(node)
            assert keryx.json("send", "--wait", "hello")["session"]
            open_files = len(os.listdir(f"/proc/{node.process.pid}/fd")) if Path("/proc").is_dir() else 0
            assert open_files < 350
            assert node.process.poll() is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(log.read_text().splitlines()) < 5


def test_a_node_without_a_free_descriptor_lives_on(keryx: Cli, tmp_path: Path) -> None:
    log, enough = tmp_path / "log", tmp_path / "enough"
    agent = {**configure_hostile_agent(keryx.home, "descriptors"), ENOUGH: str(enough)}
    with serving(keryx, log, descriptors=200, KERYX_LIMITS_LEASE="3s", **agent) as node:
        with httpx.Client(base_url=node.address, timeout=20) as browser:
            session = browser.post("/api/sessions", json={"text": "take"}).json()["session"]
            wait_for(Path(f"{enough}.taken"))
            # The sweeps, which read /proc, come several times.
            waiting = [connect(node) for _ in range(5)]
            time.sleep(4)
            assert browser.get("/healthz").status_code == 200
            assert browser.get(f"/api/sessions/{session}").status_code == 200
            enough.touch()
            keryx.until("all given back", "sessions", "show", session)
            for client in waiting:
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert client.recv(12) == b"HTTP/1.1 200"
                client.close()
        assert is_healthy(node)
        assert node.process.poll() is None
    text = log.read_text()
    assert "Too many open files" in text
    assert len(text.splitlines()) < 100
