"""Compactions, as an editor shows them: where and with which summary, live and in a replay, once each."""

from pathlib import Path

import pytest
from tests.acp.driver import Editor, Json, editor, story
from tests.acp.scripted_model import thinking
from tests.fakes.endpoint import Refusal, answer

ABLE: dict[str, object] = {"session": {"compaction": {}}}
TALK = (answer("A1"), answer("A2"), answer("In short."))
FULL = answer("w" * 2400)


def markers(updates: list[Json]) -> list[Json]:
    return [
        u
        for u in updates
        if u["sessionUpdate"] == "compaction_update" or u.get("_meta", {}).get("keryx", {}).get("compacted")
    ]


def replayed(zed: Editor, session: str) -> list[Json]:
    mark = zed.mark()
    zed.load(session)
    return zed.updates(session, since=mark)


def test_a_compaction_that_was_asked_for_is_a_marker_with_its_summary(home: Path) -> None:
    with thinking(home, *TALK, capabilities=ABLE, titles=False) as (zed, _):
        session = zed.new()
        for text in ("q1", "q2", "/compact the dates"):
            assert zed.prompt(session, text) == "end_turn"
        (shown,) = markers(zed.updates(session))
        assert (shown["sessionUpdate"], shown["status"]) == ("compaction_update", "completed")
        assert shown["summary"] == [{"type": "text", "text": "In short."}]
        assert zed.texts(session) == "A1A2"
        assert zed.texts(session, "user_message_chunk") == ""
        again = replayed(zed, session)
        assert markers(again) == [shown]
        said = [text for kind, _, text in story(again) if kind == "user_message_chunk"]
        assert said == ["q1", "q2", "/compact the dates"]
        kinds = [u["sessionUpdate"] for u in again]
        assert kinds.index("compaction_update") == 5


def test_an_editor_without_a_place_for_it_shows_it_among_the_thoughts(home: Path) -> None:
    """Another editor sees who asked for it as well."""
    with thinking(home, *TALK, capabilities={"session": {"notices": {}}}, titles=False) as (zed, _):
        session = zed.new()
        for text in ("q1", "q2"):
            zed.prompt(session, text)
        with editor(home, KERYX_AGENT="echo") as other:
            other.initialize()
            other.load(session)
            zed.prompt(session, "/compact")
            other.wait(lambda _: bool(markers(other.updates(session))))
            assert other.texts(session, "user_message_chunk") == "q1q2/compact"
            assert markers(other.updates(session)) == markers(zed.updates(session))
        (shown,) = markers(zed.updates(session))
        assert shown["sessionUpdate"] == "agent_thought_chunk"
        assert (
            shown["content"]["text"]
            == "Older messages were summarized to make room. The model goes on from this:\n\nIn short."
        )
        assert markers(replayed(zed, session)) == [shown]


@pytest.mark.parametrize("able", [True, False])
def test_a_compaction_by_itself_is_shown_too(home: Path, able: bool) -> None:
    script = (answer("A1"), FULL, answer("In short."))
    model = {"titles": False, "tools": False, "context": 600}
    with thinking(home, *script, capabilities=ABLE if able else {}, **model) as (zed, _):
        session = zed.new()
        for text in ("q1", "q2", "q3"):
            assert zed.prompt(session, text) == "end_turn"
        (shown,) = markers(zed.updates(session))
        assert "In short." in str(shown)
        assert markers(replayed(zed, session)) == [shown]


def test_a_compaction_that_fails_says_why(home: Path) -> None:
    down = Refusal(status=400, message="no such thing")
    script = (answer("A1"), FULL, down, answer("A3"))
    with thinking(home, *script, capabilities=ABLE, titles=False, tools=False, context=600) as (zed, _):
        session = zed.new()
        for text in ("q1", "q2", "q3"):
            assert zed.prompt(session, text) == "end_turn"
        (shown,) = markers(zed.updates(session))
        assert shown["status"] == "failed" and "could not be summarized" in shown["error"]
        assert markers(replayed(zed, session)) == [shown]
