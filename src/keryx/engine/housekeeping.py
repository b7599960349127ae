"""Housekeeping: forgets what the policy says may be forgotten, in small units of work."""

from datetime import datetime, timedelta

from keryx.core.ports import Clock
from keryx.engine.policy import Policy
from keryx.store import (
    changes,
    gates,
    guesses,
    inbox,
    lanes,
    links,
    media,
    pairings,
    previews,
    runs,
    sessions,
    signins,
)
from keryx.store.database import Database, Transaction

_FORGET = timedelta(days=1)


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
        await self._database.write("previews.trim", lambda tx: previews.trim(tx, before=now - keep.feed))
        await self._database.write("sign_ins.trim", lambda tx: signins.trim(tx, now=now))
        await self._database.write("codes.trim", lambda tx: _trim_codes(tx, now))
        await self._database.write("runs.trim", lambda tx: runs.trim(tx, before=now - keep.runs))
        await self._database.write("lanes.drop", lambda tx: lanes.drop_idle(tx, before=now - keep.lanes))
        due = await self._database.read("sessions.due", lambda tx: sessions.due_for_erasure(tx, now=now))
        for session in due:
            await self._database.write(
                "session.erase", lambda tx, gone=session: sessions.erase(tx, gone, now=now)
            )
        await self._remove_files()

    async def _remove_files(self) -> None:
        """Remove the files that nobody has come to use, each in a unit of its own."""
        before = self._clock.now() - self._keep.files
        await self._database.write("media.let_go", lambda tx: media.let_go(tx, before=before))
        while unused := await self._database.read("media.unused", lambda tx: media.unused(tx, before=before)):
            for id_ in unused:
                await self._database.write("media.remove", lambda tx, id_=id_: media.remove_unused(tx, id_))


def _trim_codes(tx: Transaction, now: datetime) -> None:
    pairings.trim(tx, before=now - _FORGET)
    links.trim(tx, before=now - _FORGET)
    guesses.trim(tx, before=now - _FORGET)
