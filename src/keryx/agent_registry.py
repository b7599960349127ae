"""The agents that the settings name, and which of them answers in a session."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext

import msgspec

from keryx.agents import python, python_process
from keryx.agents.acp import AcpAgent
from keryx.agents.agent_config import AgentConfig, AgentKind, Isolation
from keryx.agents.echo import EchoAgent
from keryx.agents.editor_tools import EditorTools
from keryx.agents.tools import Toolbox
from keryx.config import Settings
from keryx.core.clock import Clock
from keryx.core.errors import AgentFailed, Invalid, format_install_command
from keryx.core.ports.agent import Agent, SpeakText, TranscribeSound
from keryx.core.texts import Phrase
from keryx.engine.policy import Policy
from keryx.engine.units.turn_writes import TurnInput


class AgentRegistry:
    def __init__(self, agents: Mapping[str, Agent], policy: Policy) -> None:
        self._agents = agents
        self._policy = policy

    def choose(self, reading: TurnInput) -> Agent:
        """Return the agent that the policy names. Raise `AgentFailed` if it is not configured any more."""
        name = reading.agent or self._policy.choose_agent(
            reading.session.settings, reading.place_facts.source, profile=reading.session.profile
        )
        if name not in self._agents:
            raise AgentFailed(Phrase("agent.gone", name=repr(name)))
        return self._agents[name]


@asynccontextmanager
async def open_agents(
    settings: Settings, builtin: Toolbox, clock: Clock, editor_tools: EditorTools | None = None
) -> AsyncGenerator[AgentRegistry]:
    """Open every configured agent. Their programs are started when a turn needs them."""
    async with AsyncExitStack() as stack:
        agents: dict[str, Agent] = {}
        for name in settings.agent_names:
            opening = _open_agent(name, settings, builtin, clock, editor_tools)
            agents[name] = await stack.enter_async_context(opening)
        yield AgentRegistry(agents, settings.policy)


def _open_agent(
    name: str, settings: Settings, builtin: Toolbox, clock: Clock, editor_tools: EditorTools | None
) -> AbstractAsyncContextManager[Agent]:
    configured = settings.agents.get(name)
    # Without a table, the name is a kind or the path of an object.
    if configured is None and ":" in name:
        configured = AgentConfig(kind=AgentKind.PYTHON, path=name)
    elif configured is None and name in (AgentKind.ECHO, AgentKind.LLM, AgentKind.LOCAL):
        configured = AgentConfig(kind=AgentKind(name))
    elif configured is None:
        raise Invalid(
            f"agent = {name!r} is not known: use auto, echo, llm, local, package.module:object or the name of an [agents] table"
        )
    match configured.kind:
        case AgentKind.ECHO:
            return nullcontext(EchoAgent())
        case AgentKind.PYTHON:
            if configured.isolation is Isolation.THREAD:
                return python.open_agent(configured.path)
            return python_process.open_agent(configured.path, file_bytes=settings.media.limit)
        case AgentKind.ACP:
            return AcpAgent(name, configured, work_folder=settings.folder / "work", clock=clock)
        case AgentKind.LLM | AgentKind.LOCAL:
            chosen = msgspec.structs.replace(
                settings, agent=configured.kind.value, model=configured.model or settings.model
            )
            return _open_llm_agent(chosen, builtin, clock, editor_tools)


@asynccontextmanager
async def open_speech_models(
    settings: Settings,
) -> AsyncGenerator[tuple[TranscribeSound | None, SpeakText | None]]:
    """Open the functions that transcribe sounds and that speak texts, each `None` if no model is named for it."""
    ears, mouth = settings.transcription_model, settings.speech_model
    if ears is None and mouth is None:
        yield None, None
        return
    try:
        from keryx.agents.llm import speech  # noqa: PLC0415 an optional extra, and slow to import
    except ImportError as exc:
        table = "speech" if ears is None else "transcription"
        raise Invalid(
            f"[{table}] needs an extra ({exc.name} is missing): run `{format_install_command('llm')}`"
        ) from exc
    async with AsyncExitStack() as stack:
        transcribe = await stack.enter_async_context(speech.open_transcriber(ears)) if ears else None
        opened = speech.open_speaker(mouth, voice=settings.speech.voice) if mouth else None
        yield transcribe, await stack.enter_async_context(opened) if opened else None


@asynccontextmanager
async def _open_llm_agent(
    settings: Settings, builtin: Toolbox, clock: Clock, editor_tools: EditorTools | None
) -> AsyncGenerator[Agent]:
    try:
        from keryx.llm_factory import open_llm_agent as opened  # noqa: PLC0415 an optional extra, and slow to import
    except ImportError as exc:
        raise Invalid(
            f"models need an extra ({exc.name} is missing): run `{format_install_command('llm')}`"
        ) from exc
    async with opened(settings, builtin, clock, editor_tools) as agent:
        yield agent
