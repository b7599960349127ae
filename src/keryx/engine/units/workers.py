"""Workers: the identity of a process and whether it is alive, its heartbeat, and what a dead one leaves behind."""

import logging
import os
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from keryx.core import ids
from keryx.core.errors import Conflict
from keryx.core.ids import DeliveryId, TurnId, WorkerId
from keryx.core.ports.adapter import PlatformStatus
from keryx.core.turns import Turn
from keryx.engine.units import jobs
from keryx.store import deliveries, platforms, turns, workers
from keryx.store.db import Transaction
from keryx.store.workers import Worker

log = logging.getLogger(__name__)

MAX_WAIT = timedelta(minutes=1)
_FORGET_AFTER = timedelta(days=1)


class ActiveWork(msgspec.Struct, frozen=True):
    """The work of this worker. Only these leases are renewed, so that work it lost track of expires."""

    turns: frozenset[TurnId]
    deliveries: frozenset[DeliveryId]


def build_worker(kind: str, *, now: datetime) -> Worker:
    """Return the worker of this process. Its id contains the start time of the process, because pids are reused."""
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
    """Whether a worker of this machine has certainly ended. Always false for workers of other machines."""
    if worker.host != socket.gethostname():
        return False
    try:
        start_time = _read_start_time(worker.pid)
    except OSError as exc:
        # Without a free descriptor nothing can be read: ask the kernel whether there is such a process.
        log.warning("cannot read when a process started: %s", exc)
        start_time = None
    if start_time is not None:
        return start_time != worker.id.split("/")[2]
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _read_start_time(pid: int) -> str | None:
    """Return the start time of a process in kernel ticks, `0` if it does not exist, `None` on a system without /proc."""
    if not Path("/proc/self/stat").exists():
        return None
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "0"
    fields = stat.rpartition(")")[2].split()
    return "0" if fields[0] in "ZX" else fields[19]


def renew(tx: Transaction, *, me: Worker, active: ActiveWork, lease: timedelta) -> None:
    """Record a heartbeat, and renew the leases of a worker."""
    workers.heartbeat(tx, msgspec.structs.replace(me, seen_at=tx.now))
    turns.renew_leases(tx, me.id, active.turns, until=tx.now + lease)
    deliveries.renew_leases(tx, me.id, active.deliveries, until=tx.now + lease)


def cap_waits(tx: Transaction) -> None:
    """Shorten all waits to `MAX_WAIT` after the clock was set back."""
    until = tx.now + MAX_WAIT
    turns.cap_delays(tx, until=until)
    deliveries.cap_delays(tx, until=until)
    platforms.cap_gates(tx, until=until)
    jobs.bring_forward(tx)


def list_dead(tx: Transaction) -> list[WorkerId]:
    return [w.id for w in workers.list_all(tx) if is_dead(w)]


def list_orphaned_turns(tx: Transaction) -> list[Turn]:
    """Return the queued turns that only a dead worker may run."""
    alive = {w.id for w in workers.list_all(tx) if not is_dead(w)}
    return [t for t in turns.list_pinned(tx) if t.pin not in alive]


def forget(tx: Transaction, *, dead: list[WorkerId]) -> None:
    """Remove dead workers, and those that were not seen for a day."""
    for worker in workers.list_all(tx):
        if worker.id in dead or worker.seen_at < tx.now - _FORGET_AFTER:
            workers.remove(tx, worker.id)


def claim_listener(
    tx: Transaction, *, me: WorkerId, platform: str, account: str, lease: timedelta
) -> Worker | None:
    """Make this worker the listener of an account, unless another live worker is. Return that other one."""
    holder = workers.find_listener(tx, platform=platform, account=account)
    if holder == me:
        return None
    others = {w.id: w for w in workers.list_all(tx) if w.seen_at >= tx.now - lease and not is_dead(w)}
    if holder is not None and holder in others:
        return others[holder]
    if workers.set_listener(tx, me, platform=platform, account=account, previous=holder):
        return None
    raise Conflict(f"another process was faster to listen to {platform}")


def save_statuses(tx: Transaction, statuses: Sequence[PlatformStatus]) -> None:
    """Record the status of platforms in a worker."""
    for status in statuses:
        workers.save_connection(tx, status)
