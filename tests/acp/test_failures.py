"""Failures: an error for the editor and a notice in the conversation, and never words of the assistant."""

from pathlib import Path

import pytest
from tests.acp.driver import Refused
from tests.acp.scripted_model import thinking
from tests.fakes.endpoint import Refusal, Script, answer, calls, delta, finish

NO_SUCH_MODEL = Refusal(status=404, message="no such model", code="model_not_found")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (NO_SUCH_MODEL, "does not know the id"),
        (Refusal(status=401, message="bad key"), "was refused"),
        ([delta(refusal="I will not."), *finish()], "refused to answer: I will not."),
        (finish("content_filter"), "filter stopped"),
        (finish("length"), "before it had answered"),
    ],
)
def test_what_goes_wrong_with_a_model_is_an_error_and_a_notice_in_the_replay(
    home: Path, script: Script, reason: str
) -> None:
    with thinking(home, script, answer("Fine.")) as (zed, _):
        session = zed.new()
        with pytest.raises(Refused, match=reason) as refused:
            zed.prompt(session, "hello")
        assert refused.value.code == -32603
        assert zed.texts(session) == zed.texts(session, "agent_thought_chunk") == ""
        assert zed.prompt(session, "again") == "end_turn"
        assert zed.texts(session) == "Fine."
        since = zed.mark()
        zed.load(session)
        assert zed.texts(session, since=since) == "Fine."
        assert reason in zed.texts(session, "agent_thought_chunk", since=since)


def test_a_model_that_breaks_off_keeps_its_words_and_adds_none(home: Path) -> None:
    script = [delta(content="So far"), {"error": {"message": "the engine died", "code": 500}}]
    with thinking(home, script) as (zed, _):
        session = zed.new()
        with pytest.raises(Refused):
            zed.prompt(session, "hello")
        assert zed.texts(session) == "So far"


def test_a_tool_that_fails_is_a_failed_call_and_the_turn_goes_on(home: Path, tmp_path: Path) -> None:
    script = (calls(("c1", "read_text_file", '{"path": "../outside"}')), answer("I could not."))
    with thinking(home, *script, capabilities={"fs": {"readTextFile": True}}) as (zed, _):
        session = zed.new(tmp_path)
        assert zed.prompt(session, "read it") == "end_turn"
        assert zed.texts(session) == "I could not."
        updates = [u for u in zed.updates(session) if u["sessionUpdate"] == "tool_call_update"]
        assert [u["status"] for u in updates][-1] == "failed"
