"""The contract suite over e-mail."""

from collections.abc import AsyncIterator

import pytest
from tests.contracts.email import open_harness

from keryx.testing.contracts import AdapterContract, AdapterHarness


class TestEmail(AdapterContract):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[AdapterHarness]:
        async with open_harness() as harness:
            yield harness
