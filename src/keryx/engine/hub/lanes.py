"""The lanes of a viewer: list, reset, suspend, switch to another session, set instructions."""

from datetime import datetime
from functools import partial

from keryx.core.clock import Clock
from keryx.core.ids import SessionId
from keryx.core.lanes import Lane, LaneMove
from keryx.core.ports.adapter import InboundMessage
from keryx.core.sessions import Viewer
from keryx.engine.policy import Policy
from keryx.engine.units import control, identities, receive
from keryx.store import lanes, sessions
from keryx.store.db.database import Database, Transaction


class HubLanes:
    """`hub.lanes`."""

    def __init__(self, database: Database, clock: Clock, *, policy: Policy) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy

    async def page(self, viewer: Viewer, *, since: datetime | None = None, limit: int = 200) -> list[Lane]:
        return await self._database.read(
            "lanes", lambda tx: lanes.list_recent(tx, viewer, since=since, limit=limit)
        )

    async def get(self, viewer: Viewer, key: str) -> tuple[Lane, list[LaneMove]]:
        """A lane with the sessions it had, newest first."""

        def work(tx: Transaction) -> tuple[Lane, list[LaneMove]]:
            lane = lanes.get(tx, key, viewer=viewer)
            return lane, lanes.list_moves(tx, lane.key)

        return await self._database.read("lane", work)

    async def reset(self, viewer: Viewer, key: str) -> None:
        """Let the next message in a lane start a new session."""
        await self._database.write(
            "lane.reset", lambda tx: control.start_new_session(tx, lanes.get(tx, key, viewer=viewer))
        )

    async def move_chat(self, platform: str, account: str, old: str, new: str) -> None:
        """A chat has another id on its platform: its lanes go on under that. Doing it twice changes nothing."""
        await self._database.write(
            "lane.chat",
            partial(
                identities.move_chat,
                platform=platform,
                account=account,
                old=old,
                new=new,
                sharing=self._policy.sharing,
            ),
        )

    async def suspend(self, viewer: Viewer, key: str, suspended: bool) -> None:
        await self._database.write(
            "lane.suspend",
            lambda tx: lanes.set_suspended(tx, lanes.get(tx, key, viewer=viewer), suspended),
        )

    async def switch(self, viewer: Viewer, inbound: InboundMessage, session: SessionId) -> None:
        """Let the lane of a source go on with a session of the same owner."""

        def work(tx: Transaction) -> None:
            lane = receive.ensure_lane(tx, inbound, self._policy, viewer.principal)
            control.switch(tx, lane, sessions.get(tx, session, viewer=viewer), why="resume")

        await self._database.write("lane.switch", work)

    async def set_instructions(self, viewer: Viewer, key: str, text: str) -> None:
        """Set what every session of a lane is told at its start; an empty text takes it away."""
        await self._database.write(
            "lane.instruct",
            lambda tx: lanes.set_instructions(tx, lanes.get(tx, key, viewer=viewer), text),
        )
