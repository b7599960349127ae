"""The contract of agents: what the engine relies on, as a class of tests, and the harness that connects the tests to an agent."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import pytest

from keryx.core import ids
from keryx.core.clock import to_micros
from keryx.core.errors import AgentFailed
from keryx.core.ids import SessionId, TurnId
from keryx.core.messages import Message, Role, text_parts
from keryx.core.ports.agent import (
    Agent,
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
from keryx.testing import START_TIME, fixed_history
from keryx.timing import SystemClock


class Behaviour(StrEnum):
    """What an agent can be made to do by a message."""

    # It answers with text. Every agent does.
    ANSWER = "answer"
    # It reasons before it answers.
    THINK = "think"
    # It calls one tool, or several in one step.
    TOOL = "tool"
    TOOLS = "tools"
    # It asks the person one question before it uses a tool or answers.
    ASK = "ask"
    # It fails with `AgentFailed`, or with any other error.
    FAIL = "fail"
    CRASH = "crash"
    # It yields nothing and does not end.
    HANG = "hang"
    # It ends without text.
    EMPTY = "empty"
    # It answers in several pieces.
    STREAM = "stream"
    # It reports usage.
    USAGE = "usage"


@dataclass(frozen=True, kw_only=True)
class AgentHarness:
    agent: Agent
    # The message that leads to each behaviour. Tests of behaviours that are missing here are skipped.
    messages: Mapping[Behaviour, str]


def with_behaviour(*behaviours: Behaviour) -> pytest.MarkDecorator:
    """Run a test once for each behaviour, with the message that leads to it."""
    return pytest.mark.parametrize("behaviour", behaviours, ids=str)


@pytest.mark.anyio
class AgentContract:
    """Derive a class of tests from this one, with a fixture `harness` that returns or yields an `AgentHarness`.

    The tests run an agent in their own loop. Keryx runs an agent of yours in a thread with a loop of its own."""

    # How long a turn may take.
    seconds: ClassVar[float] = 60

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def message(self, harness: AgentHarness, behaviour: Behaviour) -> str:
        """The message that leads to the behaviour."""
        if behaviour not in harness.messages:
            if behaviour is Behaviour.ANSWER:
                pytest.fail(
                    "the harness needs messages[Behaviour.ANSWER]: a message that is answered with text"
                )
            pytest.skip(f"Behaviour.{behaviour.name} is not declared")
        return harness.messages[behaviour]

    @with_behaviour(Behaviour.ANSWER, Behaviour.THINK, Behaviour.STREAM)
    async def test_an_answer_is_text_and_the_iterator_ends(self, harness: AgentHarness, message: str) -> None:
        events = await self.collect(harness, message)
        assert "".join(e.text for e in events if isinstance(e, TextDelta)).strip()
        known = TextDelta | ReasoningDelta | ToolCallEvent | ToolResultEvent | UsageEvent | BindingEvent
        assert all(isinstance(event, known) for event in events)

    @with_behaviour(Behaviour.THINK)
    async def test_reasoning_comes_before_the_answer(self, harness: AgentHarness, message: str) -> None:
        events = await self.collect(harness, message)
        kinds = [type(e) for e in events if isinstance(e, TextDelta | ReasoningDelta)]
        assert kinds.index(ReasoningDelta) < kinds.index(TextDelta)

    @with_behaviour(Behaviour.STREAM)
    async def test_a_long_answer_comes_in_pieces(self, harness: AgentHarness, message: str) -> None:
        events = await self.collect(harness, message)
        assert len([e for e in events if isinstance(e, TextDelta)]) > 1

    @with_behaviour(Behaviour.TOOL, Behaviour.TOOLS)
    async def test_every_call_is_announced_before_its_result_and_gets_exactly_one(
        self, harness: AgentHarness, message: str
    ) -> None:
        waiting: dict[str, str] = {}
        called = 0
        for event in await self.collect(harness, message):
            if isinstance(event, ToolCallEvent):
                assert not waiting, "a step begins when the calls of the one before have their results"
                waiting = {c.id: c.name for c in event.calls}
                called += len(event.calls)
                assert len(waiting) == len(event.calls)
            if isinstance(event, ToolResultEvent):
                assert waiting.pop(event.result.id) == event.result.name
        assert called and not waiting

    @with_behaviour(Behaviour.USAGE, Behaviour.TOOL)
    async def test_usage_is_reported_and_never_negative(self, harness: AgentHarness, message: str) -> None:
        reported = [e.usage for e in await self.collect(harness, message) if isinstance(e, UsageEvent)]
        assert reported and all(usage.model for usage in reported)
        for usage in reported:
            assert min(usage.input, usage.output, usage.reasoning, usage.cache_read, usage.cache_write) >= 0

    @with_behaviour(Behaviour.TOOL, Behaviour.TOOLS)
    async def test_the_answer_comes_after_the_tools_it_needed(
        self, harness: AgentHarness, message: str
    ) -> None:
        kept = ToolCallEvent | ToolResultEvent | TextDelta
        events = [e for e in await self.collect(harness, message) if isinstance(e, kept)]
        kinds = [type(e) for e in events]
        assert kinds.index(ToolCallEvent) < kinds.index(ToolResultEvent)
        assert isinstance(events[-1], TextDelta | ToolResultEvent)

    @with_behaviour(Behaviour.ASK)
    @pytest.mark.parametrize("answer", ["allow", "deny", None])
    async def test_a_question_is_asked_before_the_agent_continues_and_any_answer_will_do(
        self, harness: AgentHarness, message: str, answer: str | None
    ) -> None:
        questions: list[Question] = []

        async def ask(question: Question) -> str | None:
            questions.append(question)
            return answer

        events = await self.collect(harness, message, ask=ask)
        [question] = questions
        assert question.key and question.title and "\n" not in question.title
        assert "".join(e.text for e in events if isinstance(e, TextDelta)).strip()
        for result in (e.result for e in events if isinstance(e, ToolResultEvent)):
            assert result.failed is (answer != "allow"), "no answer is no consent"

    @with_behaviour(Behaviour.ASK)
    async def test_a_cancel_reaches_an_agent_that_waits_for_an_answer(
        self, harness: AgentHarness, message: str
    ) -> None:
        waiting = asyncio.Event()

        async def ask(question: Question) -> str | None:
            waiting.set()
            await asyncio.Event().wait()
            return None

        task = asyncio.create_task(self.collect(harness, message, ask=ask))
        async with asyncio.timeout(self.seconds):
            await waiting.wait()
        await self.check_cancel(task)

    @with_behaviour(Behaviour.ANSWER, Behaviour.TOOL)
    async def test_nothing_comes_after_the_end(self, harness: AgentHarness, message: str) -> None:
        async with self.run(harness, message) as events:
            async for _ in events:
                pass
            assert [event async for event in events] == []

    @with_behaviour(Behaviour.FAIL)
    async def test_a_failure_is_one_sentence_for_a_person(self, harness: AgentHarness, message: str) -> None:
        with pytest.raises(AgentFailed) as failure:
            await self.collect(harness, message)
        assert str(failure.value).strip() and "\n" not in str(failure.value)

    @with_behaviour(Behaviour.FAIL, Behaviour.CRASH)
    async def test_nothing_comes_after_a_failure(self, harness: AgentHarness, message: str) -> None:
        async with self.run(harness, message) as events:
            with pytest.raises(Exception):  # noqa: B017 any failure will do
                async for _ in events:
                    pass
            assert [event async for event in events] == []

    @with_behaviour(Behaviour.HANG, Behaviour.STREAM, Behaviour.ANSWER)
    async def test_a_cancel_ends_the_agent_soon(self, harness: AgentHarness, message: str) -> None:
        async def follow() -> None:
            async with self.run(harness, message) as events:
                async for _ in events:
                    pass
                await asyncio.Event().wait()

        task = asyncio.create_task(follow())
        await asyncio.sleep(0.01)
        await self.check_cancel(task)

    @with_behaviour(Behaviour.HANG)
    async def test_an_agent_that_hangs_does_not_block_the_event_loop(
        self, harness: AgentHarness, message: str
    ) -> None:
        task = asyncio.create_task(self.collect(harness, message))
        await asyncio.wait_for(asyncio.sleep(0.01), 1)
        assert not task.done()
        task.cancel()
        await asyncio.wait({task})

    @with_behaviour(Behaviour.EMPTY)
    async def test_an_empty_answer_ends_without_text(self, harness: AgentHarness, message: str) -> None:
        events = await self.collect(harness, message)
        assert not [e for e in events if isinstance(e, TextDelta) and e.text]

    @with_behaviour(Behaviour.STREAM, Behaviour.ANSWER)
    async def test_an_agent_may_be_left_in_the_middle(self, harness: AgentHarness, message: str) -> None:
        async with self.run(harness, message) as events:
            async for _ in events:
                break

    @with_behaviour(Behaviour.ANSWER)
    async def test_turns_of_one_agent_run_at_the_same_time(self, harness: AgentHarness, message: str) -> None:
        answers = await asyncio.gather(*(self.collect(harness, message) for _ in range(5)))
        assert all(any(isinstance(e, TextDelta) and e.text for e in events) for events in answers)

    @asynccontextmanager
    async def run(
        self, harness: AgentHarness, message: str, *, ask: AskPerson = ask_nobody
    ) -> AsyncGenerator[AsyncGenerator[AgentEvent, None]]:
        """Run a turn and yield its events."""
        context = build_context(message, ask=ask)
        async with asyncio.timeout(self.seconds), aclosing(harness.agent.run(context)) as events:
            yield events

    async def collect(
        self, harness: AgentHarness, message: str, *, ask: AskPerson = ask_nobody
    ) -> list[AgentEvent]:
        async with self.run(harness, message, ask=ask) as events:
            return [event async for event in events]

    async def check_cancel(self, task: asyncio.Task[object]) -> None:
        """Cancel a task, and fail if it does not end soon."""
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=2)
        assert done and task.cancelled()


def build_context(message: str, *, ask: AskPerson = ask_nobody) -> TurnContext:
    """Return the context of a turn that answers this message in a new session."""
    session, turn = SessionId(ids.new(START_TIME)), TurnId(ids.new(START_TIME))
    received = Message(
        session=session,
        seq=1,
        role=Role.USER,
        parts=text_parts(message),
        micros=to_micros(START_TIME),
        turn=turn,
    )
    return TurnContext(
        session=session,
        turn=turn,
        attempt=1,
        place="a test",
        turn_messages=[received],
        history=fixed_history([received]),
        settings=SessionSettings(),
        cwd="",
        clock=SystemClock(),
        fetch_new_messages=_fetch_nothing,
        ask=ask,
    )


async def _fetch_nothing() -> Sequence[Message]:
    return []
