"""Prompts: answered once each, in order, in time, and stored before they are seen."""

import base64
import time
from pathlib import Path

import pytest
from tests.acp.conftest import Start
from tests.acp.driver import Editor, Json, Refused, endless, story
from tests.acp.scripted_model import thinking
from tests.builders import limit
from tests.fakes.endpoint import answer, finish, says

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_STORED = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "plan")


def answers(zed: Editor, *ids: object) -> list[object]:
    """The ids of the answers that came, in order, each time one came."""
    with_id = [m for m in zed.seen if "method" not in m]
    return [m["id"] for m in with_id if m["id"] in ids]


def test_a_prompt_streams_and_is_not_echoed(start: Start) -> None:
    zed = start()
    session = zed.new()
    assert zed.prompt(session, "slow 0.2 one two three") == "end_turn"
    chunks = [u for u in zed.updates(session) if u["sessionUpdate"] == "agent_message_chunk"]
    assert len(chunks) > 1
    assert zed.texts(session) == "one two three"
    assert zed.texts(session, "user_message_chunk") == ""


def test_an_answer_that_is_too_long_ends_with_what_came(start: Start) -> None:
    zed = start(KERYX_LIMITS_ANSWER="1000")
    session = zed.new()
    assert zed.prompt(session, "!words 20000") == "max_tokens"
    assert len(zed.texts(session)) == 1000
    assert zed.prompt(session, "hello") == "end_turn"


def test_the_answer_comes_after_every_update_of_its_turn(start: Start) -> None:
    zed = start()
    session = zed.new()
    for text in ("hello", "!tools 3", "!think deep", "!empty", "!plan a; b", "!words 2000"):
        id_ = zed.say(session, text)
        assert zed.result(id_)["stopReason"] == "end_turn"
        before = zed.mark()
        zed.call("session/list")
        later = zed.updates(session, since=before)
        assert [u for u in later if u["sessionUpdate"] != "session_info_update"] == [], text


def test_thoughts_tools_and_plans_are_shown_as_such(start: Start) -> None:
    zed = start()
    session = zed.new()
    zed.prompt(session, "!think why")
    assert zed.texts(session, "agent_thought_chunk") == "They said: why"
    zed.prompt(session, '!tool run_shell {"command": "ls -la /tmp"}')
    (call,) = [u for u in zed.updates(session) if u["sessionUpdate"] == "tool_call"]
    assert (call["title"], call["kind"], call["status"]) == (
        "run_shell: ls -la /tmp",
        "execute",
        "in_progress",
    )
    assert call["rawInput"] == {"command": "ls -la /tmp"}
    (done,) = [u for u in zed.updates(session) if u["sessionUpdate"] == "tool_call_update"]
    assert (done["toolCallId"], done["status"]) == (call["toolCallId"], "completed")
    zed.prompt(session, "!plan look; build")
    shown = [u["entries"] for u in zed.updates(session) if u["sessionUpdate"] == "plan"]
    assert shown[-1] == [
        {"content": "look", "priority": "medium", "status": "completed"},
        {"content": "build", "priority": "medium", "status": "completed"},
    ]
    assert [e["status"] for e in shown[0]] == ["in_progress", "in_progress"]


def test_a_failure_is_an_error_and_no_text_of_the_answer(start: Start) -> None:
    zed = start()
    session = zed.new()
    with pytest.raises(Refused, match="the disk is full"):
        zed.prompt(session, "!fail the disk is full")
    assert zed.texts(session) == "This will fail. "
    with pytest.raises(Refused, match="failed"):
        zed.prompt(session, "!crash")
    assert zed.prompt(session, "still here") == "end_turn"


def test_an_answer_that_was_cut_ends_with_its_reason_and_says_so_after_a_load(home: Path) -> None:
    cut = [*says("A long"), *finish("length")]
    with thinking(home, cut, answer("more")) as (zed, _):
        session = zed.new()
        assert zed.prompt(session, "tell me everything") == "max_tokens"
        assert zed.prompt(session, "go on") == "end_turn"
        since = zed.mark()
        zed.load(session)
        told = [u["content"]["text"] for u in zed.updates(session, since=since) if "content" in u]
        assert told[1] == "A long" and told[2].startswith("The answer ends here")


