"""The contract suite over the Discord adapter."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contracts.discord import open_discord

from keryx.testing.contracts import AdapterContract, AdapterHarness


class TestDiscord(AdapterContract):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[AdapterHarness]:
        async with open_discord(tmp_path) as harness:
            yield harness
