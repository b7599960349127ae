"""Sessions: shared with every other surface, listed, forked, closed, deleted and set up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.acp.conftest import Start
from tests.acp.driver import Json, Refused, command, editor, story, variables
from tests.cli.driver import Cli


@pytest.fixture
def keryx(home: Path) -> Cli:
    return Cli(home)


def options(answer: Json) -> dict[str, str]:
    return {o["id"]: o["currentValue"] for o in answer["configOptions"]}


def test_an_editor_session_is_seen_everywhere_and_a_terminal_session_in_the_editor(
    start: Start, keryx: Cli
) -> None:
    zed = start()
    session = zed.new("/tmp")
    assert keryx.json("sessions", "list")["sessions"] == []
    zed.prompt(session, "hello from the editor")
    listed = keryx.json("sessions", "list")["sessions"][0]["session"]
    assert (listed["id"], listed["surface"], listed["cwd"]) == (session, "acp", "/tmp")
    other = keryx.session("hello from the terminal")
    found = {s["sessionId"]: s for s in zed.call("session/list")["sessions"]}
    assert found[other]["title"] == "hello from the terminal"
    assert os.path.isabs(found[other]["cwd"])
    zed.load(other)
    assert zed.texts(other, "user_message_chunk") == "hello from the terminal"
    assert zed.prompt(other, "and from the editor") == "end_turn"


def test_what_another_surface_adds_is_pushed_to_an_open_editor(start: Start, keryx: Cli) -> None:
    zed, other = start(), start()
    session = zed.new()
    zed.prompt(session, "mine")
    other.load(session)
    mark = zed.mark()
    with keryx.serving():
        keryx.ok("send", "--wait", "--session", session, "from outside")
        other.wait(lambda _: "from outside" in other.texts(session))
    assert zed.wait(lambda _: "from outside" in zed.texts(session, since=mark))
    assert zed.texts(session, "user_message_chunk", since=mark) == "from outside"
    assert story(zed.updates(session, since=mark))[-2:] == story(other.updates(session))[-2:]
    assert zed.prompt(session, "mine again") == "end_turn"
    assert other.wait(lambda _: "mine again" in other.texts(session, "user_message_chunk"))


def test_two_processes_on_one_session_run_one_turn_at_a_time_and_lose_nothing(start: Start) -> None:
    zed, vim = start(), start()
    session = zed.new()
    zed.prompt(session, "begin")
    vim.load(session)
    ids = [
        (e, e.say(session, f"slow 0.3 {name}{n} x y"))
        for n in range(3)
        for e, name in ((zed, "z"), (vim, "v"))
    ]
    assert [e.result(i) for e, i in ids] == [{"stopReason": "end_turn"}] * 6
    third = start()
    third.load(session)
    shown = story(third.updates(session))
    said = [text for kind, _, text in shown if kind == "user_message_chunk"]
    answered = [text for kind, _, text in shown if kind == "agent_message_chunk"]
    assert sorted(said[1:]) == sorted(f"slow 0.3 {name}{n} x y" for n in range(3) for name in "zv")
    assert sorted(answered[1:]) == sorted(f"{name}{n} x y" for n in range(3) for name in "zv")
    assert [t for t in said if "z" in t] == [f"slow 0.3 z{n} x y" for n in range(3)]


def test_an_editor_beside_a_node_runs_its_own_turns(start: Start, keryx: Cli) -> None:
    with keryx.serving():
        zed = start()
        session = zed.new()
        zed.prompt(session, "hello")
        why = keryx.json("why", f"{session}.1")
    assert str(zed.process.pid) in json.dumps(why)


def test_a_list_is_paged_filtered_and_stable(start: Start, tmp_path: Path) -> None:
    zed = start()
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    made = [zed.new(here if n % 2 else there) for n in range(4)]
    for session in made:
        zed.prompt(session, "hello")
    every = [s["sessionId"] for s in zed.call("session/list")["sessions"]]
    assert every == made[::-1]
    listed = zed.call("session/list", cwd=f"{here}/./x/../")["sessions"]
    assert [s["sessionId"] for s in listed] == [made[3], made[1]]
    assert all(s["cwd"] == str(here) and s["updatedAt"] for s in listed)
    for n in range(50):
        zed.prompt(zed.new(), f"number {n}")
    first = zed.call("session/list")
    second = zed.call("session/list", cursor=first["nextCursor"])
    assert (len(first["sessions"]), len(second["sessions"])) == (50, 4)
    assert "nextCursor" not in second
    seen = [s["sessionId"] for s in (*first["sessions"], *second["sessions"])]
    assert len(set(seen)) == 54


def test_a_fork_is_an_independent_copy_up_to_the_last_whole_turn(start: Start) -> None:
    zed = start()
    session = zed.new()
    zed.prompt(session, "shared")
    running = zed.say(session, "slow 60 only here now")
    zed.until_text(session, "only")
    answer = zed.call("session/fork", sessionId=session, cwd="/", mcpServers=[])
    fork = answer["sessionId"]
    assert fork != session and options(answer) == {"mode": "ask", "effort": "default"}
    zed.prompt(fork, "in the copy")
    zed.notify("session/cancel", sessionId=session)
    zed.result(running)
    zed.kill()
    other = start()
    other.load(fork)
    assert other.texts(fork, "user_message_chunk") == "sharedin the copy"
    other.load(session)
    assert "in the copy" not in other.texts(session, "user_message_chunk")
    cwds = {s["sessionId"]: s["cwd"] for s in other.call("session/list")["sessions"]}
    assert (cwds[session], cwds[fork]) == ("/tmp", "/")


def test_nothing_is_told_of_a_session_before_the_answer_that_names_it(start: Start) -> None:
    zed = start()
    ids = [zed.ask("session/new", cwd="/tmp", mcpServers=[]) for _ in range(5)]
    made = [zed.result(id_)["sessionId"] for id_ in ids]
    zed.prompt(made[0], "hello")
    ids.append(zed.ask("session/fork", sessionId=made[0], cwd="/tmp", mcpServers=[]))
    made.append(zed.result(ids[-1])["sessionId"])
    zed.prompt(made[-1], "in the copy")
    for id_, session in zip(ids, made, strict=True):
        about = [m.get("id") for m in zed.seen if session in json.dumps(m)]
        assert about[0] == id_ and len(about) > 1


def test_a_closed_session_stays_and_a_deleted_one_is_gone_for_good(start: Start) -> None:
    zed = start()
    session, gone, empty = zed.new(), zed.new(), zed.new()
    zed.prompt(session, "keep me")
    zed.prompt(gone, "drop me")
    running = zed.say(session, "slow 60 one two")
    zed.until_text(session, "one")
    assert zed.call("session/close", sessionId=session) == {}
    assert zed.result(running) == {"stopReason": "cancelled"}
    with pytest.raises(Refused) as refused:
        zed.prompt(session, "hello")
    assert refused.value.code == -32002
    assert zed.call("session/close", sessionId=session) == {}
    for id_ in (gone, gone, empty, "never-was"):
        assert zed.call("session/delete", sessionId=id_) == {}
    assert [s["sessionId"] for s in zed.call("session/list")["sessions"]] == [session]
    with pytest.raises(Refused):
        zed.load(gone)
    zed.load(session)
    assert zed.prompt(session, "back") == "end_turn"


def test_a_session_that_is_deleted_elsewhere_answers_what_waits(start: Start, keryx: Cli) -> None:
    zed = start()
    session = zed.new()
    zed.prompt(session, "hello")
    waiting = zed.say(session, "slow 60 one two")
    zed.until_text(session, "one")
    keryx.ok("sessions", "delete", session, "--yes")
    with pytest.raises(Refused) as refused:
        zed.result(waiting)
    assert refused.value.code == -32002
    with pytest.raises(Refused):
        zed.prompt(session, "again")
    assert zed.prompt(zed.new(), "elsewhere") == "end_turn"


def test_options_are_checked_kept_and_restored(home: Path, start: Start) -> None:
    home.mkdir()
    (home / "keryx.toml").write_text(
        "".join(
            f'[[models]]\nname = "{name}"\nbase_url = "http://127.0.0.1:9/v1"\nid = "{name}"\n'
            for name in ("small", "large")
        )
    )
    zed = start()
    answer = zed.call("session/new", cwd="/tmp", mcpServers=[])
    session = answer["sessionId"]
    assert options(answer) == {"model": "default", "mode": "ask", "effort": "default"}
    assert [o["category"] for o in answer["configOptions"]] == ["model", "mode", "thought_level"]
    assert answer["modes"]["currentModeId"] == "ask"
    zed.call("session/set_config_option", sessionId=session, configId="model", value="large")
    assert zed.call("session/set_mode", sessionId=session, modeId="auto") == {}
    answer = zed.call("session/set_config_option", sessionId=session, configId="effort", value="high")
    assert options(answer) == {"model": "large", "mode": "auto", "effort": "high"}
    for option, value in (("model", "huge"), ("colour", "red"), ("mode", True), ("effort", "")):
        with pytest.raises(Refused) as refused:
            zed.call("session/set_config_option", sessionId=session, configId=option, value=value)
        assert refused.value.code == -32602
    zed.prompt(session, "hello")
    assert zed.call("session/set_model", sessionId=session, modelId="small") == {}
    zed.kill()
    other = start()
    want = {"model": "small", "mode": "auto", "effort": "high"}
    assert options(other.load(session)) == want
    assert options(other.call("session/resume", sessionId=session, cwd="/tmp", mcpServers=[])) == want
    assert options(other.call("session/fork", sessionId=session, cwd="/tmp", mcpServers=[])) == want


def test_a_command_may_come_before_the_first_prompt(start: Start) -> None:
    zed = start()
    session = zed.new()
    zed.call("session/set_mode", sessionId=session, modeId="auto")
    assert zed.prompt(session, "/effort high") == "end_turn"
    assert zed.prompt(session, "hello") == "end_turn"
    assert zed.texts(session) == "Effort: high.hello"
    assert zed.texts(session, "agent_thought_chunk") == ""
    chosen = options(start().load(session))
    assert (chosen["mode"], chosen["effort"]) == ("auto", "high")


def test_a_setting_changed_elsewhere_is_told(start: Start) -> None:
    zed, other = start(), start()
    session = zed.new()
    zed.prompt(session, "hello")
    other.load(session)
    zed.call("session/set_mode", sessionId=session, modeId="read")
    other.wait(lambda m: m.get("params", {}).get("update", {}).get("currentModeId") == "read")
    told = [u for u in other.updates(session) if u["sessionUpdate"] == "config_option_update"]
    assert options(told[-1])["mode"] == "read"


def test_who_must_log_in_is_told_and_can(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    flag = tmp_path / "logged-in"
    script = (
        f"import pathlib, sys; print('a banner'); sys.exit(0 if pathlib.Path({str(flag)!r}).exists() else 3)"
    )
    (home / "keryx.toml").write_text(f"[acp]\nlogin = {json.dumps([sys.executable, '-c', script])}\n")
    with editor(home) as zed:
        (method,) = zed.initialize()["authMethods"]
        with pytest.raises(Refused) as refused:
            zed.new()
        assert refused.value.code == -32000
        with pytest.raises(Refused, match="ended with 3"):
            zed.call("authenticate", methodId=method["id"])
        flag.touch()
        assert zed.call("authenticate", methodId=method["id"]) == {}
        assert zed.prompt(zed.new(), "in") == "end_turn"
        assert zed.noise == []


def test_the_program_says_nothing_on_stdout_but_the_protocol(home: Path) -> None:
    """The installed command, with a setting that is wrong, and with a person at the keyboard."""
    program = [sys.executable, "-c", "from keryx.cli import main; main()", "acp"]
    wrong = subprocess.run(
        program,
        env=variables(home, KERYX_PORT="many"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (wrong.returncode, wrong.stdout) == (2, b"")
    assert b"port" in wrong.stderr
    ended = subprocess.run(
        program, env=variables(home), stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    assert ended.stdout == b""


def test_who_waits_for_a_node_that_does_not_run_is_told_and_can_leave(start: Start, keryx: Cli) -> None:
    zed = start()
    session = zed.new()
    zed.prompt(session, "hello")
    keryx.ok("send", "--session", session, "nobody answers this")
    id_ = zed.say(session, "and this waits")
    zed.wait(lambda _: "keryx serve" in zed.texts(session, "agent_thought_chunk"))
    zed.notify("session/cancel", sessionId=session)
    assert zed.result(id_) == {"stopReason": "cancelled"}


def test_a_session_whose_folder_is_gone_can_be_read_and_not_continued(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    first = start()
    session = first.new(folder)
    first.prompt(session, "hello")
    first.hang_up()
    folder.rmdir()
    zed = start()
    assert [s["cwd"] for s in zed.call("session/list", cwd=str(folder))["sessions"]] == [str(folder)]
    zed.load(session, folder)
    zed.wait(lambda _: f"The folder {folder} is not there" in zed.texts(session, "agent_thought_chunk"))
    assert zed.texts(session, "user_message_chunk") == "hello"
    with pytest.raises(Refused, match="can be read and not continued") as refused:
        zed.prompt(session, "go on")
    assert refused.value.code == -32600
    mark = zed.mark()
    zed.load(session, folder)
    assert zed.texts(session, "user_message_chunk", since=mark) == "hello"
    zed.load(session, tmp_path)
    assert zed.prompt(session, "elsewhere") == "end_turn"
    zed.load(session, folder)
    folder.mkdir()
    assert zed.prompt(session, "back again") == "end_turn"


@pytest.mark.parametrize("method", ["new", "resume", "fork"])
def test_however_it_is_opened_a_folder_that_is_not_there_is_told(
    start: Start, tmp_path: Path, method: str
) -> None:
    zed = start(capabilities={"session": {"notices": {}}})
    session = zed.new()
    zed.prompt(session, "hello")
    zed.call("session/close", sessionId=session)
    named = {} if method == "new" else {"sessionId": session}
    answer = zed.call(f"session/{method}", **named, cwd=str(tmp_path / "gone"), mcpServers=[])
    told = zed.wait(lambda m: m.get("params", {}).get("update", {}).get("sessionUpdate") == "notice")
    assert told["params"]["update"]["severity"] == "warning"
    with pytest.raises(Refused, match="is not there"):
        zed.prompt(answer.get("sessionId", session), "go on")


def test_an_editor_that_reads_nothing_holds_up_nobody_and_can_still_leave(start: Start, home: Path) -> None:
    zed = start()
    session = zed.new()
    zed.prompt(session, "!words 100000")
    deaf = subprocess.Popen(command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables(home))
    assert deaf.stdin and deaf.stdout
    loads: Json = {"sessionId": session, "cwd": "/tmp", "mcpServers": []}
    for n in range(20):
        line: Json = {"jsonrpc": "2.0", "id": n, "method": "session/load", "params": loads}
        deaf.stdin.write(json.dumps(line).encode() + b"\n")
    deaf.stdin.flush()
    assert zed.prompt(session, "meanwhile") == "end_turn"
    deaf.stdin.close()
    assert deaf.wait(10) == 0
    deaf.stdout.close()


def test_a_session_that_was_given_out_can_be_loaded_by_another_process_after_a_kill(
    start: Start, keryx: Cli
) -> None:
    zed = start()
    session = zed.new("/tmp")
    zed.call("session/set_mode", sessionId=session, modeId="auto")
    zed.kill()
    acpx = start()
    assert options(acpx.load(session))["mode"] == "auto"
    assert acpx.call("session/list")["sessions"] == [] and keryx.json("sessions", "list")["sessions"] == []
    assert acpx.prompt(session, "hello") == "end_turn"
    assert options(acpx.load(session))["mode"] == "auto"
    assert [s["sessionId"] for s in acpx.call("session/list")["sessions"]] == [session]
    keryx.ok("verify")


def test_two_processes_may_open_a_session_before_its_first_prompt(start: Start) -> None:
    zed, vim = start(), start()
    session = zed.new()
    vim.call("session/resume", sessionId=session, cwd="/tmp", mcpServers=[])
    assert vim.prompt(session, "from vim") == "end_turn"
    zed.load(session)
    assert zed.texts(session, "user_message_chunk") == "from vim"
    assert zed.prompt(session, "from zed") == "end_turn"
    with pytest.raises(Refused) as refused:
        vim.load("01jd0abcdefghjkmnp")
    assert refused.value.code == -32002


def test_compact_answers_in_words_where_the_agent_compacts_itself(start: Start) -> None:
    zed = start()
    session = zed.new()
    zed.prompt(session, "hello")
    since = zed.mark()
    assert zed.prompt(session, "/compact") == "end_turn"
    assert zed.texts(session, since=since) == (
        "This agent manages its context itself, so /compact has nothing to do here."
    )
