"""What lies around conversations: search, places, deliveries, questions, usage, people, the beginning."""

import asyncio
import json
import re
import socket

import pytest
from tests.engine.conftest import Begin
from tests.engine.world import FAKE, OPERATORS, Scenes, World
from tests.untranslated import find_untranslated_words
from tests.web.site import Listener, Site, open_site

from keryx.core.deliveries import DeliveryState
from keryx.core.errors import Refused
from keryx.core.ports.agent import TextDelta, TurnContext
from keryx.core.questions import ASKER_GONE_NOTE, Question
from keryx.core.texts import Phrase
from keryx.store import deliveries
from keryx.store.db import Engine

pytestmark = pytest.mark.engines(Engine.SQLITE)


async def test_the_page_begins_with_one_request(site: Site, world: World) -> None:
    await world.ask("hello")
    await world.delivered(1)
    start = await site.get("/api/start")
    assert start["who"] == {"principal": "operator", "profile": "default", "operator": True}
    assert (start["version"], start["agent"]) == ("1.2.3", "echo")
    assert [s["title"] for s in start["sessions"]["sessions"]] == ["hello"]
    assert start["models"] == [{"name": "small", "host": "models.example", "default": True}]
    assert "retry" in {c["name"] for c in start["commands"]}
    assert "open" not in start
    session = start["sessions"]["sessions"][0]["id"]
    opened = (await site.get(f"/api/start?session={session}&around=1&limit=10"))["open"]
    assert opened == await site.get(f"/api/sessions/{session}?around=1&limit=10")
    assert "open" not in await site.get("/api/start?session=nowhere")


async def test_pages_of_sessions_follow_each_other(site: Site, world: World) -> None:
    for n in range(7):
        world.advance(1)
        await world.ask(f"question {n}", chat=str(n))
    seen: list[str] = []
    query = "limit=3"
    while True:
        page = await site.get(f"/api/sessions?{query}")
        seen += [s["title"] for s in page["sessions"]]
        if "next" not in page:
            break
        query = f"limit=3&after={page['next']}"
    assert seen == [f"question {n}" for n in reversed(range(7))]
    first = (await site.get("/api/sessions"))["sessions"][-1]
    await site.patch(f"/api/sessions/{first['id']}", {"archived": True})
    assert len((await site.get("/api/sessions"))["sessions"]) == 6
    assert len((await site.get("/api/sessions?archived=yes"))["sessions"]) == 1
    assert len((await site.get("/api/sessions?archived=any"))["sessions"]) == 7
    assert (await site.get("/api/sessions?surface=cli"))["sessions"] == []
    assert len((await site.get("/api/sessions?activity=idle"))["sessions"]) == 6


@pytest.mark.engines(*Engine)
async def test_a_lineage_shows_what_its_lane_had_before_and_after_a_reset(site: Site, world: World) -> None:
    async def family(session: str) -> list[tuple[str, str | None, str | None]]:
        found = (await site.get(f"/api/sessions/{session}/lineage"))["branches"]
        return [(b["title"], b.get("after"), b.get("why")) for b in found]

    async def anew(text: str) -> str:
        lane = (await site.get("/api/lanes"))["lanes"][0]
        await site.post(f"/api/lanes/{lane['id']}/reset")
        world.advance(1)
        return (await world.ask(text)).session

    one = (await world.ask("one")).session
    assert await family(one) == [("one", None, None)]
    two = await anew("two")
    three = await anew("three")
    for session in (one, two, three):
        assert await family(session) == [("one", None, None), ("two", one, "new"), ("three", two, "new")]
    await world.command("/resume one")
    four = await anew("four")
    assert (await family(four))[-1] == ("four", one, "new")
    await site.delete(f"/api/sessions/{one}")
    assert [title for title, _, _ in await family(two)] == ["two", "three", "four"]


async def test_a_search_marks_its_hits_and_leads_to_the_message(site: Site, world: World) -> None:
    turn = await world.ask("the <b>whale</b> in the harbour")
    hits = (await site.get("/api/search?q=whale"))["hits"]
    hit = next(h for h in hits if "seq" in h)
    assert hit["html"].count("<mark>whale</mark>") == 1
    assert "&lt;b&gt;" in hit["html"]
    assert hit["session"]["id"] == turn.session
    assert {h.get("seq") for h in hits} == {None, 1, 2}
    assert (await site.get("/api/search?q="))["hits"] == []
    assert (await site.get("/api/search?q=\"' OR 1=1 --(*"))["hits"] == []