def test_an_empty_answer_is_told(start: Start) -> None:
    zed = start()
    session = zed.new()
    assert zed.prompt(session, "!empty") == "end_turn"
    assert zed.texts(session, "agent_thought_chunk") == "The agent gave no answer."


@pytest.mark.parametrize("text", ["slow 60 one two three four", "!deaf 60", "!silence"])
def test_a_cancel_is_answered_within_two_seconds(start: Start, text: str) -> None:
    zed = start()
    session = zed.new()
    id_ = zed.say(session, text)
    if text != "!silence":
        zed.wait(lambda _: bool(zed.texts(session)))
    began = time.monotonic()
    zed.notify("session/cancel", sessionId=session)
    assert zed.result(id_) == {"stopReason": "cancelled"}
    assert time.monotonic() - began < limit(2)
    mark = zed.mark()
    assert zed.prompt(session, "and now") == "end_turn"
    assert zed.texts(session, since=mark) == "and now"


def test_a_cancel_right_after_the_prompt_reaches_it(start: Start) -> None:
    zed = start()
    session = zed.new()
    for _ in range(5):
        id_ = zed.say(session, "slow 60 one two three")
        zed.notify("session/cancel", sessionId=session)
        assert zed.result(id_) == {"stopReason": "cancelled"}
    assert zed.prompt(session, "hello") == "end_turn"


def test_a_cancel_with_nothing_running_has_no_effect_on_the_next_prompt(start: Start) -> None:
    zed = start()
    session = zed.new()
    for _ in range(5):
        zed.notify("session/cancel", sessionId=session)
        assert zed.prompt(session, "hello") == "end_turn"


def test_a_cancelled_request_is_a_cancelled_turn(start: Start) -> None:
    zed = start()
    session = zed.new()
    id_ = zed.say(session, "slow 60 one two three")
    zed.until_text(session, "one")
    zed.notify("$/cancel_request", requestId=id_)
    assert zed.result(id_) == {"stopReason": "cancelled"}


def test_every_prompt_is_answered_once_and_nothing_of_it_follows(start: Start) -> None:
    zed = start()
    session = zed.new()
    said = ("hello", "!fail on purpose", "!crash", "!empty", "!think deep", "/status", "!tools 3")
    ids = [zed.say(session, text) for text in said]
    for id_ in ids:
        zed.wait(lambda m, id_=id_: "method" not in m and m["id"] == id_)
    for text in ("slow 60 one two", "!deaf 60"):
        since = zed.mark()
        ids.append(zed.say(session, text))
        zed.wait(lambda _, since=since: bool(zed.texts(session, since=since)))
        for _ in range(2):
            zed.notify("session/cancel", sessionId=session)
            zed.notify("$/cancel_request", requestId=ids[-1])
        assert zed.result(ids[-1]) == {"stopReason": "cancelled"}
        since = zed.mark()
        assert zed.prompt(session, "!empty") == "end_turn"
        assert zed.texts(session, since=since) == ""
    assert zed.hang_up() == 0
    assert sorted(map(str, answers(zed, *ids))) == sorted(map(str, ids))


def test_a_second_prompt_waits_and_has_its_own_answer(start: Start) -> None:
    zed = start()
    session = zed.new()
    first = zed.say(session, "slow 1 one two three")
    zed.until_text(session, "one")
    second = zed.say(session, "the second")
    third = zed.say(session, "the third")
    for id_ in (third, second, first):
        assert zed.result(id_) == {"stopReason": "end_turn"}
    assert answers(zed, first, second, third) == [first, second, third]
    assert zed.texts(session) == "one two threethe secondthe third"
    ends = [m.get("id") or m["params"]["update"]["sessionUpdate"] for m in zed.seen]
    assert ends.index(first) < len(ends) - 1 - ends[::-1].index("agent_message_chunk")


def test_a_cancel_drops_what_waits_as_well(start: Start) -> None:
    zed = start()
    session = zed.new()
    first, second = zed.say(session, "slow 60 one two"), zed.say(session, "the second")
    zed.until_text(session, "one")
    zed.notify("session/cancel", sessionId=session)
    assert [zed.result(i)["stopReason"] for i in (first, second)] == ["cancelled", "cancelled"]
    assert "the second" not in zed.texts(session)


