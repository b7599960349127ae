"""Conversations over the wire of WeChat, as a person reads them in the chat."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.contracts.wechat import build_adapter
from tests.engine.world import AT_ONCE, OPERATORS, SECONDS, Pause, World
from tests.fakes.wechat import ANN, BEN, FakeWeChat

from keryx.core.access import EVERYBODY, AccessRule
from keryx.core.deliveries import Delivery, DeliveryState
from keryx.core.messages import Role
from keryx.core.ports.adapter import LinkState
from keryx.core.ports.agent import AgentEvent, TextDelta, TurnContext
from keryx.engine.policy import Policy, map_reach
from keryx.store import deliveries, workers
from keryx.store.db import Database, Engine, Transaction
from keryx.testing import FakeClock, ScriptedAgent
from keryx.testing.fakes import ScriptStep

pytestmark = pytest.mark.engines(Engine.SQLITE)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)


class QuotingAgent:
    """An agent that plays the script of a question, or echoes it, and remembers what it was told exactly."""

    def __init__(self, scripts: dict[str, Sequence[ScriptStep]]) -> None:
        self._scripts = scripts
        self.exact: list[str] = []

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        said = [m for m in await context.history() if m.role is Role.USER][-1]
        self.exact.append(said.exact or said.text)
        async for event in ScriptedAgent(self._scripts.get(said.text, (TextDelta(said.text),))).run(context):
            yield event


class Chat:
    """People who write to a bot of Keryx, over the wire."""

    def __init__(self, world: World, wechat: FakeWeChat, agent: QuotingAgent) -> None:
        self.world = world
        self.wechat = wechat
        self.agent = agent

    async def reads(self, person: str, *texts: str) -> None:
        """Wait until the chat shows exactly these messages."""
        try:
            async with asyncio.timeout(SECONDS):
                await self.world.eventually(lambda: self.wechat.texts(person) == list(texts))
        except TimeoutError:
            raise AssertionError(f"the chat shows {self.wechat.texts(person)}, not {texts}") from None

    async def waits(self, state: DeliveryState, count: int = 1) -> list[Delivery]:
        """Wait until this many deliveries are in a state; gives them."""

        def load(tx: Transaction) -> list[Delivery]:
            return deliveries.list_recent(tx, OPERATORS, states=[state])

        await self.world.until(lambda tx: len(load(tx)) == count)
        return await self.world.read(load)


Open = Callable[..., Awaitable[Chat]]


@pytest.fixture
async def open_chat(database: Database, clock: FakeClock) -> AsyncIterator[Open]:
    with FakeWeChat() as wechat:
        worlds: list[World] = []

        async def make(scripts: dict[str, Sequence[ScriptStep]] | None = None, **settings: Any) -> Chat:
            adapter = build_adapter(wechat.url, **settings)
            access = {"wechat": AccessRule(allow=(EVERYBODY,))}
            policy: Policy = msgspec.structs.replace(AT_ONCE, reach=map_reach([adapter]), access=access)
            agent = QuotingAgent(scripts or {})
            world = World(database, clock, agent=agent, adapters=[adapter], policy=policy)
            worlds.append(world)
            await world.start()
            return Chat(world, wechat, agent)

        yield make
        for world in worlds:
            await world.close()
        assert wechat.problems == []


async def test_two_people_talk_and_each_answer_has_the_newest_token_of_its_person(open_chat: Open) -> None:
    chat = await open_chat()
    chat.wechat.write(ANN, "one")
    chat.wechat.write(BEN, "two")
    await chat.reads(ANN, "one")
    await chat.reads(BEN, "two")
    chat.wechat.write(ANN, "three")
    await chat.reads(ANN, "one", "three")
    assert all(bubble.token == bubble.newest for bubble in chat.wechat.bubbles)


async def test_a_restart_answers_with_the_stored_token_and_repeats_nothing(open_chat: Open) -> None:
    pause = Pause()
    chat = await open_chat({"slow": [pause, TextDelta("done")]})
    chat.wechat.write(ANN, "one")
    await chat.reads(ANN, "one")
    chat.wechat.write(ANN, "slow")
    await pause.reached()
    pause.go_on()
    await chat.world.restart()
    await chat.reads(ANN, "one", "done")
    assert chat.wechat.bubbles[-1].token == chat.wechat.tokens[ANN][-1]


async def test_an_answer_that_comes_too_late_goes_out_when_the_person_writes(open_chat: Open) -> None:
    pause = Pause()
    chat = await open_chat({"slow": [pause, TextDelta("done")]})
    chat.wechat.write(ANN, "slow")
    await pause.reached()
    chat.wechat.closed.add(ANN)
    pause.go_on()
    [held] = await chat.waits(DeliveryState.HELD)
    assert "until the person writes" in (held.error or "")
    chat.wechat.write(ANN, "hello?")
    await chat.reads(ANN, "done", "hello?")
    assert chat.wechat.bubbles[0].token == chat.wechat.tokens[ANN][-1]


async def test_a_reply_brings_the_text_of_the_message_it_quotes(open_chat: Open) -> None:
    chat = await open_chat({"first": [TextDelta("the first answer")]})
    first = chat.wechat.write(ANN, "first")
    await chat.reads(ANN, "the first answer")
    await chat.waits(DeliveryState.SENT)
    for words, id_ in (("why?", chat.wechat.bubbles[0].id), ("and this?", first)):
        item = {"type": 1, "text_item": {"text": words}, "ref_msg": {"svr_id": id_}}
        chat.wechat.push_items(ANN, [item])
        await chat.world.eventually(lambda words=words: chat.wechat.texts(ANN)[-1] == words)
    assert '(in reply to "the first answer")\nwhy?' in chat.agent.exact[1]
    assert '(in reply to "first")\nand this?' in chat.agent.exact[2]


async def test_a_slow_picture_of_one_person_holds_up_nobody_else(open_chat: Open) -> None:
    chat = await open_chat()
    media = chat.wechat.add_file("slow", PNG, hex_key=False)
    chat.wechat.hold("slow")
    items: list[dict[str, Any]] = [
        {"type": 1, "text_item": {"text": "look"}},
        {"type": 2, "image_item": {"media": media}},
    ]
    chat.wechat.push_items(ANN, items)
    chat.wechat.write(BEN, "hello")
    await chat.reads(BEN, "hello")
    assert chat.wechat.texts(ANN) == []
    chat.wechat.release("slow")
    await chat.reads(ANN, "look")
    stored = await chat.world.read(lambda tx: tx.rows("select parts from messages where role = 'user'"))
    assert sum('"image"' in parts for (parts,) in stored) == 1


async def test_a_file_that_is_gone_becomes_a_sentence_in_its_message(open_chat: Open) -> None:
    chat = await open_chat()
    media = {"encrypt_query_param": "gone", "aes_key": "MTIzNDU2Nzg5MDEyMzQ1Ng=="}
    chat.wechat.push_items(ANN, [{"type": 5, "video_item": {"media": media}}])
    await chat.reads(ANN, "[video.mp4 could not be fetched: WeChat says: the file has expired (404)]")


async def test_a_deleted_question_is_not_answered(open_chat: Open) -> None:
    pause = Pause()
    chat = await open_chat({"slow": [pause, TextDelta("done")]})
    chat.wechat.write(ANN, "slow")
    await pause.reached()
    second = chat.wechat.write(ANN, "forget this")
    chat.wechat.write(ANN, None, message_id=int(second), delete_time_ms=1_790_000_000_000)
    chat.wechat.write(BEN, "hello")
    await chat.reads(BEN, "hello")
    pause.go_on()
    chat.wechat.write(ANN, "and now?")
    await chat.reads(ANN, "done", "and now?")


async def test_an_ended_session_is_shown_with_what_to_do_and_ends_by_itself(open_chat: Open) -> None:
    chat = await open_chat()
    chat.wechat.write(ANN, "one")
    await chat.reads(ANN, "one")
    chat.wechat.expired = True

    def is_refused(tx: Transaction) -> bool:
        return any(
            s.link is LinkState.REFUSED and "log in anew with `keryx gateway setup wechat`" in s.detail
            for s in workers.list_connections(tx)
        )

    await chat.world.until(is_refused)
    chat.wechat.expired = False
    chat.wechat.write(ANN, "two")
    chat.world.advance(timedelta(minutes=11))
    await chat.reads(ANN, "one", "two")
