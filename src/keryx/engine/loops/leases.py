"""Renews the leases of this process, and requeues what dead processes held. Nothing is run here."""

import logging
import os
import socket
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
import msgspec

from keryx.core import ids
from keryx.core.clock import Clock
from keryx.core.deliveries import Delivery, Idempotency, Preview, PreviewState
from keryx.core.errors import Conflict, KeryxError
from keryx.core.ids import DeliveryId, LeaseToken, TurnId, WorkerId
from keryx.core.questions import AskedQuestion, QuestionState
from keryx.core.turns import Turn
from keryx.engine.policy import Policy
from keryx.engine.units import jobs, send_outcomes, turn_writes
from keryx.store import deliveries, platforms, questions, sessions, turns, workers
from keryx.store.db.database import Database, Transaction
from keryx.store.workers import Worker

log = logging.getLogger(__name__)
_FORGET_WORKERS_AFTER = timedelta(days=1)
_MAX_WAIT = timedelta(minutes=1)
_JUMP_SECONDS = 5


def build_worker(kind: str, *, now: datetime) -> Worker:
    """This process, as other processes see it. The id carries the start of the process: pids are reused."""
    pid = os.getpid()
    host = socket.gethostname()
    birth = _read_start_time(pid) or ids.new(now)
    return Worker(
        id=WorkerId(f"{ids.escape(host)}/{pid}/{birth}/{kind}"),
        kind=kind,
        host=host,
        pid=pid,
        started_at=now,
        seen_at=now,
    )


def is_dead(worker: Worker) -> bool:
    """Whether a worker of this machine has certainly ended. Of other machines nothing is certain."""
    if worker.host != socket.gethostname():
        return False
    birth = worker.id.split("/")[2]
    now = _read_start_time(worker.pid)
    if now is None:
        return not Path("/proc/self/stat").exists() and not _process_exists(worker.pid)
    return now != birth


def _read_start_time(pid: int) -> str | None:
    """When a process began, in the kernel's ticks; `0` for one that does not exist, `None` where that cannot be told."""
    if not Path("/proc/self/stat").exists():
        return None
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "0"
    fields = stat.rpartition(")")[2].split()
    return "0" if fields[0] in "ZX" else fields[19]


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


SweepStep = Callable[[], Awaitable[None]]
LeaseUnit = Callable[[Transaction], object]


