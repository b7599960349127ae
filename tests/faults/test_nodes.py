"""Several nodes on one PostgreSQL, and several processes on one SQLite file."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from tests import left_out
from tests.builders import limit
from tests.fakes.platform import Platform
from tests.faults.node import Node
from tests.faults.tcp_proxy import TcpProxy
from tests.postgres import Server, Unstartable

from keryx.core.deliveries import REPEAT_MARK

LEASE = 2.0


@pytest.fixture
def server() -> Iterator[Server]:
    """A PostgreSQL of this test's own, to be killed."""
    try:
        server = Server()
    except Unstartable as exc:
        left_out.skip("tests on PostgreSQL", why=str(exc), command=left_out.POSTGRES)
    server.start()
    yield server
    server.remove()


def nodes(stack: ExitStack, platform: Platform, tmp_path: Path, count: int, database: str) -> list[Node]:
    made: list[Node] = []
    for number in range(count):
        home = tmp_path / f"node{number}"
        home.mkdir(parents=True)
        node = Node(
            platform.url, home, database=database, KERYX_LIMITS_LEASE=f"{LEASE:g}s", PYTHONHASHSEED="0"
        )
        made.append(stack.enter_context(node))
        node.start()
    return made


def at_work(server: Server, made: Sequence[Node]) -> Node:
    """The first of the nodes that is seen to run a turn."""
    running = "select w.pid from turns t join workers w on w.id = t.worker where t.state = 'running'"
    until = time.monotonic() + 60
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        while time.monotonic() < until:
            pids = {row[0] for row in connection.execute(running)}
            if found := [node for node in made if node.process.pid in pids]:
                return found[0]
            time.sleep(0.02)
    raise AssertionError("nobody runs a turn")


def answered(platform: Platform) -> set[str]:
    return {s.text.removeprefix(REPEAT_MARK) for s in platform.shown}


def unmarked(platform: Platform) -> list[str]:
    return [s.text for s in platform.shown if not s.text.startswith(REPEAT_MARK)]


@pytest.mark.faults
def test_nodes_share_the_work_and_double_nothing(tmp_path: Path, server: Server) -> None:
    texts = [f"chat {n % 10} message {n}" for n in range(100)]
    with Platform() as platform, ExitStack() as stack:
        nodes(stack, platform, tmp_path, 3, server.dsn)
        for n, text in enumerate(texts):
            platform.say(f"chat-{n % 10}", text)
        assert platform.wait_for(lambda: answered(platform) >= set(texts), 60)
        time.sleep(1)
        assert sorted(s.text for s in platform.shown) == sorted(texts)
        for chat in range(10):
            assert platform.texts(f"chat-{chat}") == [t for t in texts if t.startswith(f"chat {chat} ")]


def test_another_node_takes_over_from_one_that_died(tmp_path: Path, server: Server) -> None:
    with Platform() as platform, ExitStack() as stack:
        made = nodes(stack, platform, tmp_path, 2, server.dsn)
        platform.say("chat", "slow 3 one two three")
        at_work(server, made).kill()
        alone = time.monotonic()
        left = next(node for node in made if node.process.poll() is None)
        assert platform.wait_for(lambda: len(platform.shown) == 1, 60), left.log[-2000:]
        assert time.monotonic() - alone < limit(LEASE + 5 + 3 + 2)
        time.sleep(1)
    assert [s.text for s in platform.shown] == ["one two three"]


@pytest.mark.faults
def test_a_node_that_hangs_past_its_lease_doubles_nothing_when_it_wakes(
    tmp_path: Path, server: Server
) -> None:
    texts = [f"slow 2 word{n} word{n}" for n in range(6)]
    with Platform() as platform, ExitStack() as stack:
        made = nodes(stack, platform, tmp_path, 2, server.dsn)
        for n, text in enumerate(texts):
            platform.say(f"chat-{n}", text)
        at_work(server, made).pause(LEASE + 3)
        assert platform.wait_for(lambda: len(answered(platform)) == 6, 60), made[1].log[-2000:]
        time.sleep(3)
        assert len(unmarked(platform)) == len(set(unmarked(platform)))
        assert answered(platform) == {f"word{n} word{n}" for n in range(6)}
        assert all(node.process.poll() is None for node in made)


@pytest.mark.faults
@pytest.mark.parametrize("silently", [False, True], ids=["ended", "silent"])
def test_a_node_that_loses_its_database_past_its_lease_doubles_nothing_when_it_is_back(
    tmp_path: Path, server: Server, silently: bool
) -> None:
    """Silently, what the node wrote meanwhile still arrives, long after another one has taken over."""
    texts = [f"slow 2 word{n} word{n}" for n in range(6)]
    with Platform() as platform, ExitStack() as stack, closing(TcpProxy(server.dsn)) as line:
        lonely = nodes(stack, platform, tmp_path / "lonely", 1, line.dsn)
        for n, text in enumerate(texts):
            platform.say(f"chat-{n}", text)
        at_work(server, lonely)
        line.cut(silently=silently)
        other = nodes(stack, platform, tmp_path / "other", 1, server.dsn)
        assert at_work(server, other)
        assert platform.wait_for(lambda: len(answered(platform)) == 6, 60), other[0].log[-2000:]
        line.mend()
        other[0].stop()
        platform.say("chat-0", "back")
        assert platform.wait_for(lambda: "back" in answered(platform), 60), lonely[0].log[-3000:]
        assert len(unmarked(platform)) == len(set(unmarked(platform)))
        assert answered(platform) == {"back", *(f"word{n} word{n}" for n in range(6))}
        assert lonely[0].process.poll() is None


def test_postgresql_is_killed_and_comes_back(tmp_path: Path, server: Server) -> None:
    with Platform() as platform, ExitStack() as stack:
        made = nodes(stack, platform, tmp_path, 2, server.dsn)
        platform.say("chat-0", "before")
        assert platform.wait_for(lambda: len(platform.shown) == 1, 60)
        platform.say("chat-1", "slow 1 one two three four")
        time.sleep(0.3)
        server.kill()
        platform.say("chat-0", "while it was away")
        time.sleep(2)
        server.start()
        platform.say("chat-0", "after")
        wanted = {"before", "one two three four", "while it was away", "after"}
        assert platform.wait_for(lambda: answered(platform) >= wanted, 60), made[0].log[-3000:]
        time.sleep(1)
        assert len(unmarked(platform)) == len(set(unmarked(platform)))
        order = list(dict.fromkeys(t.removeprefix(REPEAT_MARK) for t in platform.texts("chat-0")))
        assert order == ["before", "while it was away", "after"]
        assert all(node.process.poll() is None for node in made)


def test_two_processes_share_one_sqlite_file(tmp_path: Path) -> None:
    texts = [f"chat {n % 5} message {n}" for n in range(60)]
    database = str(tmp_path / "keryx.db")
    with Platform() as platform, ExitStack() as stack:
        made = nodes(stack, platform, tmp_path, 2, database)
        for n, text in enumerate(texts):
            platform.say(f"chat-{n % 5}", text)
            if n == 30:
                made[0].kill()
        assert platform.wait_for(lambda: answered(platform) >= set(texts), 60), made[1].log[-2000:]
        time.sleep(0.5)
        assert len(unmarked(platform)) == len(set(unmarked(platform)))
        for chat in range(5):
            order = list(dict.fromkeys(t.removeprefix(REPEAT_MARK) for t in platform.texts(f"chat-{chat}")))
            assert order == [t for t in texts if t.startswith(f"chat {chat} ")]
