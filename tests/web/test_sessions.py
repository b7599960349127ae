"""Conversations over HTTP: sent, shown, changed, forked, taken back, on both engines."""

import errno
import tempfile
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import IO, Any, cast

import pytest
from tests.engine.conftest import Begin
from tests.engine.world import OPEN, OPERATORS, Pause, Scenes, World
from tests.web.site import Site, open_site

from keryx.core.ids import DEFAULT_PROFILE, SessionId, TurnId
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.ports.adapter import Receipt
from keryx.core.ports.agent import (
    AgentEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallEvent,
    ToolResultEvent,
    TurnContext,
)
from keryx.core.sessions import EndReason
from keryx.core.turns import TurnLimits
from keryx.engine.policy import Policy
from keryx.store import people
from keryx.store.db import Engine, Transaction
from keryx.testing import ScriptedAgent

pytestmark = pytest.mark.engines(Engine.SQLITE)


async def begun(site: Site, world: World, text: str = "hello") -> str:
    """A conversation of one question and its answer."""
    sent = await site.post("/api/sessions", {"text": text})
    await world.settle(TurnId(sent["turn"]))
    return sent["session"]


async def test_a_message_begins_a_conversation_and_is_answered(site: Site, world: World) -> None:
    session = await begun(site, world, "hello **you**")
    found = await site.get(f"/api/sessions/{session}")
    assert [m["role"] for m in found["messages"]] == ["user", "assistant"]
    assert found["messages"][1]["parts"][0]["html"] == "<p>hello <strong>you</strong></p>\n"
    assert found["session"]["title"] == "hello you"
    assert found["session"]["last_seq"] == 2


async def test_an_answer_without_an_end_is_shown_as_far_as_it_came(begin: Begin) -> None:
    class Flooding:
        async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
            while True:
                yield TextDelta("more and more ")

    limits = TurnLimits(settle=timedelta(0), answer=50_000)
    world = await begin(agent=Flooding(), policy=Policy(limits=limits, access=OPEN))
    async with open_site(world.hub, world.clock) as site:
        session = await begun(site, world)
        found = await site.get(f"/api/sessions/{session}")
    assert [m["role"] for m in found["messages"]] == ["user", "assistant", "notice"]
    assert len(found["messages"][1]["parts"][0]["text"]) == 50_000
    told = found["messages"][2]["parts"][0]["text"]
    assert told == "The answer is longer than 50,000 characters and ends here. /retry asks again."


async def test_a_send_that_is_repeated_takes_effect_once(site: Site) -> None:
    key = {"Idempotency-Key": "one-1"}
    first = await site.post("/api/sessions", {"text": "once"}, headers=key)
    again = await site.post("/api/sessions", {"text": "once"}, headers=key)
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert (again["session"], again["seq"]) == (first["session"], first["seq"])
    found = await site.get(f"/api/sessions/{first['session']}")
    assert [m["client"] for m in found["messages"] if m["role"] == "user"] == ["one-1"]
    assert len((await site.get("/api/sessions"))["sessions"]) == 1


async def test_a_key_is_for_one_message(site: Site) -> None:
    key = {"Idempotency-Key": "one-1"}
    first = await site.post("/api/sessions", {"text": "once"}, headers=key)
    detail = await site.problem(409, "POST", "/api/sessions", json={"text": "another"}, headers=key)
    assert "key" in detail
    place = f"/api/sessions/{first['session']}/messages"
    await site.problem(409, "POST", place, json={"text": "once"}, headers=key)
    assert (await site.post("/api/sessions", {"text": "once"}, headers=key))["duplicate"]
    found = await site.get(f"/api/sessions/{first['session']}")
    assert [m["parts"][0]["text"] for m in found["messages"] if m["role"] == "user"] == ["once"]


