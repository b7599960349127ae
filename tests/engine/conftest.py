"""The world of an engine test, over both engines."""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

import pytest
from tests.engine.world import AT_ONCE, World

from keryx.core.clock import Clock
from keryx.core.ports.adapter import Adapter
from keryx.core.ports.agent import Agent
from keryx.engine.loops.sweeps import NO_HOOKS, SessionFinalizer
from keryx.engine.policy import Policy
from keryx.store.db import Database
from keryx.testing import FakeClock


class Begin(Protocol):
    def __call__(
        self,
        *,
        agent: Agent | None = None,
        adapters: Sequence[Adapter] | None = None,
        policy: Policy = AT_ONCE,
        hooks: Mapping[str, SessionFinalizer] = NO_HOOKS,
        clock: Clock | None = None,
        database: Database | None = None,
    ) -> Awaitable[World]: ...


@pytest.fixture
async def begin(database: Database, clock: FakeClock) -> AsyncIterator[Begin]:
    """Begins a world with one node; ends all its nodes after the test."""
    standard, standard_clock = database, clock
    async with AsyncExitStack() as stack:

        async def world(
            *,
            agent: Agent | None = None,
            adapters: Sequence[Adapter] | None = None,
            policy: Policy = AT_ONCE,
            hooks: Mapping[str, SessionFinalizer] = NO_HOOKS,
            clock: Clock | None = None,
            database: Database | None = None,
        ) -> World:
            made = World(
                database or standard,
                clock or standard_clock,
                agent=agent,
                adapters=adapters,
                policy=policy,
                hooks=hooks,
            )
            stack.push_async_callback(made.close)
            await made.start()
            return made

        yield world


@pytest.fixture
async def world(begin: Begin) -> World:
    """A world with the echo agent and the ordinary policy."""
    return await begin()
