"""Lines that are right, wrong, long and odd."""

import asyncio
import json
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.acp.conftest import Start
from tests.acp.driver import WAIT, Editor, Json, Refused, editor
from tests.acp.scripted_model import thinking
from tests.agents.acp.conversation import PLAYER, alive
from tests.agents.http_tool_server import SCRIPT
from tests.builders import limit, until
from tests.fakes.endpoint import answer, calls

from keryx.core.turns import TurnLimits
from keryx.store.db import Transaction
from keryx.store.db.sqlite import SqliteDatabase


def error(started: Editor, line: bytes) -> Json:
    """Send a line and wait for the answer that names no request."""
    before = started.mark()
    started.send(line)
    return started.wait(lambda m: "error" in m, since=before)


def test_a_line_that_is_no_request_gets_its_error_and_the_process_lives_on(start: Start) -> None:
    zed = start()
    codes = {
        b"{bad\n": -32700,
        b"\xff\xfe\n": -32700,
        b"42\n": -32600,
        b"null\n": -32600,
        b'"text"\n': -32600,
        b'[{"jsonrpc":"2.0","id":1,"method":"initialize"}]\n': -32600,
        b"{}\n": -32600,
        b'{"id":1,"method":"session/list"}\n': -32600,
        b'{"jsonrpc":"2.0","id":{},"method":"session/list"}\n': -32600,
    }
    for line, code in codes.items():
        answer = error(zed, line)
        assert (answer["id"], answer["error"]["code"]) == (None, code), line
    assert zed.call("session/list") == {"sessions": []}


def test_blank_lines_ends_of_other_systems_and_every_kind_of_id_are_taken(start: Start) -> None:
    zed = start()
    zed.send(b'\n  \r\n{"jsonrpc":"2.0","id":"a-1","method":"session/list"}\r\n\r\n')
    assert zed.result("a-1") == {"sessions": []}
    zed.send(b'{"method":"session/list","params":null,"id":-7,"jsonrpc":"2.0","more":[1]}\n')
    assert zed.result(-7) == {"sessions": []}


def slow_login(home: Path, mark: Path) -> None:
    """Settings with a login that takes for ever and leaves its process id behind."""
    home.mkdir()
    script = (
        f"import os, pathlib, time; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); time.sleep(600)"
    )
    (home / "keryx.toml").write_text(f"[acp]\nlogin = {json.dumps([sys.executable, '-c', script])}\n")