async def test_a_key_is_for_one_command(site: Site, world: World) -> None:
    place, key = f"/api/sessions/{await begun(site, world)}/messages", {"Idempotency-Key": "one-1"}
    first = await site.post(place, {"text": "/model large"}, headers=key)
    await site.problem(409, "POST", place, json={"text": "/model small"}, headers=key)
    again = await site.post(place, {"text": "/model large"}, headers=key)
    assert (again["duplicate"], again["reply"]) == (True, first["reply"])


async def test_a_setting_begins_a_conversation(site: Site, world: World) -> None:
    sent = await site.post("/api/sessions", {"text": "/model large"})
    found = await site.get(f"/api/sessions/{sent['session']}")
    assert sent["reply"] == "Model: large."
    assert found["session"]["settings"] == {"model": "large"}
    assert [m["parts"][0]["text"] for m in found["messages"]] == ["Model: large."]
    await site.post(f"/api/sessions/{sent['session']}/messages", {"text": "hello"})
    assert len((await site.get("/api/sessions"))["sessions"]) == 1


async def test_a_slash_command_is_answered_in_the_reply(site: Site, world: World) -> None:
    session = await begun(site, world)
    sent = await site.post(f"/api/sessions/{session}/messages", {"text": "/title Trip to Oslo"})
    assert "Oslo" in sent["reply"]
    assert "turn" not in sent
    assert (await site.get(f"/api/sessions/{session}"))["session"]["title"] == "Trip to Oslo"


async def test_settings_and_project_are_given_with_the_first_message(site: Site, world: World) -> None:
    project = await site.post("/api/projects", {"name": "Travel", "colour": "#336699"})
    sent = await site.post(
        "/api/sessions", {"text": "hi", "settings": {"model": "small"}, "project": project["id"]}
    )
    found = (await site.get(f"/api/sessions/{sent['session']}"))["session"]
    assert found["settings"] == {"model": "small"}
    assert found["project"] == project["id"]
    assert (await site.get("/api/projects"))["projects"][0]["sessions"] == 1


async def test_a_session_is_renamed_pinned_archived_ended_and_set_up(site: Site, world: World) -> None:
    session = await begun(site, world)
    changed = await site.patch(
        f"/api/sessions/{session}",
        {"title": "Plans", "pinned": True, "archived": True, "ended": True, "settings": {"effort": "high"}},
    )
    assert (changed["title"], changed["pinned"], changed["archived"]) == ("Plans", True, True)
    assert (changed["end_reason"], changed["settings"]) == ("person", {"effort": "high"})
    reopened = await site.patch(f"/api/sessions/{session}", {"ended": False, "archived": False})
    assert "ended_at" not in reopened
    assert "archived" not in reopened


async def test_a_deleted_session_is_gone_until_it_is_brought_back(site: Site, world: World) -> None:
    session = await begun(site, world)
    assert await site.delete(f"/api/sessions/{session}") is None
    await site.problem(404, "GET", f"/api/sessions/{session}")
    assert (await site.post(f"/api/sessions/{session}/undelete"))["id"] == session
    await site.delete(f"/api/sessions/{session}?erase=true")
    await site.problem(404, "POST", f"/api/sessions/{session}/undelete")


async def test_windows_lie_before_after_and_around_a_message(site: Site, world: World) -> None:
    session = await begun(site, world, "one")
    for text in ("two", "three", "four"):
        sent = await site.post(f"/api/sessions/{session}/messages", {"text": text})
        await world.settle(TurnId(sent["turn"]))
    path = f"/api/sessions/{session}/messages"

    async def seqs(query: str) -> tuple[list[int], bool, bool]:
        found = await site.get(f"{path}?{query}")
        return [m["seq"] for m in found["messages"]], found.get("earlier", False), found.get("later", False)

    assert await seqs("limit=3") == ([6, 7, 8], True, False)
    assert await seqs("before=4&limit=2") == ([2, 3], True, True)
    assert await seqs("after=6") == ([7, 8], True, False)
    assert await seqs("around=4&limit=4") == ([2, 3, 4, 5], True, True)
    assert await seqs("around=8&limit=3") == ([6, 7, 8], True, False)
    assert await seqs("before=1") == ([], False, False)
    assert [m["seq"] for m in (await site.get(f"/api/sessions/{session}?around=1&limit=2"))["messages"]] == [
        1,
        2,
    ]
    await site.problem(400, "GET", f"{path}?before=3&after=1")


