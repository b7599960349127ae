"""The contract suite over WhatsApp, on both platforms of Meta."""

from collections.abc import AsyncIterator

import pytest
from tests.contracts.whatsapp import open_agent, open_cloud

from keryx.testing.contracts import AdapterContract, AdapterHarness


class TestWhatsAppCloud(AdapterContract):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[AdapterHarness]:
        async with open_cloud() as harness:
            yield harness


class TestWhatsAppAgent(AdapterContract):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[AdapterHarness]:
        async with open_agent() as harness:
            yield harness
