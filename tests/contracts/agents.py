"""The agents that the contract is run over. A new agent adds one `Case`: how it is made, and what to ask it so that
it answers, uses a tool, fails, stays silent and says nothing. A scene that an agent cannot play is left out."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from keryx.agents.echo import EchoAgent
from keryx.core.ports import Agent, Said
from keryx.testing import ScriptedAgent

Scene = Literal["answer", "think", "tool", "tools", "fail", "crash", "silence", "empty", "stream"]


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
    yield ScriptedAgent([Said("hello")])


CASES = (
    Case(
        name="echo",
        make=_echo,
        scenes={
            "answer": "hello",
            "think": "!think hello",
            "tool": "!tool grep x",
            "tools": "!tools 3",
            "fail": "!fail No credit left.",
            "crash": "!crash",
            "silence": "!silence",
            "empty": "!empty",
            "stream": "slow 0.02 one two three",
        },
    ),
    Case(name="scripted", make=_scripted, scenes={"answer": "hello"}),
)
