"""Leases: this worker's are renewed, and what workers that are gone held is put back. Nothing is run here."""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial

import anyio
import msgspec

from keryx.core.deliveries import Delivery, Idempotency
from keryx.core.errors import Conflict, KeryxError
from keryx.core.ids import DeliveryId, LeaseToken, TurnId, WorkerId
from keryx.core.ports import Clock
from keryx.core.previews import Preview, PreviewState
from keryx.core.questions import Asked, QuestionState
from keryx.core.turns import Turn
from keryx.engine import outcome, record, scheduler, worker
from keryx.engine.policy import Policy
from keryx.store import claims, deliveries, gates, previews, questions, sessions, turns, workers
from keryx.store.database import Database, Transaction
from keryx.store.workers import Worker

log = logging.getLogger(__name__)

Step = Callable[[], Awaitable[None]]
Unit = Callable[[Transaction], object]

_FORGET = timedelta(days=1)
_LONGEST_WAIT = timedelta(minutes=1)
_JUMP_SECONDS = 5


class Held(msgspec.Struct, frozen=True):
    """What this worker is at work on. Only that is renewed: what it lost track of must run out."""

    turns: frozenset[TurnId]
    deliveries: frozenset[DeliveryId]


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
        held: Callable[[], Held],
        look_again: Callable[[], None],
    ) -> None:
        self._database = database
        self._clock = clock
        self._me = me
        self._policy = policy
        self._idempotency = idempotency
        self._held = held
        self._look_again = look_again
        self._last = (clock.now(), clock.monotonic())
        self._capping_until = 0.0

    async def run(self) -> None:
        seconds = self._policy.limits.lease.total_seconds() / 3
        async with anyio.create_task_group() as group:
            group.start_soon(self._every, seconds, self.renew)
            group.start_soon(self._every, seconds, self.sweep)

    async def _every(self, seconds: float, step: Step) -> None:
        while True:
            try:
                await step()
            except KeryxError as exc:
                log.warning("leases wait for the store: %s", exc)
            await self._clock.sleep(seconds)

    async def renew(self) -> None:
        now = self._clock.now()
        lease = self._policy.limits.lease
        if self._went_back(now):
            log.warning("the clock was set back: nothing waits for a moment that was meant to be sooner")
            self._capping_until = self._clock.monotonic() + _LONGEST_WAIT.total_seconds()
        # Work that was under way at the jump may still write a moment of the old time: cap for a while.
        if self._clock.monotonic() < self._capping_until:
            await self._database.write("waits.cap", partial(_cap_waits, now=now))
            self._look_again()
        await self._database.write(
            "leases.renew", partial(_renew, me=self._me, held=self._held(), now=now, lease=lease)
        )

    def _went_back(self, now: datetime) -> bool:
        """Whether the wall clock lost time since the last heartbeat, by the clock that never goes back."""
        monotonic = self._clock.monotonic()
        before, self._last = self._last, (now, monotonic)
        return (now - before[0]).total_seconds() - (monotonic - before[1]) < -_JUMP_SECONDS

    async def sweep(self) -> None:
        """Put back what dead workers held: at once for those of this machine, else when the lease has run out."""
        now = self._clock.now()
        # Whoever dies between its commit and its wake-up leaves others asleep beside the work.
        self._database.wake.signal()
        gone = await self._database.read("leases.gone", _gone)
        held = await self._database.read(
            "leases.abandoned", lambda tx: claims.abandoned(tx, now=now, workers=gone)
        )
        limits = self._policy.limits
        for ran in self._by_worker(held):
            await self._try(
                "turn.recover",
                partial(record.recover, ran=ran, now=now, fresh=limits.fresh, lease=limits.lease),
            )
        orphans = await self._database.read("leases.orphans", _orphans)
        for turn in orphans:
            await self._try("turn.orphan", partial(record.close_orphan, turn=turn, now=now))
        for asked in await self._database.read(
            "questions.overdue", lambda tx: questions.overdue(tx, now=now)
        ):
            await self._try("question.expire", partial(_expire, asked=asked, now=now))
        sending = await self._database.read("leases.sending", lambda tx: _sending(tx, now=now, gone=gone))
        for delivery, lease, edited in sending:
            if delivery.id in self._held().deliveries:
                continue
            known = self._idempotency.get(delivery.target.platform, Idempotency.NONE)
            known = Idempotency.NATIVE if edited else known
            step = outcome.orphaned(delivery, known, self._policy.doubt, now=now)
            await self._try(
                "delivery.recover",
                partial(outcome.settle, delivery=delivery, lease=lease, step=step, now=now),
            )
        await self._database.write("workers.forget", partial(_forget, before=now - _FORGET, gone=gone))

    def _by_worker(self, held: list[Turn]) -> list[list[Turn]]:
        """Abandoned turns by who ran them. After a standstill of this process its own leases have run out too:
        the heartbeat renews them."""
        mine = self._held().turns
        groups: dict[WorkerId | None, list[Turn]] = {}
        for turn in held:
            if turn.worker != self._me.id or turn.id not in mine:
                groups.setdefault(turn.worker, []).append(turn)
        return list(groups.values())

    async def _try(self, label: str, work: Unit) -> None:
        try:
            await self._database.write(label, work)
        except Conflict:
            log.info("%s: somebody was faster", label)

    async def leave(self) -> None:
        """Say good-bye, so that nobody waits for this worker. If the store is away, the others forget it in time."""
        try:
            await self._database.write("workers.remove", lambda tx: workers.remove(tx, self._me.id))
        except KeryxError as exc:
            log.warning("this worker leaves without a word: %s", exc)


def _renew(tx: Transaction, *, me: Worker, held: Held, now: datetime, lease: timedelta) -> None:
    workers.see(tx, msgspec.structs.replace(me, seen_at=now))
    claims.renew(tx, me.id, held.turns, until=now + lease)
    deliveries.renew(tx, me.id, held.deliveries, until=now + lease)


def _cap_waits(tx: Transaction, *, now: datetime) -> None:
    until = now + _LONGEST_WAIT
    claims.cap_waits(tx, until=until)
    deliveries.cap_waits(tx, until=until)
    gates.cap_waits(tx, until=until)
    scheduler.bring_forward(tx, now=now)


def _gone(tx: Transaction) -> list[WorkerId]:
    return [w.id for w in workers.every(tx) if worker.dead(w)]


def _orphans(tx: Transaction) -> list[Turn]:
    """Waiting turns that only a worker which is gone may run."""
    alive = {w.id for w in workers.every(tx) if not worker.dead(w)}
    return [t for t in turns.pinned(tx) if t.pin not in alive]


def _expire(tx: Transaction, *, asked: Asked, now: datetime) -> None:
    """A question that was left has run out, which is no consent."""
    sessions.lock(tx, asked.session)
    questions.close(tx, asked, QuestionState.EXPIRED, now=now)


def _sending(
    tx: Transaction, *, now: datetime, gone: list[WorkerId]
) -> list[tuple[Delivery, LeaseToken, bool]]:
    """Deliveries whose sender is gone, and whether what they were doing was an edit, which may be repeated."""
    found = deliveries.abandoned(tx, now=now, workers=gone)
    return [(d, lease, _edits(previews.replaced_by(tx, d))) for d, lease in found]


def _edits(preview: Preview | None) -> bool:
    return preview is not None and preview.state is PreviewState.SHOWN


def _forget(tx: Transaction, *, before: datetime, gone: list[WorkerId]) -> None:
    for known in workers.every(tx):
        if known.id in gone or known.seen_at < before:
            workers.remove(tx, known.id)
