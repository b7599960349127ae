"""Renews the leases of this process, and recovers the work of dead processes. Nothing is run here."""

import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TypeVar

import anyio

from keryx.core.clock import Clock
from keryx.core.deliveries import SUSPECT_ENDS, DeliveryState, Idempotency
from keryx.core.errors import Conflict, KeryxError
from keryx.core.ids import WorkerId
from keryx.core.turns import Turn
from keryx.engine.loops import reports
from keryx.engine.loops.sweeps import repeat
from keryx.engine.policy import Policy
from keryx.engine.units import deliveries, questions, turn_writes, workers
from keryx.engine.units.deliveries import AbandonedDelivery
from keryx.engine.units.workers import ActiveWork
from keryx.store import questions as questions_store
from keryx.store import turns
from keryx.store import workers as workers_store
from keryx.store.db import Database, Work
from keryx.store.workers import Worker

log = logging.getLogger(__name__)
T = TypeVar("T")
_JUMP_SECONDS = 5


class Leases:
    """Heartbeat and sweep of one worker, on a third of the lease time."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        me: Worker,
        policy: Policy,
        idempotency: dict[str, Idempotency],
        list_active: Callable[[], ActiveWork],
        look_again: Callable[[], None],
    ) -> None:
        self._database = database
        self._clock = clock
        self._me = me
        self._policy = policy
        self._idempotency = idempotency
        self._list_active = list_active
        self._look_again = look_again
        self._last = (clock.now(), clock.monotonic())
        self._capping_until = 0.0

    async def run(self) -> None:
        seconds = self._policy.limits.lease.total_seconds() / 3
        async with anyio.create_task_group() as group:
            group.start_soon(repeat, self._clock, seconds, self.renew)
            group.start_soon(repeat, self._clock, seconds, self.sweep)

    async def renew(self) -> None:
        """Record a heartbeat and renew the leases of this worker."""
        now = self._clock.now()
        lease = self._policy.limits.lease
        if self._clock_went_back(now):
            log.warning("the clock was set back: shortening waits that are now too long")
            self._capping_until = self._clock.monotonic() + workers.MAX_WAIT.total_seconds()
        # Work that was running during the jump may still write a time of the old clock: cap for a while.
        if self._clock.monotonic() < self._capping_until:
            await self._database.write("waits.cap", workers.cap_waits)
            self._look_again()
        await self._database.write(
            "leases.renew", partial(workers.renew, me=self._me, active=self._list_active(), lease=lease)
        )

    def _clock_went_back(self, now: datetime) -> bool:
        """Whether the wall clock lost time against the monotonic clock since the last heartbeat."""
        monotonic = self._clock.monotonic()
        before, self._last = self._last, (now, monotonic)
        return (now - before[0]).total_seconds() - (monotonic - before[1]) < -_JUMP_SECONDS

    async def sweep(self) -> None:
        """Recover the work of dead workers: at once on this machine, otherwise when the lease has expired."""
        now = self._clock.now()
        # A process that dies after its commit but before NOTIFY leaves the others unaware, so poll here.
        self._database.wake.signal()
        dead = await self._database.read("leases.gone", workers.list_dead)
        abandoned = await self._database.read(
            "leases.abandoned", lambda tx: turns.list_abandoned(tx, workers=dead)
        )
        sending = await self._list_abandoned_deliveries(dead)
        suspects = sum(delivery.ends >= SUSPECT_ENDS for delivery, _, _ in sending)
        limits = self._policy.limits
        for group in self._group_by_worker(abandoned):
            recovered = await self._write_if_current(
                "turn.recover",
                partial(
                    turn_writes.recover,
                    abandoned=group,
                    fresh=limits.fresh,
                    lease=limits.lease,
                    spare=suspects > 0,
                ),
            )
            for turn, state in recovered or ():
                reports.report_recovered(turn, state, now)
                await reports.trace_turn(self._database, turn.id)
        orphans = await self._database.read("leases.orphans", workers.list_orphaned_turns)
        for turn in orphans:
            await self._write_if_current("turn.orphan", partial(turn_writes.close_orphan, turn=turn))
        for asked in await self._database.read("questions.overdue", questions_store.list_orphaned_overdue):
            await self._write_if_current("question.expire", partial(questions.expire, asked=asked))
        for place, (delivery, lease, edited) in enumerate(sending):
            idempotency = self._idempotency.get(delivery.target.platform, Idempotency.NONE)
            if edited:
                idempotency = Idempotency.NATIVE
            step = deliveries.judge_orphan(
                delivery, idempotency, self._policy.doubt, now=now, place=place, alone=suspects == 1
            )
            if step.state is DeliveryState.DEAD:
                log.error("delivery %s is set aside: %s", delivery.id, step.error)
            await self._write_if_current(
                "delivery.recover",
                partial(deliveries.settle, delivery=delivery, lease=lease, step=step, policy=self._policy),
            )
        await self._database.write("workers.forget", partial(workers.forget, dead=dead))

    async def _list_abandoned_deliveries(self, dead: list[WorkerId]) -> list[AbandonedDelivery]:
        """Return what dead workers were sending, without what this process still sends after it was suspended."""
        found = await self._database.read("leases.sending", partial(deliveries.list_abandoned, workers=dead))
        mine = self._list_active().deliveries
        return [each for each in found if each[0].id not in mine]

    def _group_by_worker(self, abandoned: list[Turn]) -> list[list[Turn]]:
        """Group turns by their worker, without those that this process still runs: after it was suspended, its own
        leases have expired too, and the heartbeat renews them."""
        mine = self._list_active().turns
        groups: dict[WorkerId | None, list[Turn]] = {}
        for turn in abandoned:
            if turn.worker != self._me.id or turn.id not in mine:
                groups.setdefault(turn.worker, []).append(turn)
        return list(groups.values())

    async def _write_if_current(self, label: str, work: Work[T]) -> T | None:
        try:
            return await self._database.write(label, work)
        except Conflict:
            log.info("%s: another worker was faster", label)
            return None

    async def deregister(self) -> None:
        """Remove this worker, so that others recover its work at once. If the store is away, they remove it later."""
        try:
            await self._database.write("workers.remove", lambda tx: workers_store.remove(tx, self._me.id))
        except KeryxError as exc:
            log.warning("could not deregister the worker: %s", exc)
