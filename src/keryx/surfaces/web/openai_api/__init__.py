"""The OpenAI-compatible API under /v1: every request is a turn of a durable session. Here is the output of a turn in the shapes of that API: items, responses, chat completions, and the events of their streams.

The number of an event follows from the texts and calls before it alone, one for each character of a text. So a stream continues
after any number, in any process, however the text was cut into pieces the first time."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import groupby
from typing import Any, TypeAlias

import msgspec

from keryx.core.ids import SessionId, TurnId
from keryx.core.messages import (
    Audio,
    File,
    Image,
    Mark,
    Message,
    Notice,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from keryx.core.turns import StopReason, TurnState
from keryx.engine.hub.api_turns import ITEM_KIND, ApiTurnView

Json: TypeAlias = dict[str, Any]

RESPONSE_PREFIX = "resp_"
CONVERSATION_PREFIX = "conv_"
SERVER_LABEL = "keryx"
"""The server that runs the tools of the agent, as programs see it."""
_SEPARATOR = "\n\n"
# Numbers of the first events.
_CREATED, _IN_PROGRESS, _FIRST_ITEM = 0, 1, 2
_STATUS = {
    TurnState.QUEUED: "queued",
    TurnState.RUNNING: "in_progress",
    TurnState.DONE: "completed",
    TurnState.CANCELLED: "cancelled",
}


class ItemKind(StrEnum):
    MESSAGE = "message"
    REASONING = "reasoning"
    # A call that the program has to make.
    FUNCTION_CALL = "function_call"
    # A call that the agent has made.
    MCP_CALL = "mcp_call"


_ID_PREFIXES = {
    ItemKind.MESSAGE: "msg",
    ItemKind.REASONING: "rs",
    ItemKind.FUNCTION_CALL: "fc",
    ItemKind.MCP_CALL: "mcp",
}


class OutputItem(msgspec.Struct, frozen=True, kw_only=True):
    kind: ItemKind
    id: str
    # Of a message or reasoning.
    text: str = ""
    call: ToolCall | None = None
    result: ToolResult | None = None
    # Nothing will be added to it.
    done: bool = True
    # A crash cut it off, and the agent has begun again.
    interrupted: bool = False
    # The file that a message links to.
    file: Image | File | Audio | None = None

    @property
    def size(self) -> int:
        """How many numbers its events take."""
        match self.kind:
            case ItemKind.MESSAGE | ItemKind.REASONING:
                return len(self.text) + 5
            case ItemKind.FUNCTION_CALL:
                return 4
            case ItemKind.MCP_CALL:
                return 5


def format_response_id(turn: TurnId) -> str:
    return f"{RESPONSE_PREFIX}{turn}"


def parse_response_id(text: str) -> TurnId:
    return TurnId(text.removeprefix(RESPONSE_PREFIX))


def format_conversation_id(session: SessionId) -> str:
    return f"{CONVERSATION_PREFIX}{session}"


def parse_conversation_id(text: str) -> SessionId:
    return SessionId(text.removeprefix(CONVERSATION_PREFIX))


def list_output(view: ApiTurnView) -> list[OutputItem]:
    """Return the output of a turn so far, in the order in which it came."""
    functions = {tool.name for tool in view.asked.options.tools}
    results = {
        part.id: part
        for m in view.messages
        if m.role is Role.TOOL
        for part in m.parts
        if isinstance(part, ToolResult)
    }
    parts: list[tuple[Part, bool]] = [
        (part, m.mark is Mark.INTERRUPTED)
        for m in view.messages
        if m.role is Role.ASSISTANT and m.mark is not Mark.LATE
        for part in m.parts
    ]
    open_from = len(parts)
    for kind, chunks in groupby(view.draft, key=lambda chunk: chunk.media or chunk.thought):
        text = "".join(chunk.text for chunk in chunks)
        if isinstance(kind, bool):
            parts.append((Reasoning(text) if kind else Text(text), False))
        else:
            parts.append((kind, False))
    items: list[OutputItem] = []
    ended = view.turn.state.finished
    for number, (part, interrupted) in enumerate(parts):
        done = ended or number < max(open_from, len(parts) - 1)
        found = _read_part(part, functions, results)
        if found is None:
            continue
        kind, text, call = found
        result = results.get(call.id) if call else None
        items.append(
            OutputItem(
                kind=kind,
                id=f"{_ID_PREFIXES[kind]}_{view.turn.id}_{len(items)}",
                text=text,
                call=call,
                result=result,
                done=done and (kind is not ItemKind.MCP_CALL or ended or result is not None),
                interrupted=interrupted,
                file=part if isinstance(part, Image | File | Audio) else None,
            )
        )
    return items


def _read_part(
    part: Part, functions: set[str], results: Mapping[str, ToolResult]
) -> tuple[ItemKind, str, ToolCall | None] | None:
    match part:
        case Text(text):
            return (ItemKind.MESSAGE, text, None) if text else None
        case Reasoning(text):
            return (ItemKind.REASONING, text, None) if text else None
        case Image() | File() | Audio():
            mark = "!" if isinstance(part, Image) else ""
            return ItemKind.MESSAGE, f"{mark}[{part.name or 'file'}](/media/{part.media})", None
        case ToolCall():
            own = part.name in functions and part.id not in results
            return ItemKind.FUNCTION_CALL if own else ItemKind.MCP_CALL, "", part
        case ToolResult() | Notice():
            return None


def build_item(item: OutputItem) -> Json:
    """Build the JSON object of an item."""
    status = "incomplete" if item.interrupted else "completed" if item.done else "in_progress"
    match item.kind:
        case ItemKind.MESSAGE:
            content = [_build_text_part(item.text)] if item.text else []
            return {
                "id": item.id,
                "type": "message",
                "role": "assistant",
                "status": status,
                "content": content,
            }
        case ItemKind.REASONING:
            content = [{"type": "reasoning_text", "text": item.text}] if item.text else []
            return {"id": item.id, "type": "reasoning", "summary": [], "content": content, "status": status}
        case ItemKind.FUNCTION_CALL:
            return {**build_function_call(item), "status": status}
        case ItemKind.MCP_CALL:
            assert item.call is not None
            result = item.result
            return {
                "id": item.id,
                "type": "mcp_call",
                "server_label": SERVER_LABEL,
                "name": item.call.name,
                "arguments": item.call.input,
                "output": result.output if result else None,
                "error": None,
                "status": "failed"
                if result and result.failed
                else status
                if result
                else "incomplete"
                if item.done
                else "in_progress",
            }


def build_function_call(item: OutputItem) -> Json:
    assert item.call is not None
    return {
        "id": item.id,
        "type": "function_call",
        "call_id": item.call.id,
        "name": item.call.name,
        "arguments": item.call.input,
    }


def _build_text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def list_message_items(message: Message) -> list[tuple[Json, tuple[Part, ...]]]:
    """Return the items of a stored message, each with the parts that it shows. Their ids name the message and the part."""
    items: list[tuple[Json, tuple[Part, ...]]] = []
    if message.undone or message.mark in (Mark.WITHDRAWN, Mark.LATE):
        return items
    said = [p for p in message.parts if isinstance(p, Text | Image | File | Audio)]
    if message.role is Role.USER and said:
        content = [_build_input_part(part) for part in said]
        item = {
            "id": f"msg_{message.id}",
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": content,
        }
        return [(item, message.parts)]
    for number, part in enumerate(message.parts):
        id_ = f"{message.id}.{number}"
        match part:
            case Notice(text, kind) if kind == ITEM_KIND:
                raw: Json = msgspec.json.decode(text, type=dict[str, Any])
                items.append(({**raw, "id": f"item_{id_}"}, (part,)))
            case ToolResult():
                item = {"type": "function_call_output", "call_id": part.id, "output": part.output}
                items.append(({"id": f"fco_{id_}", **item, "status": "completed"}, (part,)))
            case Notice():
                pass
            case _:
                found = _read_part(part, {part.name} if isinstance(part, ToolCall) else set(), {})
                if found:
                    kind, text, call = found
                    item = OutputItem(kind=kind, id=f"{_ID_PREFIXES[kind]}_{id_}", text=text, call=call)
                    items.append((build_item(item), (part,)))
    return items


def _build_input_part(part: Text | Image | File | Audio) -> Json:
    match part:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Image():
            return {"type": "input_image", "file_id": part.media, "image_url": None, "detail": "auto"}
        case File() | Audio():
            return {"type": "input_file", "file_id": part.media, "filename": part.name}


def build_response(view: ApiTurnView, items: list[OutputItem]) -> Json:
    """Build the response object of a turn. Text that a crash cut off is left out once the agent has begun again."""
    turn, echo, ended = view.turn, view.asked.echo, view.turn.state.finished
    status, error = _STATUS.get(turn.state, "failed"), None
    if status == "failed":
        error = {
            "code": "server_error",
            "message": turn.error or "the agent failed: look at the conversation",
        }
    incomplete = {"reason": "max_output_tokens"} if status == "completed" and was_cut(view) else None
    shown = [item for n, item in enumerate(items) if not (item.interrupted and n < len(items) - 1)]
    return {
        "id": format_response_id(turn.id),
        "object": "response",
        "created_at": int(turn.created_at.timestamp()),
        "completed_at": int(turn.finished_at.timestamp()) if turn.finished_at and ended else None,
        "status": "incomplete" if incomplete else status,
        "background": bool(echo.get("background")),
        "error": error,
        "incomplete_details": incomplete,
        "instructions": echo.get("instructions"),
        "max_output_tokens": echo.get("max_output_tokens"),
        "max_tool_calls": None,
        "model": echo.get("model"),
        "output": [build_item(item) for item in shown],
        "parallel_tool_calls": echo.get("parallel_tool_calls", True),
        "previous_response_id": echo.get("previous_response_id"),
        "conversation": {"id": format_conversation_id(turn.session)},
        "reasoning": echo.get("reasoning") or {"effort": None, "summary": None},
        "service_tier": "default",
        "store": not view.asked.temporary,
        "temperature": echo.get("temperature", 1.0),
        "text": echo.get("text") or {"format": {"type": "text"}},
        "tool_choice": echo.get("tool_choice") or "auto",
        "tools": echo.get("tools") or [],
        "top_p": echo.get("top_p", 1.0),
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "truncation": "disabled",
        "usage": _build_response_usage(view) if ended else None,
        "user": echo.get("user"),
        "safety_identifier": None,
        "prompt_cache_key": None,
        "metadata": echo.get("metadata") or {},
    }


def was_cut(view: ApiTurnView) -> bool:
    """Whether the answer reached its maximum length."""
    return any(isinstance(p, Notice) and p.kind == StopReason.LENGTH for m in view.messages for p in m.parts)


def _build_response_usage(view: ApiTurnView) -> Json:
    tokens = view.tokens
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {
            "cached_tokens": tokens.cache_read,
            "cache_write_tokens": tokens.cache_write,
        },
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }


class ResponseEvents:
    """Turns the states of a turn into the events of its response, each once, after the event with a number."""

    def __init__(self, after: int = -1) -> None:
        self._last = after

    def advance(self, view: ApiTurnView) -> list[Json]:
        """Return the events that a new state adds."""
        items = list_output(view)
        events: list[Json] = []
        # The first two events show the response before anything was said.
        begun = build_response(view, [])
        if view.turn.state.finished or view.turn.state is TurnState.RUNNING:
            begun |= {
                "status": "in_progress",
                "completed_at": None,
                "error": None,
                "incomplete_details": None,
                "usage": None,
            }
        self._add(events, _CREATED, "response.created", response=begun)
        self._add(events, _IN_PROGRESS, "response.in_progress", response=begun)
        start = _FIRST_ITEM
        for index, item in enumerate(items):
            if start + item.size > self._last:
                self._add_item(events, item, index, start)
            if not item.done:
                return events
            start += item.size
        if view.turn.state.finished:
            response = build_response(view, items)
            # There is no event for a response that was cancelled.
            name = {"completed": "completed", "failed": "failed"}.get(response["status"], "incomplete")
            self._add(events, start, f"response.{name}", response=response)
        return events

    def _add(self, events: list[Json], number: int, type_: str, **fields: Any) -> None:
        if number > self._last:
            events.append({"type": type_, "sequence_number": number, **fields})
            self._last = number

    def _add_item(self, events: list[Json], item: OutputItem, index: int, start: int) -> None:
        empty = msgspec.structs.replace(item, text="", done=False, interrupted=False, result=None)
        at: Json = {"item_id": item.id, "output_index": index}
        self._add(events, start, "response.output_item.added", output_index=index, item=build_item(empty))
        end = start + item.size - 1
        match item.kind:
            case ItemKind.MESSAGE | ItemKind.REASONING:
                self._add_text(events, item, {**at, "content_index": 0}, start)
            case ItemKind.FUNCTION_CALL:
                assert item.call is not None
                arguments = item.call.input
                self._add(events, start + 1, "response.function_call_arguments.delta", **at, delta=arguments)
                self._add(
                    events,
                    start + 2,
                    "response.function_call_arguments.done",
                    **at,
                    name=item.call.name,
                    arguments=arguments,
                )
            case ItemKind.MCP_CALL:
                assert item.call is not None
                self._add(events, start + 1, "response.mcp_call.in_progress", **at)
                self._add(
                    events, start + 2, "response.mcp_call_arguments.done", **at, arguments=item.call.input
                )
                if item.done:
                    failed = item.result is None or item.result.failed
                    self._add(
                        events, start + 3, f"response.mcp_call.{'failed' if failed else 'completed'}", **at
                    )
        if item.done:
            self._add(events, end, "response.output_item.done", output_index=index, item=build_item(item))

    def _add_text(self, events: list[Json], item: OutputItem, at: Json, start: int) -> None:
        spoken = item.kind is ItemKind.MESSAGE
        name = "response.output_text" if spoken else "response.reasoning_text"
        extra: Json = {"logprobs": []} if spoken else {}

        def build_part(text: str) -> Json:
            return _build_text_part(text) if spoken else {"type": "reasoning_text", "text": text}

        self._add(events, start + 1, "response.content_part.added", **at, part=build_part(""))
        known = max(0, self._last - start - 1)
        length = len(item.text)
        self._add(events, start + 1 + length, f"{name}.delta", **at, delta=item.text[known:], **extra)
        if item.done:
            self._add(events, start + length + 2, f"{name}.done", **at, text=item.text, **extra)
            self._add(
                events, start + length + 3, "response.content_part.done", **at, part=build_part(item.text)
            )


class ChatChunks:
    """Turns the states of a turn into the chunks of a chat completion."""

    def __init__(self, *, include_usage: bool) -> None:
        self._include_usage = include_usage
        self._begun = False
        # How many items were sent completely, and how much of the text of the next one.
        self._items = 0
        self._chars = 0
        self._spoken = False
        self._calls = 0

    def advance(self, view: ApiTurnView) -> list[Json]:
        """Return the chunks that a new state adds."""
        items, deltas = list_output(view), list[Json]()
        if not self._begun:
            self._begun = True
            # What a crash cut off before the client came is not shown to it.
            while self._items < len(items) - 1 and items[self._items].interrupted:
                self._items += 1
            deltas.append({"role": "assistant", "content": ""})
        for item in items[self._items :]:
            deltas += self._advance_item(item)
            if not item.done:
                break
            self._items, self._chars = self._items + 1, 0
        chunks = [self._build(view, delta, None) for delta in deltas]
        if view.turn.state in (TurnState.DONE, TurnState.CANCELLED):
            chunks.append(self._build(view, {}, choose_finish_reason(view, items)))
            if self._include_usage:
                usage = build_chat_usage(view)
                chunks.append({**self._build(view, {}, None), "choices": [], "usage": usage})
        return chunks

    def _advance_item(self, item: OutputItem) -> Iterator[Json]:
        if item.kind is ItemKind.FUNCTION_CALL:
            yield {"tool_calls": [{"index": self._calls, **build_chat_call(item)}]}
            self._calls += 1
        elif text := item.text[self._chars :]:
            if item.kind is ItemKind.MESSAGE and not self._chars:
                text, self._spoken = (_SEPARATOR if self._spoken else "") + text, True
            self._chars = len(item.text)
            yield {"content" if item.kind is ItemKind.MESSAGE else "reasoning_content": text}

    def _build(self, view: ApiTurnView, delta: Json, finish: str | None) -> Json:
        usage: Json = {"usage": None} if self._include_usage else {}
        return {
            "id": format_completion_id(view.turn.id),
            "object": "chat.completion.chunk",
            "created": int(view.turn.created_at.timestamp()),
            "model": view.asked.echo.get("model"),
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
            **usage,
        }


def build_completion(view: ApiTurnView) -> Json:
    """Build the chat completion of a turn that has ended."""
    items = list_output(view)
    shown = [item for n, item in enumerate(items) if not (item.interrupted and n < len(items) - 1)]
    texts = [item.text for item in shown if item.kind is ItemKind.MESSAGE]
    thoughts = [item.text for item in shown if item.kind is ItemKind.REASONING]
    calls = [build_chat_call(item) for item in shown if item.kind is ItemKind.FUNCTION_CALL]
    message: Json = {
        "role": "assistant",
        "content": _SEPARATOR.join(texts) if texts else None,
        "refusal": None,
    }
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return {
        "id": format_completion_id(view.turn.id),
        "object": "chat.completion",
        "created": int(view.turn.created_at.timestamp()),
        "model": view.asked.echo.get("model"),
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": choose_finish_reason(view, items),
            }
        ],
        "usage": build_chat_usage(view),
    }


def format_completion_id(turn: TurnId) -> str:
    return f"chatcmpl-{turn}"


def choose_finish_reason(view: ApiTurnView, items: list[OutputItem]) -> str:
    if any(item.kind is ItemKind.FUNCTION_CALL for item in items):
        return "tool_calls"
    return "length" if was_cut(view) else "stop"


def build_chat_call(item: OutputItem) -> Json:
    assert item.call is not None
    function = {"name": item.call.name, "arguments": item.call.input}
    return {"id": item.call.id, "type": "function", "function": function}


def build_chat_usage(view: ApiTurnView) -> Json:
    tokens = view.tokens
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
    }
