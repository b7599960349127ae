# LangGraph has no type stubs for a part of its modules.
# pyright: reportMissingTypeStubs=false
"""Agents of the OpenAI Agents SDK and of LangGraph, each as `package.module:object`, with the history in their own form."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from openai import AsyncOpenAI
from tests.agents.conversation import Conversation, a_context, asked, collect, spoken
from tests.engine.conftest import Begin, begin
from tests.fakes.endpoint import KEY, MODEL, Endpoint, answer, calls

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, function_tool
from keryx.agents import python
from keryx.agents.python_process import ProcessAgent
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.ports.agent import TextDelta, ToolCallEvent, ToolResultEvent, UsageEvent
from keryx.core.questions import Question
from keryx.store.db import Engine
from keryx.testing import START_TIME

__all__ = ["begin"]

HERE = __name__
seen: list[list[AnyMessage]] = []
waiting = asyncio.Event()


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


guide: Any = Agent(name="guide", instructions="Be brief.", tools=[weather])


async def speak(state: MessagesState) -> dict[str, Any]:
    messages = state["messages"]
    seen.append(messages)
    question = str(messages[-1].content)
    if question == "wait":
        waiting.set()
        await asyncio.Event().wait()
    if question == "permit":
        return {"messages": [AIMessage(f"Permitted: {interrupt('May I?')}.")]}
    if question == "look" and messages[-1].type == "human":
        called = {"id": "c1", "name": "look", "args": {"at": "sky"}}
        used: Any = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
        return {"messages": [AIMessage("", tool_calls=[called], usage_metadata=used)]}
    return {"messages": [AIMessage(f"You said {question}.")]}


def use_tool(state: MessagesState) -> dict[str, Any]:
    [call] = [call for message in state["messages"][-1:] for call in getattr(message, "tool_calls", [])]
    return {"messages": [ToolMessage("blue", tool_call_id=call["id"], name=call["name"])]}


def choose(state: MessagesState) -> str:
    return "tools" if getattr(state["messages"][-1], "tool_calls", None) else "__end__"


def build(checkpointer: Any = None) -> Any:
    builder: Any = StateGraph(MessagesState)
    builder.add_node("agent", speak)
    builder.add_node("tools", use_tool)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", choose)
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=checkpointer)


graph = build()
remembering = build(InMemorySaver())
interrupted = build(InMemorySaver())


def earlier() -> Conversation:
    return (
        Conversation()
        .ask("look")
        .call(ToolCall("c0", "weather", '{"city": "Rome"}'))
        .result("c0", "rain", name="weather")
        .say("It rains.")
    )


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as made:
        yield made


@pytest.fixture
async def connected(endpoint: Endpoint) -> AsyncIterator[None]:
    async with AsyncOpenAI(base_url=endpoint.base_url, api_key=KEY) as client:
        guide.model = OpenAIChatCompletionsModel(MODEL, client)
        guide.model_settings = ModelSettings()
        yield
    guide.model = None


@pytest.mark.usefixtures("connected")
async def test_an_agent_of_the_sdk_streams_uses_tools_and_knows_the_history(endpoint: Endpoint) -> None:
    endpoint.scripts[:] = [calls(("c1", "weather", '{"city": "Oslo"}')), answer("It is", " sunny.")]
    agent = python.load(f"{HERE}:guide")
    history = earlier().ask("And Oslo?", turn="t9").messages
    events = await collect(agent, a_context(history))
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["It is", " sunny."]
    assert [e for e in events if isinstance(e, ToolCallEvent | ToolResultEvent)] == [
        ToolCallEvent((ToolCall("c1", "weather", '{"city": "Oslo"}'),)),
        ToolResultEvent(ToolResult("c1", "weather", "sunny in Oslo")),
    ]
    [usage] = [e.usage for e in events if isinstance(e, UsageEvent)]
    assert (usage.model, usage.input, usage.output) == (MODEL, 20, 10)
    sent = endpoint.requests[0]["messages"]
    roles = ["system", "user", "assistant", "tool", "assistant", "user"]
    assert [message["role"] for message in sent] == roles
    assert "Be brief." in sent[0]["content"] and "a test" in sent[0]["content"]
    assert sent[-1]["content"] == "And Oslo?"


@pytest.mark.usefixtures("connected")
async def test_an_agent_of_the_sdk_stops_when_its_turn_does(endpoint: Endpoint) -> None:
    endpoint.scripts[:] = [answer("One", " two")]
    agent = python.load(f"{HERE}:guide")
    async with aclosing(agent.run(a_context(asked("count")))) as events:
        assert await anext(events) == TextDelta("One")
    assert len(endpoint.requests) == 1


async def test_a_graph_streams_uses_tools_and_knows_the_history() -> None:
    seen.clear()
    agent = python.load(f"{HERE}:graph")
    events = await collect(agent, a_context(earlier().ask("look", turn="t9").messages))
    assert spoken(events) == "You said blue."
    assert [e for e in events if isinstance(e, ToolCallEvent | ToolResultEvent)] == [
        ToolCallEvent((ToolCall("c1", "look", '{"at": "sky"}'),)),
        ToolResultEvent(ToolResult("c1", "look", "blue")),
    ]
    assert [e.usage.input for e in events if isinstance(e, UsageEvent)] == [7]
    assert [message.type for message in seen[0]] == ["human", "ai", "tool", "ai", "human"]


async def test_a_graph_stops_when_its_turn_does() -> None:
    agent = python.load(f"{HERE}:graph")
    task = asyncio.create_task(collect(agent, a_context(asked("wait"))))
    await asyncio.wait_for(waiting.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_graph_with_a_memory_is_told_only_what_is_new_and_answers_once() -> None:
    agent = python.load(f"{HERE}:remembering")
    history = earlier().ask("hello", turn="t9")
    assert spoken(await collect(agent, a_context(history.messages))) == "You said hello."
    seen.clear()
    # The graph had finished when the hub died: the answer comes from its memory.
    again = a_context(history.messages, attempt=2)
    assert spoken(await collect(agent, again)) == "You said hello."
    assert seen == []
    history.say("You said hello.").ask("more", turn="t9")
    latest = a_context(history.messages[-1:])
    assert spoken(await collect(agent, latest)) == "You said more."
    assert [str(message.content) for message in seen[-1]][-3:] == ["hello", "You said hello.", "more"]


async def test_a_graph_that_interrupts_itself_asks_the_person() -> None:
    asked_for: list[Question] = []

    async def ask(question: Question) -> str | None:
        asked_for.append(question)
        return "yes" if len(asked_for) > 1 else None

    agent = python.load(f"{HERE}:interrupted")
    context = msgspec.structs.replace(a_context(asked("permit")), ask=ask)
    assert spoken(await collect(agent, context)) == ""
    # Nobody answered: a later attempt asks the same question again, and the graph goes on.
    assert spoken(await collect(agent, context)) == "Permitted: yes."
    assert [(q.title, q.options) for q in asked_for] == [("May I?", ())] * 2
    assert asked_for[0].key == asked_for[1].key


async def test_a_graph_is_told_when_who_said_what_and_what_was_overheard_before() -> None:
    seen.clear()
    exact = '(said in the chat)\n- [Ben] "lunch at noon"\n\n[Ann] when?'
    conversation = Conversation().ask("hello", author="Cem")
    history = conversation.say("Hi.").ask("when?", turn="t9", author="Ann", exact=exact).messages
    context = msgspec.structs.replace(a_context(history), shared=True, zone="Europe/Berlin")
    stamp = f"(Sunday {START_TIME:%Y-%m-%d} 13:00, Europe/Berlin)\n"
    await collect(python.load(f"{HERE}:graph"), context)
    assert [str(m.content) for m in seen[0] if m.type == "human"] == [
        f"{stamp}[Cem] hello",
        f"{stamp}{exact}",
    ]


# What people write: a module with an agent, and nothing of Keryx.
PROGRAMS = {
    "sdk": """
