"""Expiry: ends sessions whose lane is due for a reset, and runs the finalising hooks of ended ones, each once."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from keryx.core import resets
from keryx.core.lanes import Address
from keryx.core.ports import Clock
from keryx.core.sessions import EndReason, Session
from keryx.engine import router
from keryx.engine.policy import Policy
from keryx.store import finals, lanes, sessions, turns
from keryx.store.database import Database, Transaction
from keryx.store.finals import Final
from keryx.store.lanes import Lane

log = logging.getLogger(__name__)

Hook = Callable[[Session, str], Awaitable[None]]
_RETRY = timedelta(minutes=5)


class Expiry:
    def __init__(
        self, database: Database, clock: Clock, *, policy: Policy, hooks: Sequence[Hook] = ()
    ) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy
        self._hooks = hooks

    async def sweep(self) -> None:
        """End what is due, then finalise what has ended. Safe on any number of nodes."""
        now = self._clock.now()
        for lane in await self._database.read("lanes.expired", lambda tx: lanes.expired(tx, now=now)):
            await self._database.write(
                "lane.expire", partial(_expire, lane=lane, policy=self._policy, now=now)
            )
        while final := await self._take():
            await self._finalise(final)

    async def _take(self) -> Final | None:
        now = self._clock.now()
        return await self._database.write(
            "final.take",
            lambda tx: finals.take(tx, now=now, retry_at=now + _RETRY, most=self._policy.final_tries),
        )

    async def _finalise(self, final: Final) -> None:
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
            await self._database.write("final.fail", lambda tx: finals.fail(tx, final.session, error))
        else:
            await self._database.write("final.remove", lambda tx: finals.remove(tx, final.session))


def _expire(tx: Transaction, *, lane: Lane, policy: Policy, now: datetime) -> None:
    """End the lane's session if it is due. The lane moves, and the person is told, with the next message."""
    address = Address(key=lane.key, shared=lane.shared)
    current = lanes.ensure(tx, address, lane.source, owner=lane.owner, now=now)
    reason = router.due(tx, current, policy, now)
    if reason is None:
        running = turns.running(tx, current.session) if current.session else None
        rule = policy.resets.for_source(current.source.platform, current.source.chat_type)
        again = resets.next_due(
            rule,
            last_active=current.active_at,
            busy_since=running.started_at if running else None,
            busy_limit=policy.busy_limit,
        )
        lanes.postpone(tx, current, again if current.session else None)
        return
    assert current.session is not None
    sessions.lock(tx, current.session)
    session = sessions.get(tx, current.session, deleted=True)
    if session.ended_at is None:
        sessions.end(tx, session, EndReason(reason.value), now=now)
        finals.add(tx, session.id, reason.value, now=now)
    lanes.postpone(tx, current, None)
