"""Strict: the rules of chat-completions requests, each as strict as the strictest provider has it."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias, cast

Json: TypeAlias = dict[str, Any]

_FIELDS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls"},
    "tool": {"role", "content", "tool_call_id"},
}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PARTS = {"text": "text", "image_url": "image_url", "input_audio": "input_audio", "file": "file"}
_BODY = {
    "model",
    "messages",
    "stream",
    "stream_options",
    "tools",
    "reasoning_effort",
    "max_tokens",
    "temperature",
}


class Wrong(Exception):
    """What a provider would refuse a request with."""


def check(body: Json, *, extra: frozenset[str] = frozenset()) -> None:
    """Raise `Wrong` for a request that some real provider refuses. `extra` are further fields of messages."""
    if unknown := set(body) - _BODY:
        raise Wrong(f"Unrecognized request argument supplied: {sorted(unknown)[0]}")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Wrong("[] is too short - 'messages'")
    entries = cast(list[Json], messages)
    for at, message in enumerate(entries):
        _fields(message, f"messages[{at}]", extra)
        _content(message, f"messages[{at}]")
    _order(entries)
    _pairs(entries)
    if "tools" in body:
        _tools(body["tools"])
    elif any("tool_calls" in m for m in entries):
        raise Wrong("Requests which include `tool_calls` must define tools")


def _fields(message: Json, where: str, extra: frozenset[str]) -> None:
    role = message.get("role")
    if role not in _FIELDS:
        raise Wrong(f"Invalid value: {role!r} - '{where}.role'")
    if unknown := set(message) - _FIELDS[role] - (extra if role == "assistant" else frozenset()):
        raise Wrong(
            f"Additional properties are not allowed ({sorted(unknown)[0]!r} was unexpected) - '{where}'"
        )
    if role == "tool" and not message.get("tool_call_id"):
        raise Wrong(f"Missing parameter 'tool_call_id' - '{where}'")


def _content(message: Json, where: str) -> None:
    content: Any = message.get("content")
    if isinstance(content, list) and message["role"] == "user" and content:
        for part in cast(list[Json], content):
            _part(part, where)
    elif content is None and message.get("tool_calls"):
        return
    elif not isinstance(content, str) or not content.strip():
        raise Wrong(f"{where}: text content must be non-empty")


def _part(part: Json, where: str) -> None:
    kind = part.get("type")
    if kind not in _PARTS or set(part) != {"type", _PARTS[kind]}:
        raise Wrong(f"Invalid value: {kind!r} - '{where}.content'")
    if kind == "text" and not str(part["text"]).strip():
        raise Wrong(f"{where}: text content blocks must be non-empty")
    if kind == "image_url" and not re.match(r"data:image/\w+;base64,\w|https?://", part["image_url"]["url"]):
        raise Wrong(f"Invalid image URL - '{where}'")


def _order(messages: Sequence[Json]) -> None:
    roles = [m["role"] for m in messages]
    if "system" in roles[1:]:
        raise Wrong("System message must be at the beginning.")
    talk = roles[1:] if roles[0] == "system" else roles
    if not talk or talk[0] != "user":
        raise Wrong("first message must use the user role")
    if talk[-1] not in ("user", "tool"):
        raise Wrong(f"Expected last role User or Tool but got {talk[-1]}")
    for before, after in pairwise(talk):
        if before == after != "tool" or (before, after) in (("tool", "user"), ("user", "tool")):
            raise Wrong(f"Unexpected role {after!r} after role {before!r}: roles must alternate")


def _pairs(messages: Sequence[Json]) -> None:
    seen: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                raise Wrong(
                    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
                )
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            raise Wrong(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}"
            )
        waiting = _calls(message, seen) if "tool_calls" in message else []
    if waiting:
        raise Wrong(f"tool_call_ids did not have response messages: {', '.join(waiting)}")


def _calls(message: Json, seen: set[str]) -> list[str]:
    calls = cast(list[Json], message["tool_calls"])
    if not calls:
        raise Wrong("[] is too short - 'tool_calls'")
    for call in calls:
        number, function = call.get("id"), call.get("function", {})
        if set(call) != {"id", "type", "function"} or set(function) != {"name", "arguments"}:
            raise Wrong("Invalid tool call")
        if not isinstance(number, str) or not 0 < len(number) <= 40:
            raise Wrong(
                "Invalid 'tool_calls[0].id': string too long. Expected a string with maximum length 40"
            )
        if number in seen:
            raise Wrong(f"Duplicate value for 'tool_call_id' of {number!r}")
        seen.add(number)
        _function(function)
    return [str(call["id"]) for call in calls]


def _function(function: Json) -> None:
    if not _NAME.fullmatch(function["name"]):
        raise Wrong("Invalid 'function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'")
    try:
        arguments = json.loads(function["arguments"], parse_constant=_refuse)
    except ValueError as exc:
        raise Wrong("function.arguments must be valid JSON") from exc
    if not isinstance(arguments, dict):
        raise Wrong("function.arguments must be a JSON object")


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _tools(tools: Any) -> None:
    functions = [cast(Json, tool["function"]) for tool in tools]
    names = [function["name"] for function in functions]
    if not names or len(names) != len(set(names)) or not all(_NAME.fullmatch(name) for name in names):
        raise Wrong("Tool names must be unique and valid")
    if any(function["parameters"].get("type") != "object" for function in functions):
        raise Wrong("Invalid schema for function: schema must be of type 'object'")
