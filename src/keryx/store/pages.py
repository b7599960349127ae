# The type stubs of apsw name a type that Python 3.11 does not have.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Pages: whether the file of a SQLite store is whole, and a copy of it made while others write."""

import hashlib
import os
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import apsw

from keryx.core.errors import Invalid, KeryxError, StoreBroken
from keryx.core.progress import Progress, silent
from keryx.store import migrate
from keryx.store.invariants import MOST, Problem
from keryx.store.sqlite import APPLICATION_ID, BUSY_MILLISECONDS, translate

_STEP = 256
_CHUNK = 1 << 20


def check(path: Path) -> list[Problem]:
    """What is wrong with the pages and references of a file. Changes nothing, and never raises for damage."""
    try:
        connection = _open(path)
        connection.execute("select count(*) from sqlite_schema").fetchall()
    except apsw.CantOpenError as exc:
        return [_problem(str(translate(exc, path)))]
    except (apsw.Error, KeryxError) as exc:
        return [_problem(str(exc))]
    try:
        return [*_integrity(connection), *_references(connection), *_ours(connection, path)]
    finally:
        connection.close()


def copy(source: Path, target: Path, *, progress: Progress = silent) -> None:
    """Copy a store that others may be writing, as it is at one moment, into a new file."""
    if target.exists():
        raise Invalid(f"{target} is there already: give the name of a new file")
    try:
        with closing(_open(source)) as reading, closing(apsw.Connection(str(target))) as writing:
            # The open read keeps one snapshot: without it every foreign commit would start the copy again.
            reading.execute("begin")
            reading.execute("select count(*) from sqlite_schema").fetchall()
            with writing.backup("main", reading, "main") as backup:
                while not backup.done:
                    backup.step(_STEP)
                    progress("pages", backup.page_count - backup.remaining, backup.page_count)
            reading.execute("rollback")
            writing.pragma("journal_mode", "delete")
    except apsw.Error as exc:
        raise translate(exc, source) from exc
    sync(target)


def settle(path: Path) -> bool:
    """Bring a store that nobody else has open into its one file. False if somebody has it open."""
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            return connection.pragma("journal_mode", "delete") == "delete"
    except (apsw.BusyError, apsw.LockedError):
        return False
    except apsw.Error as exc:
        raise translate(exc, path) from exc


def schema(path: Path) -> int:
    """The number of the last migration of a store that is whole. Refuses one that this Keryx does not know."""
    try:
        with closing(_open(path)) as connection:
            rows: list[Any] = connection.execute(
                "select number, checksum from migrations order by number"
            ).fetchall()
    except apsw.Error as exc:
        raise translate(exc, path) from exc
    known = {m.number: m.checksum for m in migrate.known()}
    for number, checksum in rows:
        if known.get(int(number)) != checksum:
            raise StoreBroken(f"{path} has schema {number}, which this Keryx does not know: upgrade Keryx")
    return int(rows[-1][0]) if rows else 0


def checksum(path: Path, *, progress: Progress = silent) -> str:
    """SHA-256 of a file's bytes."""
    total, done = path.stat().st_size, 0
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            progress("checksum", done, total)
    return digest.hexdigest()


def sync(path: Path) -> None:
    """Let a file, and its name, be on the disk."""
    for name in (path, path.parent):
        handle = os.open(name, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _open(path: Path) -> apsw.Connection:
    if not path.is_file():
        raise StoreBroken(f"{path} is not there: check the name")
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    return connection


def _integrity(connection: apsw.Connection) -> list[Problem]:
    try:
        rows = connection.execute(f"pragma integrity_check({MOST})").fetchall()
    except apsw.Error as exc:
        return [_problem(str(exc))]
    return [_problem(str(row[0])) for row in rows if row[0] != "ok"]


def _references(connection: apsw.Connection) -> list[Problem]:
    try:
        rows = list(islice(connection.execute("pragma foreign_key_check"), MOST))
    except apsw.Error as exc:
        return [Problem(check="references", subject="store", text=str(exc))]
    return [
        Problem(
            check="references",
            subject=str(table),
            text=f"row {row} names a row of {parent} that is not there",
        )
        for table, row, parent, _ in rows
    ]


def _ours(connection: apsw.Connection, path: Path) -> list[Problem]:
    try:
        if connection.pragma("application_id") == APPLICATION_ID:
            return []
    except apsw.Error as exc:
        return [_problem(str(exc))]
    return [_problem(f"{path} belongs to another program")]


def _problem(text: str) -> Problem:
    return Problem(check="file", subject="store", text=" ".join(text.split()))
