"""The contract suite over the agents of the product."""

from collections.abc import AsyncIterator

import pytest
from tests.contracts.agents import CASES

from keryx.testing.contracts import AgentContract, AgentHarness


class TestAgents(AgentContract):
    @pytest.fixture(params=CASES, ids=str)
    async def harness(self, request: pytest.FixtureRequest) -> AsyncIterator[AgentHarness]:
        async with request.param.open() as agent:
            yield AgentHarness(agent=agent, messages=request.param.messages)