async def test_any_other_request_can_be_cancelled(home: Path, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    slow_login(home, mark)
    with editor(home) as zed:
        (method,) = zed.initialize()["authMethods"]
        id_ = zed.ask("authenticate", methodId=method["id"])
        await until(lambda: mark.exists() and mark.read_text() != "")
        zed.notify("$/cancel_request", requestId=id_)
        with pytest.raises(Refused) as refused:
            zed.result(id_)
        assert refused.value.code == -32800
        await until(lambda: not alive(mark.read_text()))
        assert zed.initialize()["protocolVersion"] == 1


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("nothing/here", {}, -32601),
        ("_own/method", {}, -32601),
        ("session/new", {}, -32602),
        ("session/new", {"cwd": "relative", "mcpServers": []}, -32602),
        ("session/new", {"cwd": 3, "mcpServers": []}, -32602),
        ("session/load", {"sessionId": "01jd0abcdefghjkmnp", "cwd": "/tmp", "mcpServers": []}, -32002),
        ("session/load", {"sessionId": "../../etc", "cwd": "/tmp", "mcpServers": []}, -32002),
        ("session/resume", {"sessionId": "none", "cwd": "/tmp", "mcpServers": []}, -32002),
        ("session/fork", {"sessionId": "none", "cwd": "/tmp", "mcpServers": []}, -32002),
        ("session/close", {"sessionId": "none"}, -32002),
        ("session/prompt", {"sessionId": "none", "prompt": [{"type": "text", "text": "hi"}]}, -32002),
        ("session/set_mode", {"sessionId": "none", "modeId": "ask"}, -32002),
        ("session/set_model", {"sessionId": "none", "modelId": "large"}, -32002),
        ("session/set_config_option", {"sessionId": "none", "configId": "mode", "value": "ask"}, -32002),
        ("session/list", {"cursor": "what is this"}, -32602),
        ("session/list", {"cwd": "relative"}, -32602),
        ("authenticate", {"methodId": "none"}, -32602),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_code(
    start: Start, method: str, params: Json, code: int
) -> None:
    zed = start()
    with pytest.raises(Refused) as refused:
        zed.call(method, **params)
    assert refused.value.code == code
    assert zed.call("session/list") == {"sessions": []}


def test_params_that_are_no_object_are_refused_and_unknown_notifications_ignored(start: Start) -> None:
    zed = start()
    zed.send({"jsonrpc": "2.0", "id": 90, "method": "session/list", "params": [1]})
    with pytest.raises(Refused) as refused:
        zed.result(90)
    assert refused.value.code == -32602
    zed.notify("_anything/at/all", a=1)
    zed.notify("session/cancel", sessionId="none")
    zed.notify("session/cancel")
    zed.notify("$/cancel_request", requestId="none")
    assert zed.call("session/list") == {"sessions": []}


def test_any_version_is_answered_with_ours(start: Start) -> None:
    zed = start()
    for unknown in (0, 2, 65535, "2025-01-01"):
        assert zed.call("initialize", protocolVersion=unknown)["protocolVersion"] == 1
    answer = zed.initialize()
    assert answer["agentInfo"] == {"name": "keryx", "title": "Keryx", "version": version("keryx")}
    assert answer["agentCapabilities"]["loadSession"] is True
    assert set(answer["agentCapabilities"]["sessionCapabilities"]) == {
        "list",
        "resume",
        "fork",
        "additionalDirectories",
        "close",
        "delete",
    }


def test_meta_overrides_nothing(start: Start) -> None:
    zed = start()
    session = zed.call("session/new", cwd="/tmp", mcpServers=[], _meta={"cwd": "/etc"})["sessionId"]
    assert zed.prompt(session, "hi") == "end_turn"
    assert [s["cwd"] for s in zed.call("session/list")["sessions"]] == ["/tmp"]


def test_a_prompt_of_five_megabytes_is_kept_and_answered_up_to_the_limit(start: Start) -> None:
    zed = start()
    session, text = zed.new(), "all work and no play " * 250_000
    assert zed.prompt(session, text) == "max_tokens"
    assert zed.texts(session)[: TurnLimits().answer] == text[: TurnLimits().answer]
    since = zed.mark()
    zed.load(session)
    assert zed.texts(session, "user_message_chunk", since=since) == text


async def test_others_are_answered_while_a_prompt_of_five_megabytes_waits_for_the_store(
    start: Start, home: Path
) -> None:
    zed = start()
    session, text = zed.new(), "all work and no play " * 250_000
    assert zed.prompt(session, "first") == "end_turn"
    held, release = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        held.set()
        release.wait(WAIT)

    async with SqliteDatabase(home / "keryx.db") as database, asyncio.TaskGroup() as group:
        group.create_task(database.write("test.hold", hold))
        try:
            assert await asyncio.to_thread(held.wait, WAIT)
            id_ = await asyncio.to_thread(zed.say, session, text)
            listed = await asyncio.to_thread(zed.call, "session/list")
            assert [s["sessionId"] for s in listed["sessions"]] == [session]
            assert text not in zed.texts(session)
        finally:
            release.set()
        assert await asyncio.to_thread(zed.result, id_) == {"stopReason": "max_tokens"}
    assert text[: TurnLimits().answer] in zed.texts(session)


def test_text_that_no_utf8_can_hold_survives(start: Start) -> None:
    zed = start()
    session = zed.new()
    line = {"sessionId": session, "prompt": [{"type": "text", "text": "a\ud800b\0c"}]}
    zed.send(
        json.dumps({"jsonrpc": "2.0", "id": 77, "method": "session/prompt", "params": line}).encode() + b"\n"
    )
    assert zed.result(77) == {"stopReason": "end_turn"}
    assert zed.texts(session) == "a\ud800b\0c"


def test_a_line_above_the_limit_is_refused_by_its_id(home: Path) -> None:
    with editor(home, KERYX_ACP_LIMIT="10000") as zed:
        zed.initialize()
        session = zed.new()
        with pytest.raises(Refused) as refused:
            zed.prompt(session, "x" * 20_000)
        assert refused.value.code == -32602
        assert zed.prompt(session, "short") == "end_turn"


def test_it_ends_soon_after_the_editor_hangs_up_even_in_mid_answer(start: Start) -> None:
    idle, busy, deaf = start(), start(), start()
    session = busy.new()
    busy.say(session, "slow 60 one two three four five six seven eight nine ten " * 10)
    busy.until_text(session, "one")
    other = deaf.new()
    deaf.say(other, "!deaf 60")
    deaf.until_text(other, "Not listening.")
    for started in (idle, busy, deaf):
        began = time.monotonic()
        started.hang_up()
        assert time.monotonic() - began < limit(5)
    assert [m for m in busy.seen if "error" in m] == []


@pytest.mark.parametrize("number", [1, 2, 15])
def test_a_signal_ends_it_in_good_order(start: Start, number: int) -> None:
    zed = start()
    session = zed.new()
    zed.say(session, "slow 60 one two three")
    zed.until_text(session, "one")
    zed.process.send_signal(number)
    assert zed.process.wait(5) == 0
    assert "Traceback" not in zed.stderr()


def test_what_a_library_prints_does_not_reach_the_editor(home: Path, tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "import os, subprocess, sys\n"
        "from keryx.core.ports.agent import TextDelta\n"
        "print('loaded')\n"
        "os.write(1, b'raw bytes\\n')\n"
        "async def agent(context):\n"
        "    print('running')\n"
        "    sys.__stdout__.write('original\\n')\n"
        "    sys.__stdout__.flush()\n"
        "    subprocess.run(['echo', 'from a child'])\n"
        "    yield TextDelta('quiet')\n"
    )
    with editor(home, KERYX_AGENT="noisy:agent", PYTHONPATH=str(tmp_path)) as zed:
        zed.initialize()
        session = zed.new()
        assert zed.prompt(session, "hi") == "end_turn"
        assert zed.texts(session) == "quiet"
        assert zed.noise == []
        zed.hang_up()
        printed = zed.stderr()
    assert all(text in printed for text in ("loaded", "raw bytes", "running", "original", "from a child"))


def test_children_end_with_it(home: Path, tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(
        "import subprocess\n"
        "from keryx.core.ports.agent import TextDelta\n"
        "async def agent(context):\n"
        "    child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "    yield TextDelta(str(child.pid))\n"
    )
    with editor(home, KERYX_AGENT="parent:agent", PYTHONPATH=str(tmp_path)) as zed:
        zed.initialize()
        session = zed.new()
        zed.prompt(session, "hi")
        child = Path("/proc") / zed.texts(session)
        assert child.exists()
        zed.hang_up()
        deadline = time.monotonic() + 5
        while child.exists() and "\nState:\tZ" not in (child / "status").read_text():
            assert time.monotonic() < deadline


def deaf_agent(home: Path) -> None:
    """Settings by which a program answers that hears neither a cancel nor a signal nor the end of its input."""
    home.mkdir()
    command = [sys.executable, str(PLAYER), str(home / "store"), "bad=deaf"]
    (home / "keryx.toml").write_text(f'[agents.player]\nkind = "acp"\ncommand = {json.dumps(command)}\n')


def until_silent(home: Path) -> None:
    """Wait until the agent has the prompt that it does not answer."""
    deadline = time.monotonic() + 30
    while not any("silence" in file.read_text() for file in (home / "store").iterdir()):
        assert time.monotonic() < deadline


def test_it_ends_in_time_though_the_agent_behind_it_does_not(home: Path) -> None:
    deaf_agent(home)
    with editor(home, KERYX_AGENT="player") as zed:
        zed.initialize()
        session = zed.new()
        assert zed.prompt(session, "session") == "end_turn"
        pid = zed.texts(session).split()[1]
        zed.say(session, "silence")
        until_silent(home)
        began = time.monotonic()
        zed.hang_up()
        assert time.monotonic() - began < limit(5)
        assert not alive(pid)


def test_a_cancel_is_answered_in_time_though_the_agent_behind_it_hears_nothing(home: Path) -> None:
    deaf_agent(home)
    with editor(home, KERYX_AGENT="player") as zed:
        zed.initialize()
        session = zed.new()
        zed.prompt(session, "hello")
        id_ = zed.say(session, "silence")
        until_silent(home)
        zed.notify("session/cancel", sessionId=session)
        began = time.monotonic()
        assert zed.result(id_) == {"stopReason": "cancelled"}
        assert time.monotonic() - began < limit(2)


def test_it_ends_in_time_though_a_tool_server_is_stuck(home: Path, tmp_path: Path) -> None:
    never, runs = str(tmp_path / "never"), tmp_path / "runs"
    server = {"name": "tools", "command": sys.executable, "args": [SCRIPT, str(runs)], "env": []}
    script = (calls(("c1", "tools_stuck", json.dumps({"path": never}))), answer("Never."))
    with thinking(home, *script) as (zed, _):
        session = zed.call("session/new", cwd="/tmp", mcpServers=[server])["sessionId"]
        zed.say(session, "wait")
        zed.wait(lambda m: m.get("params", {}).get("update", {}).get("sessionUpdate") == "tool_call")
        began = time.monotonic()
        zed.hang_up()
        assert time.monotonic() - began < limit(5)
