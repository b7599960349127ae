"""`pytest --pyargs keryx.testing` runs the contract suites over the harnesses that two variables name.

`KERYX_TEST_ADAPTER` and `KERYX_TEST_AGENT` are lists of `module:function`, separated by white space. A function returns an
asynchronous context manager of the harness; one for adapters takes an empty folder.
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from pkgutil import resolve_name

import pytest

from keryx.testing.contracts import AdapterContract, AdapterHarness, AgentContract, AgentHarness

_ADAPTERS = os.environ.get("KERYX_TEST_ADAPTER", "").split()
_AGENTS = os.environ.get("KERYX_TEST_AGENT", "").split()


def test_a_harness_is_named() -> None:
    assert _ADAPTERS or _AGENTS, (
        "name what to test, as in KERYX_TEST_ADAPTER=carrier_fake:open_harness pytest --pyargs keryx.testing"
    )


@pytest.mark.skipif(not _ADAPTERS, reason="KERYX_TEST_ADAPTER names no harness")
class TestAdapter(AdapterContract):
    seconds = float(os.environ.get("KERYX_TEST_SECONDS", "60"))

    @pytest.fixture(params=_ADAPTERS)
    async def harness(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AdapterHarness]:
        open_harness: Callable[[Path], AbstractAsyncContextManager[AdapterHarness]] = resolve_name(
            request.param
        )
        async with open_harness(tmp_path) as harness:
            yield harness


@pytest.mark.skipif(not _AGENTS, reason="KERYX_TEST_AGENT names no harness")
class TestAgent(AgentContract):
    seconds = float(os.environ.get("KERYX_TEST_SECONDS", "60"))

    @pytest.fixture(params=_AGENTS)
    async def harness(self, request: pytest.FixtureRequest) -> AsyncIterator[AgentHarness]:
        open_harness: Callable[[], AbstractAsyncContextManager[AgentHarness]] = resolve_name(request.param)
        async with open_harness() as harness:
            yield harness
