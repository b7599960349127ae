"""Conversations over the wire of a homeserver, as a person reads them in the room."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.engine.world import AT_ONCE, SECONDS, Pause, Scenes, World
from tests.fakes.matrix import FakeMatrix

from keryx.core import media
from keryx.core.access import EVERYBODY, AccessRule
from keryx.core.errors import AgentFailed
from keryx.core.messages import Mark, Message, Role
from keryx.core.ports.agent import TextDelta, TurnContext
from keryx.core.questions import Question
from keryx.engine.policy import Policy
from keryx.store import messages
from keryx.store.db import Database, Engine, Transaction
from keryx.surfaces.gateway.matrix import MatrixAdapter
from keryx.surfaces.gateway.matrix.homeserver import Homeserver
from keryx.testing import FakeClock, ScriptStep

pytestmark = pytest.mark.engines(Engine.SQLITE)

ROOM = "!r:fake.test"


class Room:
    """A person in a room of two with Keryx, over the wire."""

    def __init__(self, world: World, matrix: FakeMatrix) -> None:
        self.world = world
        self.matrix = matrix

    async def reads(self, *texts: str) -> None:
        """Wait until the room shows exactly these messages of Keryx."""
        try:
            async with asyncio.timeout(SECONDS):
                while self.matrix.texts(ROOM) != list(texts):
                    await asyncio.sleep(0.005)
                    self.world.node.check()
        except TimeoutError:
            raise AssertionError(f"the room shows {self.matrix.texts(ROOM)}, not {texts}") from None

    async def shows(self, count: int) -> list[str]:
        """Wait until the room shows this many messages of Keryx, and return them."""
        await self.world.eventually(lambda: len(self.matrix.texts(ROOM)) >= count)
        return self.matrix.texts(ROOM)

    async def recorded(self, count: int) -> None:
        """Wait until this many messages of Keryx are known to have arrived."""
        await self.world.until(lambda tx: tx.rows("select count(*) from receipts") == [(count,)])

    def show_file(self, name: str, *, caption: str = "") -> str:
        self.matrix.files["f"] = b"%PDF"
        content = {"msgtype": "m.file", "filename": name, "url": "mxc://fake.test/f", "info": {"size": 4}}
        return self.matrix.push(ROOM, {**content, "body": caption or name})

    async def count_inputs(self, count: int) -> None:
        def has_all(tx: Transaction) -> bool:
            return tx.rows("select count(*) from messages where role = 'user'") == [(count,)]

        await self.world.until(has_all)

    async def store_output(self) -> None:
        """Wait until what an agent has just said is stored, if it is stored at once."""
        for _ in range(10):
            await asyncio.sleep(0)
        await self.world.database.write("test.wait", lambda tx: None)

    async def stored(self) -> list[Message]:
        def load(tx: Transaction) -> list[Message]:
            return messages.list_latest(tx, tx.rows("select id from sessions order by id")[-1][0], limit=99)

        return await self.world.read(load)


class ReachedStep:
    """A step of a script that tells the test that the agent is about to say what follows."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def __call__(self, context: TurnContext) -> None:
        self._event.set()

    async def happened(self) -> None:
        async with asyncio.timeout(SECONDS):
            await self._event.wait()


Enter = Callable[..., Awaitable[Room]]


@pytest.fixture
async def enter(database: Database, clock: FakeClock) -> AsyncIterator[Enter]:
    async def soon(seconds: float) -> None:
        await asyncio.sleep(0)

    with FakeMatrix() as matrix:
        matrix.open(ROOM)
        adapter = MatrixAdapter(Homeserver(matrix.url, matrix.token), matrix.user, sleep=soon)
        worlds: list[World] = []

        async def make(agent: Scenes, *, policy: Policy = AT_ONCE) -> Room:
            access = {"matrix": AccessRule(allow=(EVERYBODY,))}
            world = World(
                database,
                clock,
                agent=agent,
                adapters=[adapter],
                policy=msgspec.structs.replace(policy, access=access),
            )
            worlds.append(world)
            await world.start()
            # What was said before the adapter began to listen is not answered.
            await world.until(lambda tx: bool(tx.row("select 1 from cursors where name like 'matrix:%'")))
            return Room(world, matrix)

        yield make
        for world in worlds:
            await world.close()
        await adapter.close()


async def test_files_and_the_text_before_them_get_one_answer(enter: Enter) -> None:
    pause = Pause()
    agent = Scenes({"summarize": [pause, TextDelta("done")]})
    room = await enter(agent)
    room.matrix.say(ROOM, "summarize these")
    await pause.reached()
    room.show_file("a.pdf")
    room.show_file("b.pdf")
    await room.count_inputs(3)
    pause.go_on()
    await room.world.flow(room.reads("done"), step=0.3)
    assert len({m.turn for m in await room.stored()}) == 1


def await_files(span: timedelta) -> Policy:
    return msgspec.structs.replace(AT_ONCE, limits=msgspec.structs.replace(AT_ONCE.limits, await_files=span))


