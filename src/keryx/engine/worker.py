"""Worker: which process this is, and whether the one that held a lease still lives."""

import os
import socket
from datetime import datetime
from pathlib import Path

from keryx.core import ids
from keryx.core.ids import WorkerId
from keryx.store.workers import Worker


def this(kind: str, *, now: datetime) -> Worker:
    """This process, as other processes see it. The id carries the start of the process: pids are reused."""
    pid = os.getpid()
    host = socket.gethostname()
    birth = _birth(pid) or ids.new(now)
    return Worker(
        id=WorkerId(f"{ids.plain(host)}/{pid}/{birth}/{kind}"),
        kind=kind,
        host=host,
        pid=pid,
        started_at=now,
        seen_at=now,
    )


def dead(worker: Worker) -> bool:
    """Whether a worker of this machine has certainly ended. Of other machines nothing is certain."""
    if worker.host != socket.gethostname():
        return False
    birth = worker.id.split("/")[2]
    now = _birth(worker.pid)
    if now is None:
        return not Path("/proc/self/stat").exists() and not _signalable(worker.pid)
    return now != birth


def _birth(pid: int) -> str | None:
    """When a process began, in the kernel's ticks; `0` for one that does not exist, `None` where that cannot be told."""
    if not Path("/proc/self/stat").exists():
        return None
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "0"
    fields = stat.rpartition(")")[2].split()
    return "0" if fields[0] in "ZX" else fields[19]


def _signalable(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