def test_sessions_run_side_by_side(start: Start) -> None:
    zed = start()
    slow, quick = zed.new(), zed.new()
    id_ = zed.say(slow, "slow 30 one two three")
    zed.until_text(slow, "one")
    assert zed.prompt(quick, "quick") == "end_turn"
    zed.notify("session/cancel", sessionId=slow)
    assert zed.result(id_) == {"stopReason": "cancelled"}


def test_after_a_kill_everything_that_was_seen_is_there_in_order_and_once(start: Start) -> None:
    """Killed between prompts and in mid-answer, at several places."""
    session, seen = "", []
    for text in ("first", endless("one two three"), "!tool ls {}", endless("alpha beta gamma")):
        zed = start()
        if session:
            zed.load(session)
            assert _conversation(story(zed.updates(session)), seen) == seen
        else:
            session = zed.new()
        id_ = zed.say(session, text)
        if text.startswith("slow"):
            zed.until_text(session, "two" if "two" in text else "beta")
        else:
            zed.result(id_)
        zed.kill()
        seen = _seen(zed, session)
    last = start()
    last.load(session)
    shown = story(last.updates(session))
    assert _conversation(shown, seen) == seen
    assert len(shown) == len({id_ for _, id_, _ in shown})
    assert last.prompt(session, "still works") == "end_turn"


def _seen(zed: Editor, session: str) -> list[tuple[str, str, str]]:
    """What a person saw: what the editor was sent, live and replayed, without notices that follow a kill."""
    return [entry for entry in story(zed.updates(session)) if entry[0] != "agent_thought_chunk"]


def _conversation(
    shown: list[tuple[str, str, str]], seen: list[tuple[str, str, str]]
) -> list[tuple[str, str, str]]:
    """The part of a replay that was seen before. A killed answer may have been stored a little further."""
    known = {id_: text for _, id_, text in seen}
    return [
        (kind, id_, known[id_]) for kind, id_, text in shown if id_ in known and text.startswith(known[id_])
    ]


def test_a_killed_turn_is_closed_with_a_mark_and_not_run_elsewhere(start: Start) -> None:
    zed = start()
    session = zed.new()
    zed.say(session, endless("one two"))
    zed.until_text(session, "two")
    zed.kill()
    other = start()
    other.load(session)
    shown = other.updates(session)
    (answer,) = {u["messageId"] for u in shown if u["sessionUpdate"] == "agent_message_chunk"}
    marks: list[Json] = [u.get("_meta", {}) for u in shown if u.get("messageId") == answer]
    assert marks == [{"keryx": {"mark": "interrupted"}}]
    assert "The program that ran this turn has ended" in other.texts(session, "agent_thought_chunk")
    assert other.prompt(session, "go on") == "end_turn"
    assert "end" not in other.texts(session).split()


def test_loading_changes_nothing_and_gives_the_same_every_time(start: Start) -> None:
    zed = start()
    session = zed.new()
    for text in ("hello", "!think why", "!tools 2", "!plan a; b"):
        zed.prompt(session, text)
    live = story(zed.updates(session))
    replays: list[list[Json]] = []
    for _ in range(3):
        mark = zed.mark()
        zed.load(session)
        replays.append([u for u in zed.updates(session, since=mark) if u["sessionUpdate"] in _STORED])
    assert replays[0] == replays[1] == replays[2]
    replayed = story(replays[0])
    assert [entry for entry in replayed if entry[0] != "user_message_chunk"] == live


def test_a_load_comes_before_its_answer_and_a_resume_shows_nothing(start: Start) -> None:
    zed = start()
    session = zed.new()
    zed.prompt(session, "hello")
    other = start()
    id_ = other.ask("session/load", sessionId=session, cwd="/tmp", mcpServers=[])
    other.result(id_)
    kinds = [m["params"]["update"]["sessionUpdate"] if "method" in m else m["id"] for m in other.seen]
    at = kinds.index(id_)
    assert kinds[at - 2 : at] == ["user_message_chunk", "agent_message_chunk"]
    third = start()
    answer = third.call("session/resume", sessionId=session, cwd="/tmp", mcpServers=[])
    assert [o["id"] for o in answer["configOptions"]] == ["mode", "effort"]
    assert third.prompt(session, "more") == "end_turn"
    assert third.texts(session) == "more"
    assert third.texts(session, "user_message_chunk") == ""


