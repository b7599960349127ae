"""Housekeeping: forgets what the policy says may be forgotten, in small units of work."""

from keryx.core.ports import Clock
from keryx.engine.policy import Policy
from keryx.store import changes, gates, inbox, lanes, sessions, signins
from keryx.store.database import Database


class Housekeeping:
    def __init__(self, database: Database, clock: Clock, *, policy: Policy) -> None:
        self._database = database
        self._clock = clock
        self._keep = policy.keep

    async def sweep(self) -> None:
        now = self._clock.now()
        keep = self._keep
        await self._database.write("inbox.trim", lambda tx: inbox.trim(tx, before=now - keep.inbox))
        while await self._database.write("feed.trim", lambda tx: changes.trim(tx, before=now - keep.feed)):
            pass
        await self._database.write("gates.trim", lambda tx: gates.trim(tx, now=now))
        await self._database.write("sign_ins.trim", lambda tx: signins.trim(tx, now=now))
        await self._database.write("lanes.drop", lambda tx: lanes.drop_idle(tx, before=now - keep.lanes))
        due = await self._database.read("sessions.due", lambda tx: sessions.due_for_erasure(tx, now=now))
        for session in due:
            await self._database.write(
                "session.erase", lambda tx, gone=session: sessions.erase(tx, gone, now=now)
            )