async def test_turns_are_undone_redone_and_retried(site: Site, world: World) -> None:
    session = await begun(site, world, "first")
    assert await site.post(f"/api/sessions/{session}/undo") == {"turns": 1, "text": "first"}
    shown = (await site.get(f"/api/sessions/{session}"))["messages"]
    assert all(m["undone"] for m in shown)
    assert await site.post(f"/api/sessions/{session}/redo") == {"messages": 2}
    again = await site.post(f"/api/sessions/{session}/retry")
    await world.settle(TurnId(again["turn"]))
    roles = [
        (m["role"], bool(m.get("undone"))) for m in (await site.get(f"/api/sessions/{session}"))["messages"]
    ]
    assert roles == [("user", True), ("assistant", True), ("user", False), ("assistant", False)]


async def test_everything_from_a_message_on_is_taken_back(site: Site, world: World) -> None:
    session = await begun(site, world, "first")
    for text in ("second", "third"):
        sent = await site.post(f"/api/sessions/{session}/messages", {"text": text})
        await world.settle(TurnId(sent["turn"]))
    undone = await site.post(f"/api/sessions/{session}/undo", {"message": 3})
    assert undone == {"turns": 2, "text": "second"}
    shown = (await site.get(f"/api/sessions/{session}"))["messages"]
    assert [bool(m.get("undone")) for m in shown] == [False, False, True, True, True, True]
    await site.problem(404, "POST", f"/api/sessions/{session}/undo", json={"message": 99})


@pytest.mark.engines(*Engine)
async def test_old_conversations_are_previewed_then_archived_or_deleted(site: Site, world: World) -> None:
    old, pinned = await begun(site, world, "old"), await begun(site, world, "pinned")
    await site.patch(f"/api/sessions/{pinned}", {"pinned": True})
    world.advance(timedelta(days=40))
    new = await begun(site, world, "new")
    before = (world.clock.now() - timedelta(days=30)).isoformat()
    preview = await site.get("/api/prunable", params={"before": before})
    assert (preview["count"], [s["id"] for s in preview["sessions"]]) == (1, [old])
    assert (await site.get("/api/prunable", params={"before": before, "surface": "cli"}))["count"] == 0
    assert await site.post("/api/prune", {"before": before}) == {"count": 1}
    assert {s["id"] for s in (await site.get("/api/sessions"))["sessions"]} == {pinned, new}
    assert await site.post("/api/prune", {"before": before}) == {"count": 0}
    assert await site.post("/api/prune", {"before": before, "delete": True}) == {"count": 1}
    await site.problem(404, "GET", f"/api/sessions/{old}")
    await site.problem(400, "POST", "/api/prune", json={"delete": True})


@pytest.mark.engines(*Engine)
async def test_what_a_filter_matches_is_previewed_and_what_is_used_since_stays(
    site: Site, world: World
) -> None:
    one = await begun(site, world, "one")
    world.advance(timedelta(minutes=1))
    two = await begun(site, world, "two")
    await site.patch("/api/sessions", {"sessions": [one, two], "add_tags": ["old"]})
    world.advance(timedelta(minutes=1))
    preview = await site.get("/api/prunable", params={"q": "tag:old", "delete": "true"})
    assert (preview["count"], [s["id"] for s in preview["sessions"]]) == (2, [one, two])
    world.advance(timedelta(minutes=1))
    sent = await site.post(f"/api/sessions/{two}/messages", {"text": "not yet"})
    await world.settle(TurnId(sent["turn"]))
    body = {"q": "tag:old", "delete": True, "before": preview["before"]}
    assert await site.post("/api/prune", body) == {"count": 1}
    await site.problem(404, "GET", f"/api/sessions/{one}")
    assert [s["id"] for s in (await site.get("/api/sessions", params={"q": "is:deleted"}))["sessions"]] == [
        one
    ]
    assert "before" in await site.problem(400, "GET", "/api/prunable")
    assert "search for words" in await site.problem(400, "GET", "/api/sessions", params={"q": "hello"})


