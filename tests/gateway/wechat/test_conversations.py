"""Conversations over the wire of WeChat, as a person reads them in the chat."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.contracts.wechat import build_adapter
from tests.engine.world import Pause
from tests.fakes.wechat import ANN, BEN, FakeWeChat
from tests.gateway.conversation import Conversation, Conversations, Scripts, repeat_last

from keryx.core.deliveries import DeliveryState
from keryx.core.ports.adapter import LinkState
from keryx.core.ports.agent import TextDelta
from keryx.store import workers
from keryx.store.db import Database, Engine, Transaction
from keryx.testing import FakeClock

pytestmark = pytest.mark.engines(Engine.SQLITE)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)


Open = Callable[..., Awaitable[Conversation[FakeWeChat]]]


@pytest.fixture
async def open_chat(database: Database, clock: FakeClock) -> AsyncIterator[Open]:
    with FakeWeChat() as wechat:
        async with Conversations(database, clock) as conversations:

            async def make(scripts: Scripts | None = None, **settings: Any) -> Conversation[FakeWeChat]:
                adapter = build_adapter(wechat.url, **settings)
                return await conversations.open(wechat, adapter, scripts, answer=repeat_last)

            yield make
        assert wechat.problems == []


async def test_two_people_talk_and_each_answer_has_the_newest_token_of_its_person(open_chat: Open) -> None:
    chat = await open_chat()
    chat.fake.write(ANN, "one")
    chat.fake.write(BEN, "two")
    await chat.reads(ANN, "one")
    await chat.reads(BEN, "two")
    chat.fake.write(ANN, "three")
    await chat.reads(ANN, "one", "three")
    assert all(bubble.token == bubble.newest for bubble in chat.fake.bubbles)


async def test_a_restart_answers_with_the_stored_token_and_repeats_nothing(open_chat: Open) -> None:
    pause = Pause()
    chat = await open_chat({"slow": [pause, TextDelta("done")]})
    chat.fake.write(ANN, "one")
    await chat.reads(ANN, "one")
    chat.fake.write(ANN, "slow")
    await pause.reached()
    pause.go_on()
    await chat.world.restart()
    await chat.reads(ANN, "one", "done")
    assert chat.fake.bubbles[-1].token == chat.fake.tokens[ANN][-1]


async def test_an_answer_that_comes_too_late_goes_out_when_the_person_writes(open_chat: Open) -> None:
    pause = Pause()
    chat = await open_chat({"slow": [pause, TextDelta("done")]})
    chat.fake.write(ANN, "slow")
    await pause.reached()
    chat.fake.closed.add(ANN)
    pause.go_on()
    [held] = await chat.waits(DeliveryState.HELD)
    assert "until the person writes" in (held.error or "")
    chat.fake.write(ANN, "hello?")
    await chat.reads(ANN, "done", "hello?")
    assert chat.fake.bubbles[0].token == chat.fake.tokens[ANN][-1]


async def test_a_reply_brings_the_text_of_the_message_it_quotes(open_chat: Open) -> None:
    chat = await open_chat({"first": [TextDelta("the first answer")]})
    first = chat.fake.write(ANN, "first")
    await chat.reads(ANN, "the first answer")
    await chat.waits(DeliveryState.SENT)
    for words, id_ in (("why?", chat.fake.bubbles[0].id), ("and this?", first)):
        item = {"type": 1, "text_item": {"text": words}, "ref_msg": {"svr_id": id_}}
        chat.fake.push_items(ANN, [item])
        await chat.until(lambda words=words: chat.fake.texts(ANN)[-1] == words)
    assert '(in reply to "the first answer")\nwhy?' in chat.agent.exact[1]
    assert '(in reply to "first")\nand this?' in chat.agent.exact[2]


async def test_a_slow_picture_of_one_person_holds_up_nobody_else(open_chat: Open) -> None:
    chat = await open_chat()
    media = chat.fake.add_file("slow", PNG, hex_key=False)
    chat.fake.hold("slow")
    items: list[dict[str, Any]] = [
        {"type": 1, "text_item": {"text": "look"}},
        {"type": 2, "image_item": {"media": media}},
    ]
    chat.fake.push_items(ANN, items)
    chat.fake.write(BEN, "hello")
    await chat.reads(BEN, "hello")
    assert chat.fake.texts(ANN) == []
    chat.fake.release("slow")
    await chat.world.flow(chat.reads(ANN, "look"), step=0.3)
    assert await chat.count_pictures() == 1


async def test_pictures_that_are_sent_at_once_get_one_answer(open_chat: Open) -> None:
    chat = await open_chat()
    media = chat.fake.add_file("p", PNG, hex_key=False)
    for _ in range(3):
        chat.fake.push_items(ANN, [{"type": 2, "image_item": {"media": media}}])
    await chat.receives(3)
    # The text ends the wait: the clock stands still.
    chat.fake.write(ANN, "look")
    await chat.reads(ANN, "look")
    assert len(chat.agent.turns) == 1 and await chat.count_pictures() == 3


async def test_a_file_that_is_gone_becomes_a_sentence_in_its_message(open_chat: Open) -> None:
    chat = await open_chat()
    media = {"encrypt_query_param": "gone", "aes_key": "MTIzNDU2Nzg5MDEyMzQ1Ng=="}
    chat.fake.push_items(ANN, [{"type": 5, "video_item": {"media": media}}])
    await chat.world.flow(chat.until(lambda: chat.fake.texts(ANN)), step=0.3)
    await chat.reads(ANN, "[video.mp4 could not be fetched: WeChat says: the file has expired (404)]")


async def test_a_deleted_question_is_not_answered(open_chat: Open) -> None:
    pause = Pause()
    chat = await open_chat({"slow": [pause, TextDelta("done")]})
    chat.fake.write(ANN, "slow")
    await pause.reached()
    second = chat.fake.write(ANN, "forget this")
    chat.fake.write(ANN, None, message_id=int(second), delete_time_ms=1_790_000_000_000)
    chat.fake.write(BEN, "hello")
    await chat.reads(BEN, "hello")
    pause.go_on()
    chat.fake.write(ANN, "and now?")
    await chat.reads(ANN, "done", "and now?")


async def test_an_ended_session_is_shown_with_what_to_do_and_ends_by_itself(open_chat: Open) -> None:
    chat = await open_chat()
    chat.fake.write(ANN, "one")
    await chat.reads(ANN, "one")
    chat.fake.expired = True

    def is_refused(tx: Transaction) -> bool:
        return any(
            s.link is LinkState.REFUSED and "log in anew with `keryx gateway setup wechat`" in s.detail
            for s in workers.list_connections(tx)
        )

    await chat.world.until(is_refused)
    chat.fake.expired = False
    chat.fake.write(ANN, "two")
    chat.world.advance(timedelta(minutes=11))
    await chat.reads(ANN, "one", "two")
