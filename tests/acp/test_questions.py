"""Questions: put to the person at the editor, and open to every other surface until somebody answers."""

from pathlib import Path

import pytest
from tests.acp.conftest import Start
from tests.acp.driver import Editor, Json, Refused, editor
from tests.acp.scripted_model import settings
from tests.cli.driver import Cli
from tests.fakes.endpoint import Endpoint, answer, calls

FORM: dict[str, object] = {"elicitation": {"form": {}}}
FILES: dict[str, object] = {"fs": {"writeTextFile": True}}


def asked(zed: Editor, method: str = "session/request_permission") -> Json:
    return zed.wait(lambda m: m.get("method") == method)["params"]


@pytest.mark.parametrize(("option", "answer"), [("allow", "allow"), ("deny", "deny")])
def test_a_permission_is_asked_with_the_exact_input_and_the_choice_counts(
    start: Start, option: str, answer: str
) -> None:
    zed = start()
    zed.answers["session/request_permission"] = lambda _: {
        "outcome": {"outcome": "selected", "optionId": option}
    }
    session = zed.new()
    assert zed.prompt(session, "!ask rm -rf build") == "end_turn"
    params = asked(zed)
    assert params["sessionId"] == session
    assert params["toolCall"]["title"] == "ask: rm -rf build"
    assert params["toolCall"]["rawInput"] == {"input": "rm -rf build"}
    assert {o["kind"] for o in params["options"]} == {"allow_once", "allow_always", "reject_once"}
    assert zed.texts(session).endswith(f"Answered: {answer}")


def test_always_is_remembered_in_the_session(start: Start) -> None:
    zed = start()
    zed.answers["session/request_permission"] = lambda _: {
        "outcome": {"outcome": "selected", "optionId": "always"}
    }
    session = zed.new()
    zed.prompt(session, "!ask once")
    zed.prompt(session, "!ask twice")
    assert len(zed.asked) == 1


@pytest.mark.parametrize(("mode", "answer"), [("auto", "allow"), ("read", "deny")])
def test_a_mode_answers_without_asking(start: Start, mode: str, answer: str) -> None:
    zed = start()
    session = zed.new()
    zed.call("session/set_mode", sessionId=session, modeId=mode)
    assert zed.prompt(session, "!ask rm") == "end_turn"
    assert zed.asked == []
    assert zed.texts(session).endswith(f"Answered: {answer}")


def test_a_cancelled_turn_takes_its_question_with_it(start: Start, home: Path) -> None:
    zed = start()
    session = zed.new()
    id_ = zed.say(session, "!ask rm")
    asked(zed)
    zed.notify("session/cancel", sessionId=session)
    assert zed.result(id_) == {"stopReason": "cancelled"}
    zed.wait(lambda m: m.get("method") == "$/cancel_request")
    assert Cli(home).json("questions", "list")["questions"] == []


def test_another_surface_may_answer_first(start: Start, home: Path) -> None:
    zed = start()
    session = zed.new()
    id_ = zed.say(session, "!ask rm")
    asked(zed)
    (waiting,) = Cli(home).json("questions", "list")["questions"]
    Cli(home).ok("questions", "answer", waiting["id"], "allow")
    assert zed.result(id_) == {"stopReason": "end_turn"}
    assert zed.texts(session).endswith("Answered: allow")
    zed.wait(lambda m: m.get("method") == "$/cancel_request")
    request = next(m for m in zed.seen if m.get("method") == "session/request_permission")
    late = {"outcome": {"outcome": "selected", "optionId": "deny"}}
    zed.send({"jsonrpc": "2.0", "id": request["id"], "result": late})
    assert zed.prompt(session, "lives on") == "end_turn"


def test_an_answer_typed_as_a_prompt_counts(start: Start) -> None:
    zed = start()
    session = zed.new()
    id_ = zed.say(session, "!ask rm")
    asked(zed)
    assert zed.prompt(session, "no") == "end_turn"
    assert zed.result(id_) == {"stopReason": "end_turn"}
    assert zed.texts(session).endswith("Answered: deny")


