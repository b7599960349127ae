# The type stubs of apsw name a type that Python 3.11 does not have.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Backups: a store as one file with a manifest, made while the store is in use, checked and restored; and the checks and copies of SQLite files."""

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import msgspec

from keryx.core import codec
from keryx.core.errors import Conflict, Invalid, StoreBroken, StoreDamaged
from keryx.core.records import Progress, ignore_progress
from keryx.store.admin import copy as store_copy
from keryx.store.admin.verify import MAX_PROBLEMS, StoreProblem
from keryx.store.db import Database, Engine, migrate, sqlite
from keryx.store.db.sqlite import APPLICATION_ID, BUSY_MILLISECONDS, SqliteDatabase, translate_error
from keryx.store.search.fts5 import get_index_path

_PAGES_PER_STEP = 256
_READ_SIZE = 1 << 20
FORMAT = "keryx-backup"
VERSION = 1
_FILE_SUFFIXES = ("", "-wal", "-shm", "-journal")


def check_file(path: Path) -> list[StoreProblem]:
    """What is wrong with the pages and references of a file. Changes nothing, and never raises for damage.

    Raise `Unavailable` if the file cannot be read now, which says nothing about what is in it."""
    try:
        with closing(_open_read_only(path)) as connection:
            connection.execute("select count(*) from sqlite_schema").fetchall()
            return list(_find_damage(connection, path))
    except apsw.Error as exc:
        return [_make_file_problem(_describe_damage(exc, path))]


def copy_file(source: Path, target: Path, *, progress: Progress = ignore_progress) -> None:
    """Copy a store that others may be writing, as it is at one moment, into a new file."""
    _check_absent(target)
    try:
        with closing(_open_read_only(source)) as reading, closing(apsw.Connection(str(target))) as writing:
            # The open read keeps one snapshot: without it every foreign commit would start the copy again.
            reading.execute("begin")
            reading.execute("select count(*) from sqlite_schema").fetchall()
            with writing.backup("main", reading, "main") as backup:
                while not backup.done:
                    backup.step(_PAGES_PER_STEP)
                    progress("pages", backup.page_count - backup.remaining, backup.page_count)
            reading.execute("rollback")
            writing.pragma("journal_mode", "delete")
    except apsw.Error as exc:
        raise translate_error(exc, source) from exc
    fsync(target)


def fold_wal(path: Path) -> bool:
    """Checkpoint the write-ahead log into the store's file. Return False if another process has the store open."""
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            return connection.pragma("journal_mode", "delete") == "delete"
    except (apsw.BusyError, apsw.LockedError):
        return False
    except apsw.Error as exc:
        raise translate_error(exc, path) from exc


def get_schema_version(path: Path) -> int:
    """The number of the last migration of a store that is whole. Refuses one that this Keryx does not know."""
    try:
        with closing(_open_read_only(path)) as connection:
            rows: list[Any] = connection.execute(
                "select number, checksum from migrations order by number"
            ).fetchall()
    except apsw.Error as exc:
        raise translate_error(exc, path) from exc
    known = {m.number: m.checksum for m in migrate.list_all()}
    for number, checksum in rows:
        if known.get(int(number)) != checksum:
            raise StoreBroken(f"{path} has schema {number}, which this Keryx does not know: upgrade Keryx")
    return int(rows[-1][0]) if rows else 0


def hash_file(path: Path, *, progress: Progress = ignore_progress) -> str:
    """SHA-256 of a file's bytes."""
    total, done = path.stat().st_size, 0
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_SIZE):
            digest.update(chunk)
            done += len(chunk)
            progress("checksum", done, total)
    return digest.hexdigest()


def fsync(path: Path) -> None:
    """Sync a file and its directory entry to disk."""
    try:
        sqlite.fsync(path)
        sqlite.fsync(path.parent)
    except OSError as exc:
        raise StoreBroken(f"the disk refused to sync {path} ({exc.strerror}): check the disk") from exc


def _check_absent(path: Path) -> None:
    if path.exists():
        raise Invalid(f"{path} is there already: give the name of a new file")


def _open_read_only(path: Path) -> apsw.Connection:
    if not path.is_file():
        raise StoreBroken(f"{path} is not there: check the name")
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    return connection


def _find_damage(connection: apsw.Connection, path: Path) -> Iterator[StoreProblem]:
    try:
        rows = connection.execute(f"pragma integrity_check({MAX_PROBLEMS})").fetchall()
        yield from (_make_file_problem(str(row[0])) for row in rows if row[0] != "ok")
    except apsw.Error as exc:
        yield _make_file_problem(_describe_damage(exc, path))
    try:
        rows = list(islice(connection.execute("pragma foreign_key_check"), MAX_PROBLEMS))
        for table, row, parent, _ in rows:
            text = f"row {row} names a row of {parent} that is not there"
            yield StoreProblem(check="references", subject=str(table), text=text)
    except apsw.Error as exc:
        yield StoreProblem(check="references", subject="store", text=_describe_damage(exc, path))
    try:
        if connection.pragma("application_id") != APPLICATION_ID:
            yield _make_file_problem(f"{path} belongs to another program")
    except apsw.Error as exc:
        yield _make_file_problem(_describe_damage(exc, path))


