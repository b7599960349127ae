"""The adapter by Socket Mode, and by the Events API."""

from collections.abc import AsyncIterator

import pytest
from tests.fakes.slack import (
    FakeSlack,
)
from tests.gateway.slack.workspace import Workspace

from keryx.surfaces.gateway.slack import (
    SlackMode,
)


@pytest.fixture
async def workspace() -> AsyncIterator[Workspace]:
    with FakeSlack() as slack:
        workspace = Workspace(slack)
        yield workspace
        await workspace.adapter.close()


@pytest.fixture
async def events() -> AsyncIterator[Workspace]:
    with FakeSlack() as slack:
        workspace = Workspace(slack, mode=SlackMode.EVENTS)
        yield workspace
        await workspace.adapter.close()
