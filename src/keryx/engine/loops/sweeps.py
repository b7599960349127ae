"""Periodic sweeps: end sessions whose lane is due for a reset, run their end hooks, and delete what the retention policy allows."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial

from keryx.core.clock import Clock
from keryx.core.sessions import Session
from keryx.engine.policy import Policy
from keryx.engine.units import access as access_units
from keryx.engine.units import receive
from keryx.store import (
    access,
    changes,
    deliveries,
    inbox,
    jobs,
    lanes,
    media,
    platforms,
    sessions,
)
from keryx.store.db.database import Database
from keryx.store.sessions import SessionEndHook

log = logging.getLogger(__name__)
_HOOK_RETRY_DELAY = timedelta(minutes=5)

SessionFinalizer = Callable[[Session, str], Awaitable[None]]


class ExpirySweep:
    def __init__(
        self, database: Database, clock: Clock, *, policy: Policy, hooks: Sequence[SessionFinalizer] = ()
    ) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy
        self._hooks = hooks

    async def sweep(self) -> None:
        """End what is due, then finalise what has ended. Safe on any number of nodes."""
        for lane in await self._database.read("lanes.expired", lanes.list_expired):
            await self._database.write(
                "lane.expire", partial(receive.expire_lane, lane=lane, policy=self._policy)
            )
        while final := await self._claim_ended():
            await self._run_hooks(final)

    async def _claim_ended(self) -> SessionEndHook | None:
        now = self._clock.now()
        return await self._database.write(
            "final.take",
            lambda tx: sessions.claim_end_hook(
                tx, retry_at=now + _HOOK_RETRY_DELAY, most=self._policy.final_tries
            ),
        )

    async def _run_hooks(self, final: SessionEndHook) -> None:
        """Run every hook. A failing one is tried again later, a bounded number of times, and its error kept."""
        session = await self._database.read(
            "final.session", lambda tx: sessions.get(tx, final.session, deleted=True)
        )
        try:
            for hook in self._hooks:
                await hook(session, final.reason)
        except Exception as exc:
            log.exception("finalising %s failed, try %s", final.session, final.tries)
            error = f"{type(exc).__name__}: {exc}"
            await self._database.write(
                "final.fail", lambda tx: sessions.record_end_hook_error(tx, final.session, error)
            )
        else:
            await self._database.write("final.remove", lambda tx: sessions.remove_end_hook(tx, final.session))


class RetentionSweep:
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
        await self._database.write("gates.trim", platforms.trim_gates)
        await self._database.write(
            "previews.trim", lambda tx: deliveries.trim_previews(tx, before=now - keep.feed)
        )
        await self._database.write("sign_ins.trim", access.trim_sign_ins)
        await self._database.write("codes.trim", access_units.trim_codes)
        await self._database.write("runs.trim", lambda tx: jobs.trim_runs(tx, before=now - keep.runs))
        await self._database.write("lanes.drop", lambda tx: lanes.delete_idle(tx, before=now - keep.lanes))
        due = await self._database.read("sessions.due", sessions.list_due_for_erasure)
        for session in due:
            await self._database.write("session.erase", lambda tx, gone=session: sessions.erase(tx, gone))
        await self._remove_files()

    async def _remove_files(self) -> None:
        """Remove the files that nobody has come to use, each in a unit of its own."""
        before = self._clock.now() - self._keep.files
        await self._database.write("media.let_go", lambda tx: media.trim_holders(tx, before=before))
        while unused := await self._database.read(
            "media.unused", lambda tx: media.list_unused(tx, before=before)
        ):
            for id_ in unused:
                await self._database.write("media.remove", lambda tx, id_=id_: media.remove_unused(tx, id_))