@pytest.mark.engines(*Engine)
async def test_several_conversations_are_changed_deleted_and_brought_back(site: Site, world: World) -> None:
    both = [await begun(site, world, "one"), await begun(site, world, "two")]
    project = await site.post("/api/projects", {"name": "Travel"})
    tag = await site.post("/api/tags", {"name": "soon", "colour": "teal"})
    change = {"sessions": both, "pinned": True, "project": project["id"], "add_tags": ["soon"]}
    changed = (await site.patch("/api/sessions", change))["sessions"]
    assert [(s["pinned"], s["project"], s["tags"]) for s in changed] == [
        (True, project["id"], [tag["id"]])
    ] * 2
    assert (await site.get("/api/tags"))["tags"][0]["sessions"] == 2
    assert (await site.get(f"/api/sessions/{both[0]}"))["session"]["tags"] == [tag["id"]]
    one = await site.patch(f"/api/sessions/{both[0]}", {"tags": ["later"]})
    assert len(one["tags"]) == 1 and one["tags"] != [tag["id"]]
    gone = await site.patch("/api/sessions", {"sessions": both, "deleted": True})
    assert all(s["deleted_at"] and s["erase_at"] for s in gone["sessions"])
    # All or nothing: a deleted conversation cannot be pinned, so the other one stays as it is.
    third = await begun(site, world, "three")
    await site.problem(404, "PATCH", "/api/sessions", json={"sessions": [third, both[0]], "pinned": True})
    assert not (await site.get(f"/api/sessions/{third}"))["session"].get("pinned")
    await site.patch("/api/sessions", {"sessions": both[:1], "deleted": False})
    assert (await site.patch("/api/sessions", {"sessions": both[1:], "erase": True}))["sessions"] == []
    assert {s["id"] for s in (await site.get("/api/sessions"))["sessions"]} == {both[0], third}
    await site.problem(404, "POST", f"/api/sessions/{both[1]}/undelete")
    await site.problem(400, "PATCH", "/api/sessions", json={"sessions": [], "pinned": True})


async def test_several_conversations_are_one_file(site: Site, world: World) -> None:
    both = [await begun(site, world, "one"), await begun(site, world, "two")]
    answer = await site.request("POST", "/api/export", json={"sessions": both, "format": "jsonl"})
    assert answer.headers["content-disposition"].startswith('attachment; filename="conversations.jsonl"')
    assert answer.text.count('"record":"session"') == 2


async def test_people_are_offered_by_the_beginning_of_their_names(site: Site, world: World) -> None:
    def arrange(tx: Transaction) -> None:
        for name in ("Ann", "Bob", "anton"):
            people.resolve(tx, profile=DEFAULT_PROFILE, platform="telegram", person=name, name=name)

    await world.write(arrange)
    found = (await site.get("/api/people-names", params={"prefix": "A"}))["people"]
    assert [p["name"] for p in found] == ["Ann", "anton"]
    assert (await site.get("/api/sessions", params={"q": f"person:{found[0]['id']}"})) == {"sessions": []}


