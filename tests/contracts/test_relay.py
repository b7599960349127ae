"""The contract suite over accounts that are connected through the relay."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contracts.relay import CASES, open_relayed

from keryx.testing.contracts import AdapterContract, AdapterHarness

# One platform shows the relay itself; the others show the parts of their adapters behind it.
PARAMS = [
    pytest.param(case, id=str(case), marks=() if number == 0 else pytest.mark.slow)
    for number, case in enumerate(CASES)
]


class TestRelayed(AdapterContract):
    @pytest.fixture(params=PARAMS)
    async def harness(
        self, request: pytest.FixtureRequest, tmp_path: Path, migrated: Path
    ) -> AsyncIterator[AdapterHarness]:
        async with open_relayed(request.param, tmp_path, migrated) as harness:
            yield harness