import os
from openai import AsyncOpenAI
from agents import Agent, OpenAIChatCompletionsModel, function_tool

@function_tool
def weather(city: str) -> str:
    return f"sunny in {city}"

client = AsyncOpenAI(base_url=os.environ["PLACE"], api_key=os.environ["PLACE_KEY"])
agent = Agent(name="guide", tools=[weather], model=OpenAIChatCompletionsModel(os.environ["PLACE_MODEL"], client))
""",
    "graph": """
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

def speak(state):
    said = [m.content.rpartition("\\n")[2] for m in state["messages"] if m.type == "human"]
    return {"messages": [AIMessage(f"You said {' and '.join(said)}.")]}

agent = StateGraph(MessagesState).add_node("agent", speak).add_edge(START, "agent").compile()
""",
}


@pytest.mark.engines(Engine.SQLITE)
@pytest.mark.parametrize("kind", PROGRAMS)
async def test_an_agent_of_a_framework_answers_a_chat_from_a_process_of_its_own(
    begin: Begin, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    for name, value in (("PLACE", endpoint.base_url), ("PLACE_KEY", KEY), ("PLACE_MODEL", MODEL)):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / f"guide_{kind}.py").write_text(PROGRAMS[kind])
    endpoint.scripts[:] = [
        answer("You said hello."),
        calls(("c1", "weather", '{"city": "Oslo"}')),
        answer("You said", " look."),
        answer("You said look and more."),
    ]
    agent = ProcessAgent(f"guide_{kind}:agent")
    await agent.load()
    try:
        # A busy machine takes long to import a framework.
        assert spoken(await collect(agent, a_context(asked("hello")))) == "You said hello."
        world = await begin(agent=agent)
        asked_first = await world.ask("look")
        assert (await world.ask("more")).session == asked_first.session
        assert await world.sent(2) == ["You said look.", "You said look and more."]
        found = await world.open(asked_first.session)
        outputs = [p.output for m in found.messages for p in m.parts if isinstance(p, ToolResult)]
        assert outputs == (["sunny in Oslo"] if kind == "sdk" else [])
    finally:
        await agent.close()