async def test_places_are_listed_suspended_and_reset(site: Site, world: World) -> None:
    turn = await world.ask("hello", chat="a/b:c")
    lane = (await site.get("/api/lanes"))["lanes"][0]
    assert (lane["platform"], lane["session"], lane["title"]) == (FAKE, turn.session, "hello")
    path = f"/api/lanes/{lane['id']}"
    assert [m["why"] for m in (await site.get(path))["moves"]] == ["first message"]
    assert (await site.patch(path, {"suspended": True}))["suspended"] is True
    assert "session" not in await site.post(f"{path}/reset")
    assert (await site.get("/api/lanes?minutes=1"))["lanes"]


async def test_why_lanes_deliveries_and_exports_are_told_in_german(site: Site, world: World) -> None:
    german = {"Accept-Language": "de"}
    reason = Phrase("target.refused", platform="Fake", reason=Phrase("gone.blocked"))
    world.fake.errors_before = [Refused(reason)]
    turn = await world.ask("hello")
    await world.until(
        lambda tx: len(deliveries.list_recent(tx, OPERATORS, states=[DeliveryState.FAILED])) == 1
    )
    [lane] = (await site.get("/api/lanes"))["lanes"]
    [move] = (await site.get(f"/api/lanes/{lane['id']}", headers=german))["moves"]
    assert move["why"] == "erste Nachricht"
    [delivery] = (await site.get("/api/deliveries", headers=german))["deliveries"]
    assert delivery["error"] == "Fake lehnt ab: die Person hat den Bot blockiert"
    assert (await site.get("/api/deliveries"))["deliveries"][0]["error"] == str(reason)
    story = await site.get(f"/api/messages/{turn.session}.1/why", headers=german)
    data = (lane["platform"], str(turn.session), str(turn.id), socket.gethostname())
    data += ("gateway ann agent main dm queue fake Fake access serve",)
    for event in story["events"]:
        assert find_untranslated_words(event["what"], *data) == []
    assert find_untranslated_words(story["outcome"], *data) == []
    for format_, heading in (("markdown", "- Letzte Nachricht: "), ("html", "<dt>Letzte Nachricht</dt>")):
        exported = await site.request(
            "GET", f"/api/sessions/{turn.session}/export?format={format_}", headers=german
        )
        assert heading in exported.text
    assert '<html lang="de">' in exported.text and "Exportiert von Keryx" in exported.text


async def test_a_job_says_in_german_when_it_runs_and_why_it_is_paused(site: Site, world: World) -> None:
    made = await site.post("/api/jobs", {"schedule": "every 2h", "prompt": "hello"})
    why = "fake:1: Fake refuses: the topic was deleted"
    await world.database.write(
        "test",
        lambda tx: (
            tx.rows("update jobs set state = 'paused', next_at = null, why = :why", {"why": why}) and None
        ),
    )
    [job] = (await site.get("/api/jobs", headers={"Accept-Language": "de"}))["jobs"]
    assert job["id"] == made["id"] and job["why"] == "fake:1: Fake lehnt ab: das Thema wurde gelöscht"
    assert (job["schedule"], job["written"]) == ("alle 2 Stunden", "every 2h")


async def test_a_failed_delivery_is_sent_again_or_given_up(site: Site, world: World) -> None:
    world.fake.errors_before = [Refused("no such chat"), Refused("no such chat")]
    for chat in ("1", "2"):
        await world.ask("hello", chat=chat)
    await world.until(
        lambda tx: len(deliveries.list_recent(tx, OPERATORS, states=[DeliveryState.FAILED])) == 2
    )
    assert (await site.get("/api/start"))["deliveries"] == 2
    first, second = (await site.get("/api/deliveries"))["deliveries"]
    assert (first["state"], first["error"]) == ("failed", "no such chat")
    assert (await site.post(f"/api/deliveries/{first['id']}/discard"))["state"] == "discarded"
    await site.post(f"/api/deliveries/{second['id']}/retry")
    await world.sent(1)
    await site.problem(409, "POST", f"/api/deliveries/{first['id']}/retry")
    assert (await site.get("/api/deliveries?state=discarded"))["deliveries"][0]["id"] == first["id"]


async def test_a_question_is_answered_from_the_page(begin: Begin) -> None:
    answers: list[str | None] = []

    async def ask(context: TurnContext) -> None:
        answers.append(
            await context.ask(Question(key="k", title="May I?", detail="rm -r /tmp/x", tool="shell"))
        )

    world = await begin(agent=Scenes({"go": (ask, TextDelta("done"))}))
    async with open_site(world.hub, world.clock) as site:
        listener = Listener(site.app, (await site.get("/api/start"))["cursor"])
        async with listener.connect():
            receipt = await world.say("go")
            asked = (await listener.wait_for("question", question__state="open"))["question"]
            assert (asked["title"], asked["detail"]) == ("May I?", "rm -r /tmp/x")
            assert (await site.get("/api/turns"))["turns"][0]["question"]["id"] == asked["id"]
            assert (await site.get(f"/api/sessions/{receipt.session}"))["questions"][0]["id"] == asked["id"]
            await site.problem(
                400, "POST", f"/api/questions/{asked['id']}/answer", json={"answer": "perhaps"}
            )
            given = await site.post(f"/api/questions/{asked['id']}/answer", {"answer": "allow"})
            assert given["state"] == "answered"
            await world.settle(receipt)
            await listener.wait_for("question", question__state="answered")
        assert answers == ["allow"]
        await site.problem(409, "POST", f"/api/questions/{asked['id']}/answer", json={"answer": "deny"})


