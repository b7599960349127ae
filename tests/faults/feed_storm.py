"""Writers of the change feed that pause, roll back, use savepoints and are killed, beside foreign transactions on the
same PostgreSQL; then what several readers saw is compared with what was committed.

python -m tests.faults.feed_storm --seconds 300
"""

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from tests.builders import ANN, Store
from tests.postgres import Server, own_database

from keryx.core.changes import ChangeKind
from keryx.core.ids import DEFAULT_PROFILE, Cursor
from keryx.store import change_feed, changes
from keryx.store.db import Transaction
from keryx.store.db.postgres import PostgresDatabase, PostgresTransaction
from keryx.testing import START_TIME

PROCESSES, THREADS, READERS = 4, 6, 4
_SCOPE = changes.Scope(DEFAULT_PROFILE, ANN)


@dataclass
class Report:
    committed: int = 0
    kills: int = 0
    lost: list[str] = field(default_factory=list[str])
    repeated: list[str] = field(default_factory=list[str])
    inverted: list[str] = field(default_factory=list[str])

    @property
    def clean(self) -> bool:
        return not (self.lost or self.repeated or self.inverted)

    def __str__(self) -> str:
        return (
            f"{self.committed} committed, {self.kills} writers killed, {READERS} readers: "
            f"{len(self.lost)} lost, {len(self.repeated)} repeated, {len(self.inverted)} out of order"
        )


def run_storm(dsn: str, schema: str, *, seconds: float, seed: int = 1) -> Report:
    """Let it storm in a schema, which is made if it is not there."""
    return asyncio.run(_run(dsn, schema, seconds, random.Random(seed)))


async def _run(dsn: str, schema: str, seconds: float, chance: random.Random) -> Report:
    report, ending = Report(), asyncio.Event()
    async with PostgresDatabase(dsn, schema=schema, connections=READERS) as database:
        await database.write(
            "storm", lambda tx: tx.run("create table if not exists written (subject text primary key)")
        )
        store = Store(database)
        with ExitStack() as stack:
            _open_foreign_transactions(stack, dsn)
            writers = [_start_writer(dsn, schema, n) for n in range(PROCESSES)]
            try:
                async with asyncio.TaskGroup() as group:
                    readers = [
                        group.create_task(_read(store, ending, start=n * seconds / 2 / READERS, seed=n))
                        for n in range(READERS)
                    ]
                    until = time.monotonic() + seconds
                    while time.monotonic() < until:
                        await asyncio.sleep(chance.uniform(0.1, 0.6))
                        await asyncio.to_thread(_kill_one, dsn, schema, writers, chance)
                        report.kills += 1
                    await asyncio.to_thread(_stop, dsn, writers)
                    ending.set()
            finally:
                _stop(dsn, writers)
        order = [str(row[0]) for row in await database.read("storm", _list_order)]
        written = {str(row[0]) for row in await database.read("storm", _list_written)}
    report.committed = len(written)
    report.lost += sorted(written ^ set(order))
    for shown, seen in (reader.result() for reader in readers):
        report.lost += sorted(written - shown - set(seen))
        report.repeated += [name for name, times in Counter([*shown, *seen]).items() if times > 1]
        if seen != [name for name in order if name not in shown]:
            report.inverted.append(f"a reader that began with {len(shown)}")
    return report


async def _read(
    store: Store, ending: asyncio.Event, *, start: float, seed: int
) -> tuple[set[str], list[str]]:
    """Open and follow. Return what the first snapshot showed and what came after it."""
    chance = random.Random(seed)
    await asyncio.sleep(start)
    shown, cursor = await store.read(_open)
    seen: list[str] = []
    while True:
        last = ending.is_set()
        page = await store.read(change_feed.read_page, cursor, limit=chance.choice([1, 7, 500]))
        seen += [change.subject for change in page.changes]
        if page.changes:
            cursor = page.changes[-1].cursor
        elif last and not page.held_back:
            return shown, seen
        await asyncio.sleep(chance.uniform(0, 0.01))


