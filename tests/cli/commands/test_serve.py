"""A node: it says how it is, there is one of it, and it ends in good order however it is ended."""

import json
import signal
import socket
import sys
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest
from tests.cli.driver import WAIT, Cli, Node

from keryx import metrics


def get(node: Node, page: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{node.address}/{page}", timeout=WAIT) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def stop(node: Node, number: signal.Signals) -> tuple[int, str]:
    node.process.send_signal(number)
    assert node.process.stderr
    code = node.process.wait(WAIT)
    return code, node.process.stderr.read()


def test_it_says_where_it_is_and_what_to_try(keryx: Cli) -> None:
    process = keryx.start("serve")
    assert process.stdout
    said = [process.stdout.readline() for _ in range(5)]
    process.terminate()
    assert process.wait(WAIT) == 0
    process.communicate()
    assert said[0] == "Keryx is running.\n"
    assert str(keryx.home / "keryx.db") in said[1]
    assert "echo" in said[2]
    assert "/healthz" in said[3]
    assert "keryx chat" in said[4]


def test_it_names_a_program_that_the_next_terminal_finds(keryx: Cli) -> None:
    beside = Path(sys.executable).with_name("keryx")
    for path, program in ((str(beside.parent), "keryx"), (str(keryx.home), str(beside))):
        process = keryx.start("serve", PATH=path)
        assert process.stdout
        said = [process.stdout.readline() for _ in range(5)]
        process.terminate()
        assert process.wait(WAIT) == 0
        process.communicate()
        assert f"try `{program} chat` in another terminal" in said[4]


def test_health_pages(keryx: Cli) -> None:
    keryx.session("hello")
    with keryx.serving() as node:
        assert get(node, "healthz") == (200, "ok\n")
        assert get(node, "readyz") == (200, "ok\n")
        assert get(node, "nothing")[0] == 404
        status, text = get(node, "metrics")
    lines = text.splitlines()
    assert status == 200
    assert "keryx_sessions 1" in lines
    assert 'keryx_turns{state="running"} 0' in lines
    assert 'keryx_deliveries{state="dead"} 0' in lines
    assert any(line.startswith('keryx_transactions_total{label="leases.renew"} ') for line in lines)
    values = [line.rsplit(" ", 1)[1] for line in lines if not line.startswith("#")]
    assert all(float(value) >= 0 for value in values)
    types = [line for line in lines if line.startswith("# TYPE")]
    assert types == [f"# TYPE {m.name} {m.kind}" for m in metrics.REGISTRY]


def test_a_second_node_on_one_file_is_refused(keryx: Cli) -> None:
    with keryx.serving() as node:
        second = keryx("serve")
        assert second.code == 4
        assert f"process {node.process.pid}" in second.err
        node.process.kill()
        node.process.wait(WAIT)
    with keryx.serving() as third:
        assert get(third, "healthz")[0] == 200


def test_a_port_in_use_is_named(keryx: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        result = keryx("serve", "--port", str(other.getsockname()[1]))
    assert result.code == 5
    assert "choose another with --port" in result.err


def test_it_ends_at_once_when_nothing_runs(keryx: Cli) -> None:
    # Under nohup, processes ignore SIGHUP, and so do those that they start.
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    for number in (signal.SIGTERM, signal.SIGINT, *(() if ignored else (signal.SIGHUP,))):
        with keryx.serving() as node:
            assert stop(node, number) == (0, "")


def test_a_signal_for_programs_that_rotate_logs_does_not_end_it(keryx: Cli) -> None:
    with keryx.serving() as node:
        node.process.send_signal(signal.SIGUSR1)
        assert get(node, "healthz")[0] == 200
        assert node.process.poll() is None
        assert stop(node, signal.SIGTERM) == (0, "")


def test_a_turn_that_ends_in_time_is_finished(keryx: Cli) -> None:
    with keryx.serving() as node:
        session = keryx.json("send", "slow 0.8 one two three four")["session"]
        keryx.until("running", "turns")
        node.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        assert get(node, "readyz") == (503, "Keryx is stopping\n")
        assert get(node, "healthz")[0] == 200
        assert node.process.wait(WAIT) == 0
    assert "one two three four" in keryx.ok("sessions", "show", session).out.splitlines()[-1]


def test_a_turn_that_takes_longer_goes_back_to_the_queue(keryx: Cli) -> None:
    with keryx.serving(KERYX_DRAIN="0.3s") as node:
        session = keryx.json("send", "slow 3 one two three four five six")["session"]
        keryx.until("running", "turns")
        code, err = stop(node, signal.SIGTERM)
    assert code == 0
    assert "1 running turn may go on for 0.3 s" in err
    (turn,) = keryx.json("turns")["turns"]
    assert (turn["state"], turn["attempts"]) == ("queued", 0)
    with keryx.serving():
        shown = keryx.until("one two three four five six\n", "sessions", "show", session)
        assert "[interrupted" in shown


def test_a_second_signal_ends_it_at_once(keryx: Cli) -> None:
    with keryx.serving() as node:
        keryx.ok("send", "slow 20 one two three")
        keryx.until("running", "turns")
        node.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        code, err = stop(node, signal.SIGTERM)
    assert code == 1
    assert "taken up again" in err
    assert keryx.json("sessions", "list")["sessions"][0]["activity"] == "running"


def test_an_agent_that_does_not_listen_cannot_hold_the_process(keryx: Cli) -> None:
    with keryx.serving(KERYX_DRAIN="0.1s") as node:
        keryx.ok("send", "!deaf 60")
        keryx.until("running", "turns")
        code, err = stop(node, signal.SIGTERM)
    assert code == 0
    assert "everything is recorded" in err
    assert keryx.json("turns")["turns"][0]["state"] == "queued"


def test_a_node_that_is_killed_goes_on_where_it_was(keryx: Cli) -> None:
    with keryx.serving() as node:
        session = keryx.json("send", "slow 1.5 one two three four five six")["session"]
        keryx.until("running", "turns")
        time.sleep(0.4)
        node.process.kill()
        node.process.wait(WAIT)
    with keryx.serving():
        shown = keryx.until("one two three four five six\n", "sessions", "show", session)
    assert shown.count("  slow 1.5") == 1
    assert "[interrupted" in shown


def test_it_starts_again_in_place_when_the_page_asks_for_it(keryx: Cli) -> None:
    with keryx.serving() as node:
        keryx.home.joinpath("keryx.toml").write_text("[profiles.work]\n")
        assert "work" not in get(node, "api/start")[1]
        request = urllib.request.Request(f"{node.address}/api/setup/restart", method="POST")
        with urllib.request.urlopen(request, timeout=WAIT) as answer:
            assert answer.status == 204
        assert node.process.stdout
        again = json.loads(node.process.stdout.readline())
        assert again["address"] == node.address and again["pid"] == node.process.pid
        assert "work" in get(node, "api/start")[1]
        # A file that it could not start with is refused, and nothing stops.
        keryx.home.joinpath("keryx.toml").write_text("[limits]\nat_once = 'many'\n")
        refused = urllib.request.Request(f"{node.address}/api/setup/restart", method="POST")
        with pytest.raises(HTTPError) as told, urllib.request.urlopen(refused, timeout=WAIT):
            pass
        with told.value:
            assert told.value.code == 400 and "line 2" in told.value.read().decode()
        assert get(node, "healthz")[0] == 200
        assert stop(node, signal.SIGTERM)[0] == 0


def test_a_store_is_reached_through_a_symbolic_link(keryx: Cli, tmp_path: Path) -> None:
    keryx.session("before")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    backup, link = folder / "backup.db", folder / "linked.db"
    keryx.ok("backup", str(backup))
    link.symlink_to(Path(keryx.variables["KERYX_HOME"]) / "keryx.db")
    linked = Cli(folder, KERYX_DATABASE=str(link))
    with linked.serving():
        # The log is looked at in each commit.
        for text in ("one", "two"):
            assert text in linked.ok("send", "--wait", text).out
        for shell in (keryx, linked):
            assert "`keryx serve` works on" in shell("restore", "--force", str(backup)).err
    assert [path.name for path in folder.iterdir() if path.name.startswith("linked")] == [link.name]
    linked.ok("restore", "--force", str(backup))
    assert link.is_symlink() and "two" not in keryx.ok("sessions", "list").out
