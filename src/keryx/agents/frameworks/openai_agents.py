"""Runs an agent of the OpenAI Agents SDK."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Iterator
from importlib import import_module
from typing import Any

from keryx.agents.frameworks import HistoryStep, RunFunction, describe_context, load_steps
from keryx.core.messages import Role, ToolCall, ToolResult
from keryx.core.ports.agent import (
    AgentEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallEvent,
    ToolResultEvent,
    TurnContext,
    UsageEvent,
)
from keryx.core.usage import Usage
from keryx.jsonrpc import as_object


def build_run(agent: Any) -> RunFunction:
    async def run(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        steps = await load_steps(context)
        items = [item for step in steps for item in _convert_step(step)]
        async with _StreamedRun(_add_instructions(agent, describe_context(context)), items) as streamed:
            async for event in streamed.events():
                yield event

    return run


def _add_instructions(agent: Any, more: str) -> Any:
    """Return the agent with further instructions: many models take one message with instructions, at the beginning."""

    async def instruct(wrapper: Any, current: Any) -> str:
        given: Any = agent.instructions
        if callable(given):
            given = given(wrapper, current)
        if inspect.isawaitable(given):
            given = await given
        return "\n\n".join(text for text in (given, more) if text)

    return agent.clone(instructions=instruct)


class _StreamedRun:
    """A run of the SDK. A tool begins when its call is stored."""

    def __init__(self, agent: Any, items: list[Any]) -> None:
        self._agent = agent
        self._items = items
        # An event, and the future of a tool that waits until everything before it is stored.
        self._queue: asyncio.Queue[AgentEvent | asyncio.Future[None] | None] = asyncio.Queue()
        # The names of the tools that were called.
        self._called: dict[str, str] = {}

    async def __aenter__(self) -> "_StreamedRun":
        sdk: Any = import_module("agents")

        async def on_tool_start(wrapper: Any, agent: Any, tool: Any) -> None:
            id_ = getattr(wrapper, "tool_call_id", "")
            if id_:
                self._note_call(id_, wrapper.tool_name, wrapper.tool_arguments)
            stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.put_nowait(stored)
            await stored

        hooks = sdk.RunHooks()
        hooks.on_tool_start = on_tool_start
        # What people say here is sent to no service for traces.
        quiet = sdk.RunConfig(tracing_disabled=True)
        self._result: Any = sdk.Runner.run_streamed(self._agent, self._items, hooks=hooks, run_config=quiet)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._result.cancel()
        self._reading.cancel()
        await asyncio.wait({self._reading})

    async def events(self) -> AsyncGenerator[AgentEvent, None]:
        while (found := await self._queue.get()) is not None:
            if isinstance(found, asyncio.Future):
                found.set_result(None)
            else:
                yield found
        await self._reading
        yield UsageEvent(self._count_usage())

    async def _read(self) -> None:
        try:
            async for event in self._result.stream_events():
                self._take(event)
        finally:
            self._queue.put_nowait(None)

    def _take(self, event: Any) -> None:
        if event.type == "raw_response_event":
            if event.data.type == "response.output_text.delta":
                self._queue.put_nowait(TextDelta(event.data.delta))
            elif event.data.type in (
                "response.reasoning_summary_text.delta",
                "response.reasoning_text.delta",
            ):
                self._queue.put_nowait(ReasoningDelta(event.data.delta))
        elif event.type == "run_item_stream_event":
            raw = event.item.raw_item
            if event.name == "tool_called" and getattr(raw, "call_id", ""):
                self._note_call(raw.call_id, getattr(raw, "name", raw.type), getattr(raw, "arguments", "{}"))
            elif event.name == "tool_output":
                id_ = str(as_object(raw).get("call_id") or getattr(raw, "call_id", ""))
                if id_ in self._called:
                    self._queue.put_nowait(
                        ToolResultEvent(ToolResult(id_, self._called[id_], str(event.item.output)))
                    )

    def _note_call(self, id_: str, name: str, arguments: str) -> None:
        if id_ not in self._called:
            self._called[id_] = name
            self._queue.put_nowait(ToolCallEvent((ToolCall(id_, name, arguments),)))

    def _count_usage(self) -> Usage:
        usage = self._result.context_wrapper.usage
        model: Any = self._agent.model
        name = model if isinstance(model, str) else str(getattr(model, "model", "") or "")
        return Usage(model=name, input=usage.input_tokens, output=usage.output_tokens, estimated=False)


def _convert_step(step: HistoryStep) -> Iterator[Any]:
    if step.role is Role.USER:
        content: list[Any] = [{"type": "input_text", "text": step.text}]
        content += [{"type": "input_image", "image_url": p.url, "detail": "auto"} for p in step.pictures]
        yield {"role": "user", "content": content if step.pictures else step.text}
        return
    if step.role is Role.ASSISTANT and step.text:
        yield {"role": "assistant", "content": step.text}
    for call in step.calls:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.input or "{}",
        }
    for result in step.results:
        yield {"type": "function_call_output", "call_id": result.id, "output": result.output}