async def test_a_page_is_told_that_the_editor_which_asked_is_gone(world: World) -> None:
    zed = world.node
    await world.start()
    async with open_site(world.hub, world.clock) as site:
        listener = Listener(site.app, (await site.get("/api/start"))["cursor"])
        async with listener.connect():
            await world.say("!ask rm x", pin=zed.service.worker.id)
            asked = (await listener.wait_for("question", question__state="open"))["question"]
            assert "note" not in asked
            await zed.crash()
            await world.flow(listener.wait_for("question", question__note=ASKER_GONE_NOTE))
            assert (await site.get("/api/questions"))["questions"][0]["note"] == ASKER_GONE_NOTE


@pytest.mark.engines(*Engine)
async def test_usage_is_told_by_day_and_conversation(site: Site, world: World) -> None:
    await world.ask("count my words")
    found = await site.get("/api/usage?days=7")
    assert found["days"][0]["model"] == "echo"
    assert found["days"][0]["turns"] == 1
    assert found["sessions"][0]["name"] == "count my words"
    assert found["people"] == [found["sessions"][0] | {"id": found["people"][0]["id"], "name": "ann"}]
    assert (await site.get("/api/usage"))["days"] == found["days"]


async def test_preferences_are_kept(site: Site) -> None:
    assert await site.get("/api/preferences") == {}
    assert await site.patch("/api/preferences", {"theme": "dark", "details": True}) == {
        "theme": "dark",
        "details": True,
    }
    assert (await site.patch("/api/preferences", {"theme": "light"}))["details"] is True
    assert (await site.get("/api/start"))["preferences"]["theme"] == "light"
    assert (await site.patch("/api/preferences", {"model": "small"}))["model"] == "small"
    said = await site.problem(400, "PATCH", "/api/preferences", json={"model": "huge"})
    assert "'huge'" in said and "small" in said
    assert "model" not in await site.patch("/api/preferences", {"model": ""})


async def test_what_a_viewer_is_told_of_is_kept_for_all_and_for_single_conversations(site: Site) -> None:
    wanted = {"muted": ["finished"], "sound": True, "conversations": {"a": "none", "b": "all"}}
    assert await site.patch("/api/preferences", wanted) == wanted
    changed = await site.patch("/api/preferences", {"muted": [], "conversations": {"a": "default"}})
    assert changed == {"sound": True, "conversations": {"b": "all"}}
    assert (await site.get("/api/start"))["preferences"] == changed
    await site.problem(400, "PATCH", "/api/preferences", json={"conversations": {"a": "loud"}})


async def test_twenty_at_once_are_all_taken_in(site: Site) -> None:
    sent = await asyncio.gather(*(site.post("/api/sessions", {"text": f"n {n}"}) for n in range(20)))
    assert len({s["session"] for s in sent}) == 20


