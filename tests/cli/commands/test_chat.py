"""Talking, through a pipe and at a terminal."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.cli.driver import WAIT, Cli, end
from tests.fork_server import build_command

from keryx.store import changes
from keryx.store.db.sqlite import SqliteDatabase


def test_each_line_is_a_message_and_each_answer_a_line(keryx: Cli) -> None:
    result = keryx.ok("chat", stdin="first\n\nsecond\n!think third\n!tool grep x\n")
    assert result.out == "first\nsecond\nthird\nCalling grep. \ngrep was given x\n"
    assert result.err == ""
    (entry,) = keryx.json("sessions", "list")["sessions"]
    assert entry["session"]["turns"] == 4


def test_lines_are_answered_as_they_come(keryx: Cli) -> None:
    process = keryx.start("chat")
    assert process.stdin and process.stdout
    try:
        for text in ("first", "second", "ünïcode"):
            process.stdin.write(f"{text}\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{text}\n"
        process.stdin.close()
        assert process.wait(WAIT) == 0
    finally:
        process.stdin = None
        end(process)


def test_a_file_is_read_like_a_pipe(keryx: Cli, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo")
    with (tmp_path / "lines").open() as file:
        done = subprocess.run(
            build_command("chat"),
            env=keryx.environment(),
            stdin=file,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "one\ntwo\n", "")


def test_a_failed_turn_is_told_on_stderr(keryx: Cli) -> None:
    result = keryx("chat", stdin="!fail it broke\nafter\n")
    assert result.code == 1
    assert result.out == "This will fail. \nafter\n"
    assert result.err == "[failed, without a complete answer]\nit broke\n"


def test_an_agent_that_crashes_is_told_in_a_sentence(keryx: Cli) -> None:
    result = keryx("chat", stdin="!crash\n")
    assert (result.code, result.out) == (1, "This will crash. \n")
    mark, sentence = result.err.splitlines()
    assert mark == "[failed, without a complete answer]" and "The agent failed (RuntimeError)" in sentence


def test_a_message_may_be_given_at_once(keryx: Cli) -> None:
    assert keryx.ok("chat", "good", "morning").out == "good morning\n"


def test_commands_lead_elsewhere(keryx: Cli) -> None:
    result = keryx.ok(
        "chat", stdin="one\n/title Oslo\n/new\ntwo\n/resume oslo\nthree\n/fork\nfour\n/quit\nnever\n"
    )
    assert "Now called “Oslo”." in result.out
    assert "never" not in result.out
    texts = {
        entry["session"]["title"]: [
            m["parts"][0]["text"]
            for m in keryx.json("sessions", "show", entry["session"]["id"])["messages"]
            if m["role"] == "user"
        ]
        for entry in keryx.json("sessions", "list")["sessions"]
    }
    assert texts == {"Oslo": ["one", "three"], "two": ["two"], "Oslo #2": ["one", "three", "four"]}


def test_what_keryx_says_can_be_changed_in_the_settings(keryx: Cli) -> None:
    keryx.home.mkdir(exist_ok=True)
    (keryx.home / "keryx.toml").write_text(
        '[texts]\n"turn.none_running" = "Nothing to stop."\n[texts.de]\n"turn.none_running" = "Nichts zu stoppen."\n'
    )
    assert keryx.ok("chat", stdin="one\n/stop\n").out == "one\nNothing to stop.\n"
    german = Cli(keryx.home, KERYX_LANGUAGE="de")
    assert german.ok("chat", stdin="one\n/stop\n").out == "one\nNichts zu stoppen.\n"


def test_a_setting_may_come_before_the_first_message(keryx: Cli) -> None:
    done = keryx.ok("chat", stdin="/effort high\nhello\n")
    assert done.out.splitlines() == ["Effort: high.", "hello"]
    (session,) = keryx.json("sessions", "list")["sessions"]
    assert session["session"]["settings"]["effort"] == "high"


def test_a_model_is_refused_where_the_agent_has_none(keryx: Cli) -> None:
    assert "The agent echo has no models to choose from" in keryx.ok("chat", stdin="/model large\n").out
    session = keryx.session()
    refused = keryx("sessions", "model", session, "large")
    assert refused.code == 3 and "has no models" in refused.err
    assert keryx.json("sessions", "model", session)["model"] is None


def test_an_unknown_command_says_so(keryx: Cli) -> None:
    assert "There is no command /dance" in keryx.ok("chat", stdin="/dance\n").out


def test_continue_and_resume_go_on(keryx: Cli) -> None:
    keryx.ok("chat", stdin="one\n")
    keryx.ok("chat", "--continue", stdin="two\n")
    keryx.ok("chat", "--resume", "one", "three")
    (entry,) = keryx.json("sessions", "list")["sessions"]
    assert entry["session"]["turns"] == 3


def test_each_run_is_a_conversation_of_its_own(keryx: Cli) -> None:
    keryx.ok("chat", "one")
    keryx.ok("chat", "--new", "two")
    assert len(keryx.json("sessions", "list")["sessions"]) == 2


def test_a_talk_at_a_terminal(keryx: Cli) -> None:
    with keryx.terminal("chat") as terminal:
        terminal.see("Ctrl-D leaves")
        terminal.see("›")
        terminal.type("hello there\r")
        terminal.see("hello there\n")
        terminal.see("hello there\n")
        terminal.type("!tool grep foo\r")
        terminal.see("⚙ grep foo")
        terminal.see("↳ grep was given foo")
        terminal.see("›")
        terminal.type("/stat")
        terminal.see("Show the state of this conversation.")
        terminal.type("\t\r")
        terminal.see("messages in 2 turns")
        terminal.type("\x04")
        terminal.see("--resume")
        assert terminal.exit() == 0
    assert "hello there" in (keryx.home / "history").read_text()
    assert (keryx.home / "history").stat().st_mode & 0o077 == 0


def test_a_narrow_terminal_breaks_replies_between_words(keryx: Cli) -> None:
    with keryx.terminal("chat", COLUMNS="40") as terminal:
        terminal.see("commands, Ctrl-D leaves.")
        terminal.type("/tools on nothing\r")
        terminal.see("Write /tools on or /tools off and one\n  of: keryx.")


def test_ctrl_c_stops_the_answer_then_clears_the_line_then_leaves(keryx: Cli) -> None:
    with keryx.terminal("chat", "slow 30 one two three four five six seven eight nine ten") as terminal:
        terminal.see("one ")
        terminal.type("\x03")
        terminal.see("[stopped]")
        terminal.see("›")
        terminal.type("half a thought")
        terminal.see("half a thought")
        terminal.type("\x03")
        terminal.type("\x03")
        terminal.see("Ctrl-C again")
        terminal.type("\x03")
        assert terminal.exit() == 0
    (entry,) = keryx.json("sessions", "list")["sessions"]
    assert entry["session"]["turns"] == 1


def test_a_terminal_that_is_killed_comes_back_with_its_partial_answer(keryx: Cli) -> None:
    with keryx.terminal("chat", "slow 2 one two three four five six") as terminal:
        terminal.see("two ")
        terminal.kill()
    with keryx.terminal("chat", "--continue") as terminal:
        terminal.see("[interrupted")
        terminal.see("goes on after an interruption")
        terminal.see("one two three four five six")
        terminal.see("›")
        terminal.type("and more\r")
        terminal.see("and more\n")
        terminal.see("and more\n")


def test_what_others_say_appears_while_typing(keryx: Cli) -> None:
    session = keryx.session("shared")
    with keryx.terminal("chat", "--resume", session) as terminal:
        terminal.see("›")
        terminal.type("half typed")
        terminal.see("half typed")
        keryx.ok("send", "--wait", "--session", session, "from elsewhere")
        terminal.see("from elsewhere")
        terminal.see("from elsewhere")
        terminal.type("\r")
        terminal.see("half typed\n")
        terminal.see("half typed\n")


def test_an_answer_of_a_node_streams_alike(keryx: Cli) -> None:
    with keryx.serving(), keryx.terminal("chat", "!think of the sea") as terminal:
        terminal.see("They said: of the sea")
        terminal.see("of the sea")
        terminal.see("›")


def test_a_session_is_picked_from_a_list(keryx: Cli) -> None:
    keryx.session("shopping list")
    keryx.session("trip to oslo")
    with keryx.terminal("chat", "--resume") as terminal:
        terminal.see("shopping list")
        terminal.type("shop")
        terminal.type("\r")
        terminal.see("shopping list ·")
        terminal.see("›")


def test_leaving_the_list_leaves(keryx: Cli) -> None:
    keryx.session()
    with keryx.terminal("chat", "--resume") as terminal:
        terminal.see("Escape leaves")
        terminal.type("\x03")
        assert terminal.exit() == 130


def test_what_was_typed_is_remembered(keryx: Cli) -> None:
    with keryx.terminal("chat") as terminal:
        terminal.see("›")
        terminal.type("remember me\r")
        terminal.see("remember me\n")
        terminal.see("remember me\n")
        terminal.type("\x04")
        terminal.exit()
    with keryx.terminal("chat") as terminal:
        terminal.see("›")
        terminal.type("\x1b[A")
        terminal.see("remember me")


def test_an_agent_that_does_not_listen_is_left_behind(keryx: Cli) -> None:
    with keryx.terminal("chat", "!deaf 60") as terminal:
        terminal.see("Not listening.")
        terminal.type("\x03")
        terminal.see("[stopped]")
        terminal.see("›")
        terminal.type("\x04")
        terminal.see("did not stop")
        assert terminal.exit() == 1
    assert keryx.ok("turns").out == "Nothing runs and nothing waits.\n"


def stop_outside_of_writes(pid: int, store: Path) -> None:
    """Stop a process at a moment when it holds no lock on the store."""
    with closing(sqlite3.connect(store, timeout=0, isolation_level=None)) as connection:
        while True:
            os.kill(pid, signal.SIGSTOP)
            try:
                connection.execute("begin immediate")
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.01)
            else:
                connection.execute("rollback")
                return


def test_a_terminal_that_slept_past_the_end_of_the_feed_shows_what_it_missed(keryx: Cli) -> None:
    async def trim() -> None:
        async with SqliteDatabase(keryx.home / "keryx.db") as database:
            await database.write(
                "trim", lambda tx: changes.trim(tx, before=datetime.now(UTC) + timedelta(days=1))
            )

    with keryx.terminal("chat") as terminal:
        terminal.see("›")
        terminal.type("hello\r")
        terminal.show("› hello\nhello\n\n›")
        stop_outside_of_writes(terminal.pid, keryx.home / "keryx.db")
        keryx.ok("send", "--wait", "--session", "hello", "said elsewhere")
        asyncio.run(trim())
        os.kill(terminal.pid, signal.SIGCONT)
        terminal.see("said elsewhere")
        terminal.see("said elsewhere")
        terminal.type("again\r")
        terminal.see("again\n")
        terminal.see("again\n")


def test_a_temporary_chat_leaves_nothing_to_read(keryx: Cli) -> None:
    begun = keryx.ok("chat", "--temporary", stdin="hello Xylophonquartz\n/status\n")
    assert "tmp-" in begun.out and "hello Xylophonquartz" in begun.out
    (entry,) = keryx.json("sessions", "list")["sessions"]
    session = entry["session"]["id"]
    # It can be continued until it ends.
    assert keryx.ok("chat", "--resume", session, stdin="again\n").out == "again\n"
    assert "hello Xylophonquartz" in keryx.ok("sessions", "show", session).out
    assert not find_word(keryx.home)
    assert "has ended" in keryx.ok("chat", "--resume", session, stdin="/temp end\n").out
    assert keryx.json("sessions", "list")["sessions"] == []
    assert not find_word(keryx.home)


def find_word(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and b"Xylophonquartz" in p.read_bytes()]
