"""The contract suite over WeChat."""

from collections.abc import AsyncIterator

import pytest
from tests.contracts.wechat import open_wechat

from keryx.testing.contracts import AdapterContract, AdapterHarness


class TestWeChat(AdapterContract):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[AdapterHarness]:
        async with open_wechat() as harness:
            yield harness