@pytest.mark.engines(*Engine)
async def test_an_old_question_is_edited_in_a_fork_once(site: Site, world: World) -> None:
    session = await begun(site, world, "first")
    sent = await site.post(f"/api/sessions/{session}/messages", {"text": "second"})
    await world.settle(TurnId(sent["turn"]))
    body, key = {"through": 2, "text": "second, better"}, {"Idempotency-Key": "edit"}
    forked = await site.post(f"/api/sessions/{session}/fork", body, headers=key)
    again = await site.post(f"/api/sessions/{session}/fork", body, headers=key)
    assert again["session"]["id"] == forked["session"]["id"] != session
    await world.settle(TurnId(forked["sent"]["turn"]))
    child = await site.get(f"/api/sessions/{forked['session']['id']}")
    texts = [m["parts"][0]["text"] for m in child["messages"]]
    assert texts == ["first", "first", "second, better", "second, better"]
    assert (child["session"]["parent"], child["session"]["parent_seq"]) == (session, 2)
    family = (await site.get(f"/api/sessions/{child['session']['id']}/lineage"))["branches"]
    assert [b["id"] for b in family] == [session, child["session"]["id"]]


async def test_the_first_question_is_edited_in_a_new_conversation(site: Site, world: World) -> None:
    session = await begun(site, world, "first")
    await site.patch(f"/api/sessions/{session}", {"settings": {"model": "small"}})
    forked = await site.post(f"/api/sessions/{session}/fork", {"through": 0, "text": "better"})
    assert forked["session"]["settings"] == {"model": "small"}
    found = await site.get(f"/api/sessions/{forked['session']['id']}")
    assert found["messages"][0]["parts"][0]["text"] == "better"


async def test_long_reasoning_is_shown_in_part(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([ReasoningDelta("*h* " * 40_000), TextDelta("Done.")]))
    async with open_site(world.hub, world.clock) as site:
        found = await site.get(f"/api/sessions/{await begun(site, world)}")
        answer = found["messages"][1]
        assert (answer["parts"][0]["cut"], len(answer["parts"][0]["text"])) == (True, 100_000)
        assert answer["parts"][1]["text"] == "Done."
        whole = await site.get(f"/api/messages/{answer['id']}")
        assert whole["parts"][0]["text"] == "*h* " * 40_000


@pytest.mark.engines(*Engine)
async def test_a_busy_conversation_shows_its_draft_queue_and_steps(begin: Begin) -> None:
    pause = Pause()
    call = ToolCall("c1", "search", '{"query": "oslo"}')
    script = (
        ToolCallEvent((call,)),
        ToolResultEvent(ToolResult("c1", "search", "x" * 9000)),
        ReasoningDelta("hm"),
        TextDelta("so **far**"),
        pause,
    )
    world = await begin(agent=Scenes({"work": script}))
    async with open_site(world.hub, world.clock) as site:
        sent = await site.post("/api/sessions", {"text": "work now"})
        await pause.reached()
        waiting = await site.post(f"/api/sessions/{sent['session']}/messages", {"text": "and then?"})
        await world.drafted(Receipt(duplicate=False, session=SessionId(sent["session"])), "hmso **far**")
        found = await site.get(f"/api/sessions/{sent['session']}")
        assert found["running"]["id"] == found["draft"]["turn"] == sent["turn"]
        assert found["draft"]["parts"][-1] == {
            "text": "so **far**",
            "blocks": ["<p>so <strong>far</strong></p>\n"],
        }
        result = found["messages"][2]["parts"][0]
        assert (result["cut"], len(result["output"])) == (True, 4000)
        whole = await site.get(f"/api/messages/{found['messages'][2]['id']}")
        assert len(whole["parts"][0]["output"]) == 9000
        assert [w["turn"]["id"] for w in found["queue"]] == [waiting["turn"]]

        row = (await site.get("/api/turns"))["turns"][0]
        assert (row["step"], row["asked"]) == ("search oslo", "work now")
        message = found["queue"][0]["message"]["id"]
        edited = await site.patch(f"/api/messages/{message}", {"text": "or now?"})
        assert edited["parts"][0]["text"] == "or now?"
        await site.delete(f"/api/turns/{waiting['turn']}")
        assert (await site.get(f"/api/sessions/{sent['session']}/queue"))["waiting"] == []
        await site.problem(409, "DELETE", f"/api/turns/{sent['turn']}")
        stopped = await site.post(f"/api/sessions/{sent['session']}/stop")
        assert stopped["turn"]["id"] == sent["turn"]
        turn = await world.settle(TurnId(sent["turn"]))
        assert turn.state == "cancelled"


