"""The small real model in this process."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec
import pytest
from tests import left_out
from tests.agents.conversation import Conversation, a_context, asked, collect, spoken
from tests.builders import limit

from keryx.agents.llm import Endpoint, Models, local_model
from keryx.agents.llm.agent import LlmAgent
from keryx.agents.llm.local_model import LocalModel
from keryx.agents.llm.provider_errors import ContextFull
from keryx.core.errors import AgentFailed
from keryx.core.ports.agent import TextDelta, UsageEvent
from keryx.timing import SystemClock

needs_model = pytest.mark.skipif(
    not local_model.is_installed(),
    reason=left_out.reason("tests with the small model", why="it is not installed", command=left_out.MODEL),
)


SHORT = msgspec.structs.replace(local_model.MODEL, options={"max_tokens": 40, "temperature": 0})


@pytest.fixture(scope="module")
async def running() -> AsyncIterator[LocalModel]:
    model = LocalModel()
    yield model
    await model.aclose()


@pytest.fixture
async def agent(running: LocalModel) -> AsyncIterator[LlmAgent]:
    async with LlmAgent(Models([SHORT]), local=running.endpoint) as made:
        yield made


@needs_model
async def test_the_real_model_answers_a_question(agent: LlmAgent) -> None:
    events = await collect(agent, a_context(asked("What is the capital of France?"), clock=SystemClock()))
    assert "Paris" in spoken(events)
    assert len([e for e in events if isinstance(e, TextDelta)]) > 3
    used = events[-1]
    assert isinstance(used, UsageEvent) and used.usage.cost == 0 and used.usage.output > 3
    assert used.usage.context_limit == local_model.CONTEXT_TOKENS


@needs_model
async def test_a_cancel_in_mid_answer_frees_the_real_model(agent: LlmAgent) -> None:
    context = a_context(asked("Write a long story about a lighthouse."), clock=SystemClock())
    async with aclosing(agent.run(context)) as events:
        assert isinstance(await anext(events), TextDelta)
        began = time.monotonic()
    assert time.monotonic() - began < limit(2)
    answers = await asyncio.gather(
        *(collect(agent, a_context(asked("Say hello."), clock=SystemClock())) for _ in range(2))
    )
    assert all(spoken(events) for events in answers)


@needs_model
async def test_a_context_that_is_full_is_told(agent: LlmAgent) -> None:
    talk = Conversation().ask("word " * 9000, turn="t9")
    with pytest.raises(ContextFull, match="context of 8192 tokens of model 'local'"):
        await collect(agent, a_context(talk.messages, clock=SystemClock()))


@needs_model
async def test_nobody_else_can_use_the_model(running: LocalModel) -> None:
    endpoint = await running.endpoint()

    async def stranger() -> Endpoint:
        return Endpoint(endpoint.base_url, "guess")

    async with LlmAgent(Models([local_model.MODEL]), local=stranger) as agent:
        with pytest.raises(AgentFailed, match="key"):
            await collect(agent, a_context())


async def test_a_process_without_the_local_model_says_so() -> None:
    async with LlmAgent(Models([local_model.MODEL])) as agent:
        with pytest.raises(AgentFailed, match="this process has none"):
            await collect(agent, a_context())


async def test_a_missing_extra_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", nothing)
    model = LocalModel()
    with pytest.raises(AgentFailed, match=r"\[local\]"):
        await model.endpoint()
    await model.aclose()
