"""Runs a compiled graph of LangGraph whose state has `messages`."""

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from importlib import import_module
from typing import Any

from keryx.agents.frameworks import (
    HistoryStep,
    RunFunction,
    convert_messages,
    describe_context,
    join_texts,
    load_steps,
    parse_arguments,
)
from keryx.core.messages import Role, ToolCall, ToolResult
from keryx.core.ports.agent import (
    AgentEvent,
    TextDelta,
    ToolCallEvent,
    ToolResultEvent,
    TurnContext,
    UsageEvent,
)
from keryx.core.usage import Usage

_MESSAGES = "messages"


def build_run(graph: Any) -> RunFunction:
    async def run(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        config = {"configurable": {"thread_id": context.session, "keryx_place": describe_context(context)}}
        if not graph.checkpointer:
            given: Any = {_MESSAGES: await _load_messages(context)}
        else:
            state = await graph.aget_state(config)
            known: list[Any] = list(state.values.get(_MESSAGES, ())) if state.values else []
            answered = await _find_answer(context, known)
            if answered is not None and not state.next:
                for message in answered:
                    for event in _read_message(message):
                        yield event
                    if text := _read_answer(message):
                        yield TextDelta(text)
                return
            given = None if answered is not None else {_MESSAGES: await _list_new(context, known)}
        async with aclosing(graph.astream(given, config, stream_mode=["messages", "updates"])) as stream:
            async for mode, data in stream:
                if mode == "messages":
                    if text := _read_answer(data[0]):
                        yield TextDelta(text)
                else:
                    for message in _list_messages(data):
                        for event in _read_message(message):
                            yield event

    return run


async def _find_answer(context: TurnContext, known: Sequence[Any]) -> list[Any] | None:
    """Return what the graph has recorded after the question, if an earlier attempt has given it the question."""
    asked = {
        step.id for step in await convert_messages(context, context.turn_messages) if step.role is Role.USER
    }
    places = [n for n, message in enumerate(known) if message.id in asked]
    return list(known[places[-1] + 1 :]) if places else None


async def _list_new(context: TurnContext, known: Sequence[Any]) -> list[Any]:
    """Return the messages that a graph with a memory does not know: the question, and before it all if it knows none."""
    if not known:
        return await _load_messages(context)
    steps = await convert_messages(context, context.turn_messages)
    return _convert_steps([step for step in steps if step.role is Role.USER])


async def _load_messages(context: TurnContext) -> list[Any]:
    found = _convert_steps(await load_steps(context))
    if context.summary:
        kinds: Any = import_module("langchain_core.messages")
        found.insert(0, kinds.SystemMessage(context.summary))
    return found


def _convert_steps(steps: Sequence[HistoryStep]) -> list[Any]:
    kinds: Any = import_module("langchain_core.messages")
    out: list[Any] = []
    for step in steps:
        if step.role is Role.USER:
            blocks: list[Any] = [{"type": "text", "text": step.text}]
            blocks += [{"type": "image_url", "image_url": {"url": picture.url}} for picture in step.pictures]
            out.append(kinds.HumanMessage(blocks if step.pictures else step.text, id=step.id))
        elif step.role is Role.ASSISTANT:
            called = [{"id": c.id, "name": c.name, "args": parse_arguments(c)} for c in step.calls]
            out.append(kinds.AIMessage(step.text, tool_calls=called, id=step.id))
        for result in step.results:
            state = "error" if result.failed else "success"
            out.append(
                kinds.ToolMessage(result.output, tool_call_id=result.id, name=result.name, status=state)
            )
    return out


def _list_messages(update: Any) -> Iterator[Any]:
    """Yield the messages that nodes have written in a step of the graph."""
    for written in update.values():
        for values in written if isinstance(written, list) else [written]:
            found: Any = values.get(_MESSAGES) if isinstance(values, dict) else None
            for message in found if isinstance(found, list) else [found]:
                if getattr(message, "type", None):
                    yield message


def _read_answer(message: Any) -> str:
    return join_texts(message.content) if message.type in ("ai", "AIMessageChunk") else ""


def _read_message(message: Any) -> Iterator[AgentEvent]:
    """Yield what a whole message says beside its text."""
    if message.type == "ai":
        called = tuple(
            ToolCall(call["id"] or f"{message.id}-{n}", call["name"], json.dumps(call["args"]))
            for n, call in enumerate(message.tool_calls)
        )
        if called:
            yield ToolCallEvent(called)
        if usage := message.usage_metadata:
            yield UsageEvent(
                Usage(
                    model=str(message.response_metadata.get("model_name", "")),
                    input=usage["input_tokens"],
                    output=usage["output_tokens"],
                    estimated=False,
                )
            )
    elif message.type == "tool":
        output = join_texts(message.content)
        failed = message.status == "error"
        yield ToolResultEvent(ToolResult(message.tool_call_id, message.name or "", output, failed=failed))
