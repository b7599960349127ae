"""The agents that the contract is run over. A new agent adds one `Case`: how it is made, and what to ask it so that
it answers, uses a tool, asks a person, fails, stays silent and says nothing. A scene that an agent cannot play is left out."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from unittest import mock

from tests.agents.acp.conversation import player
from tests.agents.conversation import VARIABLE, Tools, an_agent
from tests.fakes.endpoint import KEY, Endpoint, Refusal, Script, Stall, answer, calls, thinks

from keryx.agents import python
from keryx.agents.echo import EchoAgent
from keryx.agents.llm.chat_client import RetryPolicy
from keryx.agents.tools import Permission, ToolSets, ToolSpec
from keryx.core.errors import AgentFailed
from keryx.core.messages import Role, ToolCall, ToolResult
from keryx.core.ports.agent import (
    Agent,
    AgentEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallEvent,
    ToolResultEvent,
    TurnContext,
    UsageEvent,
)
from keryx.core.questions import Question
from keryx.core.usage import Usage
from keryx.testing import ScriptedAgent

Scene = Literal[
    "answer", "think", "tool", "tools", "ask", "fail", "crash", "silence", "empty", "stream", "usage"
]


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    make: Callable[[], AbstractAsyncContextManager[Agent]]
    scenes: Mapping[Scene, str]

    def __str__(self) -> str:
        return self.name


@asynccontextmanager
async def _echo() -> AsyncGenerator[Agent]:
    yield EchoAgent()


@asynccontextmanager
async def _scripted() -> AsyncGenerator[Agent]:
    yield ScriptedAgent([TextDelta("hello")])


async def own(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
    """An agent as somebody writes it, who does what the last word says."""
    text = next(m.text for m in reversed(context.turn_messages) if m.role is Role.USER)
    match text.split():
        case ["fail"]:
            raise AgentFailed("No credit left.")
        case ["crash"]:
            raise RuntimeError("a bug")
        case ["silence"]:
            await asyncio.Event().wait()
        case ["empty"]:
            return
        case ["tool"]:
            yield ToolCallEvent((ToolCall(f"{context.turn}-1", "look", "{}"),))
            yield ToolResultEvent(ToolResult(f"{context.turn}-1", "look", "found"))
        case ["ask"]:
            chosen = await context.ask(Question(key="1", title="May I?", detail="rm x"))
            yield TextDelta(f"Answered {chosen}.")
        case _:
            yield ReasoningDelta("Hm.")
            yield TextDelta("Hel")
            yield TextDelta("lo.")
    yield UsageEvent(Usage(model="own", input=1, output=1))


@asynccontextmanager
async def _own() -> AsyncGenerator[Agent]:
    yield python.load("tests.contracts.agents:own")


class _AskingTools(Tools):
    """Tools of which `send` asks first."""

    async def specs(self, context: TurnContext) -> Sequence[ToolSpec]:
        return [
            ToolSpec(
                name=s.name, parameters=s.parameters, repeatable=s.repeatable, permission=_PERMISSIONS[s.name]
            )
            for s in await super().specs(context)
        ]


_PERMISSIONS = {
    name: Permission.ASK if name == "send" else Permission.ALLOW
    for name in ("look", "send", "slow", "fail", "crash")
}
_SCRIPTS: dict[str, list[Script]] = {
    "hello": [answer("Hello.")],
    "think": [[*thinks("Hm."), *answer("Hello.")]],
    "stream": [answer("one ", "two ", "three")],
    "look": [calls(("c1", "look", '{"q": "x"}')), answer("Found.")],
    "both": [calls(("c1", "look", "{}"), ("c2", "fail", "{}")), answer("Found.")],
    "send": [calls(("c1", "send", "{}")), answer("I see.")],
    "fail": [Refusal(status=402, message="Insufficient credits")],
    "silence": [[Stall()]],
}


class _Rehearsed:
    """The agent on a model, whose strict endpoint plays the script that the question names."""

    def __init__(self, agent: Agent, endpoint: Endpoint) -> None:
        self._agent = agent
        self._endpoint = endpoint

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        text = next(m.text for m in reversed(context.turn_messages) if m.role is Role.USER)
        if not self._endpoint.requests:
            self._endpoint.scripts[:] = _SCRIPTS[text]
        async for event in self._agent.run(context):
            yield event


@asynccontextmanager
async def _acp() -> AsyncGenerator[Agent]:
    with TemporaryDirectory() as folder:
        async with player(Path(folder)) as agent:
            yield agent


@asynccontextmanager
async def _acp_shared() -> AsyncGenerator[Agent]:
    with TemporaryDirectory() as folder:
        async with player(Path(folder), shared=True) as agent:
            yield agent


@asynccontextmanager
async def _llm() -> AsyncGenerator[Agent]:
    toolbox = ToolSets({"test": _AskingTools()}, rules={})
    with mock.patch.dict("os.environ", {VARIABLE: KEY}), Endpoint(answer("Hello.")) as endpoint:
        async with an_agent(endpoint, toolbox=toolbox, retry=RetryPolicy(tries=1)) as agent:
            yield _Rehearsed(agent, endpoint)
            endpoint.release()
    assert endpoint.refused == []


_PLAYED: dict[Scene, str] = {
    "answer": "hello",
    "think": "think",
    "tool": "tool",
    "tools": "tools",
    "ask": "ask",
    "fail": "fail",
    "silence": "silence",
    "empty": "empty",
    "stream": "stream",
    "usage": "hello",
}
CASES = (
    Case(
        name="echo",
        make=_echo,
        scenes={
            "answer": "hello",
            "think": "!think hello",
            "tool": "!tool grep x",
            "tools": "!tools 3",
            "ask": "!ask rm x",
            "fail": "!fail No credit left.",
            "crash": "!crash",
            "silence": "!silence",
            "empty": "!empty",
            "stream": "slow 0.02 one two three",
            "usage": "hello",
        },
    ),
    Case(name="scripted", make=_scripted, scenes={"answer": "hello"}),
    Case(
        name="own",
        make=_own,
        scenes={
            "answer": "hello",
            "think": "hello",
            "tool": "tool",
            "ask": "ask",
            "fail": "fail",
            "crash": "crash",
            "silence": "silence",
            "empty": "empty",
            "stream": "hello",
            "usage": "hello",
        },
    ),
    Case(
        name="llm",
        make=_llm,
        scenes={
            "answer": "hello",
            "think": "think",
            "tool": "look",
            "tools": "both",
            "ask": "send",
            "fail": "fail",
            "silence": "silence",
            "stream": "stream",
            "usage": "hello",
        },
    ),
    Case(name="acp", make=_acp, scenes=_PLAYED),
    Case(name="acp-shared", make=_acp_shared, scenes=_PLAYED),
)
