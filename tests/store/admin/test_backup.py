"""A backup made while others write is whole, and comes back."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.builders import OPERATORS, Store, a_message, a_session

from keryx.core.errors import Conflict, Invalid, StoreBroken
from keryx.core.sessions import SessionFilter
from keryx.store import sessions
from keryx.store.admin import backup
from keryx.store.admin.verify import verify
from keryx.store.db import Database, Engine, Transaction
from keryx.store.db.sqlite import SqliteDatabase
from keryx.testing import START_TIME


def spoken(tx: Transaction) -> None:
    session = a_session(tx)
    for n in range(20):
        a_message(tx, session.id, f"text {n} " * 50)


async def backed_up(database: Database, folder: Path) -> Path:
    target = folder / "backup.db"
    store = folder / "keryx.db" if database.engine is Engine.SQLITE else None
    await backup.create(database, store, target, now=START_TIME)
    return target


async def test_a_backup_holds_everything(store: Store, tmp_path: Path) -> None:
    await store.write(spoken)
    target = await backed_up(store.database, tmp_path)
    manifest = backup.check(target)
    assert manifest is not None
    assert manifest.engine == store.database.engine
    restored = tmp_path / "restored" / "keryx.db"
    assert backup.restore(target, restored, now=START_TIME) is None
    async with SqliteDatabase(restored) as copy:
        assert await verify(copy) == []
        count = await Store(copy).read(lambda tx: tx.row("select count(*) from messages"))
        assert count is not None
        assert count[0] == 20


async def test_a_backup_while_others_write_is_whole(store: Store, tmp_path: Path) -> None:
    await store.write(spoken)
    done = asyncio.Event()

    async def write() -> int:
        written = 0
        while not done.is_set():
            await store.write(spoken)
            written += 1
        return written

    writer = asyncio.create_task(write())
    await asyncio.sleep(0.05)
    target = await backed_up(store.database, tmp_path)
    done.set()
    assert await writer > 0
    async with SqliteDatabase(_copied(target, tmp_path)) as copy:
        assert await verify(copy) == []
    assert await verify(store.database) == []


async def test_a_backup_does_not_overwrite(store: Store, tmp_path: Path) -> None:
    (tmp_path / "backup.db").write_text("mine")
    with pytest.raises(Invalid, match="is there already"):
        await backed_up(store.database, tmp_path)
    assert (tmp_path / "backup.db").read_text() == "mine"


async def test_a_backup_leaves_nothing_half_done(store: Store, tmp_path: Path) -> None:
    await store.write(spoken)
    await backed_up(store.database, tmp_path)
    assert not [name for name in os.listdir(tmp_path) if "partial" in name]
    assert (tmp_path / "backup.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("with_manifest", [True, False])
async def test_a_damaged_backup_is_refused(tmp_path: Path, with_manifest: bool) -> None:
    target = await _a_backup(tmp_path)
    data = bytearray(target.read_bytes())
    data[5 * 4096 : 6 * 4096] = b"\xff" * 4096
    target.write_bytes(bytes(data))
    if not with_manifest:
        backup.get_manifest_path(target).unlink()
    store = tmp_path / "keryx.db"
    before = store.read_bytes()
    with pytest.raises(StoreBroken):
        backup.restore(target, store, now=START_TIME, force=True)
    assert store.read_bytes() == before


async def test_a_cut_off_backup_is_refused(tmp_path: Path) -> None:
    target = await _a_backup(tmp_path)
    target.write_bytes(target.read_bytes()[:-4096])
    with pytest.raises(StoreBroken, match="its manifest says"):
        backup.check(target)


async def test_a_file_of_another_program_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello " * 1000)
    with pytest.raises(StoreBroken):
        backup.check(tmp_path / "notes.txt")
    with pytest.raises(Invalid, match="there is no file"):
        backup.check(tmp_path / "nothing.db")


async def test_restoring_keeps_the_old_store_aside(tmp_path: Path) -> None:
    target = await _a_backup(tmp_path)
    path = tmp_path / "keryx.db"
    async with SqliteDatabase(path) as database:
        await Store(database).write(lambda tx: a_message(tx, a_session(tx, title="Later").id))
    (tmp_path / "keryx-search.db").write_text("an index of what was there")
    with pytest.raises(Conflict, match="--force"):
        backup.restore(target, path, now=START_TIME)
    aside = backup.restore(target, path, now=START_TIME, force=True)
    assert aside is not None
    assert not (tmp_path / "keryx-search.db").exists()
    for file, titles in ((path, 0), (aside, 1)):
        async with SqliteDatabase(file) as database:
            found = await Store(database).read(lambda tx: sessions.list_page(tx, OPERATORS, SessionFilter()))
            assert sum(s.session.title == "Later" for s in found[0]) == titles


async def test_restoring_over_a_damaged_store_keeps_it_too(tmp_path: Path) -> None:
    target = await _a_backup(tmp_path)
    path = tmp_path / "keryx.db"
    path.write_bytes(b"damage" * 1000)
    aside = backup.restore(target, path, now=START_TIME, force=True)
    assert aside is not None
    assert aside.read_bytes() == b"damage" * 1000
    assert backup.check_file(path) == []


async def test_a_store_that_somebody_has_open_is_not_replaced(tmp_path: Path) -> None:
    target = await _a_backup(tmp_path)
    path = tmp_path / "keryx.db"
    async with SqliteDatabase(path) as database:
        await Store(database).write(spoken)
        with pytest.raises(Conflict, match="open in another program"):
            backup.restore(target, path, now=START_TIME, force=True)
        await Store(database).write(spoken)
    assert backup.check_file(path) == []


async def _a_backup(folder: Path) -> Path:
    async with SqliteDatabase(folder / "keryx.db") as database:
        await Store(database).write(spoken)
        return await backed_up(database, folder)


def _copied(file: Path, folder: Path) -> Path:
    copy = folder / "copy.db"
    copy.write_bytes(file.read_bytes())
    return copy