class ActiveWork(msgspec.Struct, frozen=True):
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
        held: Callable[[], ActiveWork],
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
            group.start_soon(self._repeat, seconds, self.renew)
            group.start_soon(self._repeat, seconds, self.sweep)

    async def _repeat(self, seconds: float, step: SweepStep) -> None:
        while True:
            try:
                await step()
            except KeryxError as exc:
                log.warning("leases wait for the store: %s", exc)
            await self._clock.sleep(seconds)

    async def renew(self) -> None:
        now = self._clock.now()
        lease = self._policy.limits.lease
        if self._clock_went_back(now):
            log.warning("the clock was set back: nothing waits for a moment that was meant to be sooner")
            self._capping_until = self._clock.monotonic() + _MAX_WAIT.total_seconds()
        # Work that was under way at the jump may still write a moment of the old time: cap for a while.
        if self._clock.monotonic() < self._capping_until:
            await self._database.write("waits.cap", partial(_cap_waits))
            self._look_again()
        await self._database.write(
            "leases.renew", partial(_renew, me=self._me, held=self._held(), lease=lease)
        )

    def _clock_went_back(self, now: datetime) -> bool:
        """Whether the wall clock lost time since the last heartbeat, by the clock that never goes back."""
        monotonic = self._clock.monotonic()
        before, self._last = self._last, (now, monotonic)
        return (now - before[0]).total_seconds() - (monotonic - before[1]) < -_JUMP_SECONDS

    async def sweep(self) -> None:
        """Put back what dead workers held: at once for those of this machine, else when the lease has run out."""
        now = self._clock.now()
        # Whoever dies between its commit and its wake-up leaves others asleep beside the work.
        self._database.wake.signal()
        gone = await self._database.read("leases.gone", _find_dead_workers)
        held = await self._database.read(
            "leases.abandoned", lambda tx: turns.list_abandoned(tx, workers=gone)
        )
        limits = self._policy.limits
        for ran in self._group_by_worker(held):
            await self._write_if_current(
                "turn.recover",
                partial(turn_writes.recover, ran=ran, fresh=limits.fresh, lease=limits.lease),
            )
        orphans = await self._database.read("leases.orphans", _find_orphans)
        for turn in orphans:
            await self._write_if_current("turn.orphan", partial(turn_writes.close_orphan, turn=turn))
        for asked in await self._database.read(
            "questions.overdue", lambda tx: questions.list_orphaned_overdue(tx)
        ):
            await self._write_if_current("question.expire", partial(_expire_question, asked=asked))
        sending = await self._database.read(
            "leases.sending", lambda tx: _find_abandoned_deliveries(tx, gone=gone)
        )
        for delivery, lease, edited in sending:
            if delivery.id in self._held().deliveries:
                continue
            known = self._idempotency.get(delivery.target.platform, Idempotency.NONE)
            known = Idempotency.NATIVE if edited else known
            step = send_outcomes.judge_orphan(delivery, known, self._policy.doubt, now=now)
            await self._write_if_current(
                "delivery.recover",
                partial(send_outcomes.settle, delivery=delivery, lease=lease, step=step),
            )
        await self._database.write(
            "workers.forget", partial(_remove_workers, before=now - _FORGET_WORKERS_AFTER, gone=gone)
        )

    def _group_by_worker(self, held: list[Turn]) -> list[list[Turn]]:
        """Abandoned turns by who ran them. After a standstill of this process its own leases have run out too:
        the heartbeat renews them."""
        mine = self._held().turns
        groups: dict[WorkerId | None, list[Turn]] = {}
        for turn in held:
            if turn.worker != self._me.id or turn.id not in mine:
                groups.setdefault(turn.worker, []).append(turn)
        return list(groups.values())

    async def _write_if_current(self, label: str, work: LeaseUnit) -> None:
        try:
            await self._database.write(label, work)
        except Conflict:
            log.info("%s: somebody was faster", label)

    async def deregister(self) -> None:
        """Say good-bye, so that nobody waits for this worker. If the store is away, the others forget it in time."""
        try:
            await self._database.write("workers.remove", lambda tx: workers.remove(tx, self._me.id))
        except KeryxError as exc:
            log.warning("this worker leaves without a word: %s", exc)


def _renew(tx: Transaction, *, me: Worker, held: ActiveWork, lease: timedelta) -> None:
    workers.heartbeat(tx, msgspec.structs.replace(me, seen_at=tx.now))
    turns.renew_leases(tx, me.id, held.turns, until=tx.now + lease)
    deliveries.renew_leases(tx, me.id, held.deliveries, until=tx.now + lease)


def _cap_waits(tx: Transaction) -> None:
    until = tx.now + _MAX_WAIT
    turns.cap_delays(tx, until=until)
    deliveries.cap_delays(tx, until=until)
    platforms.cap_gates(tx, until=until)
    jobs.bring_forward(tx)


def _find_dead_workers(tx: Transaction) -> list[WorkerId]:
    return [w.id for w in workers.list_all(tx) if is_dead(w)]


def _find_orphans(tx: Transaction) -> list[Turn]:
    """Waiting turns that only a worker which is gone may run."""
    alive = {w.id for w in workers.list_all(tx) if not is_dead(w)}
    return [t for t in turns.list_pinned(tx) if t.pin not in alive]


def _expire_question(tx: Transaction, *, asked: AskedQuestion) -> None:
    """A question that was left has run out, which is no consent."""
    sessions.lock(tx, asked.session)
    questions.close(tx, asked, QuestionState.EXPIRED)


def _find_abandoned_deliveries(
    tx: Transaction, *, gone: list[WorkerId]
) -> list[tuple[Delivery, LeaseToken, bool]]:
    """Deliveries whose sender is gone, and whether what they were doing was an edit, which may be repeated."""
    found = deliveries.list_abandoned(tx, workers=gone)
    return [(d, lease, _is_edit(deliveries.find_replaced_preview(tx, d))) for d, lease in found]


def _is_edit(preview: Preview | None) -> bool:
    return preview is not None and preview.state is PreviewState.SHOWN


def _remove_workers(tx: Transaction, *, before: datetime, gone: list[WorkerId]) -> None:
    for known in workers.list_all(tx):
        if known.id in gone or known.seen_at < before:
            workers.remove(tx, known.id)
