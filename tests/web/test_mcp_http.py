"""MCP over streamable HTTP, called by the real client of the protocol for Python in this process."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent
from tests.engine.conftest import Begin
from tests.engine.world import OPERATORS, Pause, World, viewer
from tests.web.site import ORIGIN, TOKEN, Site, open_site, post_until

from keryx.core.ports.agent import TextDelta
from keryx.core.questions import AskedQuestion
from keryx.core.sessions import SessionChange, SessionFilter, SettingsChange, Viewer
from keryx.store import questions
from keryx.store.db import Engine
from keryx.testing import ScriptedAgent

ONE_ENGINE = pytest.mark.engines(Engine.SQLITE)
SAY = "say_in_conversation"
ACCEPT = {"Accept": "application/json, text/event-stream"}
MODERN: dict[str, Any] = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


@asynccontextmanager
async def connect(
    site: Site, *, mode: Literal["auto", "legacy"] = "auto", key: str = ""
) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    transport = httpx2.ASGITransport(app=site.app)
    async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN, headers=headers) as http:
        wire = streamable_http_client(f"{ORIGIN}/mcp", http_client=http)
        async with Client(wire, mode=mode, read_timeout_seconds=60) as client:
            yield client


def read(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


def call(id_: int | str, **arguments: str) -> dict[str, Any]:
    params = {"name": SAY, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_reads_conversations_and_says_something_in_one(
    world: World, site: Site, mode: Literal["auto", "legacy"]
) -> None:
    await world.ask("the garden needs water", user="ann")
    [before], _ = await world.hub.list_sessions(OPERATORS, SessionFilter())
    session = before.session.id
    async with connect(site, mode=mode) as client:
        assert client.protocol_version == ("2026-07-28" if mode == "auto" else "2025-11-25")
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["search_conversations", "read_conversation", SAY]
        hints = [tools[name].annotations for name in ("read_conversation", SAY)]
        assert [hint.read_only_hint for hint in hints if hint] == [True, False]
        assert session in read(await client.call_tool("search_conversations", {"query": "garden"}))
        reported: list[float] = []

        async def report(progress: float, total: float | None, message: str | None) -> None:
            reported.append(progress)

        said = await client.call_tool(
            SAY, {"conversation": session, "text": "and the lawn?"}, progress_callback=report
        )
        assert read(said) == "and the lawn?"
        assert said.structured_content is not None
        assert said.structured_content["conversation"] == session
        assert reported
        assert "and the lawn?" in read(await client.call_tool("read_conversation", {"conversation": session}))
        missing = await client.call_tool("read_conversation", {"conversation": "unknown"})
        assert missing.is_error
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("unknown", {})
    assert await world.transcript(session) == [
        "user: the garden needs water",
        "assistant: the garden needs water",
        "user: and the lawn?",
        "assistant: and the lawn?",
    ]


@ONE_ENGINE
async def test_a_repeated_call_says_it_once(site: Site, world: World) -> None:
    async with connect(site) as client:
        arguments = {"text": "hello", "message_id": "m1"}
        first, second = await client.call_tool(SAY, arguments), await client.call_tool(SAY, arguments)
        assert first.structured_content == second.structured_content
        other = await client.call_tool(SAY, {"text": "other", "message_id": "m1"})
        assert other.is_error
        assert "another message" in read(other)
    assert len((await world.hub.list_sessions(OPERATORS, SessionFilter()))[0]) == 1


@ONE_ENGINE
async def test_a_cut_stream_is_continued_after_a_crash(begin: Begin) -> None:
    pause = Pause()
    agent = ScriptedAgent([TextDelta("Hel"), pause], [TextDelta("Hello world")])
    world = await begin(agent=agent)
    ids: list[str] = []
    async with open_site(world.hub, world.clock) as site:
        request = asyncio.create_task(
            site.client.post(
                "/mcp",
                json=call("seven", text="hi"),
                headers={**ACCEPT, "MCP-Protocol-Version": "2025-11-25"},
            )
        )
        await pause.reached()
        site.web.close()
        ids += [
            line.removeprefix("id: ") for line in (await request).text.splitlines() if line.startswith("id: ")
        ]
    await world.restart()
    async with open_site(world.hub, world.clock) as site:
        headers = {**ACCEPT, "Last-Event-ID": ids[0]}
        events = await site.request("GET", "/mcp", headers=headers)
        [answer] = [
            json.loads(line.removeprefix("data: "))
            for line in events.text.splitlines()
            if line.startswith("data: {")
        ]
        assert answer["id"] == "seven"
        assert answer["result"]["content"][0]["text"] == "Hello world"
        for wrong in ("unknown.MQ", f"{ids[0].partition('.')[0]}.%%%", "?"):
            refused = await site.request("GET", "/mcp", headers={**ACCEPT, "Last-Event-ID": wrong})
            assert refused.status_code == 404
    assert len(agent.contexts) == 2


async def wait_for_question(world: World, owner: Viewer) -> AskedQuestion:
    await world.until(lambda tx: bool(questions.list_open_for_viewer(tx, owner)))
    [asked] = await world.hub.questions.list_open(owner)
    return asked


@pytest.mark.parametrize("answer", ["allow", "always", "deny"])
async def test_a_key_without_the_right_asks_the_owner_first(begin: Begin, answer: str) -> None:
    agent = ScriptedAgent([TextDelta("it is green")])
    world = await begin(agent=agent)
    ann = viewer("ann")
    session = (await world.ask("hello", user="ann")).session
    # A mode in which the agent need not ask is about the agent.
    await world.hub.change(ann, session, SessionChange(settings=SettingsChange(mode="auto")))
    async with open_site(world.hub, world.clock, token=TOKEN) as site:
        _, key = await world.hub.api_keys.add(ann, "my assistant")
        async with connect(site, key=key) as client:
            arguments = {"conversation": session, "text": "what colour?"}
            waiting = asyncio.create_task(client.call_tool(SAY, arguments))
            asked = await wait_for_question(world, ann)
            assert "my assistant" in asked.question.title
            assert asked.question.detail == "what colour?"
            assert len(agent.contexts) == 1
            await world.hub.questions.answer(ann, asked.id, answer)
            said = await waiting
            assert said.is_error == (answer == "deny")
            assert ("not permitted" if answer == "deny" else "it is green") in read(said)
            assert len(agent.contexts) == (1 if answer == "deny" else 2)
            if answer == "always":
                again = {"conversation": session, "text": "and why?"}
                assert read(await client.call_tool(SAY, again)) == "it is green"
    await world.ask("go on", user="ann")
    seen = " ".join(m.text for m in agent.histories[-1])
    assert ("what colour?" in seen) == (answer != "deny")


@ONE_ENGINE
async def test_a_key_with_the_right_speaks_and_sees_only_its_person(world: World) -> None:
    async with open_site(world.hub, world.clock, token=TOKEN) as site:
        assert (await site.request("POST", "/mcp", json={})).status_code == 401
        made = await site.post(
            "/api/keys",
            {"name": "helper", "may_speak": True},
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        assert made["key"]["may_speak"] is True
        await world.ask("a secret of bob", user="bob")
        _, key = await world.hub.api_keys.add(viewer("ann"), "laptop", may_speak=True)
        async with connect(site, key=key) as client:
            assert read(await client.call_tool(SAY, {"text": "hello"})) == "hello"
            assert "secret" not in read(await client.call_tool("search_conversations", {"query": "secret"}))
            [foreign], _ = await world.hub.list_sessions(viewer("bob"), SessionFilter())
            arguments = {"conversation": foreign.session.id, "text": "hello"}
            assert (await client.call_tool(SAY, arguments)).is_error


@ONE_ENGINE
@pytest.mark.parametrize(
    ("body", "status", "code", "headers"),
    [
        (b"{", 400, -32700, {}),
        (b"[]", 400, -32600, {}),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "nothing"}', 200, -32601, {}),
        (
            b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}',
            400,
            -32022,
            {"MCP-Protocol-Version": "1999-01-01"},
        ),
        (
            b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}',
            400,
            -32602,
            {"MCP-Protocol-Version": "2026-07-28"},
        ),
        (
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": MODERN}).encode(),
            400,
            -32020,
            {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "ping"},
        ),
        (
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "nothing", "params": MODERN}).encode(),
            404,
            -32601,
            {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "nothing"},
        ),
    ],
)
async def test_wrong_requests_get_errors_of_the_protocol(
    site: Site, body: bytes, status: int, code: int, headers: dict[str, str]
) -> None:
    answer = await site.request("POST", "/mcp", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@ONE_ENGINE
async def test_wrong_arguments_places_and_methods_are_refused(site: Site) -> None:
    for arguments in (
        {},
        {"text": " "},
        {"text": "x", "more": "y"},
        {"text": "x", "conversation": "unknown"},
    ):
        answer = await site.post("/mcp", call(1, **arguments))
        assert answer["result"]["isError"] is True
    plain = await site.post("/mcp", call(2, text="without a stream"), headers={"Accept": "application/json"})
    assert plain["result"]["content"][0]["text"] == "without a stream"
    assert (await site.request("GET", "/mcp", headers=ACCEPT)).status_code == 405
    assert (await site.request("DELETE", "/mcp")).status_code == 405
    notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await site.request("POST", "/mcp", json=notification)).status_code == 202
    evil = {"Origin": "http://evil.example"}
    assert (await site.request("POST", "/mcp", json=notification, headers=evil)).status_code == 403
    assert await post_until(site, "/mcp", call(3, text="ok"), lambda e: "id" in e, accept=ACCEPT["Accept"])
