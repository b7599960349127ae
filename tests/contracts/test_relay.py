"""The contract suite over accounts that are connected through the relay."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contracts.relay import CASES, open_relayed

from keryx.testing.contracts import AdapterContract, AdapterHarness


class TestRelayed(AdapterContract):
    @pytest.fixture(params=CASES, ids=str)
    async def harness(
        self, request: pytest.FixtureRequest, tmp_path: Path, migrated: Path
    ) -> AsyncIterator[AdapterHarness]:
        async with open_relayed(request.param, tmp_path, migrated) as harness:
            yield harness