async def test_a_file_joins_the_text_before_it_although_the_model_has_answered_already(enter: Enter) -> None:
    speaks = ReachedStep()
    agent = Scenes({"what": [speaks, TextDelta("a cat")]})
    room = await enter(agent, policy=await_files(timedelta(seconds=0.3)))
    room.matrix.say(ROOM, "what is this?")
    await speaks.happened()
    await room.store_output()
    room.world.advance(0.2)
    room.show_file("cat.png")
    await room.count_inputs(2)
    await room.world.flow(room.reads("a cat"), step=0.3)
    assert len({m.turn for m in await room.stored()}) == 1
    assert len(agent.asked) == 2


@pytest.mark.parametrize("said", [[TextDelta("hello")], []], ids=["an answer", "no answer"])
async def test_an_answer_waits_for_files_no_longer_than_the_setting_says(
    enter: Enter, said: list[ScriptStep]
) -> None:
    speaks = ReachedStep()
    room = await enter(Scenes({"hello": [speaks, *said]}), policy=await_files(timedelta(seconds=0.3)))
    room.matrix.say(ROOM, "hello")
    await speaks.happened()
    await room.store_output()
    room.world.advance(0.2)
    await room.store_output()
    assert [m.role for m in await room.stored()] == [Role.USER]
    assert await room.world.read(lambda tx: tx.rows("select state from turns")) == [("running",)]
    room.world.advance(0.1)
    await room.world.until(lambda tx: tx.rows("select state from turns") == [("done",)])


async def test_an_answer_waits_for_no_files_if_nothing_is_gathered(enter: Enter) -> None:
    limits = msgspec.structs.replace(AT_ONCE.limits, await_files=timedelta(seconds=0.3), gather=timedelta(0))
    room = await enter(Scenes({}), policy=msgspec.structs.replace(AT_ONCE, limits=limits))
    room.matrix.say(ROOM, "hello")
    await room.reads("hello")


async def test_an_agent_that_fails_waits_for_files_too(enter: Enter) -> None:
    speaks = ReachedStep()

    async def look(context: TurnContext) -> None:
        if len(context.turn_messages) == 1:
            raise AgentFailed("there is no picture")

    room = await enter(
        Scenes({"what": [speaks, look, TextDelta("a cat")]}), policy=await_files(timedelta(seconds=0.3))
    )
    room.matrix.say(ROOM, "what is this?")
    await speaks.happened()
    await room.store_output()
    room.show_file("cat.png")
    await room.count_inputs(2)
    await room.world.flow(room.reads("a cat"), step=0.3)


def redact(room: Room, event: str) -> None:
    room.matrix.push(ROOM, {}, kind="m.room.redaction", redacts=event)


def edit(room: Room, event: str, content: dict[str, Any]) -> None:
    relation = {"rel_type": "m.replace", "event_id": event}
    room.matrix.push(ROOM, {**content, "m.new_content": content, "m.relates_to": relation})


async def marks(room: Room) -> list[tuple[str, Mark | None]]:
    return [(m.text, m.mark) for m in await room.stored() if m.role is Role.USER]


async def test_a_message_that_is_deleted_while_it_waits_is_not_answered(enter: Enter) -> None:
    pause = Pause()
    agent = Scenes({"first": [TextDelta("wait "), pause, TextDelta("done")]})
    room = await enter(agent)
    room.matrix.say(ROOM, "first")
    await pause.reached()
    second = room.matrix.say(ROOM, "second")
    await room.count_inputs(2)
    redact(room, second)
    room.matrix.say(ROOM, "third")
    await room.count_inputs(3)
    pause.go_on()
    await room.reads("wait done", "third")
    assert agent.asked == ["first", "third"]
    assert await marks(room) == [("first", None), ("second", Mark.WITHDRAWN), ("third", None)]


async def test_a_message_that_is_deleted_before_the_first_word_is_not_answered(enter: Enter) -> None:
    pause = Pause()
    room = await enter(Scenes({"first": [pause, TextDelta("done")]}))
    first = room.matrix.say(ROOM, "first")
    await pause.reached()
    redact(room, first)
    room.matrix.say(ROOM, "second")
    await room.reads("second")
    pause.go_on()
    room.matrix.say(ROOM, "third")
    await room.reads("second", "third")
    assert await marks(room) == [("first", Mark.WITHDRAWN), ("second", None), ("third", None)]


async def test_a_message_that_is_deleted_after_its_answer_is_marked(enter: Enter) -> None:
    room = await enter(Scenes({}))
    first = room.matrix.say(ROOM, "first")
    await room.reads("first")
    redact(room, first)
    room.matrix.say(ROOM, "second")
    await room.reads("first", "second")
    assert await marks(room) == [("first", Mark.DELETED), ("second", None)]


