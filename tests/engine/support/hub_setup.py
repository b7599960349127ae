"""HubSetup: a hub with sessions, turns, lanes and people to call it on.

Running turns belong to another worker, so that a node beside it leaves them alone."""

from itertools import count

from tests.builders import OPERATORS, Store, a_running_turn, a_session, a_turn, at_time
from tests.engine.world import FAKE, inbound

from keryx.core.deliveries import Target
from keryx.core.ports.adapter import InboundMessage
from keryx.core.ports.agent import TextDelta
from keryx.core.sessions import Session
from keryx.core.source import Source
from keryx.core.turns import Turn
from keryx.engine.hub import Hub
from keryx.engine.units import turn_writes
from keryx.store import sessions
from keryx.store.db import Database, Transaction
from keryx.testing import FakeClock

CLOSED = "closed"
_names = count(1)


def fresh() -> str:
    """Return a name that was not used before."""
    return f"n{next(_names)}"


class HubSetup(Store):
    """A hub, its store and its clock."""

    def __init__(self, database: Database, hub: Hub, clock: FakeClock) -> None:
        super().__init__(database)
        self.hub = hub
        self.clock = clock

    async def talked(self) -> Session:
        """Return a session with one message and its answer."""
        return await self.write(self._talked)

    async def busy(self) -> tuple[Turn, Turn]:
        """Return a running and a queued turn of a new session."""
        return await self.write(self._busy)

    async def lane(self) -> tuple[str, InboundMessage]:
        """Return the key of a new lane, and the message that it has received."""
        said = inbound("hello", chat=fresh())
        receipt = await self.hub.receive(said)
        lanes = await self.hub.lanes.page(OPERATORS)
        return next(lane.key for lane in lanes if lane.session == receipt.session), said

    async def person(self, platform: str = FAKE) -> str:
        """Return a person who has talked on an open platform, or who waits for approval on a closed one."""
        name = fresh()
        source = Source(platform=platform, chat=name, user=name, user_name=name)
        target = Target(platform, chat=name)
        await self.hub.receive(inbound("hello", source=source, reply=target, principal=None))
        return name

    def _talked(self, tx: Transaction) -> Session:
        now = self.clock.now()
        turn = a_running_turn(tx, a_session(tx, title=fresh(), at=now), at=now)
        turn_writes.finish(at_time(tx, now), turn, events=[TextDelta("an answer")])
        return sessions.get(tx, turn.session)

    def _busy(self, tx: Transaction) -> tuple[Turn, Turn]:
        now = self.clock.now()
        running = a_running_turn(tx, a_session(tx, title=fresh(), at=now), at=now)
        return running, a_turn(tx, sessions.get(tx, running.session), at=now)
