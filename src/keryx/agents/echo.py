"""Echo: an offline, deterministic agent. It answers with the text, and shows every path on request.

slow N text...      the text, word by word, over N seconds
!think text...      reasoning, then the text
!tool NAME INPUT    a tool step, then its output as the answer
!tools N            N tool steps at once
!ask text...        asks whether it may, then says what was answered
!plan A; B; C       a plan of these steps, then the same plan with all of them done
!wait N             waits N seconds between two steps, then says what it was steered with
!fail sentence      fails with the sentence
!crash              raises an unexpected error
!silence            never says anything
!deaf N             ignores a cancel for N seconds
!empty              answers nothing
!words N            N words at once
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from keryx.core import plans
from keryx.core.errors import AgentFailed
from keryx.core.messages import Role, ToolCall, ToolResult
from keryx.core.plans import Step, StepState
from keryx.core.ports import Called, Event, Noted, Returned, Said, Thought, TurnContext, Used
from keryx.core.questions import Question
from keryx.core.turns import Usage

_SLOW = re.compile(r"!?slow (\d{1,4}(?:\.\d+)?)\b\s*(.*)\Z", re.S)
_DIRECTIVE = re.compile(r"!([a-z]+)\b\s*(.*)\Z", re.S)
_FILLER = "one two three four five six seven eight nine ten"
Events = AsyncGenerator[Event, None]


class EchoAgent:
    async def run(self, context: TurnContext) -> Events:
        text = _question(context)
        slow = _SLOW.match(text)
        directive = _DIRECTIVE.match(text)
        if slow:
            events = _slow(context, float(slow[1]), slow[2] or _FILLER)
        elif directive and directive[1] in _DIRECTIVES:
            events = _DIRECTIVES[directive[1]](context, directive[2])
        else:
            events = _say(context, text)
        async for event in events:
            yield event
        yield Used(
            Usage(model="echo", input=len(text.split()), output=len(text.split()), cost=0, estimated=False)
        )


def _question(context: TurnContext) -> str:
    """The words of this turn's questions: everything since the last answer of another turn."""
    return "\n".join(m.text for m in context.asked if m.role is Role.USER)


async def _say(context: TurnContext, text: str) -> Events:
    yield Said(text)


async def _slow(context: TurnContext, seconds: float, text: str) -> Events:
    words = re.findall(r"\S+\s*", text)
    for word in words:
        yield Said(word)
        await context.clock.sleep(seconds / len(words))


async def _think(context: TurnContext, text: str) -> Events:
    yield Thought(f"They said: {text}")
    yield Said(text)


async def _tool(context: TurnContext, text: str) -> Events:
    name, _, given = text.partition(" ")
    call = ToolCall(f"{context.turn}-{context.attempt}", name or "echo", given or "{}", repeatable=True)
    yield Said(f"Calling {call.name}. ")
    yield Called((call,))
    output = f"{call.name} was given {call.input}"
    yield Returned(ToolResult(call.id, call.name, output))
    yield Said(output)


async def _tools(context: TurnContext, text: str) -> Events:
    count = min(int(text), 100) if text.isdigit() else 2
    calls = tuple(
        ToolCall(f"{context.turn}-{context.attempt}-{n}", "count", str(n)) for n in range(1, count + 1)
    )
    yield Called(calls)
    for call in calls:
        yield Returned(ToolResult(call.id, call.name, call.input))
    yield Said(f"{count} tools answered.")


async def _ask(context: TurnContext, text: str) -> Events:
    yield Said("Asking. ")
    question = Question(key="ask", title="May the echo agent go on?", detail=text, tool="ask")
    yield Said(f"Answered: {await context.ask(question) or 'nothing'}")


async def _plan(context: TurnContext, text: str) -> Events:
    names = [name.strip() for name in text.split(";") if name.strip()]
    for state in (StepState.IN_PROGRESS, StepState.COMPLETED):
        yield Noted(plans.text(Step(name, state) for name in names), plans.KIND)
    yield Said(f"{len(names)} steps are done.")


async def _wait(context: TurnContext, text: str) -> Events:
    yield Said("Waiting. ")
    await context.clock.sleep(_seconds(text))
    steered = await context.steer()
    told = "; ".join(m.text for m in steered)
    yield Said(f"Steered: {told}" if told else "Nobody steered.")


async def _fail(context: TurnContext, text: str) -> Events:
    yield Said("This will fail. ")
    raise AgentFailed(text or "The agent was told to fail.")


async def _crash(context: TurnContext, text: str) -> Events:
    yield Said("This will crash. ")
    raise RuntimeError(text or "told to crash")


async def _silence(context: TurnContext, text: str) -> Events:
    await asyncio.Event().wait()
    yield Said("")


async def _deaf(context: TurnContext, text: str) -> Events:
    yield Said("Not listening. ")
    end = context.clock.monotonic() + _seconds(text)
    while context.clock.monotonic() < end:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
    yield Said("Now I am.")


async def _empty(context: TurnContext, text: str) -> Events:
    return
    yield


async def _words(context: TurnContext, text: str) -> Events:
    count = min(int(text), 1_000_000) if text.isdigit() else 100
    yield Said(" ".join(f"word{n}" for n in range(1, count + 1)))


def _seconds(text: str) -> float:
    first = text.split()[:1]
    return float(first[0]) if first and re.fullmatch(r"\d{1,4}(\.\d+)?", first[0]) else 1.0


_DIRECTIVES: dict[str, Callable[[TurnContext, str], Events]] = {
    "think": _think,
    "tool": _tool,
    "tools": _tools,
    "ask": _ask,
    "plan": _plan,
    "wait": _wait,
    "fail": _fail,
    "crash": _crash,
    "silence": _silence,
    "deaf": _deaf,
    "empty": _empty,
    "words": _words,
}