async def test_of_files_that_belong_together_one_can_be_deleted(enter: Enter) -> None:
    agent = Scenes({})
    room = await enter(agent)
    first = room.show_file("a.pdf", caption="first")
    room.show_file("b.pdf", caption="second")
    await room.count_inputs(2)
    await room.world.until(lambda tx: not tx.rows("select 1 from downloads"))
    redact(room, first)
    await room.world.until(lambda tx: bool(tx.row("select 1 from messages where mark = 'withdrawn'")))
    await room.world.flow(room.reads("second"), step=0.3)
    assert await marks(room) == [("first", Mark.WITHDRAWN), ("second", None)]
    assert agent.asked == ["second"]


async def test_an_edit_of_a_caption_keeps_the_file_and_the_last_edit_counts(enter: Enter) -> None:
    room = await enter(Scenes({}))
    content = {"msgtype": "m.file", "filename": "a.pdf", "url": "mxc://fake.test/f", "info": {"size": 4}}
    first = room.show_file("a.pdf", caption="raed this")
    await room.count_inputs(1)
    for words in ("read thsi", "read this"):
        edit(room, first, {**content, "body": words})
    await room.world.until(
        lambda tx: any("read this" in row[0] for row in tx.rows("select parts from messages"))
    )
    await room.world.flow(room.reads("read this"), step=0.3)
    [stored, _] = await room.stored()
    assert [file.name for file in media.filter_media(stored.parts)] == ["a.pdf"]


async def test_a_slow_file_in_one_room_holds_up_no_other(enter: Enter) -> None:
    agent = Scenes({"look": [TextDelta("I see")]})
    room = await enter(agent)
    other = "!other:fake.test"
    room.matrix.open(other)
    room.matrix.hold("f")
    room.show_file("a.pdf", caption="look")
    room.matrix.say(other, "hello")
    await room.world.eventually(lambda: room.matrix.texts(other) == ["hello"])
    # Longer than a message waits for others that belong to it.
    room.world.advance(2)
    room.matrix.say(other, "again")
    await room.world.eventually(lambda: room.matrix.texts(other) == ["hello", "again"])
    assert agent.asked == ["hello", "again"]
    room.matrix.release("f")
    await room.reads("I see")


async def test_a_file_that_is_deleted_while_it_is_fetched_does_not_hold_its_turn(enter: Enter) -> None:
    room = await enter(Scenes({"look": [TextDelta("nothing there")]}))
    room.matrix.hold("f")
    room.matrix.say(ROOM, "look")
    slow = room.show_file("a.pdf")
    await room.count_inputs(2)
    redact(room, slow)
    await room.world.until(lambda tx: bool(tx.row("select 1 from messages where mark = 'withdrawn'")))
    room.world.advance(2)
    await room.reads("nothing there")
    assert await marks(room) == [("look", None), ("[a.pdf]", Mark.WITHDRAWN)]
    room.matrix.release("f")


def list_sent(room: Room) -> list[str]:
    """The ids of what Keryx has sent to the room."""
    entries = [e.event for e in room.matrix.entries if e.room == ROOM]
    return [e["event_id"] for e in entries if e["sender"] == room.matrix.user]


def in_thread(room: Room, root: str, text: str, *, user: str = "@ben:fake.test") -> str:
    relation = {"rel_type": "m.thread", "event_id": root}
    return room.matrix.push(ROOM, {"msgtype": "m.text", "body": text, "m.relates_to": relation}, user=user)


async def test_a_thread_on_an_answer_begins_with_what_led_to_it_and_needs_no_mention(enter: Enter) -> None:
    agent = Scenes({})
    room = await enter(agent)
    room.matrix.open(ROOM, "@ben:fake.test", "@cleo:fake.test")
    mention = {"user_ids": [room.matrix.user]}
    room.matrix.push(ROOM, {"msgtype": "m.text", "body": "hello", "m.mentions": mention})
    await room.reads("hello")
    await room.recorded(1)
    [answer] = list_sent(room)
    in_thread(room, answer, "why?")
    await room.reads("hello", "why?")
    in_thread(room, answer, "and how?", user="@cleo:fake.test")
    await room.reads("hello", "why?", "and how?")
    room.matrix.say(ROOM, "among ourselves")
    [longest] = await room.world.read(
        lambda tx: tx.rows("select session from messages group by session order by count(*) desc limit 1")
    )
    assert await room.world.transcript(longest[0]) == [
        "user: hello",
        "assistant: hello",
        "user: why?",
        "assistant: why?",
        "user: and how?",
        "assistant: and how?",
    ]
    assert agent.asked == ["hello", "why?", "and how?"]


async def test_a_thumb_on_a_question_answers_it(enter: Enter) -> None:
    async def ask(context: TurnContext) -> None:
        await context.ask(Question(key="1", title="May I look?"))

    room = await enter(Scenes({"find": [ask, TextDelta("In the attic.")]}))
    room.matrix.say(ROOM, "find it")
    await room.shows(1)
    await room.recorded(1)
    [question] = list_sent(room)
    relation = {"rel_type": "m.annotation", "event_id": question, "key": "👎"}
    room.matrix.push(ROOM, {"m.relates_to": relation}, kind="m.reaction")
    assert (await room.shows(3))[1:] == ["Denied: May I look?", "In the attic."]
