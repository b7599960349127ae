"""Answers have limits: what came is kept, the turn ends with a sentence, and a chat gets a file instead of a flood."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from tests.engine.conftest import Begin
from tests.engine.world import FAKE, OPEN, World

from keryx.core.messages import Reasoning, ToolCall, ToolResult
from keryx.core.ports.adapter import AttachmentKind, AttachmentLimits, Capabilities
from keryx.core.ports.agent import (
    AgentEvent,
    CompactionFailedEvent,
    NoticeEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallEvent,
    ToolCallUpdateEvent,
    ToolResultEvent,
    TurnContext,
    UsageEvent,
)
from keryx.core.turns import TurnLimits, TurnState
from keryx.core.usage import Usage
from keryx.engine.policy import Policy
from keryx.testing import RecordingAdapter, ScriptedAgent


class Endless:
    """Yields the same event for ever; says how often it was asked for one, and whether it was closed."""

    def __init__(self, *events: AgentEvent) -> None:
        self._events = events
        self.asked = 0
        self.closed = False

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        try:
            for self.asked in count(1):
                for event in self._events:
                    yield event
        finally:
            self.closed = True


def limited(**values: Any) -> Policy:
    return Policy(limits=TurnLimits(settle=timedelta(0), **values), access=OPEN)


async def test_an_answer_that_is_too_long_is_cut_kept_and_explained(begin: Begin) -> None:
    agent = Endless(TextDelta("x" * 30_000))
    world = await begin(agent=agent, policy=limited(answer=100_000))
    turn = await world.ask("go")
    assert (turn.state, agent.asked, agent.closed) == (TurnState.DONE, 4, True)
    told = "The answer is longer than 100,000 characters and ends here. /retry asks again."
    assert await world.transcript(turn.session) == [
        "user: go",
        f"assistant: {'x' * 100_000}",
        f"notice: {told}",
    ]
    assert (await world.ask("more")).state is TurnState.DONE


async def test_one_piece_of_any_size_is_cut(begin: Begin) -> None:
    world = await begin(agent=Endless(TextDelta("y" * 5_000_000)))
    turn = await world.ask("go")
    answer = (await world.transcript(turn.session))[1]
    assert len(answer) == len("assistant: ") + TurnLimits().answer


@pytest.mark.parametrize(
    "event",
    [
        TextDelta(""),
        ReasoningDelta("hm" * 50),
        ReasoningDelta("h" * 40_000),
        ReasoningDelta("", "o" * 300),
        UsageEvent(Usage(model="m", input=1, output=1)),
        ToolCallUpdateEvent(ToolCall("1", "look", "{}")),
        NoticeEvent("n" * 400),
    ],
)
async def test_a_stream_without_an_end_is_ended(begin: Begin, event: AgentEvent) -> None:
    agent = Endless(event)
    world = await begin(agent=agent, policy=limited(output=1_000))
    turn = await world.ask("go")
    assert turn.state is TurnState.DONE and agent.closed
    session = await world.open(turn.session)
    said = sum(
        len(p.text) + len(p.opaque) for m in session.messages for p in m.parts if isinstance(p, Reasoning)
    )
    assert said <= 1_000
    assert (await world.transcript(turn.session))[-1].endswith(
        "The turn said more than 1,000 characters in all and was ended. /retry asks again."
    )


async def test_long_reasoning_is_cut_and_the_turn_goes_on(begin: Begin) -> None:
    agent = ScriptedAgent(
        [*[ReasoningDelta("h" * 400)] * 10, ReasoningDelta("", "signed"), TextDelta("Done.")]
    )
    world = await begin(agent=agent, policy=limited(answer=1_000))
    turn = await world.ask("go")
    session = await world.open(turn.session)
    thoughts = [p for m in session.messages for p in m.parts if isinstance(p, Reasoning)]
    assert "".join(t.text for t in thoughts) == "h" * 1_000 + "\n\n(The rest of the reasoning was not kept.)"
    # What the provider wants back is whole.
    assert thoughts[-1].opaque == "signed"
    assert (turn.state, session.messages[-1].text) == (TurnState.DONE, "Done.")


@pytest.mark.parametrize(
    "events",
    [
        (ToolCallEvent((ToolCall("1", "look", "{}"),)), ToolResultEvent(ToolResult("1", "look", "found"))),
        (NoticeEvent("still here"),),
        (CompactionFailedEvent("no room", tell=False),),
    ],
)
async def test_tools_and_notices_without_an_end_are_ended(
    begin: Begin, events: tuple[AgentEvent, ...]
) -> None:
    agent = Endless(*events)
    world = await begin(agent=agent, policy=limited(steps=20))
    turn = await world.ask("go")
    assert (turn.state, agent.asked) == (TurnState.DONE, 21)
    assert "more than 20 steps and was ended" in (await world.transcript(turn.session))[-1]


async def test_a_tool_result_of_any_size_is_cut(begin: Begin) -> None:
    call = ToolCallEvent((ToolCall("1", "look", "{}"),))
    agent = Endless(call, ToolResultEvent(ToolResult("1", "look", "z" * 3_000_000)))
    world = await begin(agent=agent, policy=limited(answer=1_000, output=5_000_000))
    turn = await world.ask("go")
    results = [line for line in await world.transcript(turn.session) if line.startswith("tool:")]
    assert turn.state is TurnState.DONE and len(results) == 2
    assert results[0].endswith("zzz\n[cut: 3,000,000 characters]>") and len(results[0]) < 1_100


async def sent(begin: Begin, text: str, limits: AttachmentLimits | None) -> tuple[World, RecordingAdapter]:
    able = Capabilities(limit=100, attachments=limits)
    adapter = RecordingAdapter(FAKE, capabilities=able, limit=100)

    class Says:
        async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
            yield TextDelta(text)

    world = await begin(agent=Says(), adapters=[adapter], policy=limited(parts=4))
    await world.ask("go")
    await world.flow(world.delivered(1))
    return world, adapter


async def test_an_answer_of_many_messages_ends_with_a_file_of_the_whole(begin: Begin) -> None:
    text = "".join(f"line {n}\n" for n in range(10_000))
    _, adapter = await sent(begin, text, AttachmentLimits())
    *texts, last = adapter.sent_parts
    assert [p.text for p in texts] == [text[:100], text[100:200], text[200:300]]
    assert last.attachment and last.attachment.name == "answer.md"
    assert last.attachment.body.decode() == text


async def test_an_answer_that_fits_is_sent_as_messages(begin: Begin) -> None:
    _, adapter = await sent(begin, "a" * 400, AttachmentLimits())
    assert adapter.texts == ["a" * 100] * 4


@pytest.mark.parametrize(
    "limits",
    [None, AttachmentLimits(max_bytes=100), AttachmentLimits(kinds=frozenset({AttachmentKind.IMAGE}))],
)
async def test_where_a_file_cannot_be_sent_the_answer_is_cut_with_a_notice(
    begin: Begin, limits: AttachmentLimits | None
) -> None:
    _, adapter = await sent(begin, "a" * 50_000, limits)
    assert adapter.texts[:3] == ["a" * 100] * 3
    assert "".join(adapter.texts[3:]).startswith("[cut: this answer has 50,000 characters.")
