"""Brain: the agent on real models, put together by the settings."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from keryx.agents import local
from keryx.agents.lent import Lent
from keryx.agents.llm import LlmAgent
from keryx.agents.local import LocalModel
from keryx.agents.models import Models
from keryx.agents.tools import Toolbox
from keryx.agents.toolsets import ToolSets
from keryx.config import Settings
from keryx.core.errors import Invalid
from keryx.core.ports import Agent, Clock
from keryx.engine.policy import BUILTIN_TOOLS


@asynccontextmanager
async def opened(
    settings: Settings, builtin: Toolbox, clock: Clock, lent: Lent | None = None
) -> AsyncGenerator[Agent]:
    """Answers with the configured models; `local` is one of them wherever it is installed. `lent` are the tools of an
    editor."""
    if settings.brain == "local" and not local.installed():
        raise Invalid(local.MISSING)
    models = settings.named_models
    if not models and settings.brain == "llm":
        raise Invalid(
            "agent = 'llm' has no model: set KERYX_LLM_BASE_URL and KERYX_LLM_MODEL, or add [[models]] to keryx.toml"
        )
    small = LocalModel()
    default = local.MODEL.name if settings.brain == "local" else settings.model
    every = Models((*models, local.MODEL) if local.installed() else models, default=default)
    async with (
        opened_tools(settings, builtin, clock, lent) as toolbox,
        LlmAgent(every, toolbox=toolbox, local=small.endpoint, compaction=settings.compaction) as agent,
    ):
        try:
            yield agent
        finally:
            await small.aclose()


@asynccontextmanager
async def opened_tools(
    settings: Settings, builtin: Toolbox, clock: Clock, lent: Lent | None = None
) -> AsyncGenerator[ToolSets]:
    """The built-in tools, those of the configured servers, and what an editor lends. A server is started when a turn
    needs it."""
    logs = settings.folder / "tools"
    if lent is None:
        async with _opened_servers(settings, clock) as found:
            yield ToolSets({BUILTIN_TOOLS: builtin, **found}, rules=settings.permissions)
    else:
        async with _opened_servers(settings, clock) as found, lent.running(clock, logs=logs / "editor"):
            yield ToolSets({BUILTIN_TOOLS: builtin, **found, "": lent}, rules=settings.permissions)


@asynccontextmanager
async def _opened_servers(settings: Settings, clock: Clock) -> AsyncGenerator[Mapping[str, Toolbox]]:
    if not settings.tools:
        yield {}
        return
    try:
        from keryx.agents import servers  # noqa: PLC0415 an optional extra, and slow to import
    except ImportError as exc:
        raise Invalid(
            f"[[tools]] needs an extra ({exc.name} is missing): pip install 'keryx[tools]'"
        ) from exc
    async with servers.opened(settings.tools, clock=clock, logs=settings.folder / "tools") as found:
        yield found