def test_a_load_during_a_turn_goes_on_with_it_and_a_cancel_still_reaches_it(start: Start) -> None:
    zed = start()
    session = zed.new()
    id_ = zed.say(session, endless("one two three"))
    zed.until_text(session, "two")
    mark = zed.mark()
    zed.load(session)
    zed.wait(lambda _: "three" in zed.texts(session, since=mark))
    assert zed.texts(session, since=mark).startswith("one two three")
    zed.notify("session/cancel", sessionId=session)
    assert zed.result(id_) == {"stopReason": "cancelled"}


def test_the_title_follows_the_first_exchange_and_commands_work(start: Start) -> None:
    zed = start()
    session = zed.new()
    assert zed.prompt(session, "/help") == "end_turn"
    assert "/title" in zed.texts(session)
    assert zed.call("session/list") == {"sessions": []}
    zed.prompt(session, "where is the pump")
    titles = [u["title"] for u in zed.updates(session) if u["sessionUpdate"] == "session_info_update"]
    assert titles == ["where is the pump"]
    zed.prompt(session, "/title The pump")
    zed.wait(lambda m: m.get("params", {}).get("update", {}).get("title") == "The pump")
    (commands,) = [u for u in zed.updates(session) if u["sessionUpdate"] == "available_commands_update"]
    names = {c["name"] for c in commands["availableCommands"]}
    assert {"title", "undo", "retry", "model"} <= names
    assert not names & {"new", "resume"}


def test_a_retry_runs_in_this_process(start: Start) -> None:
    zed = start()
    session = zed.new()
    zed.say(session, endless("one two"))
    zed.until_text(session, "two")
    zed.kill()
    other = start()
    other.load(session)
    id_ = other.say(session, "/retry")
    other.until_text(session, "one", since=other.mark())
    other.notify("session/cancel", sessionId=session)
    assert other.result(id_) == {"stopReason": "cancelled"}


def test_embedded_files_and_links_reach_the_agent(start: Start) -> None:
    zed = start()
    session = zed.new()
    blocks = [
        {"type": "text", "text": "look at "},
        {"type": "resource_link", "uri": "file:///tmp/a.py", "name": "a.py"},
        {"type": "text", "text": " please"},
        {"type": "resource", "resource": {"uri": "file:///tmp/b.py", "text": "b = 1"}},
    ]
    zed.result(zed.ask("session/prompt", sessionId=session, prompt=blocks))
    assert zed.texts(session) == (
        "look at [a.py](file:///tmp/a.py) please\n[file file:///tmp/b.py]\nb = 1\n[end of file]\n"
    )
    bad: tuple[list[Json], ...] = (
        [],
        [{"type": "text", "text": "  "}],
        [{"type": "image", "data": "?"}],
        [{"type": "cube"}],
    )
    for wrong in bad:
        with pytest.raises(Refused) as refused:
            zed.result(zed.ask("session/prompt", sessionId=session, prompt=wrong))
        assert refused.value.code == -32602


def test_a_picture_is_kept_with_its_message(start: Start) -> None:
    zed = start()
    session = zed.new()
    body = base64.b64encode(PIXEL).decode()
    blocks = [
        {"type": "image", "data": body, "mimeType": "image/png", "uri": "file:///tmp/dot.png"},
        {"type": "text", "text": "what is this"},
    ]
    assert zed.result(zed.ask("session/prompt", sessionId=session, prompt=blocks)) == {
        "stopReason": "end_turn"
    }
    assert zed.texts(session) == "what is this"
    zed.load(session)
    picture, text = [u["content"] for u in zed.updates(session) if u["sessionUpdate"] == "user_message_chunk"]
    assert picture == {"type": "image", "mimeType": "image/png", "data": body}
    assert text == {"type": "text", "text": "what is this"}


def test_a_prompt_that_steers_the_running_turn_is_answered_with_it(start: Start) -> None:
    zed = start()
    session = zed.new()
    zed.prompt(session, "hello")
    first = zed.say(session, "!wait 2")
    zed.until_text(session, "Waiting.")
    second = zed.say(session, "/steer use metres")
    assert [zed.result(i)["stopReason"] for i in (first, second)] == ["end_turn", "end_turn"]
    assert zed.texts(session).endswith("Steered: use metres")