def _open(tx: Transaction) -> tuple[set[str], Cursor]:
    return {str(row[0]) for row in _list_written(tx)}, changes.get_head(tx)


def _list_written(tx: Transaction) -> list[Any]:
    return list(tx.rows("select subject from written"))


def _list_order(tx: Transaction) -> list[Any]:
    return list(tx.rows("select subject from changes order by xid, position"))


def _open_foreign_transactions(stack: ExitStack, dsn: str) -> None:
    """Transactions that have a number and never end, in this database and in another one."""
    for address in (dsn, stack.enter_context(own_database(dsn))):
        foreign = stack.enter_context(psycopg.connect(address))
        foreign.execute("select pg_current_xact_id()")
        stack.callback(foreign.rollback)


def _start_writer(dsn: str, schema: str, number: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.feed_storm", "--write", dsn, schema, str(number)]
    )


def _kill_one(dsn: str, schema: str, writers: list[subprocess.Popen[bytes]], chance: random.Random) -> None:
    """End one session, or a process with all its sessions, which is started again."""
    if chance.random() < 0.7:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'keryx storm'"
                " order by random() limit 1"
            )
        return
    number = chance.randrange(len(writers))
    writers[number].kill()
    writers[number].wait()
    writers[number] = _start_writer(dsn, schema, number)


def _stop(dsn: str, writers: list[subprocess.Popen[bytes]]) -> None:
    """Kill the writers and wait until the server has rolled back what they left."""
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    with psycopg.connect(dsn, autocommit=True) as connection:
        while connection.execute(
            "select 1 from pg_stat_activity where application_name = 'keryx storm' limit 1"
        ).fetchall():
            time.sleep(0.02)


def _write(dsn: str, schema: str, number: int) -> None:
    """What a process of writers does, until it is killed."""
    for n in range(THREADS):
        threading.Thread(target=_write_forever, args=(dsn, schema, random.Random(f"{number} {n}"))).start()


def _write_forever(dsn: str, schema: str, chance: random.Random) -> None:
    while True:
        # The session is ended now and then: the next one goes on.
        with (
            suppress(psycopg.Error),
            psycopg.connect(
                dsn, options=f"-c search_path={schema}", application_name="keryx storm", autocommit=True
            ) as connection,
        ):
            while True:
                _write_once(connection, chance)


def _write_once(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    tx = PostgresTransaction(connection, START_TIME)
    tx.row("select pg_current_xact_id()")
    _pause(chance)
    if chance.random() < 0.3:
        tx.run("savepoint unit")
        _note(tx)
        tx.row("rollback to unit" if chance.random() < 0.5 else "release unit")
        _pause(chance)
    for _ in range(chance.randrange(4)):
        _note(tx)
        _pause(chance)
    tx.row("select 1")
    if chance.random() < 0.15:
        connection.execute("rollback")
    else:
        tx.commit()


def _note(tx: Transaction) -> None:
    [[subject]] = tx.rows("select gen_random_uuid()::text")
    tx.run("insert into written (subject) values (:subject)", {"subject": subject})
    changes.note(tx, ChangeKind.SESSION, subject, _SCOPE)


def _pause(chance: random.Random) -> None:
    if chance.random() < 0.5:
        time.sleep(chance.choice([0, 0.001, 0.005, 0.02, 0.1]))


def main() -> int:
    parser = argparse.ArgumentParser(description="The change feed under writers that are killed.")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", nargs=3, metavar=("DSN", "SCHEMA", "NUMBER"))
    given = parser.parse_args()
    if given.write:
        _write(given.write[0], given.write[1], int(given.write[2]))
        return 0
    server = Server()
    try:
        server.start()
        report = run_storm(server.dsn, "storm", seconds=given.seconds, seed=given.seed)
    finally:
        server.remove()
    print(report)
    print(*report.lost[:10], *report.repeated[:10], *report.inverted[:10], sep="\n")
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())