async def test_unsent_text_is_kept_until_it_is_sent(site: Site, world: World) -> None:
    await site.put("/api/composers/new", {"text": "not yet"})
    assert (await site.get("/api/start"))["composer"] == {"text": "not yet"}
    sent = await site.post("/api/sessions", {"text": "not yet, but now"})
    await world.settle(TurnId(sent["turn"]))
    session = sent["session"]
    assert (await site.get("/api/composers/new")) == {}
    await site.put(f"/api/composers/{session}", {"text": "half a thou"})
    assert (await site.get(f"/api/sessions/{session}"))["composer"] == {"text": "half a thou"}
    # What waited while the server was away is sent when the next message is being written already.
    await site.post(f"/api/sessions/{session}/messages", {"text": "of before"})
    assert (await site.get(f"/api/composers/{session}")) == {"text": "half a thou"}
    await site.post(f"/api/sessions/{session}/messages", {"text": "half a thought"})
    assert (await site.get(f"/api/composers/{session}")) == {}
    await site.problem(404, "PUT", "/api/composers/nowhere", json={"text": "x"})


async def test_what_others_say_is_unread_until_it_is_read(site: Site, world: World) -> None:
    await world.ask("before the first visit", chat="old")
    start = await site.get("/api/start")
    old = start["sessions"]["sessions"][0]
    assert old["read"] == old["last_seq"]
    world.advance(60)
    await world.ask("news", chat="new")
    first = (await site.get("/api/sessions"))["sessions"][0]
    assert (first["read"], first["last_seq"]) == (0, 2)
    await site.put(f"/api/sessions/{first['id']}/read", {"seq": 2})
    await site.put(f"/api/sessions/{first['id']}/read", {"seq": 1})
    assert (await site.get("/api/sessions"))["sessions"][0]["read"] == 2


async def test_the_start_names_what_is_unread_and_begins_projects_beyond_the_first_page(
    site: Site, world: World
) -> None:
    await site.get("/api/start")
    project = await site.post("/api/projects", {"name": "Travel"})
    filed: list[str] = []
    for n in range(7):
        world.advance(60)
        begun_at = await site.post("/api/sessions", {"text": f"{n}", "project": project["id"]})
        await world.settle(TurnId(begun_at["turn"]))
        filed.append(begun_at["session"])
    for n in range(50):
        world.advance(60)
        await site.post("/api/sessions", {"text": f"/title newer {n}"})
    start = await site.get("/api/start")
    assert not set(filed) & {s["id"] for s in start["sessions"]["sessions"]}
    assert set(start["unread"]) >= set(filed)
    section = start["sections"][project["id"]]
    assert [s["id"] for s in section["sessions"]] == filed[:1:-1]
    assert section["next"]
    await site.put(f"/api/sessions/{filed[0]}/read", {"seq": 2})
    await site.patch(f"/api/sessions/{filed[1]}", {"archived": True})
    assert set(filed) - set((await site.get("/api/start"))["unread"]) == set(filed[:2])


async def test_a_long_export_waits_for_a_slow_reader_in_a_file(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"{n} ä\n" for n in range(60_000))
    session = await begun(site, world, text)
    files: list[int] = []
    create = cast(Callable[..., IO[bytes]], tempfile.TemporaryFile)

    def note(**more: Any) -> IO[bytes]:
        files.append(1)
        return create(**more)

    monkeypatch.setattr(tempfile, "TemporaryFile", note)
    path = f"/api/sessions/{session}/export?format=markdown"
    answer = await site.request("GET", path)
    assert text.strip() in answer.text and int(answer.headers["content-length"]) == len(answer.content)
    assert len(files) == 1
    words = await site.request("GET", f"/api/sessions/{session}/words?first=1&last=1")
    assert text.strip() in words.text and len(files) == 2
    other = await begun(site, world, "short")
    assert "short" in (await site.request("GET", f"/api/sessions/{other}/export?format=markdown")).text
    assert len(files) == 2

    def refuse(**_: Any) -> IO[bytes]:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    assert "No space left" in await site.problem(503, "GET", path)


