"""The contract suite over iMessage: through `imsg`, on the Mac and by ssh, and through BlueBubbles."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contracts.imessage import open_bluebubbles, open_imsg

from keryx.testing.contracts import AdapterContract, AdapterHarness


class TestImsg(AdapterContract):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[AdapterHarness]:
        async with open_imsg(tmp_path) as harness:
            yield harness


class TestImsgBySsh(AdapterContract):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[AdapterHarness]:
        async with open_imsg(tmp_path, ssh=True) as harness:
            yield harness


class TestBlueBubbles(AdapterContract):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[AdapterHarness]:
        async with open_bluebubbles() as harness:
            yield harness