def _describe_damage(exc: apsw.Error, path: Path) -> str:
    """Raise the error instead unless it is a sign of damage."""
    error = translate_error(exc, path)
    if not isinstance(error, StoreDamaged):
        raise error from exc
    return str(exc)


def _make_file_problem(text: str) -> StoreProblem:
    return StoreProblem(check="file", subject="store", text=" ".join(text.split()))


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a backup, in a small file beside it, so that damage is found before the backup is needed."""

    format: str = FORMAT
    version: int = VERSION
    made_at: datetime
    engine: str
    schema: int
    size: int
    sha256: str


async def create(
    database: Database,
    store: Path | None,
    target: Path,
    *,
    now: datetime,
    progress: Progress = ignore_progress,
) -> BackupManifest:
    """Write a new file that holds the store as it is at one moment, checked, with its manifest beside it.

    `store` is the file of a SQLite store; without it the rows of the database are copied one by one."""
    _check_absent(target)
    if not target.parent.is_dir():
        raise Invalid(f"{target.parent} is not a folder: make it first")
    partial = target.with_name(f"{target.name}.partial")
    remove_store_files(partial)
    try:
        if store is not None:
            await asyncio.to_thread(copy_file, store, partial, progress=progress)
        else:
            async with SqliteDatabase(partial) as copy:
                await store_copy.copy_store(database, copy, progress=progress)
            fold_wal(partial)
        return await asyncio.to_thread(_publish, partial, target, database.engine, now, progress)
    finally:
        remove_store_files(partial)


def check(file: Path, *, progress: Progress = ignore_progress) -> BackupManifest | None:
    """Raise `StoreBroken` unless the file is a complete backup. Return its manifest, if it still has one."""
    if not file.is_file():
        raise Invalid(f"there is no file {file}: give the name of a backup")
    manifest: BackupManifest | None = None
    if (described := get_manifest_path(file)).exists():
        manifest = codec.loads(described.read_bytes(), BackupManifest)
        if manifest.format != FORMAT or manifest.version > VERSION:
            raise Invalid(f"{described} was made by a newer Keryx: upgrade Keryx to restore it")
    if manifest and manifest.size != file.stat().st_size:
        raise StoreBroken(
            f"{file} has {file.stat().st_size} bytes, its manifest says {manifest.size}: use another backup"
        )
    if manifest and manifest.sha256 != hash_file(file, progress=progress):
        raise StoreBroken(f"{file} is not what was written: its checksum differs; use another backup")
    _check_intact(file)
    get_schema_version(file)
    return manifest


def restore(
    file: Path, store: Path, *, now: datetime, force: bool = False, progress: Progress = ignore_progress
) -> Path | None:
    """Replace a store by a backup; return where the old store was moved to.

    The backup is checked first. The caller holds the lock of the store, so that no node starts meanwhile."""
    check(file, progress=progress)
    if store.exists() and not force:
        raise Conflict(f"{store} is there already: `--force` puts it aside and restores")
    fresh = store.with_name(f"{store.name}.restoring")
    remove_store_files(fresh)
    store.parent.mkdir(parents=True, exist_ok=True)
    try:
        copy_file(file, fresh, progress=progress)
        # Also what is left of a store that is gone: its log would be taken for that of the backup.
        aside = move_aside(store, now)
        fresh.replace(store)
        fsync(store)
    finally:
        remove_store_files(fresh)
    # The search index is made from the store, and that is another one now.
    remove_store_files(get_index_path(store))
    return aside


def get_manifest_path(file: Path) -> Path:
    return file.with_name(f"{file.name}.manifest.json")


def remove_store_files(path: Path) -> None:
    """Delete a SQLite file and what belongs to it."""
    for suffix in _FILE_SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _publish(
    partial: Path, target: Path, engine: Engine, now: datetime, progress: Progress
) -> BackupManifest:
    """Check a new backup, write its manifest, and give both their final names."""
    _check_intact(partial)
    manifest = BackupManifest(
        made_at=now,
        engine=engine.value,
        schema=get_schema_version(partial),
        size=partial.stat().st_size,
        sha256=hash_file(partial, progress=progress),
    )
    partial.chmod(0o600)
    described = get_manifest_path(target)
    described.write_text(codec.dumps(manifest) + "\n", encoding="utf-8")
    described.chmod(0o600)
    fsync(described)
    partial.rename(target)
    fsync(target)
    return manifest


def _check_intact(file: Path) -> None:
    problems = check_file(file)
    if problems:
        raise StoreBroken(f"{file} is damaged ({problems[0].text}): use another backup")


def move_aside(store: Path, now: datetime) -> Path | None:
    """Rename a SQLite file and what belongs to it, whatever of them is there. Return the new name, if there was any."""
    try:
        # SQLite deletes the log of an empty file.
        if sqlite.has_content(store) and not fold_wal(store):
            raise Conflict(f"{store} is open in another program: close `keryx` everywhere and try again")
    except StoreBroken:
        # A damaged store cannot be tidied up. It is kept as it is, with all that belongs to it.
        pass
    aside = store.with_name(f"{store.name}.before-{now:%Y%m%dT%H%M%S%f}")
    parts = [suffix for suffix in _FILE_SUFFIXES if store.with_name(store.name + suffix).exists()]
    for suffix in parts:
        store.with_name(store.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside if parts else None
