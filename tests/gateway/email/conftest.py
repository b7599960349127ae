"""A provider, and adapters on it that are closed at the end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest
from tests.fakes.email import FakeMail, open_adapter

from keryx.surfaces.gateway.email import EmailAdapter

Connect = Callable[..., Awaitable[EmailAdapter]]


@pytest.fixture
def fake() -> Iterator[FakeMail]:
    with FakeMail() as fake:
        yield fake
        assert fake.errors == []


@pytest.fixture
async def connect(fake: FakeMail) -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        async def make(**settings: object) -> EmailAdapter:
            adapter = open_adapter(fake.settings(**settings), sleep=sleep_briefly)
            stack.push_async_callback(adapter.close)
            return adapter

        yield make


async def sleep_briefly(seconds: float) -> None:
    await asyncio.sleep(0.001)
