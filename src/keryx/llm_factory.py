"""Builds the LLM agent with its models and tools from the settings. Import it lazily: it loads the optional openai package."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from keryx.agents.editor_tools import EditorTools
from keryx.agents.llm import local_model
from keryx.agents.llm.agent import LlmAgent
from keryx.agents.llm.local_model import LocalModel
from keryx.agents.llm.models import Models
from keryx.agents.tools import Toolbox, ToolSets
from keryx.config import Settings
from keryx.core.clock import Clock
from keryx.core.errors import Invalid
from keryx.core.ports.agent import Agent
from keryx.engine.policy import BUILTIN_TOOLS


@asynccontextmanager
async def open_llm_agent(
    settings: Settings, builtin: Toolbox, clock: Clock, lent: EditorTools | None = None
) -> AsyncGenerator[Agent]:
    """Answers with the configured models; `local` is one of them wherever it is installed. `lent` are the tools of an
    editor."""
    if settings.active_agent == "local" and not local_model.is_installed():
        raise Invalid(local_model.NOT_INSTALLED)
    models = settings.named_models
    if not models and settings.active_agent == "llm":
        raise Invalid(
            "agent = 'llm' has no model: set KERYX_LLM_BASE_URL and KERYX_LLM_MODEL, or add [[models]] to keryx.toml"
        )
    small = LocalModel()
    default = local_model.MODEL.name if settings.active_agent == "local" else settings.model
    every = Models((*models, local_model.MODEL) if local_model.is_installed() else models, default=default)
    async with (
        open_tools(settings, builtin, clock, lent) as toolbox,
        LlmAgent(every, toolbox=toolbox, local=small.endpoint, compaction=settings.compaction) as agent,
    ):
        try:
            yield agent
        finally:
            await small.aclose()


@asynccontextmanager
async def open_tools(
    settings: Settings, builtin: Toolbox, clock: Clock, lent: EditorTools | None = None
) -> AsyncGenerator[ToolSets]:
    """The built-in tools, those of the configured servers, and what an editor lends. A server is started when a turn
    needs it."""
    logs = settings.folder / "tools"
    if lent is None:
        async with _open_servers(settings, clock) as found:
            yield ToolSets({BUILTIN_TOOLS: builtin, **found}, rules=settings.permissions)
    else:
        async with _open_servers(settings, clock) as found, lent.running(clock, logs=logs / "editor"):
            yield ToolSets({BUILTIN_TOOLS: builtin, **found, "": lent}, rules=settings.permissions)


@asynccontextmanager
async def _open_servers(settings: Settings, clock: Clock) -> AsyncGenerator[Mapping[str, Toolbox]]:
    if not settings.tools:
        yield {}
        return
    try:
        from keryx.agents.mcp import servers  # noqa: PLC0415 an optional extra, and slow to import
    except ImportError as exc:
        raise Invalid(
            f"[[tools]] needs an extra ({exc.name} is missing): pip install 'keryx[tools]'"
        ) from exc
    async with servers.open_toolboxes(settings.tools, clock=clock, logs=settings.folder / "tools") as found:
        yield found
