"""Periodic sweeps: end sessions whose lane is due for a reset, run their end hooks, and delete what the retention policy allows."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial

from keryx.core import resets
from keryx.core.clock import Clock
from keryx.core.lanes import Lane, LaneAddress
from keryx.core.sessions import EndReason, Session
from keryx.engine.policy import Policy
from keryx.engine.units import receive
from keryx.store import (
    access,
    changes,
    deliveries,
    inbox,
    jobs,
    lanes,
    media,
    people,
    platforms,
    sessions,
    turns,
)
from keryx.store.db.database import Database, Transaction
from keryx.store.sessions import SessionEndHook

log = logging.getLogger(__name__)
_HOOK_RETRY_DELAY = timedelta(minutes=5)
_CODE_RETENTION = timedelta(days=1)

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
        for lane in await self._database.read("lanes.expired", lambda tx: lanes.list_expired(tx)):
            await self._database.write("lane.expire", partial(_expire_lane, lane=lane, policy=self._policy))
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


def _expire_lane(tx: Transaction, *, lane: Lane, policy: Policy) -> None:
    """End the lane's session if it is due. The lane moves, and the person is told, with the next message."""
    address = LaneAddress(key=lane.key, shared=lane.shared)
    current = lanes.ensure(tx, address, lane.source, owner=lane.owner)
    reason = receive.find_reset_reason(tx, current, policy)
    if reason is None:
        running = turns.find_running(tx, current.session) if current.session else None
        rule = policy.resets.for_source(current.source.platform, current.source.chat_type)
        again = resets.find_next_due(
            rule,
            last_active=current.active_at,
            busy_since=running.started_at if running else None,
            busy_limit=policy.busy_limit,
        )
        lanes.set_expiry(tx, current, again if current.session else None)
        return
    assert current.session is not None
    sessions.lock(tx, current.session)
    session = sessions.get(tx, current.session, deleted=True)
    if session.ended_at is None:
        sessions.end(tx, session, EndReason(reason.value))
        sessions.add_end_hook(tx, session.id, reason.value)
    lanes.set_expiry(tx, current, None)


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
        await self._database.write("gates.trim", lambda tx: platforms.trim_gates(tx))
        await self._database.write(
            "previews.trim", lambda tx: deliveries.trim_previews(tx, before=now - keep.feed)
        )
        await self._database.write("sign_ins.trim", lambda tx: access.trim_sign_ins(tx))
        await self._database.write("codes.trim", lambda tx: _trim_codes(tx))
        await self._database.write("runs.trim", lambda tx: jobs.trim_runs(tx, before=now - keep.runs))
        await self._database.write("lanes.drop", lambda tx: lanes.delete_idle(tx, before=now - keep.lanes))
        due = await self._database.read("sessions.due", lambda tx: sessions.list_due_for_erasure(tx))
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


def _trim_codes(tx: Transaction) -> None:
    access.trim_pairings(tx, before=tx.now - _CODE_RETENTION)
    people.trim_link_codes(tx, before=tx.now - _CODE_RETENTION)
    access.trim_attempts(tx, before=tx.now - _CODE_RETENTION)
