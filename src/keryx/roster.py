"""Roster: the agents that the settings name, and which of them answers in which conversation."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import msgspec

from keryx.agents import python
from keryx.agents.acp.agent import AcpAgent
from keryx.agents.configured import Configured, Kind
from keryx.agents.echo import EchoAgent
from keryx.agents.lent import Lent
from keryx.agents.tools import Toolbox
from keryx.config import Settings
from keryx.core.errors import AgentFailed, Invalid
from keryx.core.ports import Agent, Clock
from keryx.engine.policy import Policy
from keryx.engine.record import Reading


class Roster:
    def __init__(self, agents: Mapping[str, Agent], policy: Policy) -> None:
        self._agents = agents
        self._policy = policy

    def choose(self, reading: Reading) -> Agent:
        """The agent that the policy names. `AgentFailed` for one that is no longer configured."""
        name = self._policy.agent(reading.session, reading.around.source)
        if name not in self._agents:
            raise AgentFailed(f"There is no agent {name!r} any more. /agent lists those there are.")
        return self._agents[name]


@asynccontextmanager
async def opened(
    settings: Settings, builtin: Toolbox, clock: Clock, lent: Lent | None = None
) -> AsyncGenerator[Roster]:
    """Every agent that the settings name, ready to run, closed at the end. Programs are started when a turn needs them."""
    async with AsyncExitStack() as stack:
        agents: dict[str, Agent] = {}
        for name in settings.agent_names:
            opening = _opening(name, settings, builtin, clock, lent)
            agents[name] = await stack.enter_async_context(opening)
        yield Roster(agents, settings.policy)


def _opening(
    name: str, settings: Settings, builtin: Toolbox, clock: Clock, lent: Lent | None
) -> AbstractAsyncContextManager[Agent]:
    configured = settings.agents.get(name) or _plain(name)
    match configured.kind:
        case Kind.ECHO:
            return _at_hand(EchoAgent())
        case Kind.PYTHON:
            return _at_hand(python.load(configured.path))
        case Kind.ACP:
            return AcpAgent(name, configured, work=settings.folder / "work", clock=clock)
        case Kind.LLM | Kind.LOCAL:
            chosen = msgspec.structs.replace(
                settings, agent=configured.kind.value, model=configured.model or settings.model
            )
            return _brain(chosen, builtin, clock, lent)


def _plain(name: str) -> Configured:
    """An agent that needs no table: a kind, or the path of an object."""
    if ":" in name:
        return Configured(kind=Kind.PYTHON, path=name)
    if name in (Kind.ECHO, Kind.LLM, Kind.LOCAL):
        return Configured(kind=Kind(name))
    raise Invalid(
        f"agent = {name!r} is not known: use auto, echo, llm, local, package.module:object or the name of an [agents] table"
    )


@asynccontextmanager
async def _at_hand(agent: Agent) -> AsyncGenerator[Agent]:
    yield agent


@asynccontextmanager
async def _brain(
    settings: Settings, builtin: Toolbox, clock: Clock, lent: Lent | None
) -> AsyncGenerator[Agent]:
    try:
        from keryx.brain import opened  # noqa: PLC0415 an optional extra, and slow to import
    except ImportError as exc:
        raise Invalid(f"models need an extra ({exc.name} is missing): pip install 'keryx[llm]'") from exc
    async with opened(settings, builtin, clock, lent) as agent:
        yield agent
