"""An offline, deterministic agent that answers with the text it received. Directives such as `!tool` exercise every event and failure."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from datetime import timedelta

from keryx.core import messages
from keryx.core.errors import AgentFailed, QuotaReached
from keryx.core.messages import PlanStep, PlanStepState, Role, ToolCall, ToolResult
from keryx.core.ports.agent import (
    AgentEvent,
    NoticeEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallEvent,
    ToolResultEvent,
    TurnContext,
    UsageEvent,
)
from keryx.core.questions import Question
from keryx.core.usage import Usage

_SLOW = re.compile(r"!?slow (\d{1,4}(?:\.\d+)?)\b\s*(.*)\Z", re.S)
_DIRECTIVE = re.compile(r"!([a-z]+)\b\s*(.*)\Z", re.S)
_FILLER = "one two three four five six seven eight nine ten"
Events = AsyncGenerator[AgentEvent, None]
Directive = Callable[[TurnContext, str], Events]
_DIRECTIVES: dict[str, Directive] = {}


class EchoAgent:
    async def run(self, context: TurnContext) -> Events:
        text = "\n".join(m.text for m in context.turn_messages if m.role is Role.USER)
        slow = _SLOW.match(text)
        directive = _DIRECTIVE.match(text)
        if slow:
            words = re.findall(r"\S+\s*", slow[2] or _FILLER)
            for word in words:
                yield TextDelta(word)
                await context.clock.sleep(float(slow[1]) / len(words))
        elif directive and directive[1] in _DIRECTIVES:
            async for event in _DIRECTIVES[directive[1]](context, directive[2]):
                yield event
        else:
            yield TextDelta(text)
        yield UsageEvent(
            Usage(model="echo", input=len(text.split()), output=len(text.split()), cost=0, estimated=False)
        )


def _directive(function: Directive) -> Directive:
    """Register a function for the directive `!name`, by its name without the underscore."""
    _DIRECTIVES[function.__name__.removeprefix("_")] = function
    return function


@_directive
async def _think(context: TurnContext, text: str) -> Events:
    yield ReasoningDelta(f"They said: {text}")
    yield TextDelta(text)


@_directive
async def _tool(context: TurnContext, text: str) -> Events:
    name, _, arguments = text.partition(" ")
    call = ToolCall(f"{context.turn}-{context.attempt}", name or "echo", arguments or "{}", repeatable=True)
    yield TextDelta(f"Calling {call.name}. ")
    yield ToolCallEvent((call,))
    output = f"{call.name} was given {call.input}"
    yield ToolResultEvent(ToolResult(call.id, call.name, output))
    yield TextDelta(output)


@_directive
async def _tools(context: TurnContext, text: str) -> Events:
    count = min(int(text), 100) if text.isdigit() else 2
    calls = tuple(
        ToolCall(f"{context.turn}-{context.attempt}-{n}", "count", str(n)) for n in range(1, count + 1)
    )
    yield ToolCallEvent(calls)
    for call in calls:
        yield ToolResultEvent(ToolResult(call.id, call.name, call.input))
    yield TextDelta(f"{count} tools answered.")


@_directive
async def _ask(context: TurnContext, text: str) -> Events:
    yield TextDelta("Asking. ")
    question = Question(key="ask", title="May the echo agent go on?", detail=text, tool="ask")
    yield TextDelta(f"Answered: {await context.ask(question) or 'nothing'}")


@_directive
async def _plan(context: TurnContext, text: str) -> Events:
    names = [name.strip() for name in text.split(";") if name.strip()]
    for state in (PlanStepState.IN_PROGRESS, PlanStepState.COMPLETED):
        yield NoticeEvent(messages.format_plan(PlanStep(name, state) for name in names), messages.PLAN_KIND)
    yield TextDelta(f"{len(names)} steps are done.")


@_directive
async def _wait(context: TurnContext, text: str) -> Events:
    yield TextDelta("Waiting. ")
    await context.clock.sleep(_seconds(text))
    steering = "; ".join(m.text for m in await context.fetch_new_messages())
    yield TextDelta(f"Steered: {steering}" if steering else "Nobody steered.")


@_directive
async def _fail(context: TurnContext, text: str) -> Events:
    yield TextDelta("This will fail. ")
    raise AgentFailed(text or "The agent was told to fail.")


@_directive
async def _limit(context: TurnContext, text: str) -> Events:
    """Reach a limit that resets some seconds after the message."""
    until = context.turn_messages[0].at + timedelta(seconds=_seconds(text))
    if context.clock.now() < until:
        yield TextDelta("This reaches a limit. ")
        raise QuotaReached("The limit of the echo agent is reached.", until=until, model="echo")
    yield TextDelta("The limit has reset.")


@_directive
async def _crash(context: TurnContext, text: str) -> Events:
    yield TextDelta("This will crash. ")
    raise RuntimeError(text or "told to crash")


@_directive
async def _silence(context: TurnContext, text: str) -> Events:
    await asyncio.Event().wait()
    yield TextDelta("")


@_directive
async def _deaf(context: TurnContext, text: str) -> Events:
    yield TextDelta("Not listening. ")
    end = context.clock.monotonic() + _seconds(text)
    while context.clock.monotonic() < end:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
    yield TextDelta("Now I am.")


@_directive
async def _empty(context: TurnContext, text: str) -> Events:
    return
    yield


@_directive
async def _words(context: TurnContext, text: str) -> Events:
    count = min(int(text), 1_000_000) if text.isdigit() else 100
    yield TextDelta(" ".join(f"word{n}" for n in range(1, count + 1)))


def _seconds(text: str) -> float:
    first = text.split()[:1]
    return float(first[0]) if first and re.fullmatch(r"\d{1,4}(\.\d+)?", first[0]) else 1.0
