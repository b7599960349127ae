"""The stream: what happens is told, once, in order, over any number of cuts, on both engines."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Any, TypeVar

import anyio
import pytest
from tests.engine.conftest import Begin
from tests.engine.world import SECONDS, Pause, Scenes, World, viewer
from tests.web.site import Listener, ReceivedEvent, Site, open_site

from keryx.core.errors import Unavailable
from keryx.core.ids import Cursor
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.ports.agent import ReasoningDelta, TextDelta, ToolCallEvent, ToolResultEvent
from keryx.core.sessions import Viewer
from keryx.store import changes
from keryx.store.db import Database, DatabaseWrapper, Engine, Work
from keryx.store.db.metrics import MeteredDatabase
from keryx.surfaces.web.stream import Broadcast

pytestmark = pytest.mark.engines(Engine.SQLITE)

T = TypeVar("T")

WORDS = ("one ", "two\n\n", "```py\nx = 1\n", "```\n\n", "- a\n", "- b\n\n", "**end** ")


def reduced(heard: list[ReceivedEvent]) -> dict[str, Any]:
    """The transcript and the drafts as a page would have them from these events."""
    messages: dict[str, dict[str, Any]] = {}
    drafts: dict[str, dict[str, Any]] = {}
    for event in (h.data for h in heard):
        if event["type"] == "message":
            message = event["message"]
            messages[message["id"]] = message
            if message["role"] == "assistant" and message.get("mark") != "late":
                drafts.pop(message.get("turn"), None)
        elif event["type"] == "turn" and event["turn"]["state"] != "running":
            drafts.pop(event["turn"]["id"], None)
        elif event["type"] == "draft":
            _grow(drafts, event)
    return {"messages": messages, "drafts": drafts}


def _grow(drafts: dict[str, dict[str, Any]], event: dict[str, Any]) -> None:
    new: dict[str, Any] = {"n": 0, "parts": []}
    draft = drafts.setdefault(event["turn"], new)
    if event.get("fresh"):
        draft.update(n=0, parts=[])
    if event["n"] <= draft["n"]:
        return
    draft["n"] = event["n"]
    while len(draft["parts"]) <= event["part"]:
        draft["parts"].append({"text": "", "blocks": []})
    part = draft["parts"][event["part"]]
    part["text"] += event.get("text", "")
    if "blocks" in event:
        part["blocks"] = [*part["blocks"][: event.get("keep", 0)], *event["blocks"]]


async def test_everything_that_happens_is_told(site: Site, world: World) -> None:
    start = await site.get("/api/start")
    listener = Listener(site.app, start["cursor"])
    async with listener.connect():
        turn = await world.ask("hello", chat="7")
        await listener.wait_for("turn", turn__state="done")
        await listener.wait_for("delivery", delivery__state="sent")
        await listener.wait_for("session", session__activity=None, session__last_seq=2)
        await site.patch(f"/api/sessions/{turn.session}", {"title": "Seen"})
        await listener.wait_for("session", session__title="Seen")
        project = await site.post("/api/projects", {"name": "P"})
        await listener.wait_for("project", project__name="P")
        await site.delete(f"/api/projects/{project['id']}")
        await listener.wait_for("project_gone", project=project["id"])
        tag = await site.post("/api/tags", {"name": "T"})
        await listener.wait_for("tag", tag__name="T")
        await site.patch(f"/api/sessions/{turn.session}", {"tags": ["T"]})
        await listener.wait_for("session", session__tags=[tag["id"]])
        await site.patch(f"/api/tags/{tag['id']}", {"colour": "pink"})
        await listener.wait_for("tag", tag__colour="pink")
        await site.delete(f"/api/tags/{tag['id']}")
        await listener.wait_for("tag_gone", tag=tag["id"])
        await site.put(f"/api/sessions/{turn.session}/read", {"seq": 2})
        await listener.wait_for("read", session=turn.session, seq=2)
        await site.post(f"/api/sessions/{turn.session}/undo")
        await listener.wait_for("revised", session=turn.session)
        await site.delete(f"/api/sessions/{turn.session}")
        await listener.wait_for("gone", session=turn.session)
    assert [m["message"]["role"] for m in listener.of_type("message")] == ["user", "assistant"]


async def test_a_person_with_fewer_streams_takes_the_oldest_of_the_one_with_most(world: World) -> None:
    broadcast = Broadcast(world.hub, anyio.CapacityLimiter(1), most=3)
    cursor = await world.hub.head_cursor()
    ann, bob = viewer("ann"), viewer("bob")
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:

        async def open_stream(person: Viewer) -> AsyncGenerator[tuple[Cursor, bytes]]:
            stream = await stack.enter_async_context(aclosing(broadcast.follow(person, cursor, beat=0.01)))
            await anext(stream)
            return stream

        streams = [await open_stream(ann) for _ in range(3)]
        assert not broadcast.has_place(ann) and broadcast.has_place(bob)
        with pytest.raises(StopAsyncIteration):
            await open_stream(ann)
        await open_stream(bob)
        with pytest.raises(StopAsyncIteration):
            await anext(streams[0])
        for stream in streams[1:]:
            await anext(stream)
        assert not broadcast.has_place(bob)
        await streams[1].aclose()
        assert broadcast.has_place(bob) and broadcast.has_place(ann)


async def test_a_stream_goes_on_over_cuts_in_mid_answer(begin: Begin) -> None:
    world = await begin(agent=Scenes({"go": tuple(TextDelta(w) for w in WORDS)}))
    chance = random.Random(7)
    async with open_site(world.hub, world.clock) as site:
        cursor = (await site.get("/api/start"))["cursor"]
        listener, whole = Listener(site.app, cursor), Listener(site.app, cursor)
        async with whole.connect():
            last = ""
            for n in range(25):
                receipt = await world.say(f"go {n}", chat=str(n % 3))
                for _ in range(4):
                    async with listener.connect(close_after=chance.randrange(20, 6000)):
                        await listener.wait_closed(within=0.01)
                last = (await world.settle(receipt)).id
            await whole.wait_for("turn", turn__id=last, turn__state="done")
            async with listener.connect():
                await listener.wait_for("turn", turn__id=last, turn__state="done")
    seen, wanted = [[e["message"]["id"] for e in x.of_type("message")] for x in (listener, whole)]
    assert len(wanted) == len(set(wanted)) == 50
    assert seen == wanted
    assert reduced(listener.events)["drafts"] == {}


async def test_a_thousand_reconnects_miss_and_repeat_nothing(world: World, site: Site) -> None:
    listener = Listener(site.app, (await site.get("/api/start"))["cursor"])
    chance = random.Random(11)
    turns = [await world.ask("question 0")]
    cuts = 0
    while cuts < 1000:
        async with listener.connect(close_after=chance.randrange(60, 1500)):
            was_cut = await listener.wait_closed(within=0.05)
        cuts += was_cut
        if not was_cut:
            n = len(turns)
            turns += [await world.ask(f"question {n + i}", chat=str(i % 5)) for i in range(10)]
    async with listener.connect():
        await listener.wait_for("turn", turn__id=turns[-1].id, turn__state="done")
    ids = [e["message"]["id"] for e in listener.of_type("message")]
    assert len(ids) == len(set(ids)) == 2 * len(turns)
    by_session: dict[str, list[int]] = {}
    for event in listener.of_type("message"):
        by_session.setdefault(event["message"]["session"], []).append(event["message"]["seq"])
    assert all(seqs == list(range(1, len(seqs) + 1)) for seqs in by_session.values())


async def test_a_reader_that_is_too_slow_is_cut_and_misses_nothing(world: World, site: Site) -> None:
    began = (await site.get("/api/start"))["cursor"]
    slow, fast, late = (Listener(site.app, began) for _ in range(3))
    reading = asyncio.Event()
    reading.set()
    first = await world.ask("hello")
    async with slow.connect(reading=reading), fast.connect():
        await slow.wait_for("turn", turn__id=first.id, turn__state="done")
        # Whoever begins with what is in the store is sent what is new once it has caught up.
        for n in range(3):
            await world.hub.rename(viewer("ann"), first.session, f"early {n}")
            await slow.wait_for("session", session__title=f"early {n}")
        reading.clear()
        for n in range(1100):
            await world.hub.rename(viewer("ann"), first.session, f"title {n}")
            await fast.wait_for("session", session__title=f"title {n}")
        reading.set()
        assert await slow.wait_closed(within=SECONDS)
    last = await world.ask("bye")
    for listener in (slow, late):
        async with listener.connect():
            await listener.wait_for("session", session__title="title 1099")
            await listener.wait_for("turn", turn__id=last.id, turn__state="done")
        ids = [e["message"]["id"] for e in listener.of_type("message")]
        assert len(ids) == len(set(ids)) == 4


async def test_a_first_reader_hears_at_once_what_happens_while_it_connects(world: World, site: Site) -> None:
    for n in range(20):
        listener = Listener(site.app, (await site.get("/api/start"))["cursor"])
        async with listener.connect():
            turn = await world.ask(f"question {n}")
            await listener.wait_for("turn", turn__id=turn.id, turn__state="done")
        await world.ask("nobody looks")


async def test_nothing_is_read_for_streams_that_are_not_there(begin: Begin, database: Database) -> None:
    metered = MeteredDatabase(database)
    world = await begin(database=metered)
    async with open_site(world.hub, world.clock) as site:
        await world.ask("nobody looks")
        assert "view.details" not in metered.meters
        listener = Listener(site.app, (await site.get("/api/start"))["cursor"])
        async with listener.connect():
            turn = await world.ask("somebody looks")
            await listener.wait_for("turn", turn__id=turn.id, turn__state="done")
        assert "view.details" in metered.meters


@pytest.mark.engines(*Engine)
async def test_a_draft_is_told_in_steps_and_ends_as_its_message(begin: Begin) -> None:
    pause, end = Pause(), Pause()
    call = ToolCall("c", "look", "{}")
    script = (
        ReasoningDelta("hm "),
        TextDelta("first **bit**"),
        pause,
        ToolCallEvent((call,)),
        ToolResultEvent(ToolResult("c", "look", "seen")),
        TextDelta("second bit"),
        end,
    )
    world = await begin(agent=Scenes({"go": script}))
    async with open_site(world.hub, world.clock) as site:
        listener = Listener(site.app, (await site.get("/api/start"))["cursor"])
        async with listener.connect():
            receipt = await world.say("go")
            await pause.reached()
            await world.drafted(receipt, "hm first **bit**")
            await listener.wait_for("draft", part=1)
            parts = reduced(listener.events)["drafts"][receipt.turn]["parts"]
            assert [p["text"] for p in parts] == ["hm ", "first **bit**"]
            assert parts[1]["blocks"] == ["<p>first <strong>bit</strong></p>\n"]
            late = Listener(site.app, (await site.get(f"/api/sessions/{receipt.session}"))["cursor"])
            pause.go_on()
            await end.reached()
            await world.drafted(receipt, "second bit")
            await listener.wait_for("draft", text="second bit", fresh=True)
            async with late.connect():
                await late.wait_for("draft", text="second bit", fresh=True)
            end.go_on()
            await world.settle(receipt)
            await listener.wait_for("turn", turn__state="done")
        assert reduced(listener.events)["drafts"] == {}


async def test_a_draft_that_began_before_this_process_is_told_whole(begin: Begin) -> None:
    pause = Pause()
    world = await begin(agent=Scenes({"go": (TextDelta("so far, "), pause, TextDelta("and on"), Pause())}))
    receipt = await world.say("go")
    await pause.reached()
    await world.drafted(receipt, "so far, ")
    async with open_site(world.hub, world.clock) as site:
        listener = Listener(site.app, (await site.get(f"/api/sessions/{receipt.session}"))["cursor"])
        async with listener.connect():
            pause.go_on()
            await listener.wait_for("draft", fresh=True)
            await world.drafted(receipt, "so far, and on")
            await listener.idle()
            assert reduced(listener.events)["drafts"][receipt.turn]["parts"][0]["text"] == "so far, and on"


async def test_nobody_hears_of_what_is_not_theirs(world: World) -> None:
    async with (
        open_site(world.hub, world.clock, operator=viewer("bob")) as bobs,
        open_site(world.hub, world.clock, operator=viewer("ann")) as anns,
    ):
        bob = Listener(bobs.app, (await bobs.get("/api/start"))["cursor"])
        ann = Listener(anns.app, bob.cursor)
        async with bob.connect(), ann.connect():
            asked = await world.ask("for ann only", user="ann", chat="1")
            mine = await world.ask("for bob only", user="bob", chat="2")
            await bob.wait_for("turn", turn__id=mine.id, turn__state="done")
            await ann.wait_for("turn", turn__id=asked.id, turn__state="done")
        assert {e["message"]["session"] for e in bob.of_type("message")} == {mine.session}
        assert {e["message"]["session"] for e in ann.of_type("message")} == {asked.session}
        await bobs.problem(404, "GET", f"/api/sessions/{asked.session}")
        await bobs.problem(404, "GET", f"/api/messages/{asked.session}.1")
        await bobs.problem(404, "DELETE", f"/api/turns/{asked.id}")
        assert [s["id"] for s in (await bobs.get("/api/sessions"))["sessions"]] == [mine.session]
        assert (await bobs.get("/api/search?q=ann"))["hits"] == []


async def test_a_cursor_that_is_too_old_is_told_so(world: World, site: Site) -> None:
    cursor = (await site.get("/api/start"))["cursor"]
    await world.ask("one")
    world.advance(1000)
    await world.ask("two")
    now = world.clock.now()
    await world.write(changes.trim, before=now)
    async with open_site(world.hub, world.clock) as fresh:
        listener = Listener(fresh.app, cursor)
        async with listener.connect():
            told = await listener.wait_for("expired")
    assert "open again" in told["detail"]


async def test_a_cursor_from_another_store_is_told_so(site: Site) -> None:
    listener = Listener(
        site.app, "999999999999.0" if "." in (await site.get("/api/start"))["cursor"] else "999999"
    )
    async with listener.connect():
        assert "older" in (await listener.wait_for("expired"))["detail"]


async def test_streams_end_at_once_when_the_server_stops(world: World) -> None:
    async with open_site(world.hub, world.clock) as site:
        listener = Listener(site.app, (await site.get("/api/start"))["cursor"])
        async with listener.connect():
            await world.ask("hello")
            await listener.wait_for("turn", turn__state="done")
            site.web.close()
    assert listener.status == 200


class Flaky(DatabaseWrapper):
    """A database that refuses units of work of a label for some times."""

    def __init__(self, inner: Database) -> None:
        super().__init__(inner)
        self.refuses: list[str] = []

    async def read(self, label: str, work: Work[T]) -> T:
        if label in self.refuses:
            self.refuses.remove(label)
            raise Unavailable("not now")
        return await self._inner.read(label, work)


async def test_a_failure_cuts_streams_and_skips_nothing(begin: Begin, database: Database) -> None:
    flaky = Flaky(database)
    world = await begin(database=flaky)
    async with open_site(world.hub, world.clock) as site:
        listener = Listener(site.app, (await site.get("/api/start"))["cursor"])
        async with listener.connect():
            await world.ask("first")
            await listener.wait_for("turn", turn__state="done")
            flaky.refuses = ["view.details"]
            turn = await world.ask("second")
            assert await listener.wait_closed(within=10)
        async with listener.connect():
            await listener.wait_for("turn", turn__id=turn.id, turn__state="done")
    ids = [e["message"]["id"] for e in listener.of_type("message")]
    assert len(ids) == len(set(ids)) == 4


def list_sent(listener: Listener, session: str | None) -> list[Any]:
    """Return the text of the first message of a session as often as it was sent. The answer repeats it."""
    messages = [event["message"] for event in listener.of_type("message")]
    return [m["parts"][0] for m in messages if (m["session"], m["seq"]) == (session, 1)]


def marked_up(listener: Listener, session: str | None) -> bool:
    return any("<ul>" in part["html"] for part in list_sent(listener, session))


async def test_a_long_message_is_sent_at_once_and_again_with_its_markup(world: World, site: Site) -> None:
    """Rendering it takes longer than a stream waits."""
    listener = Listener(site.app, (await site.get("/api/start"))["cursor"])
    text = "- a **b**\n" * 9_000
    async with listener.connect():
        receipt = await world.say(text, chat="1")
        await listener.wait_for("message", message__seq=1, message__session=receipt.session)
        await world.ask("hello", chat="2")
        await listener.wait_until(lambda: marked_up(listener, receipt.session))
    sent = list_sent(listener, receipt.session)
    # A fast machine may have rendered it in time.
    assert [part["html"][:5] for part in sent] in (["<pre ", "<ul><"], ["<ul><", "<ul><"], ["<ul><"])
    assert {part["text"] for part in sent} == {text}


async def test_a_reader_that_comes_back_gets_the_markup_that_it_missed(world: World, site: Site) -> None:
    listener = Listener(site.app, (await site.get("/api/start"))["cursor"])
    watcher = Listener(site.app, listener.cursor)
    async with watcher.connect():
        async with listener.connect():
            receipt = await world.say("- a **b**\n" * 9_000, chat="1")
            await listener.wait_for("message", message__session=receipt.session, message__seq=1)
        await watcher.wait_until(lambda: marked_up(watcher, receipt.session))
        async with listener.connect():
            await listener.wait_until(lambda: marked_up(listener, receipt.session))
