"""The contract suite over the adapter for Feishu."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contracts.feishu import CASES

from keryx.testing.contracts import AdapterContract, AdapterHarness


class TestFeishu(AdapterContract):
    @pytest.fixture(params=CASES, ids=str)
    async def harness(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AdapterHarness]:
        async with request.param.open(tmp_path) as harness:
            yield harness
