"""Sessions of the OpenAI Agents SDK are conversations here: the real SDK, with nothing of ours in it."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI
from tests.engine.world import OPERATORS, World
from tests.fakes.endpoint import KEY, Endpoint, answer, calls
from tests.fakes.endpoint import MODEL as TEST_MODEL
from tests.web.site import Site
from tests.web.test_openai_api import connect, list_sessions

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    RunConfig,
    Runner,
    RunResultStreaming,
    function_tool,
)
from keryx.core.ids import SessionId


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as made:
        yield made


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def texts(items: list[Any]) -> list[str]:
    """What was said, with the types of the items that are no messages."""
    found: list[str] = []
    for item in items:
        match item:
            case {"content": str(text)}:
                found.append(text)
            case {"content": [{"text": text}]}:
                found.append(text)
            case _:
                found.append(item["type"])
    return found


async def test_items_are_added_read_taken_back_and_cleared(site: Site, world: World) -> None:
    async with connect(site) as client:
        session = OpenAIConversationsSession(openai_client=client)
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.add_items([user(f"number {n}") for n in range(45)])
        assert texts(await session.get_items()) == [f"number {n}" for n in range(45)]
        assert texts(await session.get_items(limit=2)) == ["number 43", "number 44"]
        last: Any = await session.pop_item()
        assert texts([last]) == ["number 44"]
        assert texts(await session.get_items(limit=1)) == ["number 43"]
        # Whoever knows the id continues the conversation, here and in every other place.
        again = OpenAIConversationsSession(openai_client=client, conversation_id=session.session_id)
        await again.add_items([user("later")])
        assert texts(await session.get_items(limit=1)) == ["later"]
        assert len(await list_sessions(world)) == 1
        await session.clear_session()
        assert await list_sessions(world) == []
        assert await session.get_items() == []


async def test_runs_of_an_agent_remember_each_other(site: Site, world: World, endpoint: Endpoint) -> None:
    endpoint.scripts[:] = [
        calls(("c1", "weather", '{"city": "Oslo"}')),
        answer("It is sunny."),
        answer("You asked about Oslo."),
    ]
    async with connect(site) as client, AsyncOpenAI(base_url=endpoint.base_url, api_key=KEY) as model_client:
        agent = Agent(
            name="guide", tools=[weather], model=OpenAIChatCompletionsModel(TEST_MODEL, model_client)
        )
        session = OpenAIConversationsSession(openai_client=client)
        quiet = RunConfig(tracing_disabled=True)

        async def ask(text: str, session: Any) -> str:
            result: RunResultStreaming = Runner.run_streamed(agent, text, session=session, run_config=quiet)
            async for _ in result.stream_events():
                pass
            return str(result.final_output)

        assert await ask("What is the weather in Oslo?", session) == "It is sunny."
        # Another program goes on with the id alone.
        other = OpenAIConversationsSession(openai_client=client, conversation_id=session.session_id)
        assert await ask("Which city?", other) == "You asked about Oslo."
        sent = endpoint.requests[-1]["messages"]
        assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]
        assert sent[2]["content"] == "sunny in Oslo"
        assert texts(await session.get_items()) == [
            "What is the weather in Oslo?",
            "function_call",
            "function_call_output",
            "It is sunny.",
            "Which city?",
            "You asked about Oslo.",
        ]
    [shown] = await list_sessions(world)
    assert shown == SessionId(session.session_id.removeprefix("conv_"))
    assert (await world.hub.session(OPERATORS, shown)).id == shown
