"""The adapter for the Agent Platform against a strict fake."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.contracts.whatsapp import build_agent
from tests.fakes.whatsapp import CREATOR, KEY, FakeWhatsAppAgent

from keryx.core.deliveries import Target
from keryx.core.errors import Forbidden, NotSent, Refused, Throttled
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment
from keryx.core.messages import Text
from keryx.core.ports.adapter import InboundMessage, LinkState, OutgoingPart
from keryx.core.questions import Button
from keryx.surfaces.gateway.whatsapp.agent_adapter import (
    AGENT_IN_USE,
    WhatsAppAgentAdapter,
    format_position,
    parse_position,
)
from keryx.surfaces.gateway.whatsapp.graph_api import RateWindow
from keryx.surfaces.gateway.whatsapp.whatsapp_settings import BAD_KEY
from keryx.testing import RecordingAdapterContext
from keryx.testing.wire import WireResponse, json_response

SECONDS = 30


class StartContext(RecordingAdapterContext):
    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    async def init_cursor(self, position: str) -> None:
        await super().init_cursor(position)
        self.begun.set()


class Agent:
    """An adapter, its platform and a context; pauses are counted and take no time."""

    def __init__(self, whatsapp: FakeWhatsAppAgent, **settings: Any) -> None:
        self.whatsapp = whatsapp
        self.pauses: list[float] = []
        self.adapter = build_agent(whatsapp.url, sleep=self.pause, **settings)
        self.context = StartContext()

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0.001)

    async def hear(self, count: int = 1) -> list[InboundMessage]:
        task = asyncio.create_task(self.adapter.listen(self.context))
        events = await self.context.wait_for(count, seconds=SECONDS)
        task.cancel()
        await asyncio.wait({task})
        return events

    async def send(self, text: str = "hello", *, chat: str = CREATOR, **fields: Any) -> str:
        target = Target("whatsapp", "", chat, reply_to="wamid.A")
        return await self.adapter.send(
            OutgoingPart(delivery=DeliveryId("d"), number=0, key="k", target=target, text=text, **fields)
        )


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    with FakeWhatsAppAgent() as whatsapp:
        one = Agent(whatsapp)
        yield one
        await one.adapter.close()


def test_a_position_is_an_offset_and_a_message() -> None:
    for position in ((0, ""), (9223372036854775806, ""), (5, "wamid.A")):
        assert parse_position(format_position(*position)) == position


async def test_the_offset_of_the_platform_is_the_cursor(agent: Agent) -> None:
    for text in ("one", "two"):
        agent.whatsapp.write(CREATOR, text)
    first, second = await agent.hear(2)
    assert first.cursor == f"0 {first.event}"
    assert second.cursor == str(agent.whatsapp.items[-1][0] + 1)


async def test_polls_are_as_the_manual_says(agent: Agent) -> None:
    agent.whatsapp.write(CREATOR, "hello")
    await agent.hear()
    assert agent.whatsapp.problems == []
    assert agent.whatsapp.poll_queries[0] == {"offset": "0", "limit": "100", "timeout": "0"}


async def test_a_new_agent_does_not_answer_what_is_older_than_a_day(agent: Agent) -> None:
    agent.whatsapp.write(CREATOR, "old", timestamp=str(int(time.time()) - 25 * 3600))
    agent.whatsapp.write(CREATOR, "young")
    [event] = await agent.hear()
    assert [part.text for part in event.parts if isinstance(part, Text)] == ["young"]


async def test_a_new_agent_without_messages_stores_where_it_begins(agent: Agent) -> None:
    agent.whatsapp.write(CREATOR, "old", timestamp="1700000000")
    task = asyncio.create_task(agent.adapter.listen(agent.context))
    async with asyncio.timeout(SECONDS):
        await agent.context.begun.wait()
    task.cancel()
    await asyncio.wait({task})
    assert agent.context.cursor == str(agent.whatsapp.items[0][0] + 1)


async def test_an_agent_that_listened_before_answers_what_waited_for_long(agent: Agent) -> None:
    agent.context.cursor = "5"
    agent.whatsapp.write(CREATOR, "old", timestamp="1700000000")
    assert len(await agent.hear()) == 1


async def test_a_second_program_that_polls_is_named_after_some_tries(agent: Agent) -> None:
    conflict = {"error": {"code": 1752041, "message": "Replaced by a newer poll"}}
    agent.whatsapp.poll_answers = [json_response(conflict, 409)] * 9
    async with asyncio.timeout(SECONDS):
        with pytest.raises(Forbidden) as caught:
            await agent.adapter.listen(agent.context)
    assert str(caught.value) == AGENT_IN_USE and len(agent.pauses) == 4


async def test_a_poll_that_was_replaced_once_goes_on(agent: Agent) -> None:
    agent.whatsapp.poll_answers = [json_response({"error": {"code": 1752041}}, 409)] * 2
    agent.whatsapp.write(CREATOR, "hello")
    assert len(await agent.hear()) == 1


async def test_a_refused_key_is_one_sentence(agent: Agent) -> None:
    agent.whatsapp.token = "another"
    async with asyncio.timeout(SECONDS):
        with pytest.raises(Forbidden) as caught:
            await agent.adapter.listen(agent.context)
    assert str(caught.value) == BAD_KEY and KEY not in repr(caught.value)


async def test_a_poll_that_is_throttled_waits_and_goes_on(agent: Agent) -> None:
    agent.whatsapp.poll_answers = [WireResponse(429, headers={"retry-after": "9"}), WireResponse(500)]
    agent.whatsapp.write(CREATOR, "hello")
    await agent.hear()
    assert agent.pauses[0] >= 9
    links = [link for link, _ in agent.context.link_states]
    assert links == [LinkState.THROTTLED, LinkState.CONNECTING, LinkState.CONNECTED]


async def test_twelve_messages_a_minute_are_sent_and_the_next_one_waits() -> None:
    with FakeWhatsAppAgent(limit=12) as whatsapp:
        agent = Agent(whatsapp, per_minute=12)
        for number in range(12):
            await agent.send(f"t{number}")
        with pytest.raises(Throttled) as caught:
            await agent.send("one more")
        assert caught.value.account and 0 < caught.value.after.total_seconds() <= 60
        assert len(whatsapp.bubbles) == 12 and whatsapp.problems == []
        await agent.adapter.close()


async def test_typing_is_shown_twelve_times_a_minute_and_then_left_out() -> None:
    with FakeWhatsAppAgent(limit=12) as whatsapp:
        agent = Agent(whatsapp, per_minute=12)
        for number in range(13):
            await agent.adapter.typing(Target("whatsapp", "", CREATOR, reply_to=f"wamid.{number}"))
        assert [read["message_id"] for read in whatsapp.reads] == [f"wamid.{n}" for n in range(12)]
        assert whatsapp.problems == []
        # A message has a limit of its own.
        await agent.send()
        await agent.adapter.close()


def test_a_minute_moves_on() -> None:
    now = 0.0
    window = RateWindow(2, lambda: now)
    assert [window.take(), window.take(), window.take()] == [0, 0, 60]
    now = 59.0
    assert window.take() == 1
    now = 60.0
    assert [window.take(), window.take(), window.take()] == [0, 0, 60]


async def test_only_the_creator_is_answered(agent: Agent) -> None:
    with pytest.raises(Refused, match="not the creator"):
        await agent.send(chat="user:77")


async def test_a_message_that_is_not_accepted_is_certainly_not_sent(agent: Agent) -> None:
    error = {"error": {"code": 131016, "message": "Service unavailable"}}
    agent.whatsapp.refusals.append(json_response(error, 503))
    with pytest.raises(NotSent):
        await agent.send()


async def test_buttons_are_left_to_the_text_and_answers_do_not_quote(agent: Agent) -> None:
    await agent.send("May I?", buttons=(Button("Yes", "/answer 1 1"),))
    assert [(b.type, b.text, b.quotes) for b in agent.whatsapp.bubbles] == [("text", "May I?", "")]
    assert not agent.adapter.capabilities.buttons


@pytest.mark.parametrize(
    ("mime", "stored", "kind"),
    [
        ("application/pdf", "application/pdf", "document"),
        ("application/zip", "application/octet-stream", "document"),
        ("image/jpeg", "image/jpeg", "image"),
        ("audio/ogg", "audio/ogg", "audio"),
    ],
)
async def test_a_file_of_a_type_that_is_not_accepted_is_sent_without_it(
    agent: Agent, mime: str, stored: str, kind: str
) -> None:
    await agent.send("", attachment=Attachment(name="f", mime=mime, body=b"x"))
    assert [b.type for b in agent.whatsapp.bubbles] == [kind]
    assert [file[0] for file in agent.whatsapp.files.values()] == [stored]


async def test_a_reply_names_the_message_it_quotes(agent: Agent) -> None:
    agent.whatsapp.write(CREATOR, "why?", context={"id": "wamid.Z", "from": "agent:123"})
    [event] = await agent.hear()
    assert event.replies_to == "wamid.Z"


def test_an_agent_is_a_person_of_its_own_per_account() -> None:
    assert WhatsAppAgentAdapter("k", account="me").account == "me"
