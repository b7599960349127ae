"""Conversations over the wire of WhatsApp, as a person reads them in the chat."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.contracts.whatsapp import ANN, BEN, build_agent, build_cloud
from tests.engine.world import AT_ONCE, OPERATORS, SECONDS, World
from tests.fakes.whatsapp import CREATOR, DISPLAY, GROUP, TEMPLATE, FakeWhatsAppAgent, FakeWhatsAppCloud

from keryx.core.access import AccessRule
from keryx.core.deliveries import Delivery, DeliveryState
from keryx.core.messages import Role
from keryx.core.ports.agent import AgentEvent, TextDelta, TurnContext
from keryx.core.questions import Question
from keryx.engine.policy import Policy, map_reach
from keryx.store import deliveries
from keryx.store.db import Database, Engine, Transaction
from keryx.surfaces.gateway.whatsapp import WhatsAppCloudAdapter
from keryx.testing import FakeClock, ScriptedAgent
from keryx.testing.fakes import ScriptStep

pytestmark = pytest.mark.engines(Engine.SQLITE)

PHONE = "15551234567"


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
    """People who write to a number of Keryx, over the wire."""

    def __init__(self, world: World, whatsapp: FakeWhatsAppCloud, adapter: WhatsAppCloudAdapter) -> None:
        self.world = world
        self.whatsapp = whatsapp
        self.adapter = adapter

    async def reads(self, chat: str, *texts: str) -> None:
        """Wait until the chat shows exactly these messages."""
        try:
            async with asyncio.timeout(SECONDS):
                await self.world.eventually(lambda: self.whatsapp.texts(chat) == list(texts))
        except TimeoutError:
            raise AssertionError(f"the chat shows {self.whatsapp.texts(chat)}, not {texts}") from None

    async def waits(self, state: DeliveryState, count: int = 1) -> list[Delivery]:
        """Wait until this many deliveries are in a state; gives them."""

        def load(tx: Transaction) -> list[Delivery]:
            return deliveries.list_recent(tx, OPERATORS, states=[state])

        await self.world.until(lambda tx: len(load(tx)) == count)
        return await self.world.read(load)

    async def count_lanes(self) -> int:
        def count(tx: Transaction) -> int:
            return int(tx.rows("select count(*) from lanes where session is not null")[0][0])

        return await self.world.read(count)


Open = Callable[..., Awaitable[Chat]]


@pytest.fixture
async def open_chat(database: Database, clock: FakeClock) -> AsyncIterator[Open]:
    with FakeWhatsAppCloud() as whatsapp:
        worlds: list[World] = []
        tasks: list[asyncio.Task[None]] = []

        async def make(
            scripts: dict[str, Sequence[ScriptStep]] | None = None,
            *,
            access: AccessRule | None = None,
            **settings: Any,
        ) -> Chat:
            adapter = build_cloud(whatsapp.url, **settings)
            policy: Policy = msgspec.structs.replace(AT_ONCE, reach=map_reach([adapter]))
            if access is not None:
                policy = msgspec.structs.replace(policy, access={"whatsapp": access})
            world = World(
                database, clock, agent=HistoryAgent(scripts or {}), adapters=[adapter], policy=policy
            )
            worlds.append(world)
            await world.start()
            tasks.append(asyncio.create_task(whatsapp.post(adapter.hook.handle)))
            return Chat(world, whatsapp, adapter)

        yield make
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for world in worlds:
            await world.close()


async def test_a_person_known_by_number_stays_one_person_when_their_id_is_learned(open_chat: Open) -> None:
    chat = await open_chat()
    chat.whatsapp.write(PHONE, "one")
    await chat.reads(PHONE, "one")
    chat.whatsapp.write(ANN, "two", phone=PHONE)
    await chat.reads(ANN, "one | two")
    chat.whatsapp.write(ANN, "three")
    await chat.reads(ANN, "one | two", "one | two | three")
    chat.whatsapp.write(PHONE, "four")
    await chat.reads(PHONE, "one", "one | two | three | four")
    assert await chat.count_lanes() == 1


async def test_two_conversations_of_one_person_are_merged_and_none_is_lost(
    open_chat: Open, clock: FakeClock
) -> None:
    chat = await open_chat()
    chat.whatsapp.write(PHONE, "by number")
    await chat.reads(PHONE, "by number")
    clock.advance(60)
    chat.whatsapp.write(ANN, "by id")
    await chat.reads(ANN, "by id")
    assert await chat.count_lanes() == 2
    chat.whatsapp.write(ANN, "both", phone=PHONE)
    await chat.reads(ANN, "by id", "by id | both")
    assert await chat.count_lanes() == 1
    chat.whatsapp.write(ANN, "/sessions")
    await chat.world.eventually(lambda: len(chat.whatsapp.texts(ANN)) == 3)
    assert "by number" in chat.whatsapp.texts(ANN)[-1] and "by id" in chat.whatsapp.texts(ANN)[-1]


async def test_a_number_that_passed_to_another_person_does_not_bring_the_conversation(
    open_chat: Open,
) -> None:
    chat = await open_chat()
    chat.whatsapp.write(ANN, "secret", phone=PHONE)
    await chat.reads(ANN, "secret")
    chat.whatsapp.write(BEN, "hello", phone=PHONE)
    await chat.reads(BEN, "hello")
    assert await chat.count_lanes() == 2


async def test_access_by_number_holds_for_the_id_of_the_same_person(open_chat: Open) -> None:
    chat = await open_chat(access=AccessRule(allow=("+1 555 123-4567",), pairing=False))
    chat.whatsapp.write(BEN, "hello")
    chat.whatsapp.write(ANN, "hello", phone=PHONE)
    await chat.reads(ANN, "hello")
    assert chat.whatsapp.texts(BEN) == []


async def test_in_a_group_a_member_stays_one_person_and_answers_quote_the_question(open_chat: Open) -> None:
    chat = await open_chat(access=AccessRule(allow=("*",), groups=("*",)))
    mention = f"@{DISPLAY}"
    chat.whatsapp.write(PHONE, "just talk", group=GROUP)
    first = chat.whatsapp.write(PHONE, f"{mention} one", group=GROUP)
    await chat.reads(GROUP, "one")
    second = chat.whatsapp.write(ANN, f"{mention} two", phone=PHONE, group=GROUP)
    await chat.reads(GROUP, "one", "one | two")
    chat.whatsapp.write(BEN, f"{mention} three", group=GROUP)
    await chat.reads(GROUP, "one", "one | two", "three")
    assert [b.quotes for b in chat.whatsapp.bubbles[:2]] == [first, second]
    assert await chat.count_lanes() == 2


async def test_a_slow_file_of_one_person_holds_up_nobody_else(open_chat: Open) -> None:
    chat = await open_chat()
    media = chat.whatsapp.add_file("slow", "image/png", b"\x89PNG\r\n\x1a\n" + bytes(32))
    chat.whatsapp.hold("slow")
    chat.whatsapp.write(ANN, None, type="image", image={**media, "caption": "look"})
    chat.whatsapp.write(BEN, "hello")
    await chat.reads(BEN, "hello")
    assert chat.whatsapp.texts(ANN) == []
    chat.whatsapp.release("slow")
    await chat.reads(ANN, "look")
    stored = await chat.world.read(lambda tx: tx.rows("select parts from messages where role = 'user'"))
    assert sum('"image"' in parts for (parts,) in stored) == 1


async def test_a_file_that_is_gone_becomes_a_sentence_in_its_message(open_chat: Open) -> None:
    chat = await open_chat()
    chat.whatsapp.write(ANN, None, type="image", image={"id": "gone", "mime_type": "image/png"})
    reason = "WhatsApp says: the media does not exist (100)"
    await chat.reads(ANN, f"[image.png could not be fetched: {reason}]")


async def test_a_stranger_gets_a_code(open_chat: Open) -> None:
    chat = await open_chat(access=AccessRule())
    chat.whatsapp.write(ANN, "hello")
    await chat.world.eventually(lambda: bool(chat.whatsapp.texts(ANN)))
    assert "keryx pairing approve whatsapp" in chat.whatsapp.texts(ANN)[0]


async def test_an_answer_that_comes_too_late_is_held_until_the_person_writes(
    open_chat: Open, clock: FakeClock
) -> None:
    async def wait_a_day(context: TurnContext) -> None:
        clock.advance(timedelta(hours=25))

    chat = await open_chat({"slow": [wait_a_day, TextDelta("done")]})
    chat.whatsapp.write(ANN, "slow")
    await chat.waits(DeliveryState.HELD)
    assert chat.whatsapp.texts(ANN) == []
    chat.whatsapp.write(ANN, "and?")
    await chat.reads(ANN, "done", "slow | and?")


async def test_what_was_held_under_a_number_goes_out_when_the_person_writes_with_their_id(
    open_chat: Open, clock: FakeClock
) -> None:
    async def wait_a_day(context: TurnContext) -> None:
        clock.advance(timedelta(hours=25))

    chat = await open_chat({"slow": [wait_a_day, TextDelta("done")]})
    chat.whatsapp.write(PHONE, "slow")
    await chat.waits(DeliveryState.HELD)
    chat.whatsapp.write(ANN, "and?", phone=PHONE)
    await chat.reads(PHONE, "done")
    await chat.reads(ANN, "slow | and?")


async def test_with_a_template_the_person_is_asked_to_write_and_then_gets_the_answer(open_chat: Open) -> None:
    chat = await open_chat(template=TEMPLATE)
    chat.whatsapp.late = True
    chat.whatsapp.write(ANN, "one")
    # WhatsApp says it only after it has accepted the message.
    chat.whatsapp.closed.add(ANN)
    [held] = await chat.waits(DeliveryState.HELD)
    assert held.error and "Re-engagement message (131047)" in held.error
    assert [b.type for b in chat.whatsapp.bubbles] == ["lost", "template"]
    chat.whatsapp.write(ANN, "two")
    await chat.reads(ANN, "one", "one | two")


async def test_a_message_that_whatsapp_could_not_deliver_is_shown_as_failed_and_can_be_retried(
    open_chat: Open,
) -> None:
    chat = await open_chat()
    chat.whatsapp.write(ANN, "one")
    await chat.reads(ANN, "one")
    await chat.waits(DeliveryState.SENT)
    [bubble] = chat.whatsapp.bubbles
    error = {"code": 131026, "title": "Message undeliverable"}
    chat.whatsapp.push_status(bubble, "failed", error)
    [failed] = await chat.waits(DeliveryState.FAILED)
    assert failed.error == "WhatsApp did not deliver it: Message undeliverable (131026)"
    assert (failed.parts_sent, failed.receipts, failed.again) == (0, (), False)
    await chat.world.hub.deliveries.decide(OPERATORS, failed.id, DeliveryState.READY)
    await chat.reads(ANN, "one", "one")
    await chat.waits(DeliveryState.SENT)
    # WhatsApp repeats what it has said for days.
    chat.whatsapp.push_status(bubble, "failed", error)
    chat.whatsapp.write(ANN, "two")
    await chat.reads(ANN, "one", "one", "one | two")
    await chat.waits(DeliveryState.SENT, 2)


async def test_of_several_parts_the_sending_goes_on_with_the_one_that_failed(open_chat: Open) -> None:
    long = "\n\n".join(f"{number} " + "word " * 700 for number in range(3))
    chat = await open_chat({"long": [TextDelta(long)]})
    chat.whatsapp.write(ANN, "long")
    await chat.waits(DeliveryState.SENT)
    count = len(chat.whatsapp.bubbles)
    assert count >= 3
    chat.whatsapp.push_status(chat.whatsapp.bubbles[1], "failed", {"code": 131026})
    [failed] = await chat.waits(DeliveryState.FAILED)
    # Those after it have arrived, so what comes again is marked.
    assert (failed.parts_sent, failed.again) == (1, True)


async def test_a_question_has_buttons_and_a_press_answers_it(open_chat: Open) -> None:
    async def ask(context: TurnContext) -> None:
        await context.ask(Question(key="1", title="May I look?"))

    chat = await open_chat({"find it": [ask, TextDelta("In the attic.")]})
    chat.whatsapp.write(ANN, "find it")
    await chat.world.eventually(lambda: bool(chat.whatsapp.bubbles and chat.whatsapp.bubbles[-1].buttons))
    labels = list(chat.whatsapp.bubbles[-1].buttons)
    assert labels[0] == "Allow" and len(labels) == 3 and all(len(label) <= 20 for label in labels)
    chat.whatsapp.press(ANN, "Allow")
    await chat.world.eventually(lambda: "In the attic." in chat.whatsapp.texts(ANN))
    # The buttons stay, and a second press is answered with what has become of the question.
    before = len(chat.whatsapp.texts(ANN))
    chat.whatsapp.press(ANN, "Allow")
    await chat.world.eventually(lambda: len(chat.whatsapp.texts(ANN)) == before + 1)
    assert chat.whatsapp.problems == []


async def test_a_reply_brings_the_text_of_the_message_it_quotes(open_chat: Open) -> None:
    chat = await open_chat({"first": [TextDelta("the first answer")]})
    first = chat.whatsapp.write(ANN, "first")
    await chat.reads(ANN, "the first answer")
    answer = chat.whatsapp.bubbles[0].id
    await chat.waits(DeliveryState.SENT)
    chat.whatsapp.write(ANN, "why?", context={"from": "15550783881", "id": answer})
    await chat.world.eventually(lambda: len(chat.whatsapp.texts(ANN)) == 2)
    chat.whatsapp.write(ANN, "and this?", context={"from": PHONE, "id": first})
    await chat.world.eventually(lambda: len(chat.whatsapp.texts(ANN)) == 3)
    assert isinstance(chat.world.agent, HistoryAgent)
    assert '(in reply to "the first answer")\nwhy?' in chat.world.agent.exact[1]
    assert '(in reply to "first")\nand this?' in chat.world.agent.exact[2]


async def test_a_repeated_post_is_answered_once(open_chat: Open) -> None:
    chat = await open_chat()
    chat.whatsapp.write(ANN, "one")
    [(id_, body)] = chat.whatsapp.waiting.items()
    await chat.reads(ANN, "one")
    for number in range(3):
        chat.whatsapp.push_raw(f"{id_}.{number}", body)
    chat.whatsapp.write(ANN, "two")
    await chat.reads(ANN, "one", "one | two")


async def test_an_agent_answers_its_creator(database: Database, clock: FakeClock) -> None:
    with FakeWhatsAppAgent() as whatsapp:
        adapter = build_agent(whatsapp.url)
        world = World(database, clock, agent=HistoryAgent({}), adapters=[adapter])
        await world.start()
        whatsapp.write(CREATOR, "one")
        await world.delivered(1)
        whatsapp.write(CREATOR, "two")
        await world.delivered(2)
        await world.crash()
        whatsapp.write(CREATOR, "three")
        world.advance(world.policy.limits.lease + timedelta(seconds=1))
        await world.start()
        await world.eventually(lambda: whatsapp.texts(CREATOR) == ["one", "one | two", "one | two | three"])
        await world.close()
        assert whatsapp.problems == []