async def test_a_conversation_is_exported(site: Site, world: World) -> None:
    session = await begun(site, world, "take me away")
    for kind, begins in (
        ("markdown", "# take me away"),
        ("html", "<!doctype html>"),
        ("jsonl", '{"record"'),
    ):
        answer = await site.request("GET", f"/api/sessions/{session}/export?format={kind}")
        assert answer.text.startswith(begins)
        assert answer.headers["content-disposition"].startswith("attachment;")
        assert "sandbox" in answer.headers["content-security-policy"]


async def test_odd_text_survives_the_way_in_and_out(site: Site, world: World) -> None:
    text = "lone \ud83d surrogate, nul \x00, \u202eright to left, 👩‍👩‍👧‍👦"
    body = '{"text": "lone \\ud83d surrogate, nul \\u0000, \\u202eright to left, 👩‍👩‍👧‍👦"}'.encode()
    answer = await site.request("POST", "/api/sessions", content=body)
    assert answer.status_code == 201
    found = await site.get(f"/api/sessions/{answer.json()['session']}")
    assert found["messages"][0]["parts"][0]["text"] == text


async def test_a_session_is_found_by_its_title(site: Site, world: World) -> None:
    session = await begun(site, world, "Something to find")
    assert (await site.get("/api/resolve?name=Something to find"))["id"] == session
    assert (await site.get(f"/api/resolve?name={session[:12]}"))["id"] == session
    await site.problem(404, "GET", "/api/resolve?name=nothing")
    await site.problem(400, "GET", "/api/resolve?name=../etc/passwd")


async def test_the_story_of_a_message_is_told(site: Site, world: World) -> None:
    session = await begun(site, world)
    story = await site.get(f"/api/messages/{session}.1/why")
    assert story["outcome"].startswith("answered in turn")
    await site.problem(400, "GET", "/api/messages/nonsense/why")
    await site.problem(404, "GET", f"/api/messages/{SessionId('0' * 18)}.1/why")


@pytest.mark.engines(*Engine)
async def test_a_change_with_one_wrong_value_changes_nothing(site: Site, world: World) -> None:
    session = await begun(site, world)
    path = f"/api/sessions/{session}"
    before = (await site.get(path))["session"]
    wrong = {"title": "good", "pinned": True, "archived": True, "ended": True, "project": "missing"}
    assert "missing" in await site.problem(404, "PATCH", path, json=wrong)
    assert (await site.get(path))["session"] == before
    await site.post("/api/projects", {"name": "garden"})
    changed = await site.patch(path, {**wrong, "project": "garden", "settings": {"model": "small"}})
    assert (changed["title"], changed["pinned"], changed["archived"]) == ("good", True, True)
    assert changed["project"] and changed["ended_at"] and changed["settings"]["model"] == "small"
    reopened = await site.patch(path, {"ended": False, "project": None})
    assert "ended_at" not in reopened and "project" not in reopened
    assert reopened["title"] == "good"


@pytest.mark.engines(*Engine)
async def test_settings_are_merged_and_unknown_ones_refused(site: Site, world: World) -> None:
    session = await begun(site, world)
    path = f"/api/sessions/{session}"
    await site.patch(path, {"settings": {"model": "small", "effort": "high"}})
    changed = await site.patch(path, {"settings": {"effort": None, "mode": "auto"}})
    assert changed["settings"] == {"model": "small", "mode": "auto"}
    assert "colour" in await site.problem(400, "PATCH", path, json={"settings": {"colour": "red"}})
    assert (await site.get(path))["session"]["settings"] == changed["settings"]


