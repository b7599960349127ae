"""What the engine relies on in every agent."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager

import pytest
from tests.contracts.agents import CASES, Case, Scene

from keryx.core import ids
from keryx.core.clock import to_micros
from keryx.core.errors import AgentFailed
from keryx.core.ids import SessionId, TurnId
from keryx.core.messages import Message, Role, text_parts
from keryx.core.ports.agent import (
    AgentEvent,
    BindingEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallEvent,
    ToolResultEvent,
    TurnContext,
    UsageEvent,
)
from keryx.core.questions import AskPerson, Question, ask_nobody
from keryx.core.sessions import SessionSettings
from keryx.testing import START_TIME
from keryx.testing.fakes import fixed_history
from keryx.timing import SystemClock

SECONDS = 60


def playing(*scenes: Scene) -> pytest.MarkDecorator:
    """Run over every agent that can play one of these scenes."""
    cases = [pytest.param(c, c.scenes[s], id=f"{c}-{s}") for c in CASES for s in scenes if s in c.scenes]
    return pytest.mark.parametrize(("case", "question"), cases)


async def nobody() -> Sequence[Message]:
    return []


def context(question: str, *, before: Sequence[Message] = (), ask: AskPerson = ask_nobody) -> TurnContext:
    session, turn = SessionId(ids.new(START_TIME)), TurnId(ids.new(START_TIME))
    asked = Message(
        session=session,
        seq=len(before) + 1,
        role=Role.USER,
        parts=text_parts(question),
        micros=to_micros(START_TIME),
        turn=turn,
    )
    return TurnContext(
        session=session,
        turn=turn,
        attempt=1,
        place="a test",
        turn_messages=[asked],
        history=fixed_history([*before, asked]),
        settings=SessionSettings(),
        cwd="",
        clock=SystemClock(),
        fetch_new_messages=nobody,
        ask=ask,
    )


@asynccontextmanager
async def asked(
    case: Case, question: str, *, ask: AskPerson = ask_nobody
) -> AsyncGenerator[AsyncGenerator[AgentEvent, None]]:
    async with (
        asyncio.timeout(SECONDS),
        case.make() as agent,
        aclosing(agent.run(context(question, ask=ask))) as events,
    ):
        yield events


async def collect(case: Case, question: str, *, ask: AskPerson = ask_nobody) -> list[AgentEvent]:
    async with asked(case, question, ask=ask) as events:
        return [event async for event in events]


@playing("answer", "think", "stream")
async def test_an_answer_is_text_and_the_iterator_ends(case: Case, question: str) -> None:
    events = await collect(case, question)
    assert "".join(e.text for e in events if isinstance(e, TextDelta)).strip()
    assert all(
        isinstance(
            e, TextDelta | ReasoningDelta | ToolCallEvent | ToolResultEvent | UsageEvent | BindingEvent
        )
        for e in events
    )


@playing("think")
async def test_reasoning_comes_before_the_answer_it_led_to(case: Case, question: str) -> None:
    kinds = [type(e) for e in await collect(case, question) if isinstance(e, TextDelta | ReasoningDelta)]
    assert kinds.index(ReasoningDelta) < kinds.index(TextDelta)


@playing("stream")
async def test_a_long_answer_comes_in_pieces(case: Case, question: str) -> None:
    assert len([e for e in await collect(case, question) if isinstance(e, TextDelta)]) > 1


@playing("tool", "tools")
async def test_every_call_is_announced_before_its_result_and_gets_exactly_one(
    case: Case, question: str
) -> None:
    waiting: dict[str, str] = {}
    called = 0
    for event in await collect(case, question):
        if isinstance(event, ToolCallEvent):
            assert not waiting, "a step begins when the one before has its results"
            waiting = {c.id: c.name for c in event.calls}
            called += len(event.calls)
            assert len(waiting) == len(event.calls)
        if isinstance(event, ToolResultEvent):
            assert waiting.pop(event.result.id) == event.result.name
    assert called and not waiting


@playing("usage", "tool")
async def test_usage_is_told_and_never_negative(case: Case, question: str) -> None:
    told = [e.usage for e in await collect(case, question) if isinstance(e, UsageEvent)]
    assert told and all(used.model for used in told)
    for used in told:
        assert min(used.input, used.output, used.reasoning, used.cache_read, used.cache_write) >= 0


@playing("tool", "tools")
async def test_the_answer_comes_after_the_tools_it_needed(case: Case, question: str) -> None:
    events = [
        e for e in await collect(case, question) if isinstance(e, ToolCallEvent | ToolResultEvent | TextDelta)
    ]
    kinds = [type(e) for e in events]
    assert kinds.index(ToolCallEvent) < kinds.index(ToolResultEvent)
    assert isinstance(events[-1], TextDelta | ToolResultEvent)


@playing("ask")
@pytest.mark.parametrize("answer", ["allow", "deny", None])
async def test_a_question_is_put_before_the_agent_goes_on_and_any_answer_will_do(
    case: Case, question: str, answer: str | None
) -> None:
    put: list[Question] = []

    async def ask(asked: Question) -> str | None:
        put.append(asked)
        return answer

    events = await collect(case, question, ask=ask)
    assert len(put) == 1 and put[0].key and put[0].title and "\n" not in put[0].title
    assert "".join(e.text for e in events if isinstance(e, TextDelta)).strip()
    for result in (e.result for e in events if isinstance(e, ToolResultEvent)):
        assert result.failed is (answer != "allow"), "no answer is no consent"


@playing("ask")
async def test_a_cancel_reaches_an_agent_that_waits_for_an_answer(case: Case, question: str) -> None:
    waiting = asyncio.Event()

    async def ask(asked: Question) -> str | None:
        waiting.set()
        await asyncio.Event().wait()
        return None

    task = asyncio.create_task(collect(case, question, ask=ask))
    async with asyncio.timeout(SECONDS):
        await waiting.wait()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=2)
    assert done and task.cancelled()


@playing("answer", "tool")
async def test_nothing_comes_after_the_end(case: Case, question: str) -> None:
    async with asked(case, question) as events:
        async for _ in events:
            pass
        assert [event async for event in events] == []


@playing("fail")
async def test_a_failure_is_one_sentence_for_a_person(case: Case, question: str) -> None:
    with pytest.raises(AgentFailed) as failure:
        await collect(case, question)
    assert str(failure.value).strip() and "\n" not in str(failure.value)


@playing("fail", "crash")
async def test_nothing_comes_after_a_failure(case: Case, question: str) -> None:
    async with asked(case, question) as events:
        with pytest.raises(Exception):  # noqa: B017 any failure will do
            async for _ in events:
                pass
        assert [event async for event in events] == []


@playing("silence", "stream", "answer")
async def test_a_cancel_ends_the_agent_soon(case: Case, question: str) -> None:
    async def follow() -> None:
        async with asked(case, question) as events:
            async for _ in events:
                pass
            await asyncio.Event().wait()

    task = asyncio.create_task(follow())
    await asyncio.sleep(0.01)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=2)
    assert done and task.cancelled()


@playing("silence")
async def test_silence_blocks_nobody_else(case: Case, question: str) -> None:
    task = asyncio.create_task(collect(case, question))
    await asyncio.wait_for(asyncio.sleep(0.01), 1)
    assert not task.done()
    task.cancel()
    await asyncio.wait({task})


@playing("empty")
async def test_an_empty_answer_ends_without_text(case: Case, question: str) -> None:
    assert not [e for e in await collect(case, question) if isinstance(e, TextDelta) and e.text]


@playing("stream", "answer")
async def test_an_agent_may_be_left_in_the_middle(case: Case, question: str) -> None:
    async with asked(case, question) as events:
        async for _ in events:
            break


@playing("answer")
async def test_turns_of_one_agent_run_side_by_side(case: Case, question: str) -> None:
    async with asyncio.timeout(SECONDS), case.make() as agent:

        async def one() -> str:
            return "".join([e.text async for e in agent.run(context(question)) if isinstance(e, TextDelta)])

        answers = await asyncio.gather(*(one() for _ in range(5)))
    assert all(answers)
