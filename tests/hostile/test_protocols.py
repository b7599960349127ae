"""Protocols over the corpus: headers, frames of editors, agents and tools, arguments of models, and settings. Each within a budget of processor time for each kilobyte."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from starlette.datastructures import Headers
from starlette.requests import Request
from tests.hostile import budget, corpus

from keryx import config
from keryx.agents import mcp
from keryx.agents.acp import update_translator
from keryx.agents.acp.agent_sessions import AgentSession
from keryx.agents.acp.update_translator import ReplayFilter, ToolCallTracker, UpdateTranslator
from keryx.agents.llm import history
from keryx.agents.permission_rules import find_scope
from keryx.client_address import TrustedProxies, group_address
from keryx.core import durations, ids, media
from keryx.core.errors import Invalid
from keryx.core.ids import SessionId, TurnId
from keryx.core.messages import Image, Message, Role, ToolCall, text_parts
from keryx.core.texts import choose_language
from keryx.jsonrpc import Json, RpcError, frames
from keryx.jsonrpc.peer import IncomingRequest, Peer, RequestId
from keryx.surfaces.acp import tool_calls
from keryx.surfaces.web import auth, responses
from keryx.testing import START_TIME

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TURN = TurnId(ids.new(START_TIME))
MILLISECONDS_PER_KILOBYTE = 20


def build_request(name: str, value: str) -> Request:
    raw = value.encode("latin-1", "replace")
    return Request({"type": "http", "method": "GET", "path": "/", "headers": [(name.encode(), raw)]})


def read_cookies(given: str) -> object:
    signer = auth.CookieSigner(b"k" * 32)
    for value in (given, f'keryx="{given}"', f"keryx={given}; " * 3):
        headers = Headers({"cookie": value.encode("latin-1", "replace").decode("latin-1")})
        for cookie in auth.find_cookies(headers, "keryx"):
            signer.decode(cookie)
    return None


def read_proxies(given: str) -> object:
    group_address(given)
    return TrustedProxies(["127.0.0.0/8"]).find_client("127.0.0.1", [given, given.replace(" ", ",")])


def read_encodings(given: str) -> object:
    responses.accepts_gzip(build_request("accept-encoding", given))
    return responses.matches_etag(build_request("if-none-match", given), 'W/"a"')


def read_retry_after(given: str) -> object:
    durations.parse_retry_after({"retry-after-ms": given}, now=NOW)
    return durations.parse_retry_after({"retry-after": given}, now=NOW)


class Sink:
    """Takes every message of a peer."""

    def __init__(self) -> None:
        self.seen = 0

    async def handle_request(self, request: IncomingRequest) -> None:
        self.seen += 1

    async def handle_notification(self, method: str, params: Json) -> None:
        self.seen += 1

    async def handle_invalid(self, id_: RequestId, error: RpcError, frame: bytes) -> None:
        self.seen += 1


def read_frames(given: str) -> object:
    """Read a text as the frames of a peer, and within each field of a message."""
    plain = given.encode("utf-8", "replace")
    # Half a character is escaped, as a program would write it.
    quoted = update_translator.codec.dumps(given).encode()
    fields = b'{"jsonrpc": "2.0", "id": %s, "method": %s, "params": {"a": %s}}'

    async def chunks() -> AsyncIterator[bytes]:
        for chunk in (plain, b"\n" * len(plain), plain + b"\n", fields % (quoted, quoted, quoted)):
            yield chunk + b"\n"

    async def write(data: bytes) -> None:
        return

    async def run() -> int:
        sink = Sink()
        await Peer(write, sends_cancel=False).run(frames.read_frames(chunks(), limit=len(plain) * 50), sink)
        return sink.seen

    return asyncio.run(run())


def translate_updates(given: str) -> object:
    """Translate updates of an agent whose every text is hostile, with a history that has the same text."""
    session = SessionId(ids.new(START_TIME))
    said = [
        Message(session=session, seq=seq, role=role, parts=text_parts(given), micros=0)
        for seq, role in ((1, Role.USER), (2, Role.ASSISTANT))
    ]
    translator = UpdateTranslator(
        "agent",
        AgentSession("1", "/"),
        replay=ReplayFilter(set(), said, TURN),
        read_terminal=lambda _: given,
    )
    block = {"type": "text", "text": given}
    diff = {"type": "diff", "path": given, "oldText": given, "newText": given[::-1]}
    call = {"toolCallId": given, "title": given, "kind": given, "rawInput": {given: given}}
    content = [{"type": "content", "content": block}, diff, {"type": "terminal", "terminalId": given}]
    entries = [{"content": given, "status": given, "priority": given}]
    for update in (
        {"sessionUpdate": "user_message_chunk", "content": block},
        {"sessionUpdate": "agent_message_chunk", "content": block, "messageId": given},
        {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "image", "data": given, "mimeType": given},
        },
        {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "resource_link", "uri": given, "name": given},
        },
        {"sessionUpdate": "agent_thought_chunk", "content": block},
        {"sessionUpdate": "tool_call", **call},
        {"sessionUpdate": "tool_call_update", **call, "status": "completed", "content": content},
        {"sessionUpdate": "plan", "entries": entries * 3},
        {"sessionUpdate": given},
    ):
        translator.translate(update)
    return translator.tool_calls.finish_all()


def judge_arguments(given: str) -> object:
    """Find what a consent to a call of a tool covers, for arguments that a model made up."""
    for arguments in (
        {"command": given},
        {"command": [given, given]},
        {"path": given},
        {"paths": [given] * 3},
    ):
        find_scope(given, arguments, cwd="/home/ada")
    return None


def show_call(given: str) -> object:
    call = ToolCall("1", given, given)
    history.format_arguments(call)
    return tool_calls.build_call(call, "1"), tool_calls.build_call(
        ToolCall("1", "edit", f'{{"path": {given}'), "1"
    )


def convert_tool_result(given: str) -> object:
    given = given.encode(errors="replace").decode()
    content: list[mcp_types.ContentBlock] = [
        mcp_types.TextContent(text=given),
        mcp_types.ImageContent(data=given, mime_type=given),
    ]
    return mcp.convert_result(mcp_types.CallToolResult(content=content), given)


PARSERS: dict[str, Callable[[str], object]] = {
    "cookies": read_cookies,
    "languages": choose_language,
    "proxies": read_proxies,
    "encodings and tags": read_encodings,
    "Retry-After": read_retry_after,
    "frames": read_frames,
    "updates of an agent": translate_updates,
    "arguments of a tool": judge_arguments,
    "calls in an editor": show_call,
    "results of a tool": convert_tool_result,
    "names of tool calls": lambda given: update_translator.format_title({"title": given}),
}


@pytest.mark.parametrize("parser", PARSERS)
def test_a_protocol_takes_a_time_that_grows_with_the_text(parser: str) -> None:
    slow = budget.find_slow(
        PARSERS[parser], corpus.TEXTS.items(), milliseconds_per_kilobyte=MILLISECONDS_PER_KILOBYTE
    )
    assert slow == []


def test_settings_take_a_time_that_grows_with_their_length(tmp_path: Path) -> None:
    """They are those of the operator, but a broken file must be told and not hang."""

    def read(given: str) -> object:
        (tmp_path / "keryx.toml").write_text(given, encoding="utf-8", errors="replace")
        try:
            return config.read({"KERYX_HOME": str(tmp_path)})
        except Invalid:
            return None

    makers = [
        *corpus.TEXTS.items(),
        ("nested tables", corpus.repeat("[a.")),
        ("open lists", corpus.repeat("a=[")),
    ]
    assert budget.find_slow(read, makers, milliseconds_per_kilobyte=MILLISECONDS_PER_KILOBYTE) == []


PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF89a": "image/gif",
    b"RIFF0000WEBP": "image/webp",
}


@pytest.mark.parametrize("size", [0, 1, 10, 100_000])
def test_only_the_first_bytes_of_a_picture_are_looked_at(size: int) -> None:
    """Nothing is decoded, so no picture can be a bomb. A type that can hold a script is never shown as a picture."""
    noise = random.Random(1).randbytes(size)
    for beginning, kind in PICTURES.items():
        assert media.detect_mime("image/svg+xml", beginning + noise) == kind
        assert media.detect_mime(kind, noise) != kind
        assert not isinstance(
            media.build_part("1", media.detect_mime("image/svg+xml", noise), "a.svg"), Image
        )


LINES: dict[str, Callable[[int], tuple[list[str], list[str]]]] = {
    "equal lines": lambda n: (["a"] * n, ["a"] * (n // 2) + ["b"] + ["a"] * (n // 2)),
    "few different lines": lambda n: ([f"{i % 7}" for i in range(n)], [f"{i % 5}" for i in range(n)]),
    "lines in another order": lambda n: ([f"{i}" for i in range(n)], [f"{i}" for i in reversed(range(n))]),
    "lines of many kinds": lambda n: ([f"{i % 150}" for i in range(n)], [f"{i * 7 % 150}" for i in range(n)]),
    "lines in pairs": lambda n: (["a", "b"] * (n // 2), ["b", "a"] * (n // 2)),
}


@pytest.mark.parametrize("name", LINES)
def test_a_change_of_any_length_is_shown_in_a_time_that_grows_with_it(name: str) -> None:
    def work(given: str) -> object:
        old, new = LINES[name](len(given) // 2)
        return update_translator.format_diff("\n".join(old), "\n".join(new), "a.py")

    makers = [(name, corpus.repeat("x"))]
    assert budget.find_slow(work, makers, milliseconds_per_kilobyte=MILLISECONDS_PER_KILOBYTE) == []


def test_calls_without_an_end_are_tracked_up_to_a_number() -> None:
    """They are announced only when their input is known, so no limit of a turn counts them."""
    tracker = ToolCallTracker(lambda _: "")
    for number in range(5_000):
        assert tracker.update({"toolCallId": str(number), "status": "pending"}) == []
    announced: list[Any] = [event for event in tracker.finish_all() if hasattr(event, "calls")]
    assert sum(len(event.calls) for event in announced) == 2_000
