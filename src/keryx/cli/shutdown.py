"""The end of a process: a deadline for parts that do not stop, and the killing of child processes."""

import logging
import os
import signal
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from keryx.app import App
from keryx.cli import output
from keryx.engine import plugins
from keryx.engine.service import Service

_GRACE_SECONDS = 2.0
_AGENT_STUCK = "the agent did not stop when it was asked to; everything is recorded"
_PROC = Path("/proc")


@asynccontextmanager
async def open_service(app: App, kind: str) -> AsyncGenerator[Service]:
    """The engine for one session. At the end an agent that does not listen is not waited for."""
    limits: list[threading.Timer] = []
    try:
        async with app.service(kind) as running:
            try:
                yield running
            finally:
                limits.append(exit_after(_GRACE_SECONDS, _AGENT_STUCK, code=1))
    finally:
        if not plugins.has_detached():
            for limit in limits:
                limit.cancel()


def exit_after(seconds: float, reason: str, *, code: int) -> threading.Timer:
    """End the process after a time, unless it has ended by then or the timer is cancelled."""
    timer = threading.Timer(seconds, exit_now, [reason], {"code": code})
    timer.daemon = True
    timer.start()
    return timer


def exit_now(reason: str, *, code: int) -> None:
    output.warn(f"keryx: {reason}")
    logging.shutdown()
    os._exit(code)


def kill_children() -> None:
    """Kill every process below this one. Where the system does not list processes, nothing is done."""
    for pid in list_descendants(os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def list_descendants(root: int) -> list[int]:
    """The processes below one, parents before their children."""
    below: dict[int, list[int]] = {}
    for pid in _list_pids():
        below.setdefault(_parent_pid(pid), []).append(pid)
    found = list(below.get(root, ()))
    for pid in found:
        found += below.get(pid, ())
    return found


def _list_pids() -> list[int]:
    return [int(p.name) for p in _PROC.iterdir() if p.name.isdigit()] if _PROC.is_dir() else []


def _parent_pid(pid: int) -> int:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])
