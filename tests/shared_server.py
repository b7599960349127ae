"""A server that the processes of one test run share, since its start takes longer than most tests."""

import fcntl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest


def get_run_folder(factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return a folder that all processes of this run of the tests use."""
    own = factory.getbasetemp()
    return own if worker_id == "master" else own.parent


@contextmanager
def share(folder: Path, *, start: Callable[[], None], stop: Callable[[], None]) -> Generator[None]:
    """Take part in the server of a folder: the first process to come starts it, and the last one to go stops it."""
    folder.mkdir(exist_ok=True)
    with _change_users(folder, 1) as users:
        if users == 1:
            start()
    try:
        yield
    finally:
        with _change_users(folder, -1) as users:
            if users == 0:
                stop()


@contextmanager
def _change_users(folder: Path, change: int) -> Generator[int]:
    """Yield the new number of users, which counts if the block succeeds. Other processes wait meanwhile."""
    with (folder / "users").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        users = int(file.read() or 0) + change
        yield users
        file.truncate(0)
        file.write(str(users))
