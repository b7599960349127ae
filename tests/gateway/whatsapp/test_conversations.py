"""Conversations over the wire of WhatsApp, as a person reads them in the chat."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from tests.contracts.whatsapp import ANN, BEN, build_agent, build_cloud
from tests.engine.world import OPERATORS, World
from tests.fakes.whatsapp import CREATOR, DISPLAY, GROUP, TEMPLATE, FakeWhatsAppAgent, FakeWhatsAppCloud
from tests.gateway.conversation import (
    EVERYONE,
    Conversation,
    ConversationAgent,
    Conversations,
    Scripts,
    ask_permission,
    check_deletion_while_waiting,
    repeat_all,
)

from keryx.core.access import AccessRule
from keryx.core.deliveries import DeliveryState
from keryx.core.ports.agent import TextDelta, TurnContext
from keryx.store.db import Database, Engine
from keryx.testing import FakeClock

pytestmark = pytest.mark.engines(Engine.SQLITE)

PHONE = "15551234567"


Open = Callable[..., Awaitable[Conversation[FakeWhatsAppCloud]]]


@pytest.fixture
async def open_chat(database: Database, clock: FakeClock) -> AsyncIterator[Open]:
    with FakeWhatsAppCloud() as whatsapp:
        tasks: list[asyncio.Task[None]] = []

        async def make(
            scripts: Scripts | None = None, *, access: AccessRule = EVERYONE, **settings: Any
        ) -> Conversation[FakeWhatsAppCloud]:
            adapter = build_cloud(whatsapp.url, **settings)
            chat = await conversations.open(whatsapp, adapter, scripts, access=access, answer=repeat_all)
            tasks.append(asyncio.create_task(whatsapp.post(adapter.hook.handle)))
            return chat

        async with Conversations(database, clock) as conversations:
            yield make
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def test_a_person_known_by_number_stays_one_person_when_their_id_is_learned(open_chat: Open) -> None:
    chat = await open_chat()
    chat.fake.write(PHONE, "one")
    await chat.reads(PHONE, "one")
    chat.fake.write(ANN, "two", phone=PHONE)
    await chat.reads(ANN, "one | two")
    chat.fake.write(ANN, "three")
    await chat.reads(ANN, "one | two", "one | two | three")
    chat.fake.write(PHONE, "four")
    await chat.reads(PHONE, "one", "one | two | three | four")
    assert await chat.count_lanes() == 1


async def test_two_conversations_of_one_person_are_merged_and_none_is_lost(
    open_chat: Open, clock: FakeClock
) -> None:
    chat = await open_chat()
    chat.fake.write(PHONE, "by number")
    await chat.reads(PHONE, "by number")
    clock.advance(60)
    chat.fake.write(ANN, "by id")
    await chat.reads(ANN, "by id")
    assert await chat.count_lanes() == 2
    chat.fake.write(ANN, "both", phone=PHONE)
    await chat.reads(ANN, "by id", "by id | both")
    assert await chat.count_lanes() == 1
    chat.fake.write(ANN, "/sessions")
    await chat.until(lambda: len(chat.fake.texts(ANN)) == 3)
    assert "by number" in chat.fake.texts(ANN)[-1] and "by id" in chat.fake.texts(ANN)[-1]


async def test_a_number_that_passed_to_another_person_does_not_bring_the_conversation(
    open_chat: Open,
) -> None:
    chat = await open_chat()
    chat.fake.write(ANN, "secret", phone=PHONE)
    await chat.reads(ANN, "secret")
    chat.fake.write(BEN, "hello", phone=PHONE)
    await chat.reads(BEN, "hello")
    assert await chat.count_lanes() == 2


async def test_access_by_number_holds_for_the_id_of_the_same_person(open_chat: Open) -> None:
    chat = await open_chat(access=AccessRule(allow=("+1 555 123-4567",), pairing=False))
    chat.fake.write(BEN, "hello")
    chat.fake.write(ANN, "hello", phone=PHONE)
    await chat.reads(ANN, "hello")
    assert chat.fake.texts(BEN) == []


async def test_in_a_group_a_member_stays_one_person_and_answers_quote_the_question(open_chat: Open) -> None:
    chat = await open_chat()
    mention = f"@{DISPLAY}"
    chat.fake.write(PHONE, "just talk", group=GROUP)
    first = chat.fake.write(PHONE, f"{mention} one", group=GROUP)
    await chat.reads(GROUP, "one")
    second = chat.fake.write(ANN, f"{mention} two", phone=PHONE, group=GROUP)
    await chat.reads(GROUP, "one", "one | two")
    chat.fake.write(BEN, f"{mention} three", group=GROUP)
    await chat.reads(GROUP, "one", "one | two", "three")
    assert [b.quotes for b in chat.fake.bubbles[:2]] == [first, second]
    assert await chat.count_lanes() == 2


async def test_a_slow_file_of_one_person_holds_up_nobody_else(open_chat: Open) -> None:
    chat = await open_chat()
    media = chat.fake.add_file("slow", "image/png", b"\x89PNG\r\n\x1a\n" + bytes(32))
    chat.fake.hold("slow")
    chat.fake.write(ANN, None, type="image", image={**media, "caption": "look"})
    chat.fake.write(BEN, "hello")
    await chat.reads(BEN, "hello")
    assert chat.fake.texts(ANN) == []
    chat.fake.release("slow")
    await chat.world.flow(chat.reads(ANN, "look"), step=0.3)
    assert await chat.count_pictures() == 1


async def test_a_message_that_is_deleted_while_it_waits_is_not_answered(open_chat: Open) -> None:
    await check_deletion_while_waiting(open_chat, lambda fake, message: fake.revoke(ANN, message), ANN, BEN)


async def test_an_album_of_three_pictures_gets_one_answer(open_chat: Open) -> None:
    chat = await open_chat()
    media = chat.fake.add_file("p", "image/png", b"\x89PNG\r\n\x1a\n" + bytes(32))
    for caption in ("look", "", ""):
        chat.fake.write(ANN, None, type="image", image={**media, "caption": caption})
    await chat.receives(3)
    await chat.world.flow(chat.until(lambda: chat.fake.texts(ANN)), step=0.3)
    assert len(chat.agent.turns) == 1 and chat.agent.asked == ["look\n\n"]


async def test_a_forward_with_a_comment_gets_one_answer(open_chat: Open) -> None:
    chat = await open_chat()
    chat.fake.write(ANN, "abracadabra", context={"forwarded": True})
    await chat.receives(1)
    # The comment ends the wait: the clock stands still.
    chat.fake.write(ANN, "what is this?")
    await chat.until(lambda: chat.fake.texts(ANN))
    assert chat.agent.asked == ["Forwarded:\n\nabracadabra\nwhat is this?"]


async def test_a_file_that_is_gone_becomes_a_sentence_in_its_message(open_chat: Open) -> None:
    chat = await open_chat()
    chat.fake.write(ANN, None, type="image", image={"id": "gone", "mime_type": "image/png"})
    reason = "WhatsApp says: the media does not exist (100)"
    await chat.world.flow(chat.until(lambda: chat.fake.texts(ANN)), step=0.3)
    await chat.reads(ANN, f"[image.png could not be fetched: {reason}]")


async def test_a_stranger_gets_a_code(open_chat: Open) -> None:
    chat = await open_chat(access=AccessRule())
    chat.fake.write(ANN, "hello")
    await chat.until(lambda: chat.fake.texts(ANN))
    assert "keryx pairing approve whatsapp" in chat.fake.texts(ANN)[0]


async def test_an_answer_that_comes_too_late_is_held_until_the_person_writes(
    open_chat: Open, clock: FakeClock
) -> None:
    async def wait_a_day(context: TurnContext) -> None:
        clock.advance(timedelta(hours=25))

    chat = await open_chat({"slow": [wait_a_day, TextDelta("done")]})
    chat.fake.write(ANN, "slow")
    await chat.waits(DeliveryState.HELD)
    assert chat.fake.texts(ANN) == []
    chat.fake.write(ANN, "and?")
    await chat.reads(ANN, "done", "slow | and?")


async def test_what_was_held_under_a_number_goes_out_when_the_person_writes_with_their_id(
    open_chat: Open, clock: FakeClock
) -> None:
    async def wait_a_day(context: TurnContext) -> None:
        clock.advance(timedelta(hours=25))

    chat = await open_chat({"slow": [wait_a_day, TextDelta("done")]})
    chat.fake.write(PHONE, "slow")
    await chat.waits(DeliveryState.HELD)
    chat.fake.write(ANN, "and?", phone=PHONE)
    await chat.reads(PHONE, "done")
    await chat.reads(ANN, "slow | and?")


async def test_with_a_template_the_person_is_asked_to_write_and_then_gets_the_answer(open_chat: Open) -> None:
    chat = await open_chat(template=TEMPLATE)
    chat.fake.late = True
    chat.fake.write(ANN, "one")
    # WhatsApp says it only after it has accepted the message.
    chat.fake.closed.add(ANN)
    [held] = await chat.waits(DeliveryState.HELD)
    assert held.error and "Re-engagement message (131047)" in held.error
    assert [b.type for b in chat.fake.bubbles] == ["lost", "template"]
    chat.fake.write(ANN, "two")
    await chat.reads(ANN, "one", "one | two")


async def test_a_message_that_whatsapp_could_not_deliver_is_shown_as_failed_and_can_be_retried(
    open_chat: Open,
) -> None:
    chat = await open_chat()
    chat.fake.write(ANN, "one")
    await chat.reads(ANN, "one")
    await chat.waits(DeliveryState.SENT)
    [bubble] = chat.fake.bubbles
    error = {"code": 131026, "title": "Message undeliverable"}
    chat.fake.push_status(bubble, "failed", error)
    [failed] = await chat.waits(DeliveryState.FAILED)
    assert failed.error == "WhatsApp did not deliver it: Message undeliverable (131026)"
    assert (failed.parts_sent, failed.receipts, failed.again) == (0, (), False)
    await chat.world.hub.deliveries.decide(OPERATORS, failed.id, DeliveryState.READY)
    await chat.reads(ANN, "one", "one")
    await chat.waits(DeliveryState.SENT)
    # WhatsApp repeats what it has said for days.
    chat.fake.push_status(bubble, "failed", error)
    chat.fake.write(ANN, "two")
    await chat.reads(ANN, "one", "one", "one | two")
    await chat.waits(DeliveryState.SENT, 2)


async def test_of_several_parts_the_sending_goes_on_with_the_one_that_failed(open_chat: Open) -> None:
    long = "\n\n".join(f"{number} " + "word " * 700 for number in range(3))
    chat = await open_chat({"long": [TextDelta(long)]})
    chat.fake.write(ANN, "long")
    await chat.waits(DeliveryState.SENT)
    count = len(chat.fake.bubbles)
    assert count >= 3
    chat.fake.push_status(chat.fake.bubbles[1], "failed", {"code": 131026})
    [failed] = await chat.waits(DeliveryState.FAILED)
    # Those after it have arrived, so what comes again is marked.
    assert (failed.parts_sent, failed.again) == (1, True)


async def test_a_question_has_buttons_and_a_press_answers_it(open_chat: Open) -> None:
    chat = await open_chat({"find it": [ask_permission, TextDelta("In the attic.")]})
    chat.fake.write(ANN, "find it")
    await chat.until(lambda: chat.fake.bubbles and chat.fake.bubbles[-1].buttons)
    labels = list(chat.fake.bubbles[-1].buttons)
    assert labels[0] == "Allow" and len(labels) == 3 and all(len(label) <= 20 for label in labels)
    chat.fake.press(ANN, "Allow")
    await chat.until(lambda: "In the attic." in chat.fake.texts(ANN))
    # The buttons stay, and a second press is answered with what has become of the question.
    before = len(chat.fake.texts(ANN))
    chat.fake.press(ANN, "Allow")
    await chat.until(lambda: len(chat.fake.texts(ANN)) == before + 1)
    assert chat.fake.problems == []


async def test_a_thumb_on_a_question_answers_it(open_chat: Open) -> None:
    chat = await open_chat({"find it": [ask_permission, TextDelta("In the attic.")]})
    chat.fake.write(ANN, "find it")
    await chat.until(lambda: chat.fake.bubbles and chat.fake.bubbles[-1].buttons)
    await chat.world.delivered(1)
    chat.fake.react(ANN, "👍", chat.fake.bubbles[-1].id)
    await chat.until(lambda: "In the attic." in chat.fake.texts(ANN))
    assert chat.fake.problems == []


async def test_a_reply_brings_the_text_of_the_message_it_quotes(open_chat: Open) -> None:
    chat = await open_chat({"first": [TextDelta("the first answer")]})
    first = chat.fake.write(ANN, "first")
    await chat.reads(ANN, "the first answer")
    answer = chat.fake.bubbles[0].id
    await chat.waits(DeliveryState.SENT)
    chat.fake.write(ANN, "why?", context={"from": "15550783881", "id": answer})
    await chat.until(lambda: len(chat.fake.texts(ANN)) == 2)
    chat.fake.write(ANN, "and this?", context={"from": PHONE, "id": first})
    await chat.until(lambda: len(chat.fake.texts(ANN)) == 3)
    assert '(in reply to "the first answer")\nwhy?' in chat.agent.exact[1]
    assert '(in reply to "first")\nand this?' in chat.agent.exact[2]


async def test_a_repeated_post_is_answered_once(open_chat: Open) -> None:
    chat = await open_chat()
    chat.fake.write(ANN, "one")
    [(id_, body)] = chat.fake.waiting.items()
    await chat.reads(ANN, "one")
    for number in range(3):
        chat.fake.push_raw(f"{id_}.{number}", body)
    chat.fake.write(ANN, "two")
    await chat.reads(ANN, "one", "one | two")


async def test_an_agent_answers_its_creator(database: Database, clock: FakeClock) -> None:
    with FakeWhatsAppAgent() as whatsapp:
        adapter = build_agent(whatsapp.url)
        world = World(database, clock, agent=ConversationAgent({}, repeat_all), adapters=[adapter])
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


async def test_a_thumb_on_a_question_of_an_agent_answers_it(database: Database, clock: FakeClock) -> None:
    with FakeWhatsAppAgent() as whatsapp:
        async with Conversations(database, clock) as conversations:
            script: Scripts = {"find it": [ask_permission, TextDelta("In the attic.")]}
            chat = await conversations.open(whatsapp, build_agent(whatsapp.url), script, answer=repeat_all)
            whatsapp.write(CREATOR, "find it")
            # No buttons exist there: the question says how it is answered.
            await chat.until(lambda: bool(whatsapp.texts(CREATOR)))
            await chat.world.delivered(1)
            asked = whatsapp.bubbles[-1].id
            whatsapp.write(CREATOR, None, type="reaction", reaction={"message_id": asked, "emoji": "👍"})
            await chat.until(lambda: "In the attic." in whatsapp.texts(CREATOR))
            assert whatsapp.problems == []
