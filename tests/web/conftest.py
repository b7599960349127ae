"""A site over a world of the engine, on both engines."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.cli.driver import Cli
from tests.engine.conftest import begin, world
from tests.engine.world import World
from tests.web.site import Site, open_site

__all__ = ["begin", "world"]


@pytest.fixture
async def site(world: World) -> AsyncIterator[Site]:
    """A site that asks nobody for a token, with the echo agent behind it."""
    async with open_site(world.hub, world.clock) as made:
        yield made


@pytest.fixture
def keryx(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home")
