"""Sessions of the OpenAI Agents SDK are conversations here: the real SDK, with nothing of ours in it."""

import json
from typing import Any

import httpx2
from openai import AsyncOpenAI
from tests.engine.world import World
from tests.web.site import Site
from tests.web.test_openai_api import connect, list_sessions

from agents import (
    Agent,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from keryx.core.ids import SessionId


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


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


def speaks(text: str) -> Any:
    content: Any = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": content}


async def test_runs_of_an_agent_remember_each_other(site: Site, world: World) -> None:
    called = {
        "type": "function_call",
        "id": "f1",
        "call_id": "c1",
        "name": "weather",
        "arguments": '{"city": "Oslo"}',
    }
    script = [called, speaks("It is sunny."), speaks("You asked about Oslo.")]
    requests: list[Any] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        """Answer like a model behind OpenAI's API of responses."""
        requests.append(json.loads(request.content))
        output = script[len(requests) - 1]
        body = {"id": "r", "object": "response", "created_at": 0, "status": "completed", "model": "test"}
        return httpx2.Response(
            200,
            json={
                **body,
                "output": [output],
                "tools": [],
                "tool_choice": "auto",
                "parallel_tool_calls": True,
            },
        )

    wire = httpx2.AsyncClient(transport=httpx2.MockTransport(respond))
    async with connect(site) as client, AsyncOpenAI(api_key="none", http_client=wire) as model_client:
        agent = Agent(name="guide", tools=[weather], model=OpenAIResponsesModel("test", model_client))
        session = OpenAIConversationsSession(openai_client=client)

        async def ask(text: str, session: Any) -> str:
            quiet = RunConfig(tracing_disabled=True)
            return str((await Runner.run(agent, text, session=session, run_config=quiet)).final_output)

        assert await ask("What is the weather in Oslo?", session) == "It is sunny."
        # Another program goes on with the id alone.
        other = OpenAIConversationsSession(openai_client=client, conversation_id=session.session_id)
        assert await ask("Which city?", other) == "You asked about Oslo."
        said = [
            "What is the weather in Oslo?",
            "function_call",
            "function_call_output",
            "It is sunny.",
            "Which city?",
        ]
        assert texts(requests[-1]["input"]) == said
        assert texts(await session.get_items()) == [*said, "You asked about Oslo."]
    [shown] = await list_sessions(world)
    assert shown == SessionId(session.session_id.removeprefix("conv_"))
