"""What tests of agents begin with: a context, a conversation, a model behind an endpoint, and tools."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from tests.fakes.endpoint import MODEL, Endpoint

from keryx.agents.llm import Model, Models
from keryx.agents.llm.agent import LlmAgent
from keryx.agents.tools import ToolFailed, ToolOutput, ToolSpec
from keryx.core.clock import Clock, to_micros
from keryx.core.ids import SessionId, TurnId
from keryx.core.messages import Mark, Message, Part, Role, ToolCall, ToolResult, text_parts
from keryx.core.ports.agent import Agent, AgentEvent, FetchMedia, TextDelta, TurnContext, fetch_nothing
from keryx.core.sessions import SessionSettings
from keryx.testing import START_TIME, FakeClock, fixed_history

SESSION = SessionId("s1")
TURN = TurnId("t9")
VARIABLE = "KERYX_TEST_KEY"


class Conversation:
    """Messages in order, each of a turn: `ask` begins one."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.turn = TurnId("t0")

    def add(self, role: Role, *parts: Part, **fields: Any) -> "Conversation":
        seq = len(self.messages) + 1
        fields = {"turn": self.turn, **fields}
        self.messages.append(
            Message(session=SESSION, seq=seq, role=role, parts=parts, micros=to_micros(START_TIME), **fields)
        )
        return self

    def ask(self, text: str, *parts: Part, turn: str = "", **fields: Any) -> "Conversation":
        self.turn = TurnId(turn or f"t{len(self.messages) + 1}")
        return self.add(Role.USER, *text_parts(text), *parts, **fields)

    def say(self, text: str, *parts: Part, mark: Mark | None = None) -> "Conversation":
        return self.add(Role.ASSISTANT, *text_parts(text), *parts, mark=mark)

    def call(self, *calls: ToolCall) -> "Conversation":
        return self.add(Role.ASSISTANT, *calls)

    def result(self, id: str, output: str, name: str = "look") -> "Conversation":
        return self.add(Role.TOOL, ToolResult(id, name, output))


def asked(text: str = "hello", *parts: Part) -> list[Message]:
    return Conversation().ask(text, *parts, turn=TURN).messages


async def nobody() -> Sequence[Message]:
    return ()


def a_context(
    history: Sequence[Message] | None = None,
    *,
    clock: Clock | None = None,
    place: str = "# Where you are\n\n- a test\n",
    settings: SessionSettings = SessionSettings(),
    steer: Callable[[], Awaitable[Sequence[Message]]] = nobody,
    attempt: int = 1,
    fetch: FetchMedia = fetch_nothing,
) -> TurnContext:
    past = asked() if history is None else history
    return TurnContext(
        session=SESSION,
        turn=TURN,
        attempt=attempt,
        place=place,
        turn_messages=[m for m in past if m.turn == TURN],
        history=fixed_history(past),
        settings=settings,
        cwd="",
        clock=clock or FakeClock(),
        fetch_new_messages=steer,
        fetch=fetch,
    )


def a_model(endpoint: Endpoint | str, **fields: Any) -> Model:
    base_url = endpoint if isinstance(endpoint, str) else endpoint.base_url
    given: dict[str, Any] = {
        "name": "test",
        "id": MODEL,
        "key": f"env:{VARIABLE}",
        "context": 8192,
        "titles": False,
        **fields,
    }
    return Model(base_url=base_url, **given)


def an_agent(endpoint: Endpoint | str, *, model: Mapping[str, Any] | None = None, **fields: Any) -> LlmAgent:
    return LlmAgent(Models([a_model(endpoint, **(model or {}))]), **fields)


async def collect(
    agent: Agent, context: TurnContext, into: list[AgentEvent] | None = None
) -> list[AgentEvent]:
    """All events of a run, in a list that the caller may keep for the case that it fails."""
    found = [] if into is None else into
    async with aclosing(agent.run(context)) as events:
        async for event in events:
            found.append(event)
    return found


def spoken(events: Sequence[AgentEvent]) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta))


class Tools:
    """Tools that tests look into: `look` may be repeated, `send` may not, `fail` and `crash` do."""

    def __init__(self) -> None:
        self.called: list[tuple[str, Mapping[str, Any]]] = []
        self.gate: asyncio.Event | None = None
        self.at_once = 0

    async def specs(self, context: TurnContext) -> Sequence[ToolSpec]:
        schema = {"type": "object", "properties": {"q": {"type": "string"}}}
        return [
            ToolSpec(name="look", description="Look something up", parameters=schema, repeatable=True),
            *(ToolSpec(name=name, parameters=schema) for name in ("send", "slow", "fail", "crash")),
        ]

    def warnings(self, context: TurnContext) -> Sequence[str]:
        return ()

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> ToolOutput:
        self.called.append((name, arguments))
        self.at_once += 1
        if name == "slow":
            assert self.gate is not None
            await self.gate.wait()
        self.at_once -= 1
        if name == "fail":
            raise ToolFailed("The line is dead.")
        if name == "crash":
            raise RuntimeError("a bug")
        return ToolOutput(f"{name} found {arguments.get('q', 'nothing')}")
