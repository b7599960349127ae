"""Another agent asks for past conversations: the real command, spoken to by the official client."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult, TextContent
from tests.cli.driver import Cli
from tests.fork_server import build_command


@pytest.fixture
def used_keryx(keryx: Cli) -> Cli:
    keryx.session("the hotel in oslo costs 90 crowns")
    return keryx


@pytest.fixture
async def client(used_keryx: Cli, tmp_path: Path) -> AsyncIterator[Client]:
    program, *arguments = build_command("mcp")
    started = StdioServerParameters(command=program, args=arguments, env=used_keryx.environment())
    with (tmp_path / "errors").open("w") as errors:
        async with Client(stdio_client(started, errors)) as opened:
            yield opened


def text(result: CallToolResult) -> str:
    (part,) = result.content
    assert isinstance(part, TextContent)
    return part.text


async def test_another_agent_finds_and_reads_what_was_said(client: Client) -> None:
    tools = (await client.list_tools()).tools
    assert [(t.name, t.annotations and t.annotations.read_only_hint) for t in tools] == [
        ("search_conversations", True),
        ("read_conversation", True),
    ]
    found = text(await client.call_tool("search_conversations", {"query": "crowns"}))
    assert "90 crowns" in found
    conversation = found.partition("(conversation ")[2].partition(",")[0]
    read = text(await client.call_tool("read_conversation", {"conversation": conversation}))
    assert read.endswith("That is the end.") and read.count("the hotel in oslo costs 90 crowns") >= 2


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("read_conversation", {"conversation": "nobody's"}, "there is no session"),
        ("search_conversations", {"limit": 3}, "missing required field `query`"),
        ("send_message", {"target": "origin", "text": "x"}, "there is no tool 'send_message'"),
    ],
)
async def test_what_cannot_be_done_is_one_sentence(
    client: Client, name: str, arguments: dict[str, object], why: str
) -> None:
    result = await client.call_tool(name, arguments)
    assert result.is_error and why in text(result)
    assert "Nothing was found." in text(await client.call_tool("search_conversations", {"query": "rome"}))


def test_it_ends_by_ctrl_c_in_a_terminal(keryx: Cli) -> None:
    with keryx.terminal("mcp") as terminal:
        terminal.see("Ctrl-D leaves.")
        terminal.type('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        terminal.see('"result"')
        terminal.type("\x03")
        assert terminal.exit() == -signal.SIGINT
