"""What agents ask is shown and answered at a terminal, in a pipe, and from another process."""

from tests.cli.driver import Cli, end

HOW = "Answer 1, 2 or 3, or /allow /always /deny."


def test_the_next_line_of_a_pipe_answers(keryx: Cli) -> None:
    result = keryx.ok("chat", stdin="!ask rm x\nno\nhello\n!ask more\n/always\n!ask third\n")
    assert result.out == (
        "Asking. \nDenied: May the echo agent go on?\nAnswered: deny\nhello\n"
        "Asking. \nAlways allowed in this conversation: May the echo agent go on?\nAnswered: always\n"
        "Asking. Answered: allow\n"
    )
    assert result.err.count(HOW) == 2 and "rm x" in result.err


def test_what_was_always_allowed_is_listed_and_taken_back(keryx: Cli) -> None:
    assert keryx.ok("permissions", "list").out == "Nothing was allowed or denied for good.\n"
    keryx.ok("chat", stdin="!ask rm x\n/always\n")
    (kept,) = keryx.json("permissions", "list")["permissions"]
    shown = keryx.ok("permissions", "list", "--session", kept["session"]).out
    assert kept["tool"] in shown and "allowed" in shown
    assert keryx("permissions", "forget", kept["session"], "nothing").code
    gone = keryx.ok("permissions", "forget", kept["session"], kept["tool"]).out
    assert gone == f"The agent asks again for {kept['tool']}.\n"
    assert keryx.json("permissions", "list") == {"permissions": []}


def test_a_question_is_answered_at_the_terminal_that_shows_it(keryx: Cli) -> None:
    with keryx.terminal("chat") as terminal:
        terminal.type("!ask rm x\r")
        terminal.see(HOW)
        terminal.type("1\r")
        terminal.see("Answered: allow")
        terminal.type("hello again\r")
        terminal.see("hello again")


def test_a_question_is_answered_from_another_process(keryx: Cli) -> None:
    with keryx.serving():
        sent = keryx.json("send", "!ask rm x")
        listed = keryx.until("rm x", "questions", "list")
        (asked,) = keryx.json("questions", "list")["questions"]
        assert asked["id"] in listed and "allow / always / deny" in listed
        wrong = keryx("questions", "answer", asked["id"], "perhaps")
        assert wrong.code and "answer 1, 2 or 3" in wrong.err
        assert keryx.ok("questions", "answer", asked["id"], "2").out == (
            "Always allowed in this conversation: May the echo agent go on?\n"
        )
        keryx.until("Answered: always", "sessions", "show", sent["session"])
        again = keryx("questions", "answer", asked["id"], "2")
        assert again.code and "is closed" in again.err
    assert keryx.ok("questions", "list").out == "No open questions.\n"
    (kept,) = keryx.json("questions", "list", "--session", sent["session"])["questions"]
    assert (kept["state"], kept["answer"], kept["answered_by"]) == ("answered", "always", "operator")


def test_who_waits_for_an_answer_is_told_what_is_asked(keryx: Cli) -> None:
    process = keryx.start("send", "--wait", "!ask rm x")
    assert process.stdout and process.stderr
    try:
        told = process.stderr.readline()
        assert "the agent asks: May the echo agent go on? rm x" in told and "allow|always|deny" in told
        keryx.ok("questions", "answer", told.partition("answer ")[2].split()[0], "deny")
        assert process.stdout.readline() == "Asking. Answered: deny\n"
    finally:
        end(process)


def test_a_question_that_is_not_there(keryx: Cli) -> None:
    result = keryx("questions", "answer", "nothing", "1")
    assert result.code and "there is no question 'nothing'" in result.err
