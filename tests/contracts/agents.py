"""The agents that the contract is run over: those of the product, and one as a user writes it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from tests.agents.acp.conversation import player
from tests.agents.conversation import VARIABLE, Tools, an_agent
from tests.fakes.endpoint import KEY, Endpoint, Refusal, Script, Stall, answer, calls, thinks

from keryx.agents import python, python_process
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
from keryx.testing.contracts import Behaviour


@dataclass(frozen=True, kw_only=True)
class AgentCase:
    name: str
    open: Callable[[], AbstractAsyncContextManager[Agent]]
    messages: Mapping[Behaviour, str]

    def __str__(self) -> str:
        return self.name


@asynccontextmanager
async def _open_echo() -> AsyncGenerator[Agent]:
    yield EchoAgent()


@asynccontextmanager
async def _open_scripted() -> AsyncGenerator[Agent]:
    yield ScriptedAgent([TextDelta("hello")])


async def own(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
    """An agent as a user writes it, which does what the message says."""
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
async def _open_own() -> AsyncGenerator[Agent]:
    async with python.open_agent("tests.contracts.agents:own") as agent:
        yield agent


@asynccontextmanager
async def _open_own_process() -> AsyncGenerator[Agent]:
    async with python_process.open_agent("tests.contracts.agents:own") as agent:
        yield agent


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


class _ScriptedEndpointAgent:
    """An agent on a model whose strict endpoint plays the script that the message names."""

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
async def _open_acp() -> AsyncGenerator[Agent]:
    with TemporaryDirectory() as folder:
        async with player(Path(folder)) as agent:
            yield agent


@asynccontextmanager
async def _open_acp_shared() -> AsyncGenerator[Agent]:
    with TemporaryDirectory() as folder:
        async with player(Path(folder), shared=True) as agent:
            yield agent


@asynccontextmanager
async def _open_llm() -> AsyncGenerator[Agent]:
    toolbox = ToolSets({"test": _AskingTools()}, rules={})
    with mock.patch.dict("os.environ", {VARIABLE: KEY}), Endpoint(answer("Hello.")) as endpoint:
        async with an_agent(endpoint, toolbox=toolbox, retry=RetryPolicy(tries=1)) as agent:
            yield _ScriptedEndpointAgent(agent, endpoint)
            endpoint.release()
    assert endpoint.refused == []


_PLAYER_MESSAGES: dict[Behaviour, str] = {
    Behaviour.ANSWER: "hello",
    Behaviour.THINK: "think",
    Behaviour.TOOL: "tool",
    Behaviour.TOOLS: "tools",
    Behaviour.ASK: "ask",
    Behaviour.FAIL: "fail",
    Behaviour.HANG: "silence",
    Behaviour.EMPTY: "empty",
    Behaviour.STREAM: "stream",
    Behaviour.USAGE: "hello",
}
_OWN_MESSAGES: dict[Behaviour, str] = {
    Behaviour.ANSWER: "hello",
    Behaviour.THINK: "hello",
    Behaviour.TOOL: "tool",
    Behaviour.ASK: "ask",
    Behaviour.FAIL: "fail",
    Behaviour.CRASH: "crash",
    Behaviour.HANG: "silence",
    Behaviour.EMPTY: "empty",
    Behaviour.STREAM: "hello",
    Behaviour.USAGE: "hello",
}
CASES = (
    AgentCase(
        name="echo",
        open=_open_echo,
        messages={
            Behaviour.ANSWER: "hello",
            Behaviour.THINK: "!think hello",
            Behaviour.TOOL: "!tool grep x",
            Behaviour.TOOLS: "!tools 3",
            Behaviour.ASK: "!ask rm x",
            Behaviour.FAIL: "!fail No credit left.",
            Behaviour.CRASH: "!crash",
            Behaviour.HANG: "!silence",
            Behaviour.EMPTY: "!empty",
            Behaviour.STREAM: "slow 0.02 one two three",
            Behaviour.USAGE: "hello",
        },
    ),
    AgentCase(name="scripted", open=_open_scripted, messages={Behaviour.ANSWER: "hello"}),
    AgentCase(name="own", open=_open_own, messages=_OWN_MESSAGES),
    AgentCase(name="own-process", open=_open_own_process, messages=_OWN_MESSAGES),
    AgentCase(
        name="llm",
        open=_open_llm,
        messages={
            Behaviour.ANSWER: "hello",
            Behaviour.THINK: "think",
            Behaviour.TOOL: "look",
            Behaviour.TOOLS: "both",
            Behaviour.ASK: "send",
            Behaviour.FAIL: "fail",
            Behaviour.HANG: "silence",
            Behaviour.STREAM: "stream",
            Behaviour.USAGE: "hello",
        },
    ),
    AgentCase(name="acp", open=_open_acp, messages=_PLAYER_MESSAGES),
    AgentCase(name="acp-shared", open=_open_acp_shared, messages=_PLAYER_MESSAGES),
)