def test_a_client_that_dismisses_a_question_is_told_how_to_answer_it(start: Start, home: Path) -> None:
    zed = start()
    zed.answers["session/request_permission"] = lambda _: {"outcome": {"outcome": "cancelled"}}
    session = zed.new()
    id_ = zed.say(session, "!ask rm")
    asked(zed)
    (waiting,) = Cli(home).json("questions", "list")["questions"]
    zed.wait(lambda _: "still open" in zed.texts(session, "agent_thought_chunk"))
    told = zed.texts(session, "agent_thought_chunk")
    assert f"keryx questions answer {waiting['id']}" in told and "Answer 1, 2 or 3" in told
    assert zed.prompt(session, "1") == "end_turn"
    assert zed.result(id_) == {"stopReason": "end_turn"}


def test_a_question_that_a_client_refuses_is_told_at_once_and_one_that_is_cancelled_is_not(
    start: Start,
) -> None:
    zed = start()
    session = zed.new()
    id_ = zed.say(session, "!ask rm")
    asked(zed)
    request = next(m for m in zed.seen if m.get("method") == "session/request_permission")
    zed.send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "no such method"}})
    zed.wait(lambda _: "did not show this question" in zed.texts(session, "agent_thought_chunk"))
    zed.notify("session/cancel", sessionId=session)
    assert zed.result(id_) == {"stopReason": "cancelled"}
    zed.answers["session/request_permission"] = lambda _: {"outcome": {"outcome": "cancelled"}}
    since = zed.mark()
    id_ = zed.say(session, "!ask rm")
    zed.notify("session/cancel", sessionId=session)
    assert zed.result(id_) == {"stopReason": "cancelled"}
    assert zed.prompt(session, "hello") == "end_turn"
    assert "still open" not in zed.texts(session, "agent_thought_chunk", since=since)


def left(start: Start, *, kill: bool) -> str:
    """A session with a question whose editor went away."""
    zed = start()
    session = zed.new()
    zed.say(session, "!ask rm -rf build")
    asked(zed)
    if kill:
        zed.kill()
    else:
        zed.hang_up()
    return session


GONE = "The editor that asked has ended. The answer counts for the next try."


@pytest.mark.parametrize("kill", [True, False])
@pytest.mark.parametrize("answer", ["allow", "deny"])
def test_a_question_outlives_its_editor_and_its_answer_counts_for_the_next_try(
    start: Start, home: Path, answer: str, kill: bool
) -> None:
    session = left(start, kill=kill)
    (waiting,) = Cli(home).json("questions", "list")["questions"]
    assert waiting["session"] == session
    Cli(home).ok("questions", "answer", waiting["id"], answer)
    vim = start()
    vim.load(session)
    assert vim.prompt(session, "!ask rm -rf build") == "end_turn"
    assert vim.asked == []
    assert vim.texts(session).endswith(f"Answered: {answer}")
    again = vim.say(session, "!ask rm -rf build")
    asked(vim)
    vim.notify("session/cancel", sessionId=session)
    assert vim.result(again) == {"stopReason": "cancelled"}


def test_what_was_allowed_for_a_tool_of_a_model_is_done_at_the_next_try(home: Path, tmp_path: Path) -> None:
    given = '{"path": "a.txt", "content": "new"}'
    scripts = (
        calls(("c1", "write_text_file", given)),
        calls(("c2", "write_text_file", given)),
        answer("Done."),
    )
    with Endpoint(*scripts) as endpoint:
        more = settings(home, endpoint, titles=False)
        with editor(home, **more) as zed:
            zed.initialize(**FILES)
            session = zed.new(tmp_path)
            zed.say(session, "write it")
            asked(zed)
            zed.kill()
        (waiting,) = Cli(home).json("questions", "list")["questions"]
        Cli(home).ok("questions", "answer", waiting["id"], "allow")
        with editor(home, **more) as vim:
            vim.initialize(**FILES)
            vim.answers["fs/write_text_file"] = lambda _: {}
            vim.load(session, tmp_path)
            assert vim.prompt(session, "try again") == "end_turn"
            assert [m["method"] for m in vim.asked] == ["fs/write_text_file"]
            assert vim.texts(session) == "Done."


