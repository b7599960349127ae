"""Conversations over the wire of iMessage, as a person reads them in the chat: through imsg and through BlueBubbles."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.imessage import build_bluebubbles, build_imsg
from tests.engine.world import OPERATORS, Pause
from tests.fakes.imessage import ANN, BEN, GROUP, FakeBlueBubbles, FakeImsg, MessagesFake
from tests.gateway.conversation import (
    EVERYONE,
    Conversation,
    Conversations,
    Scripts,
    repeat_all,
)

from keryx.core.access import AccessRule
from keryx.core.ports.agent import TextDelta, TurnContext
from keryx.core.questions import Question
from keryx.store import deliveries
from keryx.store.db import Database, Engine
from keryx.testing import FakeClock
from keryx.testing.fault_injection import PlatformFaults

pytestmark = pytest.mark.engines(Engine.SQLITE)


Mac = FakeImsg | FakeBlueBubbles
Open = Callable[..., Awaitable[Conversation[Mac]]]


@pytest.fixture(params=["imsg", "bluebubbles"])
def mac(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mac]:
    with FakeImsg(tmp_path) if request.param == "imsg" else FakeBlueBubbles() as messages:
        yield messages
    assert messages.problems == []


@pytest.fixture
async def open_chat(mac: Mac, database: Database, clock: FakeClock) -> AsyncIterator[Open]:
    async def make(
        scripts: Scripts | None = None, *, access: AccessRule = EVERYONE, **settings: Any
    ) -> Conversation[Mac]:
        adapter = (
            build_imsg(mac.command, **settings)
            if isinstance(mac, FakeImsg)
            else build_bluebubbles(mac.url, **settings)
        )
        chat = await conversations.open(mac, adapter, scripts, access=access, answer=repeat_all)
        await chat.until(lambda: mac.reads > 0)
        return chat

    async with Conversations(database, clock) as conversations:
        yield make


async def test_a_person_is_answered_by_the_service_that_they_used(open_chat: Open) -> None:
    chat = await open_chat()
    chat.fake.write(ANN, "one")
    await chat.reads(ANN, "one")
    chat.fake.write(ANN, "two", service="SMS")
    await chat.reads(ANN, "one", "one | two")
    # Each is answered as it came.
    assert [row.chat for row in chat.fake.sent_rows(ANN)] == [f"iMessage;-;{ANN}", f"SMS;-;{ANN}"]
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
    chat.fake.write_as_agent(ANN, "by hand")
    chat.fake.write(ANN, "hello")
    await chat.reads(ANN, "by hand", "hello")


async def test_a_group_is_answered_when_the_agent_is_named(open_chat: Open) -> None:
    chat = await open_chat(names="Keryx, Bot")
    chat.fake.write(GROUP, "lunch?", sender=ANN)
    chat.fake.write(GROUP, "keryx, lunch?", sender=BEN)
    await chat.until(lambda: len(chat.fake.texts(GROUP)) == 1)
    assert "keryx, lunch?" in chat.fake.texts(GROUP)[0]


async def test_handles_of_one_person_are_one_conversation(open_chat: Open) -> None:
    chat = await open_chat(aliases=((ANN, BEN),))
    chat.fake.write(ANN, "by phone")
    await chat.reads(ANN, "by phone")
    chat.fake.write(BEN, "by mail")
    await chat.reads(BEN, "by phone | by mail")
    assert await chat.count_lanes() == 1


@pytest.mark.parametrize(("tapback", "answer"), [("👍", "Allowed once: May I look?"), ("👎", "Denied")])
async def test_a_tapback_answers_a_question(open_chat: Open, tapback: str, answer: str) -> None:
    async def ask(context: TurnContext) -> None:
        answers.append(await context.ask(Question(key="1", title="May I look?")))

    answers: list[str | None] = []
    chat = await open_chat({"find it": [ask, TextDelta("In the attic.")]})
    chat.fake.write(ANN, "find it")
    await chat.until(lambda: any("May I look?" in text for text in chat.fake.texts(ANN)))
    await chat.world.delivered(1)
    [question] = chat.fake.sent_rows(ANN)
    chat.fake.tap(ANN, tapback, question)
    await chat.until(lambda: "In the attic." in chat.fake.texts(ANN))
    assert len(answers) == 1 and chat.fake.texts(ANN)[1].startswith(answer)


async def test_another_tapback_is_noted_for_the_next_turn(open_chat: Open) -> None:
    chat = await open_chat()
    chat.fake.write(ANN, "one")
    await chat.reads(ANN, "one")
    await chat.world.delivered(1)
    chat.fake.tap(ANN, "❤️", chat.fake.sent_rows(ANN)[0])
    chat.fake.write(ANN, "two")
    await chat.reads(ANN, "one", "one | two")
    assert "❤️" in chat.agent.exact[-1]


async def test_a_reply_brings_the_text_of_the_message_it_quotes(open_chat: Open) -> None:
    chat = await open_chat({"where?": [TextDelta("In the attic.")]})
    chat.fake.write(ANN, "where?")
    await chat.reads(ANN, "In the attic.")
    await chat.world.delivered(1)
    chat.fake.write(ANN, "why there?", thread=chat.fake.sent_rows(ANN)[0].guid)
    await chat.until(lambda: len(chat.fake.texts(ANN)) == 2)
    assert "In the attic." in chat.agent.exact[-1]


async def test_a_stranger_gets_a_code(open_chat: Open) -> None:
    chat = await open_chat(access=AccessRule())
    chat.fake.write(ANN, "hello")
    await chat.until(lambda: len(chat.fake.texts(ANN)) == 1)
    assert "keryx pairing approve" in chat.fake.texts(ANN)[0]


async def test_a_reply_that_is_lost_is_found_in_the_history_and_not_sent_again(
    open_chat: Open, clock: FakeClock
) -> None:
    chat = await open_chat()
    chat.fake.set_faults(PlatformFaults(lost_reply=1))
    chat.fake.write(ANN, "one")
    await chat.until(lambda: chat.fake.texts(ANN) == ["one"])
    chat.fake.set_faults(PlatformFaults())
    chat.fake.write(ANN, "two")
    await chat.world.until(lambda tx: any(d.again for d in deliveries.list_recent(tx, OPERATORS)))
    clock.advance(60)
    await chat.reads(ANN, "one", "one | two")


async def test_a_file_arrives_and_one_that_is_gone_becomes_a_sentence(open_chat: Open) -> None:
    chat = await open_chat()
    chat.fake.attach(ANN, "look", "a.txt", "text/plain", b"words")
    await chat.world.flow(chat.until(lambda: len(chat.fake.texts(ANN)) == 1), step=0.3)
    assert "look" in chat.fake.texts(ANN)[0]


async def test_pictures_and_the_text_below_them_get_one_answer(open_chat: Open) -> None:
    chat = await open_chat()
    for number in range(2):
        chat.fake.attach(ANN, "", f"{number}.png", "image/png", b"\x89PNG\r\n\x1a\n" + bytes(32))
    await chat.receives(2)
    # The text ends the wait: the clock stands still.
    chat.fake.write(ANN, "look")
    await chat.until(lambda: chat.fake.texts(ANN))
    assert len(chat.agent.turns) == 1 and await chat.count_pictures() == 2


@pytest.mark.parametrize("mac", ["bluebubbles"], indirect=True)  # imsg does not tell of deletions
async def test_a_message_that_is_deleted_while_it_waits_is_not_answered(open_chat: Open) -> None:
    pause = Pause()
    chat = await open_chat({"slow": [pause, TextDelta("done")]})
    chat.fake.write(ANN, "slow")
    await pause.reached()
    wrong = chat.fake.write(ANN, "wrong chat")
    await chat.receives(2)
    chat.fake.retract(wrong)
    # Events come in order, so the deletion was received as well.
    chat.fake.write(BEN, "hello")
    await chat.reads(BEN, "hello")
    pause.go_on()
    chat.fake.write(ANN, "and now?")
    await chat.reads(ANN, "done", "slow | and now?")


@pytest.mark.parametrize("mac", ["bluebubbles"], indirect=True)  # files of imsg are on the same disk
async def test_a_slow_file_of_one_person_holds_up_nobody_else(open_chat: Open) -> None:
    chat = await open_chat()
    row = chat.fake.attach(ANN, "look", "slow.png", "image/png", b"\x89PNG\r\n\x1a\n" + bytes(32))
    [file] = row.files
    chat.fake.hold(file.guid)
    chat.fake.write(BEN, "hello")
    await chat.reads(BEN, "hello")
    assert chat.fake.texts(ANN) == []
    chat.fake.release(file.guid)
    await chat.world.flow(chat.until(lambda: chat.fake.texts(ANN)), step=0.3)
    assert await chat.count_pictures() == 1


async def test_a_long_answer_is_several_bubbles_in_order(open_chat: Open) -> None:
    paragraphs = [f"Part {n} " + "word " * 80 for n in range(4)]
    chat = await open_chat({"tell me": [TextDelta("\n\n".join(paragraphs))]})
    chat.fake.write(ANN, "tell me")
    await chat.reads(ANN, *(text.strip() for text in paragraphs))
