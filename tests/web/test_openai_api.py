"""The OpenAI-compatible API, called by the real client of OpenAI for Python in this process."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import msgspec
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from tests.agents.conversation import VARIABLE, a_model, an_agent
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, OPERATORS, Pause, Scenes, World
from tests.fakes.endpoint import EARS, KEY, Endpoint, answer, calls
from tests.web.site import ORIGIN, Listener, Site, open_site, post_until

from keryx.agents.llm.speech import open_transcriber
from keryx.core.errors import AgentFailed
from keryx.core.ids import SessionId
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.ports.agent import (
    NoticeEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
)
from keryx.core.sessions import SessionFilter
from keryx.core.turns import StopReason
from keryx.core.usage import Usage
from keryx.engine.loops.sweeps import RetentionSweep
from keryx.store.db import Engine
from keryx.testing import ScriptedAgent

ONE_ENGINE = pytest.mark.engines(Engine.SQLITE)
MODEL = "test"
MODEL_POLICY = msgspec.structs.replace(
    AT_ONCE, agents=("llm", "helper"), models=(MODEL, "large"), model_agents={"llm": ""}
)
PIXEL = base64.b64encode(
    base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
).decode()
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather.", "parameters": {"type": "object"}},
}


def connect(site: Site, *, key: str = "none", **headers: str) -> AsyncOpenAI:
    transport = httpx2.ASGITransport(app=site.app)
    return AsyncOpenAI(
        api_key=key,
        base_url=f"{ORIGIN}/v1",
        default_headers=headers,
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=transport, base_url=ORIGIN),
    )


@pytest.fixture
async def client(site: Site) -> AsyncIterator[AsyncOpenAI]:
    async with connect(site) as made:
        yield made


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def assistant(text: str) -> Any:
    return {"role": "assistant", "content": text}


async def list_sessions(world: World, *, archived: bool | None = False) -> list[SessionId]:
    listed, _ = await world.hub.list_sessions(OPERATORS, SessionFilter(archived=archived))
    return [item.session.id for item in listed]


async def say(client: AsyncOpenAI, *messages: Any, model: str = "keryx", **more: Any) -> str:
    create: Any = client.chat.completions.create
    made: ChatCompletion = await create(model=model, messages=list(messages), **more)
    return made.choices[0].message.content or ""


async def read_until(site: Site, body: object, type_: str) -> list[dict[str, Any]]:
    """Ask for a response and read its stream up to an event of this type, then go away."""
    return await post_until(site, "/v1/responses", body, lambda event: event["type"] == type_)


async def test_a_chat_completion_is_a_turn_of_a_session_that_other_surfaces_see(
    client: AsyncOpenAI, world: World, site: Site
) -> None:
    made = await client.chat.completions.create(model="keryx", messages=[user("hello")])
    assert made.object == "chat.completion"
    assert made.choices[0].finish_reason == "stop"
    assert made.choices[0].message.content == "hello"
    [session] = await list_sessions(world)
    assert await world.transcript(session) == ["user: hello", "assistant: hello"]
    listed = await site.get("/api/sessions")
    assert [s["surface"] for s in listed["sessions"]] == ["api"]


async def test_a_conversation_goes_on_in_its_session_by_what_was_said_before(
    client: AsyncOpenAI, world: World
) -> None:
    first = await say(client, user("one"))
    second = await say(client, user("one"), assistant(first), user("two"))
    await say(client, user("one"), assistant(first), user("two"), assistant(second), user("three"))
    [session] = await list_sessions(world)
    assert [line for line in await world.transcript(session) if line.startswith("user")] == [
        "user: one",
        "user: two",
        "user: three",
    ]


async def test_a_conversation_that_began_elsewhere_is_taken_over(client: AsyncOpenAI, world: World) -> None:
    await say(
        client, {"role": "system", "content": "Be short."}, user("hi"), assistant("Hello!"), user("and?")
    )
    [session] = await list_sessions(world)
    assert await world.transcript(session) == [
        "user: hi",
        "assistant: Hello!",
        "user: and?",
        "assistant: and?",
    ]


async def test_an_equal_request_runs_once_until_its_answer_was_received(begin: Begin) -> None:
    pause = Pause()
    agent = ScriptedAgent([TextDelta("first "), pause, TextDelta("answer")], [TextDelta("second answer")])
    world = await begin(agent=agent)
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        requests = [asyncio.create_task(say(client, user("hello"))) for _ in range(3)]
        await pause.reached()
        requests[0].cancel()
        pause.go_on()
        assert await requests[1] == await requests[2] == "first answer"
        assert len(agent.contexts) == 1
        assert await say(client, user("hello")) == "second answer"
        repeated = {"x-stainless-retry-count": "1"}
        assert await say(client, user("hello"), extra_headers=repeated) == "second answer"
    assert len(await list_sessions(world)) == 2


async def test_a_request_with_the_same_key_never_runs_twice(client: AsyncOpenAI, world: World) -> None:
    key = {"Idempotency-Key": "one"}
    first = await client.responses.create(model="keryx", input="hello", extra_headers=key)
    again = await client.responses.create(model="keryx", input="hello", extra_headers=key)
    assert again.id == first.id
    with pytest.raises(openai.ConflictError, match="another message"):
        await client.responses.create(model="keryx", input="another", extra_headers=key)
    [session] = await list_sessions(world)
    assert await world.transcript(session) == ["user: hello", "assistant: hello"]


@ONE_ENGINE
async def test_the_stream_of_a_chat_completion_has_the_published_chunks(begin: Begin) -> None:
    used = UsageEvent(Usage(model="m", input=7, output=3))
    agent = ScriptedAgent([ReasoningDelta("hm"), TextDelta("Hel"), TextDelta("lo"), used])
    world = await begin(agent=agent)
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        stream = await client.chat.completions.create(
            model="keryx", messages=[user("hi")], stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    assert "".join(d.content or "" for d in deltas) == "Hello"
    assert "".join((d.model_extra or {}).get("reasoning_content", "") for d in deltas) == "hm"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (7, 3)
    assert len({chunk.id for chunk in chunks}) == 1


@ONE_ENGINE
async def test_the_stream_of_a_response_has_the_published_events(begin: Begin) -> None:
    call = ToolCall("c1", "look", '{"at": "sky"}')
    agent = ScriptedAgent(
        [
            ReasoningDelta("hm"),
            TextDelta("Let me look."),
            ToolCallEvent((call,)),
            ToolResultEvent(ToolResult("c1", "look", "blue")),
            TextDelta("It is "),
            TextDelta("blue."),
        ]
    )
    world = await begin(agent=agent)
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        stream = await client.responses.create(model="keryx", input="which colour?", stream=True)
        events = [event async for event in stream]
    types = [event.type for event in events]
    assert types[:2] == ["response.created", "response.in_progress"]
    assert types[-1] == "response.completed"
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))
    added = [event.item for event in events if event.type == "response.output_item.added"]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.type for item in added] == [item.type for item in done]
    assert [item.type for item in done] == ["reasoning", "message", "mcp_call", "message"]
    texts = {event.item_id: event.text for event in events if event.type == "response.output_text.done"}
    deltas = dict.fromkeys(texts, "")
    for event in events:
        if event.type == "response.output_text.delta":
            deltas[event.item_id] += event.delta
    assert deltas == texts
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.status == "completed"
    assert last.response.output_text == "Let me look.It is blue."
    assert last.response.output == done
    [made] = [item for item in last.response.output if item.type == "mcp_call"]
    assert (made.name, made.arguments, made.output) == ("look", call.input, "blue")


@ONE_ENGINE
async def test_a_stream_continues_after_any_event_and_gives_the_rest(begin: Begin) -> None:
    call = ToolCall("c1", "look", "{}")
    agent = ScriptedAgent(
        [
            TextDelta("Äöü"),
            ToolCallEvent((call,)),
            ToolResultEvent(ToolResult("c1", "look", "blue")),
            TextDelta("done"),
        ]
    )
    world = await begin(agent=agent)
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        made = await client.responses.create(model="keryx", input="go")
        whole = [e async for e in await client.responses.retrieve(made.id, stream=True)]
        for after in range(whole[-1].sequence_number):
            rest = [
                e async for e in await client.responses.retrieve(made.id, stream=True, starting_after=after)
            ]
            assert rest[-1] == whole[-1]
            exact = [event for event in whole if event.sequence_number > after]
            if any(event.sequence_number == after for event in whole):
                assert rest == exact
            else:
                # In the middle of a text: the rest of the text comes, and all that follows.
                assert [e.type for e in rest] == [e.type for e in exact]


async def test_a_response_continues_the_previous_one_and_branches_from_any(
    client: AsyncOpenAI, world: World
) -> None:
    first = await client.responses.create(model="keryx", input="one")
    second = await client.responses.create(model="keryx", input="two", previous_response_id=first.id)
    other = await client.responses.create(model="keryx", input="another", previous_response_id=first.id)
    assert (
        first.conversation is not None and second.conversation is not None and other.conversation is not None
    )
    assert second.conversation.id == first.conversation.id != other.conversation.id
    copy = SessionId(other.conversation.id.removeprefix("conv_"))
    assert await world.transcript(copy) == [
        "user: one",
        "assistant: one",
        "user: another",
        "assistant: another",
    ]
    assert (await world.hub.session(OPERATORS, copy)).parent == first.conversation.id.removeprefix("conv_")
    assert second.previous_response_id == first.id
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="keryx", input="x", previous_response_id="resp_none")


async def test_a_conversation_keeps_its_items_and_answers_in_it(client: AsyncOpenAI, world: World) -> None:
    conversation = await client.conversations.create(metadata={"topic": "colours"})
    assert (await client.conversations.items.list(conversation.id)).data == []
    made = await client.responses.create(model="keryx", input="red?", conversation=conversation.id)
    assert made.conversation is not None
    assert made.conversation.id == conversation.id
    items: Sequence[Any] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and green?"}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "green"},
        {"type": "message", "role": "system", "content": "Be kind."},
    ]
    await client.conversations.items.create(conversation.id, items=items)
    listed = [item async for item in client.conversations.items.list(conversation.id, order="asc", limit=2)]
    assert [item.type for item in listed] == [
        "message",
        "message",
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    newest = await client.conversations.items.list(conversation.id, limit=1)
    assert newest.has_more
    assert newest.data[0].id == listed[-1].id
    call = listed[3]
    assert call.type == "function_call" and call.id
    assert await client.conversations.items.retrieve(call.id, conversation_id=conversation.id) == call
    await client.conversations.items.delete(call.id, conversation_id=conversation.id)
    left = [item.id async for item in client.conversations.items.list(conversation.id, order="asc")]
    assert left == [item.id for item in listed if item.id != call.id]
    changed = await client.conversations.update(conversation.id, metadata={"topic": "paint"})
    assert changed.metadata == {"topic": "paint"}
    assert (await client.conversations.retrieve(conversation.id)).metadata == {"topic": "paint"}
    assert (await client.conversations.delete(conversation.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await client.conversations.retrieve(conversation.id)
    assert await list_sessions(world) == []


async def test_a_named_conversation_goes_back_where_its_client_goes_back(begin: Begin) -> None:
    world = await begin()
    async with (
        open_site(world.hub, world.clock) as site,
        connect(site, **{"X-OpenWebUI-Chat-Id": "chat-1"}) as client,
    ):
        await say(client, user("one"))
        await say(client, user("one"), assistant("one"), user("two"))
        await say(client, user("one"), assistant("one"), user("two, again"))
        [session] = await list_sessions(world)
        assert await world.transcript(session) == [
            "user: one",
            "assistant: one",
            "user: two [undone]",
            "assistant: two [undone]",
            "user: two, again",
            "assistant: two, again",
        ]
        # What the client changed in its memory of the past does not lose the conversation.
        await say(client, user("one (with sources)"), assistant("one"), user("three"))
        assert await list_sessions(world) == [session]
        assert (await world.transcript(session))[-2:] == ["user: three", "assistant: three"]
        # Something else in the chat, such as a task that is not known as one, undoes nothing.
        await say(client, user("name this chat"))
        [other] = set(await list_sessions(world)) - {session}
        assert await world.transcript(other) == ["user: name this chat", "assistant: name this chat"]
        told = [user("one"), assistant("one"), user("two, again"), assistant("two, again"), user("four")]
        await say(client, *told)
        assert (await world.transcript(session))[-2:] == ["user: four", "assistant: four"]
        # Another answer to the first question.
        await say(client, user("one"))
        assert set(await list_sessions(world)) == {session, other}
        active = [line for line in await world.transcript(session) if "undone" not in line]
        assert active == ["user: one", "assistant: one"]


async def test_several_models_answer_in_one_chat_beside_each_other(begin: Begin) -> None:
    pause = Pause()
    agent = ScriptedAgent([TextDelta("of one"), pause], [TextDelta("of another")], [TextDelta("more")])
    world = await begin(agent=agent, policy=MODEL_POLICY)
    async with (
        open_site(world.hub, world.clock) as site,
        connect(site, **{"X-OpenWebUI-Chat-Id": "chat-1"}) as client,
    ):
        first = asyncio.create_task(say(client, user("hello"), model="llm"))
        await pause.reached()
        assert await say(client, user("hello"), model="helper") == "of another"
        pause.go_on()
        assert await first == "of one"
        await say(client, user("hello"), assistant("of one"), user("go on"), model="llm")
        assert len(await list_sessions(world)) == 2
        # The chat goes on with the other model, which knows what the first one said.
        told = [user("hello"), assistant("of one"), user("go on"), assistant("more"), user("and you?")]
        await say(client, *told, model=MODEL)
        assert len(await list_sessions(world)) == 2
    assert [m.text for m in agent.histories[-1]] == ["hello", "of one", "go on", "more", "and you?"]


async def test_a_key_moves_with_its_person_and_goes_with_them(begin: Begin) -> None:
    world = await begin()
    for person in ("1", "2"):
        await world.settle(await world.say("hello", user=person, principal=None, chat=person))
        world.advance(1)
    key, secret = await world.hub.api_keys.add(OPERATORS, "phone", person=("fake", "2"))
    merged = await world.hub.people.link(OPERATORS, ("fake", "1"), ("fake", "2"))
    moved = await world.hub.api_keys.check(secret)
    assert moved is not None
    assert moved.viewer.principal == merged != key.principal
    await world.hub.people.erase(OPERATORS, merged)
    assert await world.hub.api_keys.check(secret) is None


@ONE_ENGINE
async def test_what_people_say_on_other_surfaces_stays_when_a_client_goes_on(
    client: AsyncOpenAI, world: World, site: Site
) -> None:
    await say(client, user("one"))
    [session] = await list_sessions(world)
    sent = await site.post(f"/api/sessions/{session}/messages", {"text": "from the page"})
    await world.settle(sent["turn"])
    await say(client, user("one"), assistant("one"), user("two"))
    assert await list_sessions(world) == [session]
    lines = await world.transcript(session)
    assert [line for line in lines if line.startswith("user")] == [
        "user: one",
        "user: from the page",
        "user: two",
    ]


@ONE_ENGINE
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"X-Hermes-Session-Id": "20260101_1"}, {}),
        ({"x-openclaw-session-key": "agent:main:main"}, {}),
        ({}, {"user": "ann"}),
    ],
)
async def test_a_name_of_a_conversation_that_the_server_keeps_continues_it(
    site: Site, world: World, headers: dict[str, str], body: dict[str, Any]
) -> None:
    async with connect(site, **headers) as client:
        await say(client, user("one"), **body)
        await say(client, user("two"), **body)
    [session] = await list_sessions(world)
    assert await world.transcript(session) == ["user: one", "assistant: one", "user: two", "assistant: two"]


async def test_requests_for_titles_are_answered_and_not_kept(client: AsyncOpenAI, world: World) -> None:
    for task in ("Generate a concise title.", "Predict 3-5 useful messages.", "Suggest follow-up questions."):
        prompt = (
            f"### Task:\n{task}\n### Guidelines:\n- Be short.\n<chat_history>\nUSER: hello\n</chat_history>"
        )
        assert (await say(client, user(prompt))).startswith("### Task")
    tools = {
        "role": "system",
        "content": "Available Tools: []\n\nYour task is to choose and return the correct tool(s) …",
    }
    assert await say(client, tools, user("Query: what time is it?"))
    assert await say(client, user("You have been provided with a set of responses from various models …"))
    assert await say(
        client, user("Ein Titel, bitte"), extra_headers={"X-OpenWebUI-Task": "TASKS.TITLE_GENERATION"}
    )
    compaction = "### Task:\nSummarize the conversation history that will be compacted out of …"
    assert await say(client, user(compaction))
    assert await list_sessions(world, archived=None) == []
    context = "### Task:\nRespond to the user query using the provided context.\n### Guidelines:\n- Cite."
    assert await say(client, user(context), extra_headers={"X-OpenWebUI-Task": ""})
    assert len(await list_sessions(world)) == 1


async def test_what_is_not_to_be_stored_is_erased(client: AsyncOpenAI, world: World) -> None:
    made = await client.responses.create(model="keryx", input="a secret", store=False)
    assert made.output_text == "a secret"
    assert made.to_dict()["store"] is False
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)
    assert await list_sessions(world, archived=None) == []


async def test_an_answer_that_is_not_stored_and_nobody_has_taken_is_erased_after_an_hour(
    begin: Begin,
) -> None:
    pause = Pause()
    world = await begin(agent=Scenes({"wait": [TextDelta("a"), pause, TextDelta("b")]}))
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        request = asyncio.create_task(client.responses.create(model="keryx", input="wait", store=False))
        await pause.reached()
        request.cancel()
        pause.go_on()
        [session] = await list_sessions(world, archived=True)
        await world.until(lambda tx: tx.row("select 1 from turns where state = 'done'") is not None)
        sweep = RetentionSweep(world.database, world.clock, policy=world.policy)
        await sweep.sweep()
        assert await list_sessions(world, archived=True) == [session]
        world.advance(3_700)
        await sweep.sweep()
        assert await list_sessions(world, archived=None) == []


async def test_a_response_can_be_read_listed_cancelled_and_deleted(begin: Begin) -> None:
    pause = Pause()
    world = await begin(agent=Scenes({"wait": [TextDelta("a part"), pause]}))
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        made = await client.responses.create(
            model="keryx", input="wait", background=True, metadata={"n": "1"}
        )
        assert made.status in ("queued", "in_progress")
        await pause.reached()
        assert (await client.responses.cancel(made.id)).status == "cancelled"
        await world.settle(made.id.removeprefix("resp_"))  # pyright: ignore[reportArgumentType]
        found = await client.responses.retrieve(made.id)
        assert (found.status, found.output_text, found.metadata) == ("cancelled", "a part", {"n": "1"})
        items = await client.responses.input_items.list(made.id)
        [item] = items.data
        assert item.type == "message" and item.role == "user"
        await client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(made.id)
    assert await list_sessions(world) == []


async def test_a_model_calls_functions_of_the_program_and_gets_their_results(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    with Endpoint(calls(("c1", "weather", '{"at": "home"}')), answer("It rains.")) as endpoint:
        async with an_agent(endpoint) as agent:
            world = await begin(agent=agent, policy=MODEL_POLICY)
            async with open_site(world.hub, world.clock) as site, connect(site) as client:
                messages: list[Any] = [user("what is the weather?")]
                made = await client.chat.completions.create(
                    model="llm", messages=messages, tools=[WEATHER], temperature=0.5
                )
                assert made.choices[0].finish_reason == "tool_calls"
                [call] = made.choices[0].message.tool_calls or []
                assert call.type == "function"
                assert (call.function.name, call.function.arguments) == ("weather", '{"at": "home"}')
                messages += [
                    made.choices[0].message.model_dump(exclude_none=True),
                    {"role": "tool", "tool_call_id": call.id, "content": "rain"},
                ]
                assert await say(client, *messages, model="llm", tools=[WEATHER]) == "It rains."
        first, second = endpoint.requests[:2]
    assert [tool["function"]["name"] for tool in first["tools"]] == ["weather"]
    assert first["temperature"] == 0.5
    assert second["messages"][-1]["role"] == "tool"
    assert second["messages"][-1]["content"] == "rain"
    [session] = await list_sessions(world)
    assert await world.transcript(session) == [
        "user: what is the weather?",
        "assistant: <weather>",
        "tool: <rain>",
        "assistant: It rains.",
    ]


async def test_a_response_returns_function_calls_and_takes_their_outputs(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    function: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
    with Endpoint(calls(("c1", "weather", "{}")), answer("It rains.")) as endpoint:
        async with an_agent(endpoint) as agent:
            world = await begin(agent=agent, policy=MODEL_POLICY)
            async with open_site(world.hub, world.clock) as site, connect(site) as client:
                stream = await client.responses.create(
                    model=MODEL, input="what is the weather?", tools=[function], stream=True
                )
                events = [event async for event in stream]
                assert "response.function_call_arguments.done" in [event.type for event in events]
                last = events[-1]
                assert last.type == "response.completed"
                [call] = last.response.output
                assert call.type == "function_call"
                made = await client.responses.create(
                    model=MODEL,
                    previous_response_id=last.response.id,
                    tools=[function],
                    input=[{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}],
                )
    assert made.output_text == "It rains."


@ONE_ENGINE
async def test_functions_are_ignored_with_a_note_by_an_agent_that_is_not_a_model(begin: Begin) -> None:
    world = await begin(policy=MODEL_POLICY)
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="helper",
            messages=[user("hello")],
            tools=[WEATHER],
        )
        assert "not a model" in raw.headers["x-keryx-note"]
        session = SessionId(raw.headers["x-keryx-session"])
        assert any("notice" in line and "ignored" in line for line in await world.transcript(session))
        assert (await world.hub.session(OPERATORS, session)).settings.agent == "helper"


@ONE_ENGINE
async def test_models_are_those_that_a_request_may_name(begin: Begin) -> None:
    world = await begin(policy=MODEL_POLICY)
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        names = [model.id async for model in client.models.list()]
        assert names == ["keryx", MODEL, "large", "llm", "helper"]
        assert (await client.models.retrieve("large")).id == "large"
        with pytest.raises(openai.NotFoundError, match="there are keryx, "):
            await say(client, user("x"), model="gpt-none")


@ONE_ENGINE
async def test_pictures_and_files_come_as_data_urls(client: AsyncOpenAI, world: World) -> None:
    content: Any = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}},
    ]
    await say(client, {"role": "user", "content": content})
    [session] = await list_sessions(world)
    question = (await world.open(session)).messages[0]
    assert [type(part).__name__ for part in question.parts] == ["Text", "Image", "File"]
    many: Any = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}] * 101
    with pytest.raises(openai.BadRequestError, match="at most 100 files"):
        await say(client, {"role": "user", "content": many})
    for url in ("https://example.org/a.png", "data:image/png;base64,%%%"):
        broken: Any = [{"type": "image_url", "image_url": {"url": url}}]
        with pytest.raises(openai.BadRequestError, match="item 0 is wrong"):
            await say(client, {"role": "user", "content": broken})


@ONE_ENGINE
async def test_a_failed_turn_is_an_error_that_clients_do_not_repeat(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([TextDelta("a part"), AgentFailed("the model is gone")]))
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        with pytest.raises(openai.InternalServerError, match="the model is gone") as failed:
            await say(client, user("x"))
        assert failed.value.response.headers["x-should-retry"] == "false"
        made = await client.responses.create(model="keryx", input="y")
        assert made.status == "failed"
        assert made.error is not None
        assert "the model is gone" in made.error.message
        with pytest.raises(openai.APIError, match="the model is gone"):
            async for _ in await client.chat.completions.create(
                model="keryx", messages=[user("z")], stream=True
            ):
                pass


@ONE_ENGINE
async def test_an_answer_that_was_cut_is_incomplete(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([TextDelta("a lo"), NoticeEvent("cut", StopReason.LENGTH)]))
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        made = await client.responses.create(model="keryx", input="x")
        assert made.status == "incomplete"
        assert made.incomplete_details is not None
        assert made.incomplete_details.reason == "max_output_tokens"
        completion = await client.chat.completions.create(model="keryx", messages=[user("y")])
        assert completion.choices[0].finish_reason == "length"


async def test_a_base_url_without_its_end_is_told_as_clients_show_errors(site: Site) -> None:
    for method, path in (("GET", "/models"), ("POST", "/chat/completions"), ("POST", "/responses")):
        answer = await site.request(method, path, json={} if method == "POST" else None)
        assert answer.status_code == 404 and answer.headers["content-type"] == "application/json"
        assert (
            "the base URL of Keryx for clients of OpenAI's API ends in /v1"
            in answer.json()["error"]["message"]
        )


@ONE_ENGINE
@pytest.mark.parametrize(
    "body",
    [
        {"messages": []},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "video"}]}]},
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]},
        {"messages": [{"role": "user", "content": "x"}], "n": 2},
        {"messages": "x"},
    ],
)
async def test_wrong_requests_get_errors_in_the_shape_of_openai(site: Site, body: object) -> None:
    answer = await site.request("POST", "/v1/chat/completions", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert len(error["message"]) > 15
    missing = await site.request("GET", "/v1/nothing")
    assert missing.status_code == 404
    assert "error" in missing.json()


async def test_a_key_has_the_rights_of_its_person_until_it_is_revoked(begin: Begin) -> None:
    world = await begin()
    await world.ask("hello from the chat", user="ann")
    async with open_site(world.hub, world.clock, token="a-token-of-some-length") as site:
        operator = {"Authorization": "Bearer a-token-of-some-length"}
        made = await site.post("/api/keys", {"name": "laptop"}, headers=operator)
        secret = made["secret"]
        assert secret.startswith("kx-")
        async with connect(site, key=secret) as client:
            assert await say(client, user("hello")) == "hello"
            async with connect(site, key="kx-wrong") as stranger:
                with pytest.raises(openai.AuthenticationError, match="not right"):
                    await say(stranger, user("hello"))
            bearer = {"Authorization": f"Bearer {secret}"}
            refused = await site.request("POST", "/api/keys", json={"name": "x"}, headers=bearer)
            assert refused.status_code == 403
            [key] = (await site.get("/api/keys", headers=operator))["keys"]
            assert (key["name"], key["principal"]) == ("laptop", "operator")
            assert key["seen_at"]
            assert secret not in json.dumps(key)
            await site.request("DELETE", f"/api/keys/{key['id']}", headers=operator)
            with pytest.raises(openai.AuthenticationError):
                await say(client, user("hello"))


async def test_a_person_with_a_key_sees_only_what_is_theirs(begin: Begin) -> None:
    world = await begin()
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        receipt = await world.say("hello", user="4711", principal=None)
        await world.settle(receipt)
        theirs = await client.responses.create(model="keryx", input="of the operator")
        key, secret = await world.hub.api_keys.add(OPERATORS, "phone", person=("fake", "4711"))
        assert key.principal != "operator"
        async with connect(site, key=secret) as person:
            with pytest.raises(openai.NotFoundError):
                await person.responses.retrieve(theirs.id)
            own = await person.responses.create(model="keryx", input="of the operator")
            assert own.id != theirs.id
            assert (await person.responses.retrieve(own.id)).id == own.id
            bearer = {"Authorization": f"Bearer {secret}"}
            listed = await site.get("/api/sessions", headers=bearer)
            assert len(listed["sessions"]) == 2
            assert (await site.get("/api/keys", headers=bearer))["keys"][0]["name"] == "phone"


@ONE_ENGINE
async def test_a_client_that_goes_away_loses_nothing_and_runs_nothing_twice(begin: Begin) -> None:
    pause = Pause()
    agent = ScriptedAgent([TextDelta("Hello "), pause, TextDelta("world")])
    world = await begin(agent=agent)
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        events = await read_until(site, {"input": "hi", "stream": True}, "response.output_text.delta")
        last = events[-1]
        assert last["delta"] == "Hello "
        pause.go_on()
        rest = [
            e
            async for e in await client.responses.retrieve(
                events[0]["response"]["id"], stream=True, starting_after=last["sequence_number"]
            )
        ]
        assert "".join(e.delta for e in rest if e.type == "response.output_text.delta") == "world"
        final = rest[-1]
        assert final.type == "response.completed"
        assert final.response.output_text == "Hello world"
        assert (await client.responses.create(model="keryx", input="hi")).output_text
    assert len(agent.contexts) == 2


@ONE_ENGINE
async def test_an_answer_is_seen_live_on_other_surfaces_while_a_client_streams_it(begin: Begin) -> None:
    pause = Pause()
    world = await begin(agent=ScriptedAgent([TextDelta("Hello "), pause, TextDelta("world")]))
    async with open_site(world.hub, world.clock) as site:
        page = Listener(site.app, (await site.get("/api/start"))["cursor"])
        async with page.connect():
            body = {"input": "hi", "stream": True}
            reading = asyncio.create_task(read_until(site, body, "response.completed"))
            said = await page.wait_for("message")
            assert (said["message"]["role"], said["message"]["parts"][0]["text"]) == ("user", "hi")
            draft = await page.wait_for("draft")
            assert draft["text"] == "Hello "
            pause.go_on()
            *_, last = await reading
            await page.wait_until(
                lambda: any(
                    e.data["type"] == "message" and e.data["message"]["role"] == "assistant"
                    for e in page.events
                )
            )
    final = Response.model_validate(last["response"])
    shown = [e.data["message"] for e in page.events if e.data["type"] == "message"]
    assert [m["parts"][0]["text"] for m in shown] == ["hi", final.output_text]


FUNCTION: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
# What the specification of Open Responses requires of every response.
REQUIRED = """id object created_at completed_at status incomplete_details model previous_response_id instructions output error tools
  tool_choice truncation parallel_tool_calls text top_p presence_penalty frequency_penalty top_logprobs temperature reasoning user
  usage max_output_tokens max_tool_calls store background service_tier metadata safety_identifier prompt_cache_key"""


@ONE_ENGINE
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("items", "tools", "kind"),
    [
        ([{"type": "message", **user("Say hello.")}], [], "message"),
        ([{"type": "message", "role": "system", "content": "Rhyme."}, user("Say hello.")], [], "message"),
        ([user("How is the weather?")], [FUNCTION], "function_call"),
        (
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What is this?"},
                        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
                    ],
                }
            ],
            [],
            "message",
        ),
        ([user("I am Alice."), assistant("Hello Alice!"), user("Who am I?")], [], "message"),
        (
            [
                user("Look it up."),
                {"type": "message", "phase": "commentary", **assistant("I will look.")},
                {"type": "message", "phase": "final_answer", **assistant("It is 4.")},
                user("And now?"),
            ],
            [],
            "message",
        ),
    ],
    ids=["text", "system", "tools", "image", "several", "phase"],
)
async def test_the_cases_of_open_responses_hold(
    begin: Begin,
    monkeypatch: pytest.MonkeyPatch,
    items: list[Any],
    tools: list[Any],
    kind: str,
    stream: bool,
) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    script = calls(("c1", "weather", "{}")) if tools else answer("Hel", "lo!")
    with Endpoint(script) as endpoint:
        async with an_agent(endpoint) as agent:
            world = await begin(agent=agent, policy=MODEL_POLICY)
            async with open_site(world.hub, world.clock) as site:
                body = {"model": MODEL, "input": items, "tools": tools, "stream": stream}
                found = await site.request("POST", "/v1/responses", json=body)
    assert found.status_code == 200
    if stream:
        lines = [line for line in found.text.splitlines() if line.startswith("data: ")]
        assert lines[-1] == "data: [DONE]"
        events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
        named = [
            line.removeprefix("event: ") for line in found.text.splitlines() if line.startswith("event: ")
        ]
        assert named == [event["type"] for event in events]
        for event in events:
            # As strict as the types of the client are.
            TypeAdapter[ResponseStreamEvent](ResponseStreamEvent).validate_python(event)
        document = events[-1]["response"]
        if tools:
            assert {"response.function_call_arguments.delta", "response.function_call_arguments.done"} <= set(
                named
            )
    else:
        document = found.json()
    assert set(REQUIRED.split()) <= set(document)
    Response.model_validate(document)
    assert document["status"] == "completed"
    assert kind in [item["type"] for item in document["output"]]


@ONE_ENGINE
async def test_what_is_not_there_of_open_responses_says_so(site: Site) -> None:
    for body in ({"model": "keryx", "input": "hello"}, {"input": "hello"}):
        found = await site.request("POST", "/v1/responses/compact", json=body)
        assert found.status_code in (404, 405)
        assert found.json()["error"]["type"] == "invalid_request_error"


@ONE_ENGINE
async def test_a_sound_is_transcribed_where_a_model_for_it_is_configured(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    sound = ("hello.wav", b"RIFF\r\n--\x00\xff", "audio/x-wav")
    with Endpoint() as endpoint:
        async with (
            open_transcriber(a_model(endpoint, id=EARS)) as transcribe,
            open_site(world.hub, world.clock, transcribe=transcribe) as site,
            connect(site) as client,
        ):
            create: Any = client.audio.transcriptions.create
            assert (await create(model="any", file=sound)).text == "hello there"
            hints = {"language": "de", "prompt": "Keryx, Töne", "temperature": 0.5}
            plain = await create(model="any", file=sound, response_format="text", **hints)
            assert plain == "hello there"
            assert endpoint.hints == [{}, {**hints, "temperature": "0.5"}]
            for wrong, told in (
                ({"response_format": "srt"}, "json or text"),
                ({"stream": True}, "not streamed"),
                ({"include": ["logprobs"]}, "is not known for transcriptions"),
                ({"timestamp_granularities": ["word"]}, "is not known for transcriptions"),
                ({"temperature": 3}, "from 0 to 1"),
                ({"language": "de; rm"}, "a code such as de"),
            ):
                with pytest.raises(openai.BadRequestError, match=told):
                    await create(model="any", file=sound, **wrong)
            assert len(endpoint.sounds) == 2
            assert endpoint.sounds[0] == ("sound.wav", sound[1])
            empty = await site.request("POST", "/v1/audio/transcriptions", content=b"x")
            assert empty.status_code == 400
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        with pytest.raises(openai.NotFoundError, match="no model is configured"):
            await client.audio.transcriptions.create(model="any", file=sound)
