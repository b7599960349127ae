"""Conversations over the wire of iMessage, as a person reads them in the chat: through imsg and through BlueBubbles."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.contracts.imessage import build_bluebubbles, build_imsg
from tests.engine.world import AT_ONCE, OPERATORS, SECONDS, World
from tests.fakes.imessage import ANN, BEN, GROUP, FakeBlueBubbles, FakeImsg, MessagesFake

from keryx.core.access import EVERYBODY, AccessRule
from keryx.core.deliveries import Delivery, DeliveryState
from keryx.core.messages import Role
from keryx.core.ports.agent import AgentEvent, TextDelta, TurnContext
from keryx.core.questions import Question
from keryx.engine.policy import Policy, map_reach
from keryx.store import deliveries
from keryx.store.db import Database, Engine, Transaction
from keryx.testing import FakeClock, ScriptedAgent
from keryx.testing.fakes import ScriptStep
from keryx.testing.fault_injection import PlatformFaults

pytestmark = pytest.mark.engines(Engine.SQLITE)
EVERYONE = AccessRule(allow=(EVERYBODY,))


class HistoryAgent:
    """An agent that plays the script of a question, or answers with everything that it was told by people."""

    def __init__(self, scripts: dict[str, Sequence[ScriptStep]]) -> None:
        self._scripts = scripts
        self.exact: list[str] = []

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        said = [m for m in await context.history() if m.role is Role.USER]
        self.exact.append(said[-1].exact or said[-1].text)
        script = self._scripts.get(said[-1].text, (TextDelta(" | ".join(m.text for m in said)),))
        async for event in ScriptedAgent(script).run(context):
            yield event


class Chat:
    """People who write to Keryx, over the wire."""

    def __init__(self, world: World, messages: MessagesFake, agent: HistoryAgent) -> None:
        self.world = world
        self.messages = messages
        self.agent = agent

    async def reads(self, chat: str, *texts: str) -> None:
        """Wait until the chat shows exactly these messages."""
        try:
            async with asyncio.timeout(SECONDS):
                await self.world.eventually(lambda: self.messages.texts(chat) == list(texts))
        except TimeoutError:
            raise AssertionError(f"the chat shows {self.messages.texts(chat)}, not {texts}") from None

    async def waits(self, condition: Callable[[Delivery], bool]) -> None:
        """Wait until a delivery is stored of which this is true."""
        await self.world.until(lambda tx: any(map(condition, deliveries.list_recent(tx, OPERATORS))))

    async def records(self, count: int) -> None:
        """Wait until this many deliveries are stored as sent."""
        sent = [DeliveryState.SENT]
        await self.world.until(lambda tx: len(deliveries.list_recent(tx, OPERATORS, states=sent)) >= count)

    async def count_lanes(self) -> int:
        def count(tx: Transaction) -> int:
            return int(tx.rows("select count(*) from lanes where session is not null")[0][0])

        return await self.world.read(count)


Open = Callable[..., Awaitable[Chat]]


@pytest.fixture(params=["imsg", "bluebubbles"])
def mac(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeImsg | FakeBlueBubbles]:
    with FakeImsg(tmp_path) if request.param == "imsg" else FakeBlueBubbles() as messages:
        yield messages
    assert messages.problems == []


@pytest.fixture
async def open_chat(
    mac: FakeImsg | FakeBlueBubbles, database: Database, clock: FakeClock
) -> AsyncIterator[Open]:
    worlds: list[World] = []

    async def make(
        scripts: dict[str, Sequence[ScriptStep]] | None = None,
        *,
        access: AccessRule = EVERYONE,
        **settings: Any,
    ) -> Chat:
        adapter = (
            build_imsg(mac.command, **settings)
            if isinstance(mac, FakeImsg)
            else build_bluebubbles(mac.url, **settings)
        )
        policy: Policy = msgspec.structs.replace(
            AT_ONCE, reach=map_reach([adapter]), access={"imessage": access}
        )
        agent = HistoryAgent(scripts or {})
        world = World(database, clock, agent=agent, adapters=[adapter], policy=policy)
        worlds.append(world)
        await world.start()
        await world.eventually(lambda: mac.reads > 0)
        return Chat(world, mac, agent)

    yield make
    for world in worlds:
        await world.close()


async def test_a_person_is_answered_by_the_service_that_they_used(open_chat: Open) -> None:
    chat = await open_chat()
    chat.messages.write(ANN, "one")
    await chat.reads(ANN, "one")
    chat.messages.write(ANN, "two", service="SMS")
    await chat.reads(ANN, "one", "one | two")
    # Each is answered as it came.
    assert [row.chat for row in chat.messages.sent_rows(ANN)] == [f"iMessage;-;{ANN}", f"SMS;-;{ANN}"]
    assert await chat.count_lanes() == 1


async def test_what_comes_while_keryx_is_away_is_answered_and_what_was_there_before_it_is_not(
    open_chat: Open, mac: MessagesFake
) -> None:
    mac.write(ANN, "long ago")
    chat = await open_chat()
    await chat.world.close()
    mac.write(ANN, "while it was away")
    again = await open_chat()
    await again.reads(ANN, "while it was away")


async def test_what_the_owner_writes_by_hand_is_not_answered(open_chat: Open) -> None:
    chat = await open_chat()
    chat.messages.write_as_agent(ANN, "by hand")
    chat.messages.write(ANN, "hello")
    await chat.reads(ANN, "by hand", "hello")


async def test_a_group_is_answered_when_the_agent_is_named(open_chat: Open) -> None:
    chat = await open_chat(names="Keryx, Bot")
    chat.messages.write(GROUP, "lunch?", sender=ANN)
    chat.messages.write(GROUP, "keryx, lunch?", sender=BEN)
    await chat.world.eventually(lambda: len(chat.messages.texts(GROUP)) == 1)
    assert "keryx, lunch?" in chat.messages.texts(GROUP)[0]


async def test_handles_of_one_person_are_one_conversation(open_chat: Open) -> None:
    chat = await open_chat(aliases=((ANN, BEN),))
    chat.messages.write(ANN, "by phone")
    await chat.reads(ANN, "by phone")
    chat.messages.write(BEN, "by mail")
    await chat.reads(BEN, "by phone | by mail")
    assert await chat.count_lanes() == 1


@pytest.mark.parametrize(("tapback", "answer"), [("👍", "Allowed once: May I look?"), ("👎", "Denied")])
async def test_a_tapback_answers_a_question(open_chat: Open, tapback: str, answer: str) -> None:
    async def ask(context: TurnContext) -> None:
        answers.append(await context.ask(Question(key="1", title="May I look?")))

    answers: list[str | None] = []
    chat = await open_chat({"find it": [ask, TextDelta("In the attic.")]})
    chat.messages.write(ANN, "find it")
    await chat.world.eventually(lambda: any("May I look?" in text for text in chat.messages.texts(ANN)))
    await chat.records(1)
    [question] = chat.messages.sent_rows(ANN)
    chat.messages.tap(ANN, tapback, question)
    await chat.world.eventually(lambda: "In the attic." in chat.messages.texts(ANN))
    assert len(answers) == 1 and chat.messages.texts(ANN)[1].startswith(answer)


async def test_another_tapback_is_noted_for_the_next_turn(open_chat: Open) -> None:
    chat = await open_chat()
    chat.messages.write(ANN, "one")
    await chat.reads(ANN, "one")
    await chat.records(1)
    chat.messages.tap(ANN, "❤️", chat.messages.sent_rows(ANN)[0])
    chat.messages.write(ANN, "two")
    await chat.reads(ANN, "one", "one | two")
    assert "❤️" in chat.agent.exact[-1]


async def test_a_reply_brings_the_text_of_the_message_it_quotes(open_chat: Open) -> None:
    chat = await open_chat({"where?": [TextDelta("In the attic.")]})
    chat.messages.write(ANN, "where?")
    await chat.reads(ANN, "In the attic.")
    await chat.records(1)
    chat.messages.write(ANN, "why there?", thread=chat.messages.sent_rows(ANN)[0].guid)
    await chat.world.eventually(lambda: len(chat.messages.texts(ANN)) == 2)
    assert "In the attic." in chat.agent.exact[-1]


async def test_a_stranger_gets_a_code(open_chat: Open) -> None:
    chat = await open_chat(access=AccessRule())
    chat.messages.write(ANN, "hello")
    await chat.world.eventually(lambda: len(chat.messages.texts(ANN)) == 1)
    assert "keryx pairing approve" in chat.messages.texts(ANN)[0]


async def test_a_reply_that_is_lost_is_found_in_the_history_and_not_sent_again(
    open_chat: Open, clock: FakeClock
) -> None:
    chat = await open_chat()
    chat.messages.set_faults(PlatformFaults(lost_reply=1))
    chat.messages.write(ANN, "one")
    await chat.world.eventually(lambda: chat.messages.texts(ANN) == ["one"])
    chat.messages.set_faults(PlatformFaults())
    chat.messages.write(ANN, "two")
    await chat.waits(lambda delivery: delivery.again)
    clock.advance(60)
    await chat.reads(ANN, "one", "one | two")


async def test_a_file_arrives_and_one_that_is_gone_becomes_a_sentence(open_chat: Open) -> None:
    chat = await open_chat()
    chat.messages.attach(ANN, "look", "a.txt", "text/plain", b"words")
    await chat.world.eventually(lambda: len(chat.messages.texts(ANN)) == 1)
    assert "look" in chat.messages.texts(ANN)[0]


async def test_a_long_answer_is_several_bubbles_in_order(open_chat: Open) -> None:
    paragraphs = [f"Part {n} " + "word " * 80 for n in range(4)]
    chat = await open_chat({"tell me": [TextDelta("\n\n".join(paragraphs))]})
    chat.messages.write(ANN, "tell me")
    await chat.reads(ANN, *(text.strip() for text in paragraphs))