def test_a_question_that_was_left_is_told_where_it_is_seen_and_can_be_answered_there(
    start: Start, home: Path
) -> None:
    session = left(start, kill=True)
    vim = start()
    vim.load(session)
    vim.wait(lambda _: GONE in vim.texts(session, "agent_thought_chunk"))
    assert vim.asked == [], "no turn waits for it, so it is no request"
    assert GONE in Cli(home).ok("questions", "list").out
    assert vim.prompt(session, "yes") == "end_turn"
    assert vim.texts(session).endswith(f"Allowed once: May the echo agent go on? {GONE}")
    assert Cli(home).json("questions", "list")["questions"] == []
    vim.say(session, "!ask something else")
    assert asked(vim)["toolCall"]["title"] == "ask: something else"


def test_a_question_that_nobody_answers_runs_out(home: Path) -> None:
    with editor(home, KERYX_LIMITS_QUESTION="1s") as zed:
        zed.initialize()
        session = zed.new()
        assert zed.prompt(session, "!ask rm") == "end_turn"
        assert zed.texts(session).endswith("Answered: nothing")
        zed.wait(lambda m: m.get("method") == "$/cancel_request")


def agent(folder: Path, options: str) -> dict[str, str]:
    """An agent of somebody's own that asks one question."""
    (folder / "asker.py").write_text(
        "from keryx.core.ports.agent import TextDelta\n"
        "from keryx.core.questions import Option, Question\n"
        "async def agent(context):\n"
        f"    question = Question(key='q', title='Which colour?', detail='for the door', options={options})\n"
        "    yield TextDelta(f'It is {await context.ask(question)}')\n"
    )
    return {"KERYX_AGENT": "asker:agent", "PYTHONPATH": str(folder)}


def test_words_are_asked_for_in_a_form_where_the_editor_has_forms(home: Path, tmp_path: Path) -> None:
    with editor(home, **agent(tmp_path, "()")) as zed:
        zed.initialize(**FORM)
        zed.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {"answer": "red"}}
        session = zed.new()
        assert zed.prompt(session, "paint") == "end_turn"
        assert zed.texts(session) == "It is red"
        params = asked(zed, "elicitation/create")
        assert params["mode"] == "form"
        assert params["message"] == "Which colour?\n\nfor the door"
        assert list(params["requestedSchema"]["properties"]) == ["answer"]


def test_a_choice_is_put_as_a_form_or_else_as_buttons(home: Path, tmp_path: Path) -> None:
    more = agent(tmp_path, "(Option('r', 'Red'), Option('b', 'Blue'))")
    with editor(home, **more) as zed:
        zed.initialize(**FORM)
        zed.answers["elicitation/create"] = lambda _: {"action": "accept", "content": {"answer": "b"}}
        session = zed.new()
        zed.prompt(session, "paint")
        assert zed.texts(session) == "It is b"
    with editor(home, **more) as vim:
        vim.initialize()
        vim.answers["session/request_permission"] = lambda _: {
            "outcome": {"outcome": "selected", "optionId": "r"}
        }
        session = vim.new()
        vim.prompt(session, "paint")
        assert vim.texts(session) == "It is r"


def test_words_wait_for_another_surface_where_the_editor_has_no_forms(home: Path, tmp_path: Path) -> None:
    with editor(home, **agent(tmp_path, "()")) as zed:
        zed.initialize()
        session = zed.new()
        id_ = zed.say(session, "paint")
        Cli(home).until("Which colour?", "questions", "list", "--json")
        told = "Your editor cannot show this question. Answer with a message here"
        zed.wait(lambda _: told in zed.texts(session, "agent_thought_chunk"))
        assert zed.prompt(session, "green") == "end_turn"
        assert zed.result(id_) == {"stopReason": "end_turn"}
        assert zed.texts(session).endswith("It is green")
        assert zed.asked == []


def test_nobody_is_asked_by_a_turn_that_has_ended(start: Start) -> None:
    zed = start()
    session = zed.new()
    with pytest.raises(Refused):
        zed.prompt(session, "!fail")
    zed.load(session)
    assert zed.asked == []
