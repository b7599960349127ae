"""Brain: the agent on real models, put together by the settings."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from keryx.agents import local
from keryx.agents.llm import LlmAgent
from keryx.agents.local import LocalModel
from keryx.agents.models import Models
from keryx.config import Settings
from keryx.core.errors import Invalid
from keryx.core.ports import Agent


@asynccontextmanager
async def opened(settings: Settings) -> AsyncGenerator[Agent]:
    """Answers with the configured models; `local` is one of them wherever it is installed."""
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
    async with LlmAgent(every, local=small.endpoint, compaction=settings.compaction) as agent:
        try:
            yield agent
        finally:
            await small.aclose()
