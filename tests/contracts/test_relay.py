"""The contract suite over an account that is connected through the relay."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contracts.relay import open_relayed_telegram

from keryx.testing.contracts import AdapterContract, AdapterHarness


class TestRelayedTelegram(AdapterContract):
    @pytest.fixture
    async def harness(self, tmp_path: Path, migrated: Path) -> AsyncIterator[AdapterHarness]:
        async with open_relayed_telegram(tmp_path, migrated) as harness:
            yield harness