async def test_a_person_whom_something_is_refused_reads_a_page_in_their_language(site: Site) -> None:
    browser = {"Accept": "text/html,*/*;q=0.8", "Accept-Language": "de-AT,de;q=0.9"}
    missing = await site.request("GET", "/media/nothing", headers=browser)
    assert (missing.status_code, missing.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "Es gibt keine Datei &#x27;nothing&#x27;, oder sie gehört dir nicht." in missing.text
    assert "Zu deinen Gesprächen" in missing.text
    wrong = await site.request("GET", "/", headers={**browser, "Host": "evil.example"})
    assert (wrong.status_code, wrong.headers["content-type"]) == (421, "text/html; charset=utf-8")
    assert "Dieser Ort ist nicht als &#x27;evil.example&#x27; bekannt" in wrong.text
    # The page of a wrong name leads nowhere, but its style is there.
    assert "<a " not in wrong.text
    [style] = re.findall(r'href="(/static/[^"]+[.]css)"', wrong.text)
    assert (await site.request("GET", style, headers={"Host": "evil.example"})).status_code == 200


async def test_a_problem_is_told_in_the_language_of_the_browser(site: Site) -> None:
    await site.post("/api/projects", {"name": "Oslo"})
    german, english = {"Accept-Language": "de"}, {"Accept-Language": "en"}
    body = {"name": "Oslo"}
    told = "es gibt schon ein Projekt 'Oslo': wähle einen anderen Namen"
    assert await site.problem(409, "POST", "/api/projects", json=body, headers=german) == told
    same = "there is a project 'Oslo' already: choose another name"
    for headers in (english, {}):
        assert await site.problem(409, "POST", "/api/projects", json=body, headers=headers) == same
    # What has no text for people is quoted within a sentence.
    wrong = await site.problem(400, "GET", "/api/sessions?limit=x", headers=german)
    assert wrong.startswith("das hat nicht funktioniert: the query is wrong")


async def test_a_command_of_a_shell_is_named_to_programs_and_not_to_people(site: Site) -> None:
    german, english = {"Accept-Language": "de"}, {"Accept-Language": "en-US,en;q=0.9"}
    for path, program, person, deutsch in (
        (
            "/api/sessions/nowhere",
            "there is no session 'nowhere': `keryx sessions list` shows them",
            "there is no conversation 'nowhere'",
            "es gibt kein Gespräch 'nowhere'",
        ),
        (
            "/api/people/nobody",
            "No such person: nobody. `keryx people list` shows them",
            "No such person: nobody.",
            "Diese Person gibt es nicht: nobody.",
        ),
    ):
        method = "DELETE" if "people" in path else "GET"
        assert await site.problem(404, method, path) == program
        assert await site.problem(404, method, path, headers=english) == person
        assert await site.problem(404, method, path, headers=german) == deutsch


async def test_a_permission_question_and_a_request_are_told_with_the_keys_of_their_texts(
    begin: Begin,
) -> None:
    async def ask(context: TurnContext) -> None:
        title = Phrase("question.may_use", tool="shell")
        await context.ask(Question(key="k", title=str(title), phrase=title.store(), tool="shell"))

    world = await begin(agent=Scenes({"go": (ask, TextDelta("done"))}))
    async with open_site(world.hub, world.clock) as site:
        listener = Listener(site.app, (await site.get("/api/start"))["cursor"])
        async with listener.connect():
            receipt = await world.say("go")
            asked = (await listener.wait_for("question", question__state="open"))["question"]
            assert asked["phrase"] == {"key": "question.may_use", "fields": {"tool": "shell"}}
            assert [o["phrase"]["key"] for o in asked["options"]] == [
                "question.allow",
                "question.always",
                "question.deny",
            ]
            await site.post(f"/api/questions/{asked['id']}/answer", {"answer": "deny"})
            await world.settle(receipt)
        page = await site.request("GET", "/", headers={"Accept": "text/html", "Accept-Language": "de"})
        [texts] = re.findall(r'id="texts">(.*?)</script>', page.text)
        known = json.loads(texts)
        assert known["question.may_use"] == "Darf der Agent {tool} benutzen?"
        assert known["Allow"] == "Erlauben"
        assert known[str(ASKER_GONE_NOTE)].startswith("Der Editor")
        assert known["turn.compaction_request_keep"].endswith("{focus}.")


async def test_a_person_at_an_unknown_address_gets_a_page_with_a_way_back(site: Site) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
    for language, words in (
        ("en", ("There is nothing at this address.", "Go to your conversations")),
        ("de-AT,de;q=0.9", ("Unter dieser Adresse gibt es nichts.", "Zu deinen Gesprächen")),
    ):
        shown = await site.request("GET", "/converstaions", headers={**browser, "Accept-Language": language})
        assert (shown.status_code, shown.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert all(word in shown.text for word in words) and '<a href="/">' in shown.text
        assert "default-src 'none'" in shown.headers["content-security-policy"]
        [style] = re.findall(r'href="(/static/[^"]+)"', shown.text)
        assert (await site.request("GET", style)).status_code == 200
    for accepted in ("*/*", "application/json", "text/html;q=0, application/json", ""):
        detail = await site.problem(404, "GET", "/converstaions", headers={"Accept": accepted})
        assert "/openapi.json" in detail
    await site.problem(404, "POST", "/converstaions", headers=browser)


async def test_the_page_can_be_installed(site: Site) -> None:
    page = (await site.request("GET", "/")).text
    [address] = re.findall(r'rel="manifest" href="(/static/[^"]+)"', page)
    found = await site.request("GET", address)
    assert found.headers["content-type"] == "application/manifest+json"
    manifest = found.json()
    assert (manifest["start_url"], manifest["display"]) == ("/", "standalone")
    [touch] = re.findall(r'rel="apple-touch-icon" href="(/static/[^"]+)"', page)
    folder = address.rpartition("/")[0]
    for icon in (touch, *(f"{folder}/{icon['src']}" for icon in manifest["icons"])):
        picture = await site.request("GET", icon)
        assert picture.headers["content-type"] == "image/png"
        assert picture.content.startswith(b"\x89PNG")
