"""Locks: one node for one SQLite file, also against commands that put another file in its place."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from keryx.config import Settings
from keryx.core.errors import Conflict, StoreBroken


@contextmanager
def alone(settings: Settings) -> Generator[None]:
    """Hold the store as a node does. The operating system lets the lock go however this process ends.

    Raises `Conflict` if a node has it. A store on PostgreSQL is made for several nodes and has no lock."""
    if settings.on_postgres:
        yield
        return
    path = Path(f"{settings.store}.serve-lock")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as exc:
        raise StoreBroken(
            f"{path} cannot be written ({exc.strerror}): check its rights, or set KERYX_HOME"
        ) from exc
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            file.seek(0)
            raise Conflict(
                f"`keryx serve` works on {settings.store} (process {file.read().strip() or 'unknown'}): "
                "stop it first, or set KERYX_HOME to another folder"
            ) from exc
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def taken(settings: Settings) -> bool:
    """Whether a node of this machine works on the store now."""
    try:
        with alone(settings):
            return False
    except Conflict:
        return True
