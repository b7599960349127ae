"""Conversations in rooms of a real homeserver: what people forward there, and what they send at once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.engine.world import AT_ONCE, SECONDS, Pause, Scenes, World
from tests.gateway.matrix.person import Person
from tests.gateway.matrix.synapse import Synapse

from keryx.core.access import EVERYBODY, AccessRule
from keryx.core.messages import Message, Role
from keryx.core.ports.agent import TextDelta
from keryx.store import messages
from keryx.store.db import Database, Engine, Transaction
from keryx.surfaces.gateway.matrix import MatrixAdapter
from keryx.surfaces.gateway.matrix.homeserver import Homeserver
from keryx.testing import FakeClock

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(32)
Begin = Callable[..., Awaitable["Talk"]]
pytestmark = pytest.mark.engines(Engine.SQLITE)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what a person sees. They ask in a thread, beside the loop of Keryx."""
    async with asyncio.timeout(SECONDS):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 the homeserver tells nobody
            await asyncio.sleep(0.05)


class Talk:
    """Ann in a direct room with Keryx, and in another room from which she forwards."""

    def __init__(self, world: World, ann: Person, bot: Person, room: str, elsewhere: str) -> None:
        self.world = world
        self.ann = ann
        self.bot = bot
        self.room = room
        self.elsewhere = elsewhere

    def show_picture(self) -> str:
        address = self.ann.upload(PICTURE, name="cat.png", mime="image/png")
        info = {"mimetype": "image/png", "size": len(PICTURE)}
        content = {"msgtype": "m.image", "body": "cat.png", "url": address, "info": info}
        return self.ann.send(self.elsewhere, content)

    def forward(self, event: str) -> None:
        """Forward an event as Element does: a new one with the same content, without relations and without a mark."""
        [found] = [e for e in self.ann.events(self.elsewhere) if e["event_id"] == event]
        content: dict[str, Any] = {k: v for k, v in found["content"].items() if k != "m.relates_to"}
        self.ann.send(self.room, content)

    async def reads(self, count: int) -> list[str]:
        """Wait until the room shows this many messages of Keryx, and return them."""
        await until(lambda: len(self.ann.answers(self.room, by=self.bot)) >= count)
        return self.ann.answers(self.room, by=self.bot)

    async def count_inputs(self, count: int) -> None:
        def has_all(tx: Transaction) -> bool:
            return tx.rows("select count(*) from messages where role = 'user'") == [(count,)]

        await self.world.until(has_all)

    async def asked(self) -> list[Message]:
        def load(tx: Transaction) -> list[Message]:
            [(session,)] = tx.rows("select id from sessions")
            return messages.list_latest(tx, session, limit=99)

        return [m for m in await self.world.read(load) if m.role is Role.USER]


@pytest.fixture
async def begin(
    synapse: Synapse, ann: Person, bot: Person, database: Database, clock: FakeClock
) -> AsyncIterator[Begin]:
    adapter = MatrixAdapter(Homeserver(synapse.url, bot.token), bot.user)
    policy = msgspec.structs.replace(AT_ONCE, access={"matrix": AccessRule(allow=(EVERYBODY,))})
    worlds: list[World] = []

    async def make(agent: Scenes, *, await_files: timedelta = timedelta(0)) -> Talk:
        limits = msgspec.structs.replace(policy.limits, await_files=await_files)
        changed = msgspec.structs.replace(policy, limits=limits)
        world = World(database, clock, agent=agent, adapters=[adapter], policy=changed)
        worlds.append(world)
        await world.start()
        await world.until(lambda tx: bool(tx.row("select 1 from cursors")))
        room = ann.room(bot, direct=True)
        await until(lambda: bot.user in ann.members(room))
        return Talk(world, ann, bot, room, ann.room())

    yield make
    for world in worlds:
        await world.close()
    await adapter.close()


async def test_a_comment_and_the_picture_that_is_forwarded_after_it_get_one_answer(begin: Begin) -> None:
    pause = Pause()
    talk = await begin(Scenes({"what": [pause, TextDelta("a cat")]}))
    picture = talk.show_picture()
    talk.ann.say(talk.room, "what is this?")
    await pause.reached()
    talk.forward(picture)
    await talk.count_inputs(2)
    pause.go_on()
    assert await talk.world.flow(talk.reads(1), step=0.3) == ["a cat"]
    comment, forward = await talk.asked()
    assert comment.turn == forward.turn
    assert [type(part).__name__ for part in forward.parts] == ["Image"]


async def test_a_picture_that_is_forwarded_at_once_joins_a_comment_that_the_model_has_answered(
    begin: Begin,
) -> None:
    agent = Scenes({"what": [TextDelta("a cat")]})
    talk = await begin(agent, await_files=timedelta(seconds=0.3))
    picture = talk.show_picture()
    talk.ann.say(talk.room, "what is this?")
    await until(lambda: len(agent.asked) == 1)
    talk.forward(picture)
    await talk.count_inputs(2)
    assert await talk.world.flow(talk.reads(1), step=0.3) == ["a cat"]
    comment, forward = await talk.asked()
    assert comment.turn == forward.turn
    assert talk.ann.answers(talk.room, by=talk.bot) == ["a cat"]


async def test_a_picture_that_is_forwarded_waits_for_a_comment_that_follows_at_once(begin: Begin) -> None:
    agent = Scenes({})
    talk = await begin(agent)
    talk.forward(talk.show_picture())
    await talk.count_inputs(1)
    talk.ann.say(talk.room, "what is this?")
    await talk.count_inputs(2)
    assert len(await talk.reads(1)) == 1
    assert len({m.turn for m in await talk.asked()}) == 1
    assert len(agent.asked) == 1 and agent.asked[0].endswith("what is this?")


async def test_a_forwarded_text_has_no_mark_so_it_is_answered_by_itself_after_its_comment(
    begin: Begin,
) -> None:
    agent = Scenes({})
    talk = await begin(agent)
    claim = talk.ann.say(talk.elsewhere, "the moon is cheese")
    talk.ann.say(talk.room, "is this true?")
    talk.forward(claim)
    assert await talk.reads(2) == ["is this true?", "the moon is cheese"]
    comment, forward = await talk.asked()
    assert (comment.text, forward.text) == ("is this true?", "the moon is cheese")
    assert comment.session == forward.session and comment.turn != forward.turn
