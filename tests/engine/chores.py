"""Chores: what a node does by itself, each as something that makes it do the one write which has its label."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from tests.engine.setting import Setting, fresh
from tests.engine.world import AT_ONCE, ECHO, World

from keryx.core.deliveries import DeliveryState
from keryx.core.ids import SessionId
from keryx.core.ports.adapter import Capabilities, Receipt
from keryx.core.ports.agent import Agent
from keryx.core.sessions import Session
from keryx.engine.policy import Policy
from keryx.store import deliveries
from keryx.store.db import Transaction
from keryx.testing import FakeClock

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
PLAIN = Capabilities(threads=True)
# How often a node looks after its leases, and sweeps.
LEASES, SWEEPS = 5.0, 30.0

Done: TypeAlias = Callable[[Transaction], bool]


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done: `cause` lets a node begin with it, `done` tells whether it is done."""

    cause: Callable[[], Awaitable[object]]
    done: Done


@dataclass(frozen=True, slots=True)
class Chore:
    """`begin` arranges the work, in a world that is as the other fields say. A node tries again each `step` of time,
    unless it does not try it again."""

    begin: Callable[[World], Awaitable[Work]]
    step: float = 0.5
    policy: Policy = AT_ONCE
    agent: Agent = ECHO
    able: Capabilities = PLAIN
    limit: int = 0
    retried: bool = True


class Unreliable:
    """A hook that fails at first for a session whose title says so."""

    def __init__(self) -> None:
        self.calls: list[SessionId] = []

    async def __call__(self, session: Session, reason: str) -> None:
        self.calls.append(session.id)
        if session.title.startswith("fail") and self.calls.count(session.id) == 1:
            raise RuntimeError("the hook failed")


def setting(world: World) -> Setting:
    assert isinstance(world.clock, FakeClock)
    return Setting(world.database, world.hub, world.clock)


def after(world: World, by: timedelta) -> Callable[[], Awaitable[None]]:
    async def cause() -> None:
        world.advance(by)

    return cause


async def say(world: World, text: str, **fields: Any) -> Receipt:
    """Somebody new says something at a new place."""
    name = fresh()
    return await world.say(text, chat=name, user=name, **fields)


def answered(receipt: Receipt) -> Done:
    """Whether everything that is sent for a turn has been."""
    turn = receipt.turn
    assert turn is not None

    def done(tx: Transaction) -> bool:
        sent = [d.state is DeliveryState.SENT for d in deliveries.list_for_turn(tx, turn)]
        return bool(sent) and all(sent)

    return done
