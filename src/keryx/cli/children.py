"""Children: the processes that this one has begun, directly or not, so that none outlives it."""

import os
import signal
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def end() -> None:
    """Kill every process below this one. Where the system does not list processes, nothing is done."""
    for pid in found(os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def found(root: int) -> list[int]:
    """The processes below one, parents before their children."""
    below: dict[int, list[int]] = {}
    for pid in _every():
        below.setdefault(_parent(pid), []).append(pid)
    found = list(below.get(root, ()))
    for pid in found:
        found += below.get(pid, ())
    return found


def _every() -> list[int]:
    return [int(p.name) for p in _PROC.iterdir() if p.name.isdigit()] if _PROC.is_dir() else []


def _parent(pid: int) -> int:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])
