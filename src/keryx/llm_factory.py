"""Builds the LLM agent with its models and tools from the settings. Import it lazily: it loads the optional openai package."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from keryx.agents.editor_tools import EditorTools
from keryx.agents.llm import Models, local_model
from keryx.agents.llm.agent import LlmAgent
from keryx.agents.llm.local_model import LocalModel
from keryx.agents.tools import Toolbox, ToolSets
from keryx.config import Settings
from keryx.core.clock import Clock
from keryx.core.errors import Invalid, format_install_command
from keryx.core.ports.agent import Agent
from keryx.engine.policy import BUILTIN_TOOLS


@asynccontextmanager
async def open_llm_agent(
    settings: Settings, builtin: Toolbox, clock: Clock, editor_tools: EditorTools | None = None
) -> AsyncGenerator[Agent]:
    """Open the agent with the configured models, and the local model if it is installed."""
    if settings.active_agent == "local" and not local_model.is_installed():
        raise Invalid(local_model.NOT_INSTALLED)
    models = settings.named_models
    if not models and settings.active_agent == "llm":
        raise Invalid(
            "agent = 'llm' has no model: set KERYX_LLM_BASE_URL and KERYX_LLM_MODEL, or add [[models]] to keryx.toml"
        )
    local = LocalModel()
    default = local_model.MODEL.name if settings.active_agent == "local" else settings.model
    all_models = Models(
        (*models, local_model.MODEL) if local_model.is_installed() else models, default=default
    )
    async with (
        open_tools(settings, builtin, clock, editor_tools) as toolbox,
        LlmAgent(all_models, toolbox=toolbox, local=local.endpoint, compaction=settings.compaction) as agent,
    ):
        try:
            yield agent
        finally:
            await local.aclose()


@asynccontextmanager
async def open_tools(
    settings: Settings, builtin: Toolbox, clock: Clock, editor_tools: EditorTools | None = None
) -> AsyncGenerator[ToolSets]:
    """Open the built-in tools, those of the configured servers, and those of an editor. Servers are started when a turn
    needs them."""
    logs = settings.folder / "tools"
    if editor_tools is None:
        async with _open_servers(settings, clock) as servers:
            yield ToolSets({BUILTIN_TOOLS: builtin, **servers}, rules=settings.permissions)
    else:
        async with (
            _open_servers(settings, clock) as servers,
            editor_tools.running(clock, logs=logs / "editor"),
        ):
            yield ToolSets({BUILTIN_TOOLS: builtin, **servers, "": editor_tools}, rules=settings.permissions)


@asynccontextmanager
async def _open_servers(settings: Settings, clock: Clock) -> AsyncGenerator[Mapping[str, Toolbox]]:
    if not settings.tools:
        yield {}
        return
    try:
        from keryx.agents.mcp import open_toolboxes  # noqa: PLC0415 an optional extra, and slow to import
    except ImportError as exc:
        raise Invalid(
            f"[[tools]] needs an extra ({exc.name} is missing): run `{format_install_command('tools')}`"
        ) from exc
    async with open_toolboxes(settings.tools, clock=clock, logs=settings.folder / "tools") as toolboxes:
        yield toolboxes
