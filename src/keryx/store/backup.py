"""Backup: a store as one file with a manifest, made while the store is used, and brought back with care."""

import asyncio
from datetime import datetime
from pathlib import Path

import msgspec

from keryx.core import wire
from keryx.core.errors import Conflict, Invalid, StoreBroken
from keryx.core.progress import Progress, silent
from keryx.store import copying, pages
from keryx.store.database import Database, Engine
from keryx.store.sqlite import SqliteDatabase

FORMAT = "keryx-backup"
VERSION = 1
_BESIDE = ("", "-wal", "-shm", "-journal")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup is, beside it in a small file, so that damage is found before it is needed."""

    format: str = FORMAT
    version: int = VERSION
    made_at: datetime
    engine: str
    schema: int
    size: int
    sha256: str


async def make(
    database: Database, store: Path | None, target: Path, *, now: datetime, progress: Progress = silent
) -> Manifest:
    """Write a new file that holds the store as it is at one moment, checked, with its manifest beside it.

    `store` is the file of a SQLite store; without it the rows of the database are copied one by one."""
    _check_free(target)
    partial = target.with_name(f"{target.name}.partial")
    remove(partial)
    try:
        await _fill(database, store, partial, progress)
        manifest = await asyncio.to_thread(_described, partial, database.engine, now, progress)
        _publish(partial, target, manifest)
    finally:
        remove(partial)
    return manifest


def check(file: Path, *, progress: Progress = silent) -> Manifest | None:
    """Raise `StoreBroken` unless the file is a whole backup. Gives its manifest, if it still has one."""
    if not file.is_file():
        raise Invalid(f"there is no file {file}: give the name of a backup")
    manifest = _manifest(file)
    if manifest and manifest.size != file.stat().st_size:
        raise StoreBroken(
            f"{file} has {file.stat().st_size} bytes, its manifest says {manifest.size}: use another backup"
        )
    if manifest and manifest.sha256 != pages.checksum(file, progress=progress):
        raise StoreBroken(f"{file} is not what was written: its checksum differs; use another backup")
    _check_whole(file)
    pages.schema(file)
    return manifest


def restore(
    file: Path, store: Path, *, now: datetime, force: bool = False, progress: Progress = silent
) -> Path | None:
    """Put a backup in the place of a store; gives where the old store was put aside.

    The backup is checked first. The caller holds the lock of the store, so that no node starts meanwhile."""
    check(file, progress=progress)
    if store.exists() and not force:
        raise Conflict(f"{store} is there already: `--force` puts it aside and restores")
    fresh = store.with_name(f"{store.name}.restoring")
    remove(fresh)
    store.parent.mkdir(parents=True, exist_ok=True)
    try:
        pages.copy(file, fresh, progress=progress)
        aside = _put_aside(store, now) if store.exists() else None
        fresh.replace(store)
        pages.sync(store)
    finally:
        remove(fresh)
    # The search index is made from the store, and that is another one now.
    remove(store.with_name(f"{store.stem}-search.db"))
    return aside


def manifest_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.manifest.json")


def remove(path: Path) -> None:
    """Delete a SQLite file and what belongs to it."""
    for suffix in _BESIDE:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _check_free(target: Path) -> None:
    if target.exists():
        raise Invalid(f"{target} is there already: give the name of a new file")
    if not target.parent.is_dir():
        raise Invalid(f"{target.parent} is not a folder: make it first")


async def _fill(database: Database, store: Path | None, partial: Path, progress: Progress) -> None:
    if store is not None:
        await asyncio.to_thread(pages.copy, store, partial, progress=progress)
        return
    async with SqliteDatabase(partial) as copy:
        await copying.copy(database, copy, progress=progress)
    pages.settle(partial)


def _described(partial: Path, engine: Engine, now: datetime, progress: Progress) -> Manifest:
    _check_whole(partial)
    return Manifest(
        made_at=now,
        engine=engine.value,
        schema=pages.schema(partial),
        size=partial.stat().st_size,
        sha256=pages.checksum(partial, progress=progress),
    )


def _check_whole(file: Path) -> None:
    problems = pages.check(file)
    if problems:
        raise StoreBroken(f"{file} is damaged ({problems[0].text}): use another backup")


def _publish(partial: Path, target: Path, manifest: Manifest) -> None:
    partial.chmod(0o600)
    described = manifest_of(target)
    described.write_text(wire.dumps(manifest) + "\n", encoding="utf-8")
    described.chmod(0o600)
    pages.sync(described)
    partial.rename(target)
    pages.sync(target)


def _manifest(file: Path) -> Manifest | None:
    try:
        text = manifest_of(file).read_bytes()
    except FileNotFoundError:
        return None
    manifest = wire.loads(text, Manifest)
    if manifest.format != FORMAT or manifest.version > VERSION:
        raise Invalid(f"{manifest_of(file)} was made by a newer Keryx: upgrade Keryx to restore it")
    return manifest


def _put_aside(store: Path, now: datetime) -> Path:
    try:
        if not pages.settle(store):
            raise Conflict(f"{store} is open in another program: close `keryx` everywhere and try again")
    except StoreBroken:
        # A damaged store cannot be tidied up. It is kept as it is, with all that belongs to it.
        pass
    aside = store.with_name(f"{store.name}.before-{now:%Y%m%dT%H%M%S%f}")
    for suffix in _BESIDE:
        part = store.with_name(store.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside
