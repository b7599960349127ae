"""Runs an agent of the Agent Development Kit."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from importlib import import_module
from typing import Any

from keryx.agents.frameworks import HistoryStep, RunFunction, describe_context, load_steps, parse_arguments
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

_APP = "keryx"
# What is said to an agent whose turn was interrupted after a tool had answered.
_GO_ON = "Go on: you were interrupted."


def build_run(agent: Any) -> RunFunction:
    async def run(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        adk: Any = import_module("google.adk.runners")
        sessions: Any = import_module("google.adk.sessions")
        settings: Any = import_module("google.adk.agents.run_config")
        steps = await load_steps(context)
        question = steps.pop() if steps and steps[-1].role is Role.USER else None
        service = sessions.InMemorySessionService()
        names = {"app_name": _APP, "user_id": str(context.asker)}
        session = await service.create_session(
            **names, session_id=context.session, state={"keryx_place": describe_context(context)}
        )
        if context.summary:
            steps.insert(0, HistoryStep(id="summary", role=Role.USER, text=context.summary))
        for step in steps:
            for event in _build_events(agent, step):
                await service.append_event(session, event)
        runner = adk.Runner(app_name=_APP, agent=agent, session_service=service)
        reader = _EventReader()
        types: Any = import_module("google.genai.types")
        parts = [types.Part(text=_GO_ON)] if question is None else _build_parts(question)
        stream = runner.run_async(
            user_id=names["user_id"],
            session_id=session.id,
            new_message=types.Content(role="user", parts=parts),
            run_config=settings.RunConfig(streaming_mode=settings.StreamingMode.SSE),
        )
        async with aclosing(stream) as events:
            async for event in events:
                for found in reader.read(event):
                    yield found

    return run


class _EventReader:
    """Turns events of the kit into ours. Text that came in pieces is not repeated when it comes as a whole."""

    def __init__(self) -> None:
        self._in_pieces = False

    def read(self, event: Any) -> Iterator[AgentEvent]:
        parts: list[Any] = (event.content and event.content.parts) or []
        for part in parts:
            if part.text and not (self._in_pieces and not event.partial):
                yield ReasoningDelta(part.text) if part.thought else TextDelta(part.text)
        if event.partial:
            self._in_pieces = True
            return
        self._in_pieces = False
        called = tuple(
            ToolCall(found.id or f"{event.id}-{n}", found.name, json.dumps(found.args or {}))
            for n, found in enumerate(event.get_function_calls())
        )
        if called:
            yield ToolCallEvent(called)
        for found in event.get_function_responses():
            yield ToolResultEvent(ToolResult(found.id or "", found.name, _format_output(found.response)))
        if usage := event.usage_metadata:
            yield UsageEvent(
                Usage(
                    model=event.model_version or "",
                    input=usage.prompt_token_count or 0,
                    output=usage.candidates_token_count or 0,
                    estimated=False,
                )
            )
        if event.error_message:
            raise RuntimeError(f"{event.error_code}: {event.error_message}")


def _build_events(agent: Any, step: HistoryStep) -> Iterator[Any]:
    types: Any = import_module("google.genai.types")
    kinds: Any = import_module("google.adk.events")
    if step.role is Role.USER:
        yield kinds.Event(author="user", content=types.Content(role="user", parts=_build_parts(step)))
        return
    if step.role is Role.ASSISTANT:
        parts = _build_parts(step) if step.text else []
        parts += [
            types.Part(
                function_call=types.FunctionCall(id=call.id, name=call.name, args=parse_arguments(call))
            )
            for call in step.calls
        ]
        yield kinds.Event(author=agent.name, content=types.Content(role="model", parts=parts))
        return
    answered = [
        types.Part(
            function_response=types.FunctionResponse(
                id=result.id, name=result.name, response={"result": result.output}
            )
        )
        for result in step.results
    ]
    yield kinds.Event(author=agent.name, content=types.Content(role="user", parts=answered))


def _build_parts(step: HistoryStep) -> list[Any]:
    types: Any = import_module("google.genai.types")
    pictures = [types.Part.from_bytes(data=p.body, mime_type=p.mime) for p in step.pictures]
    return [types.Part(text=step.text), *pictures]


def _format_output(response: Any) -> str:
    match response:
        case {"result": str(text)} if len(response) == 1:
            return text
        case _:
            return json.dumps(response, ensure_ascii=False, default=str)
