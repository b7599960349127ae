"""Runs a compiled graph of LangGraph whose state has `messages`."""

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from importlib import import_module
from typing import Any

from keryx.agents.frameworks import (
    HistoryStep,
    RunFunction,
    as_list,
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
from keryx.core.questions import Question
from keryx.core.text import to_short_line
from keryx.core.usage import Usage
from keryx.jsonrpc import as_object

_MESSAGES = "messages"
_LONGEST_TITLE = 200


def build_run(graph: Any) -> RunFunction:
    def run(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        return _GraphRun(graph, context).run()

    return run


class _GraphRun:
    """One turn of a graph. A graph with a checkpointer remembers the conversation and goes on where it stopped."""

    def __init__(self, graph: Any, context: TurnContext) -> None:
        self._graph = graph
        self._context = context
        self._config = {
            "configurable": {"thread_id": context.session, "keryx_place": describe_context(context)}
        }
        parts = [part for message in context.turn_messages for part in message.parts]
        # What an earlier attempt has stored is not told again.
        self._called = {part.id for part in parts if isinstance(part, ToolCall)}
        self._answered = {part.id for part in parts if isinstance(part, ToolResult)}

    async def run(self) -> AsyncGenerator[AgentEvent, None]:
        if not self._graph.checkpointer:
            async for event in self._stream({_MESSAGES: await _load_messages(self._context)}):
                yield event
            return
        state = await self._graph.aget_state(self._config)
        known: list[Any] = list(state.values.get(_MESSAGES, ())) if state.values else []
        # What the graph has recorded after the question, if an earlier attempt has given it the
        # question.
        asked = {
            step.id
            for step in await convert_messages(self._context, self._context.turn_messages)
            if step.role is Role.USER
        }
        places = [n for n, message in enumerate(known) if message.id in asked]
        found = list(known[places[-1] + 1 :]) if places else None
        given: Any = None if found is not None else {_MESSAGES: await _list_new(self._context, known)}
        for message in found or ():
            for event in self._read_message(message):
                yield event
            if text := _read_answer(message):
                yield TextDelta(text)
        if found is not None and not state.next:
            return
        while True:
            if given is not None or not _list_interrupts(state):
                async for event in self._stream(given):
                    yield event
                state = await self._graph.aget_state(self._config)
            if not (given := await self._ask(_list_interrupts(state))):
                return

    async def _stream(self, given: Any) -> AsyncGenerator[AgentEvent, None]:
        stream = self._graph.astream(given, self._config, stream_mode=["messages", "updates"])
        async with aclosing(stream) as updates:
            async for mode, data in updates:
                if mode == "messages":
                    if text := _read_answer(data[0]):
                        yield TextDelta(text)
                else:
                    for message in _list_messages(data):
                        for event in self._read_message(message):
                            yield event

    async def _ask(self, interrupts: Sequence[Any]) -> Any:
        """Ask a person what the graph wants to know. Return the command that goes on with the answers, `None` if there is
        nothing to ask or nobody answers; the graph waits then."""
        answers: dict[str, str] = {}
        for found in interrupts:
            detail = found.value if isinstance(found.value, str) else json.dumps(found.value, default=str)
            title = to_short_line(detail, _LONGEST_TITLE)
            answer = await self._context.ask(Question(key=found.id, title=title, detail=detail, options=()))
            if answer is None:
                return None
            answers[found.id] = answer
        types: Any = import_module("langgraph.types")
        return types.Command(resume=answers) if answers else None

    def _read_message(self, message: Any) -> Iterator[AgentEvent]:
        """Yield what a whole message says beside its text."""
        if message.type == "ai":
            called = tuple(
                ToolCall(call["id"] or f"{message.id}-{n}", call["name"], json.dumps(call["args"]))
                for n, call in enumerate(message.tool_calls)
            )
            new = tuple(call for call in called if call.id not in self._called)
            if new:
                self._called |= {call.id for call in new}
                yield ToolCallEvent(new)
            if usage := message.usage_metadata:
                yield UsageEvent(
                    Usage(
                        model=str(message.response_metadata.get("model_name", "")),
                        input=usage["input_tokens"],
                        output=usage["output_tokens"],
                        estimated=False,
                    )
                )
        elif message.type == "tool" and message.tool_call_id not in self._answered:
            self._answered.add(message.tool_call_id)
            failed = message.status == "error"
            output = join_texts(message.content)
            yield ToolResultEvent(ToolResult(message.tool_call_id, message.name or "", output, failed=failed))


def _list_interrupts(state: Any) -> list[Any]:
    return [found for task in state.tasks for found in task.interrupts]


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
        found.insert(0, kinds.HumanMessage(f"What was said before:\n\n{context.summary}"))
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
        for values in as_list(written):
            for message in as_list(as_object(values).get(_MESSAGES)):
                if getattr(message, "type", None):
                    yield message


def _read_answer(message: Any) -> str:
    return join_texts(message.content) if message.type in ("ai", "AIMessageChunk") else ""
