"""Lanes: the places where a viewer talks, and which session each leads to."""

from datetime import datetime
from functools import partial

from keryx.core.ids import SessionId
from keryx.core.ports import Clock, Inbound
from keryx.core.sessions import Viewer
from keryx.engine import chats, control, router
from keryx.engine.policy import Policy
from keryx.store import lanes, sessions
from keryx.store.database import Database, Transaction
from keryx.store.lanes import Lane, Move


class Lanes:
    """`hub.lanes`."""

    def __init__(self, database: Database, clock: Clock, *, policy: Policy) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy

    async def page(self, viewer: Viewer, *, since: datetime | None = None, limit: int = 200) -> list[Lane]:
        return await self._database.read("lanes", lambda tx: lanes.page(tx, viewer, since=since, limit=limit))

    async def show(self, viewer: Viewer, key: str) -> tuple[Lane, list[Move]]:
        """A lane with the sessions it had, newest first."""

        def work(tx: Transaction) -> tuple[Lane, list[Move]]:
            lane = lanes.get(tx, key, viewer=viewer)
            return lane, lanes.history(tx, lane.key)

        return await self._database.read("lane", work)

    async def reset(self, viewer: Viewer, key: str) -> None:
        """Let the next message in a lane start a new session."""
        now = self._clock.now()
        await self._database.write(
            "lane.reset", lambda tx: control.begin(tx, lanes.get(tx, key, viewer=viewer), now=now)
        )

    async def move_chat(self, platform: str, account: str, old: str, new: str) -> None:
        """A chat has another id on its platform: its lanes go on under that. Doing it twice changes nothing."""
        await self._database.write(
            "lane.chat",
            partial(
                chats.move,
                platform=platform,
                account=account,
                old=old,
                new=new,
                sharing=self._policy.sharing,
                now=self._clock.now(),
            ),
        )

    async def suspend(self, viewer: Viewer, key: str, suspended: bool) -> None:
        now = self._clock.now()
        await self._database.write(
            "lane.suspend",
            lambda tx: lanes.suspend(tx, lanes.get(tx, key, viewer=viewer), suspended, now=now),
        )

    async def switch(self, viewer: Viewer, inbound: Inbound, session: SessionId) -> None:
        """Let the lane of a source go on with a session of the same owner."""
        now = self._clock.now()

        def work(tx: Transaction) -> None:
            lane = router.lane_of(tx, inbound, self._policy, viewer.principal, now)
            control.switch(tx, lane, sessions.get(tx, session, viewer=viewer), why="resume", now=now)

        await self._database.write("lane.switch", work)

    async def instruct(self, viewer: Viewer, key: str, text: str) -> None:
        """Set what every session of a lane is told at its start; an empty text takes it away."""
        await self._database.write(
            "lane.instruct",
            lambda tx: lanes.set_instructions(tx, lanes.get(tx, key, viewer=viewer), text),
        )
