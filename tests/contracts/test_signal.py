"""The contract suite over Signal, with and without answers that are shown while they are written."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contracts.signal import open_harness

from keryx.testing.contracts import AdapterContract, AdapterHarness


class TestSignal(AdapterContract):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[AdapterHarness]:
        async with open_harness(tmp_path) as harness:
            yield harness


class TestSignalThatStreams(AdapterContract):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[AdapterHarness]:
        async with open_harness(tmp_path, stream=True) as harness:
            yield harness
