"""AG-UI events, checked against the published types of the protocol for Python."""

import json
from typing import Any

import pytest
from ag_ui.core import Event, RunAgentInput, UserMessage
from pydantic import TypeAdapter
from tests.engine.conftest import Begin
from tests.engine.world import OPERATORS, Pause, Scenes, World
from tests.web.site import Site, open_site, post_until
from tests.web.test_openai_api import MODEL_POLICY

from keryx.core.errors import AgentFailed
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.ports.agent import ReasoningDelta, TextDelta, ToolCallEvent, ToolResultEvent, TurnContext
from keryx.core.questions import Question
from keryx.core.sessions import SessionFilter
from keryx.store.db import Engine
from keryx.testing import ScriptedAgent

ONE_ENGINE = pytest.mark.engines(Engine.SQLITE)
EVENTS: TypeAdapter[Any] = TypeAdapter(Event)


def user(text: str, id_: str = "u1") -> dict[str, Any]:
    return {"id": id_, "role": "user", "content": text}


def build_run(*messages: Any, run: str = "r1", thread: str = "t1", **more: Any) -> dict[str, Any]:
    return {"threadId": thread, "runId": run, "messages": list(messages), **more}


async def run(site: Site, body: object) -> list[dict[str, Any]]:
    answer = await site.request("POST", "/ag-ui", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = answer.text.splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    for event in events:
        EVENTS.validate_python(event)
    assert events[0]["type"] == "RUN_STARTED"
    return events


def apply(messages: list[dict[str, Any]], events: list[dict[str, Any]]) -> None:
    """Add to the messages of a client what events tell, as a client does."""
    by_id = {m["id"]: m for m in messages}
    for event in events:
        match event["type"]:
            case "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START":
                assert event["messageId"] not in by_id
                by_id[event["messageId"]] = {"id": event["messageId"], "role": event["role"], "content": ""}
                messages.append(by_id[event["messageId"]])
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                by_id[event["messageId"]]["content"] += event["delta"]
            case "TOOL_CALL_START":
                function = {"name": event["toolCallName"], "arguments": ""}
                calls = [{"id": event["toolCallId"], "type": "function", "function": function}]
                messages.append({"id": event["parentMessageId"], "role": "assistant", "toolCalls": calls})
            case "TOOL_CALL_RESULT":
                fields = ("toolCallId", "content", "role")
                messages.append({"id": event["messageId"], **{name: event[name] for name in fields}})
            case _:
                pass


def texts(messages: list[dict[str, Any]]) -> str:
    return "".join(m["content"] for m in messages if m["role"] == "assistant" and m.get("content"))


async def ask_permission(context: TurnContext) -> None:
    if await context.ask(Question(key="k", title="May I?")) != "allow":
        raise AgentFailed("they said no")


async def test_a_run_is_a_turn_and_a_thread_a_conversation(world: World, site: Site) -> None:
    asked = RunAgentInput(
        thread_id="t1", run_id="r1", messages=[UserMessage(id="u1", role="user", content="hello")]
    )
    events = await run(site, asked.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert [e["type"] for e in events] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert events[-1]["outcome"] == {"type": "success"}
    messages = [user("hello")]
    apply(messages, events)
    messages.append(user("again", "u2"))
    await run(site, build_run(*messages, run="r2"))
    [found], _ = await world.hub.list_sessions(OPERATORS, SessionFilter())
    session = found.session.id
    assert await world.transcript(session) == [
        "user: hello",
        "assistant: hello",
        "user: again",
        "assistant: again",
    ]
    await run(site, build_run(user("by its id", "u3"), thread=session))
    assert (await world.transcript(session))[-1] == "assistant: by its id"


async def test_a_repeated_run_is_answered_once(begin: Begin) -> None:
    agent = ScriptedAgent([TextDelta("one")], [TextDelta("two")])
    world = await begin(agent=agent)
    async with open_site(world.hub, world.clock) as site:
        first = await run(site, build_run(user("hello")))
        assert await run(site, build_run(user("hello"))) == first
        assert len(agent.contexts) == 1
        # Another run with the same messages wants another answer.
        other = await run(site, build_run(user("hello"), run="r2"))
        assert "two" in str(other)
        [found], _ = await world.hub.list_sessions(OPERATORS, SessionFilter())
    assert found.session.id


async def test_a_cut_run_is_continued_where_it_was_also_after_a_crash(begin: Begin) -> None:
    pauses = Pause(), Pause()
    script = [TextDelta("Hello "), pauses[0], TextDelta("wor"), pauses[1], TextDelta("ld")]
    agent = ScriptedAgent(script, [TextDelta("Once more")])
    world = await begin(agent=agent)
    messages = [user("hi")]
    async with open_site(world.hub, world.clock) as site:
        events = await post_until(site, "/ag-ui", build_run(user("hi")), lambda e: "delta" in e)
        apply(messages, events)
        assert texts(messages) == "Hello "
        pauses[0].go_on()
        events = await post_until(site, "/ag-ui", build_run(*messages), lambda e: "delta" in e)
        apply(messages, events)
        assert texts(messages) == "Hello wor"
    await world.restart()
    async with open_site(world.hub, world.clock) as site:
        # A client that asks again with its question alone gets the whole answer.
        assert "Once more" in str(await run(site, build_run(user("hi"), run="r9")))
        events = await run(site, build_run(*messages))
        apply(messages, events)
    assert texts(messages) == "Hello worOnce more"
    assert events[-1]["type"] == "RUN_FINISHED"
    assert len(agent.contexts) == 2


async def test_a_question_interrupts_a_run_and_is_answered_by_the_next(begin: Begin) -> None:
    call, result = ToolCall("c1", "search", '{"q": 1}'), ToolResult("c1", "search", "found")
    script = [
        ReasoningDelta("hmm"),
        TextDelta("I look."),
        ToolCallEvent((call,)),
        ask_permission,
        ToolResultEvent(result),
        TextDelta("Done."),
    ]
    agent = Scenes({"look": script})
    world = await begin(agent=agent)
    async with open_site(world.hub, world.clock) as site:
        messages = [user("look it up")]
        events = await run(site, build_run(*messages))
        apply(messages, events)
        assert "REASONING_MESSAGE_CONTENT" in [e["type"] for e in events]
        outcome = events[-1]["outcome"]
        assert outcome["type"] == "interrupt"
        [interrupt] = outcome["interrupts"]
        assert "May I?" in interrupt["message"]
        assert interrupt["responseSchema"]["enum"] == ["allow", "always", "deny"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        wrong = {**resume[0], "payload": 7}
        refused = await site.request("POST", "/ag-ui", json=build_run(*messages, run="r2", resume=[wrong]))
        assert refused.status_code == 400
        events = await run(site, build_run(*messages, run="r2", resume=resume))
        assert [e["type"] for e in events] == [
            "RUN_STARTED",
            "TOOL_CALL_RESULT",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED",
        ]
        assert await run(site, build_run(*messages, run="r2", resume=resume)) == events
        apply(messages, events)
        assert texts(messages) == "I look.Done."
        messages.append(user("thanks", "u2"))
        await run(site, build_run(*messages, run="r3"))
    assert agent.asked == ["look it up", "thanks"]
    assert len((await world.hub.list_sessions(OPERATORS, SessionFilter()))[0]) == 1


async def test_tools_of_the_client_are_called_by_the_client(begin: Begin) -> None:
    call = ToolCall("c1", "weather", '{"city": "Rome"}')
    agent = ScriptedAgent([ToolCallEvent((call,))], [TextDelta("Sunny.")])
    world = await begin(agent=agent, policy=MODEL_POLICY)
    tools = [{"name": "weather", "description": "The weather.", "parameters": {"type": "object"}}]
    async with open_site(world.hub, world.clock) as site:
        messages = [user("the weather?")]
        events = await run(site, build_run(*messages, tools=tools))
        assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["c1"]}
        apply(messages, events)
        messages[-1]["toolCalls"][0]["function"]["arguments"] = call.input
        messages.append({"id": "x1", "role": "tool", "toolCallId": "c1", "content": "22 degrees"})
        context = [{"description": "the city of the user", "value": "Rome"}]
        events = await run(site, build_run(*messages, run="r2", tools=tools, context=context))
        assert "Sunny." in str(events)
    options = agent.contexts[-1].options
    assert options.instructions == "the city of the user: Rome"
    results = [part for m in agent.histories[-1] for part in m.parts if isinstance(part, ToolResult)]
    assert [(r.id, r.output) for r in results] == [("c1", "22 degrees")]


async def test_an_agent_that_fails_ends_the_run_with_an_error(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([AgentFailed("the model is away")]))
    async with open_site(world.hub, world.clock) as site:
        events = await run(site, build_run(user("hello")))
    assert events[-1]["type"] == "RUN_ERROR"
    assert "the model is away" in events[-1]["message"]


@ONE_ENGINE
async def test_files_are_kept_and_wrong_runs_refused(site: Site, world: World) -> None:
    source = {"type": "data", "value": "aGVsbG8=", "mimeType": "text/plain"}
    parts = [{"type": "text", "text": "look"}, {"type": "document", "source": source}]
    await run(site, build_run({"id": "u1", "role": "user", "content": parts}))
    [found], _ = await world.hub.list_sessions(OPERATORS, SessionFilter())
    shown = await site.get(f"/api/sessions/{found.session.id}")
    assert [part["type"] for part in shown["messages"][0]["parts"]] == ["text", "media"]
    url = {"type": "url", "value": "http://169.254.169.254/secret"}
    image = {"id": "u1", "role": "user", "content": [{"type": "image", "source": url}]}
    for wrong in (
        {},
        build_run(),
        build_run(image),
        build_run({"id": "a", "role": "assistant", "content": "x"}),
        build_run(user("x"), forwardedProps={"model": "unknown"}),
        build_run({"id": "msg_unknown_0", "role": "assistant", "content": "x"}),
        build_run(user("x"), resume=[{"interruptId": "unknown", "status": "resolved", "payload": "allow"}]),
        build_run(*[user("x")] * 10_001),
    ):
        refused = await site.request("POST", "/ag-ui", json=wrong)
        assert refused.status_code in (400, 404)
        assert refused.headers["content-type"] == "application/problem+json"
    evil = {"Origin": "http://evil.example"}
    assert (await site.request("POST", "/ag-ui", json=build_run(user("x")), headers=evil)).status_code == 403
