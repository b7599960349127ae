"""Sending one message: kept before the command returns, answered here or by a node."""

import signal
import time

from tests.cli.driver import WAIT, Cli, end


def test_the_answer_is_printed(keryx: Cli) -> None:
    assert keryx.ok("send", "--wait", "good", "morning").out == "good morning\n"
    assert keryx.ok("send", "--wait", "!tool grep foo").out == "Calling grep. \n\ngrep was given foo\n"


def test_a_message_without_a_node_waits_and_says_so(keryx: Cli) -> None:
    sent = keryx.ok("send", "hello")
    assert "`keryx serve` will answer it" in sent.err
    assert "session  " in sent.out
    (turn,) = keryx.json("turns")["turns"]
    assert turn["state"] == "queued"
    assert "queued" in keryx.ok("turns").out


def test_a_node_answers_what_waits(keryx: Cli) -> None:
    session = keryx.json("send", "hello")["session"]
    with keryx.serving():
        keryx.until("agent", "sessions", "show", session)
        assert keryx.ok("send", "another").err == ""
        keryx.until("Nothing runs and nothing waits.", "turns")


def test_a_failed_turn_gives_one(keryx: Cli) -> None:
    result = keryx("send", "--wait", "!fail it broke")
    assert (result.code, result.out) == (1, "")
    assert result.err == "keryx: the turn ended as failed: it broke\n"
    assert keryx("send", "--wait", "--json", "!fail it broke").json["error"] == "it broke"


def test_an_agent_that_crashes_is_not_seen_as_a_traceback(keryx: Cli) -> None:
    result = keryx("send", "--wait", "!crash")
    assert result.code == 1
    [session] = keryx.json("sessions", "list")["sessions"]
    command = f"keryx sessions retry {session['session']['id']}"
    told = f"The agent failed (RuntimeError). The log has the details; `{command}` asks again."
    assert told in result.err.splitlines()[-1] and "/retry" not in result.err
    assert "Asked again as turn" in keryx.ok(*command.split()[1:]).out


def test_waiting_has_an_end(keryx: Cli) -> None:
    result = keryx("send", "--wait", "--timeout", "0.2s", "!silence")
    assert result.code == 5
    assert "the message is kept" in result.err


def test_the_same_event_is_taken_in_once(keryx: Cli) -> None:
    first = keryx.json("send", "--wait", "--event", "night-1", "hello")
    again = keryx.json("send", "--wait", "--event", "night-1", "hello")
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert again == {**first, "duplicate": True}
    assert "taken in before" in keryx.ok("send", "--event", "night-1", "hello").out


def test_text_is_never_a_command(keryx: Cli) -> None:
    assert keryx.ok("send", "--wait", "/help").out == "/help\n"


def test_a_message_to_a_session_by_title(keryx: Cli) -> None:
    session = keryx.session("trip to oslo")
    assert keryx.json("send", "--wait", "--session", "trip to oslo", "more")["session"] == session


def test_five_megabytes_from_the_input(keryx: Cli) -> None:
    text = "".join(f"{number:07d} ünïcode 🜁\n" for number in range(220_000))
    assert len(text.encode()) > 5_000_000
    keryx.variables["KERYX_LIMITS_ANSWER"] = str(len(text))
    assert keryx.ok("send", "--wait", "-", stdin=text).out == text


def test_odd_bytes_survive(keryx: Cli) -> None:
    answer = keryx.json_of("send", "--wait", "--json", "-", stdin=b"nul \x00 and \xff end")
    assert answer["answer"] == "nul \x00 and \udcff end"


def test_an_answer_is_delivered_where_it_was_asked_for(keryx: Cli) -> None:
    keryx.ok("send", "--wait", "--target", "local:reports", "the night was quiet")
    (delivery,) = keryx.json("deliveries", "list")["deliveries"]
    assert (delivery["state"], delivery["target"]["chat"]) == ("ready", "reports")
    assert "local:reports" in keryx.ok("deliveries", "list").out
    keryx.ok("deliveries", "discard", delivery["id"])
    assert keryx("deliveries", "retry", delivery["id"]).code == 4
    assert "the night was quiet" in keryx.ok("deliveries", "list", "--state", "discarded").out
    assert keryx.ok("deliveries", "list").out == "Nothing waits.\n"


def test_a_node_delivers_to_a_file(keryx: Cli) -> None:
    with keryx.serving():
        keryx.ok("send", "--wait", "--target", "local:reports", "the night was quiet")
        keryx.until("sent", "deliveries", "list", "--state", "sent")
    (file,) = (keryx.home / "outbox" / "reports").glob("*.md")
    assert file.read_text() == "the night was quiet"


def test_ctrl_c_ends_the_wait_for_the_input(keryx: Cli) -> None:
    for arguments in (["send", "-"], ["chat"]):
        assert _interrupted(keryx, *arguments) == 130


def _interrupted(keryx: Cli, *arguments: str) -> int:
    """How a command ends by Ctrl-C. One that was still being imported is given more time to come so far."""
    code = -signal.SIGINT
    for seconds in (0.8, 3, 10):
        process = keryx.start(*arguments, KERYX_LOG_LEVEL="info")
        try:
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
            code = process.wait(WAIT)
        finally:
            end(process)
        if code != -signal.SIGINT:
            break
    return code


def test_a_sender_that_is_killed_loses_nothing(keryx: Cli) -> None:
    process = keryx.start("send", "--wait", "slow 1.5 one two three four five six")
    try:
        keryx.until("running", "turns")
        keryx.until("msgs", "sessions", "list")
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT)
    finally:
        end(process)
    (entry,) = keryx.json("sessions", "list")["sessions"]
    assert entry["activity"] == "running"
    assert keryx.ok("chat", "--continue").out == "one two three four five six\n"
    shown = keryx.ok("sessions", "show", entry["session"]["id"]).out
    assert shown.count("[interrupted: the process was gone before the end]") == 1
    assert shown.count("  slow 1.5 one two") == 1