@pytest.mark.engines(*Engine)
async def test_a_title_is_removed_and_the_directory_changed(site: Site, world: World) -> None:
    session = await begun(site, world)
    path = f"/api/sessions/{session}"
    await site.patch(path, {"title": "Plans"})
    changed = await site.patch(path, {"title": "", "cwd": "/srv/site"})
    assert "title_by" not in changed and changed["cwd"] == "/srv/site"
    assert "NUL" in await site.problem(400, "PATCH", path, json={"cwd": "/srv/\0"})
    # It is called by its first question then.
    assert changed["title"] == (await site.get("/api/start"))["sessions"]["sessions"][0]["title"] == "hello"
    other = await begun(site, world, "another")
    assert (await site.patch(f"/api/sessions/{other}", {"title": "Plans"}))["title"] == "Plans"


@pytest.mark.engines(*Engine)
async def test_an_ended_conversation_keeps_its_first_reason_and_goes_on_when_spoken_to(
    site: Site, world: World
) -> None:
    session = await begun(site, world)
    path = f"/api/sessions/{session}"
    await world.hub.end(OPERATORS, SessionId(session), EndReason.IDLE)
    assert (await site.patch(path, {"ended": True}))["end_reason"] == "idle"
    sent = await site.post(f"{path}/messages", {"text": "go on"})
    await world.settle(TurnId(sent["turn"]))
    assert "ended_at" not in (await site.get(path))["session"]


@pytest.mark.engines(*Engine)
async def test_a_fork_stays_in_its_project(site: Site, world: World) -> None:
    session = await begun(site, world)
    project = await site.post("/api/projects", {"name": "garden"})
    await site.patch(f"/api/sessions/{session}", {"project": "garden"})
    copy = await site.post(f"/api/sessions/{session}/fork")
    assert copy["session"]["project"] == project["id"]


@pytest.mark.engines(*Engine)
async def test_the_list_is_filtered_by_owner(site: Site, world: World) -> None:
    session = await begun(site, world)
    assert [s["id"] for s in (await site.get("/api/sessions?owner=operator"))["sessions"]] == [session]
    assert (await site.get("/api/sessions?owner=nobody"))["sessions"] == []


@pytest.mark.engines(*Engine)
async def test_files_with_the_same_bytes_keep_their_own_names(site: Site, world: World) -> None:
    async def upload(name: str) -> str:
        answer = await site.request("POST", f"/api/media?name={name}", content=b"the same")
        return answer.json()["media"]

    media = [await upload(name) for name in ("one.txt", "two.txt")]
    assert media[0] == media[1]
    names = ["one.txt", "two.txt"]
    await site.put("/api/composers/new", {"text": "both", "media": media, "names": names})
    typed = await site.get("/api/composers/new")
    assert [m["name"] for m in typed["media"]] == names
    sent = await site.post("/api/sessions", {"text": "both", "media": media, "names": names})
    await world.settle(TurnId(sent["turn"]))
    found = await site.get(f"/api/sessions/{sent['session']}")
    assert [p["name"] for p in found["messages"][0]["parts"] if p["type"] == "media"] == names
    assert not (await site.get("/api/composers/new")).get("media")
    export = await site.request("GET", f"/api/sessions/{sent['session']}/export?format=markdown")
    assert "one.txt" in export.text and "two.txt" in export.text
    saved = await site.request("GET", f"/media/{media[0]}?name=one.txt")
    assert "one.txt" in saved.headers["content-disposition"]
    # Without names they have that of the last upload.
    plain = await site.post("/api/sessions", {"text": "again", "media": media})
    found = await site.get(f"/api/sessions/{plain['session']}")
    assert {p["name"] for p in found["messages"][0]["parts"] if p["type"] == "media"} == {"two.txt"}
