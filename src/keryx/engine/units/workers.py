"""Workers: the identity of a process and whether it is alive, its heartbeat, and what a dead one leaves behind."""

import os
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from keryx.core import ids
from keryx.core.ids import DeliveryId, TurnId, WorkerId
from keryx.core.ports.adapter import PlatformStatus
from keryx.core.turns import Turn
from keryx.engine.units import jobs
from keryx.store import deliveries, platforms, turns, workers
from keryx.store.db.database import Transaction
from keryx.store.workers import Worker

MAX_WAIT = timedelta(minutes=1)
_FORGET_AFTER = timedelta(days=1)


class ActiveWork(msgspec.Struct, frozen=True):
    """The work of this worker. Only these leases are renewed, so that work it lost track of expires."""

    turns: frozenset[TurnId]
    deliveries: frozenset[DeliveryId]


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


def renew(tx: Transaction, *, me: Worker, active: ActiveWork, lease: timedelta) -> None:
    """Record a heartbeat, and renew the leases of a worker."""
    workers.heartbeat(tx, msgspec.structs.replace(me, seen_at=tx.now))
    turns.renew_leases(tx, me.id, active.turns, until=tx.now + lease)
    deliveries.renew_leases(tx, me.id, active.deliveries, until=tx.now + lease)


def cap_waits(tx: Transaction) -> None:
    """After the clock was set back: let nothing wait for longer than `MAX_WAIT`."""
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


def save_statuses(tx: Transaction, statuses: Sequence[PlatformStatus]) -> None:
    """Record the status of platforms in a worker."""
    for status in statuses:
        workers.save_connection(tx, status)
