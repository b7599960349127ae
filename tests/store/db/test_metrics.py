"""Whether a store takes writes, as the wrapper that counts them finds out."""

import asyncio
from pathlib import Path

import pytest

from keryx.core.errors import DiskFull, Unavailable
from keryx.store import inbox
from keryx.store.db import Transaction
from keryx.store.db.metrics import MeteredDatabase
from keryx.store.db.sqlite import SqliteDatabase


def forbid_writes(tx: Transaction) -> None:
    tx.run("pragma query_only = on")


async def test_a_store_that_refuses_writes_is_not_writable(tmp_path: Path) -> None:
    async with MeteredDatabase(SqliteDatabase(tmp_path / "keryx.db")) as database:
        await database.write("forbid", forbid_writes)
        for probe in (database.check_writable, database.rehearse_write) * 2:
            with pytest.raises(Unavailable):
                await probe()


async def test_a_write_that_fails_because_of_the_store_is_a_reason_to_look_again(tmp_path: Path) -> None:
    async with MeteredDatabase(SqliteDatabase(tmp_path / "keryx.db")) as database:
        await database.check_writable()
        await database.write("forbid", forbid_writes)
        with pytest.raises(Unavailable):
            await database.write("receive", lambda tx: inbox.set_cursor(tx, "name", "value"))
        with pytest.raises(Unavailable):
            await database.check_writable()


async def test_many_who_ask_at_once_share_one_probe(tmp_path: Path) -> None:
    async with MeteredDatabase(SqliteDatabase(tmp_path / "keryx.db")) as database:
        await asyncio.gather(*(database.check_writable() for _ in range(50)))
        assert database.meters["ready"].units == 1


async def test_a_rehearsal_changes_nothing(tmp_path: Path) -> None:
    async with MeteredDatabase(SqliteDatabase(tmp_path / "keryx.db")) as database:
        files = [tmp_path / name for name in ("keryx.db", "keryx.db-wal")]
        before = [file.read_bytes() for file in files]
        await database.rehearse_write()
        assert [file.read_bytes() for file in files] == before


async def test_a_disk_that_a_write_has_found_full_is_full_until_such_a_write_succeeds(tmp_path: Path) -> None:
    """A smaller write, as that of the probe, may still find room."""

    def find_full(tx: Transaction) -> None:
        raise DiskFull("full")

    async with MeteredDatabase(SqliteDatabase(tmp_path / "keryx.db")) as database:
        with pytest.raises(DiskFull):
            await database.write("receive", find_full)
        await database.write("leases.renew", lambda tx: inbox.set_cursor(tx, "name", "value"))
        with pytest.raises(DiskFull):
            await database.check_writable()
        await database.write("receive", lambda tx: inbox.set_cursor(tx, "name", "value"))
        await database.check_writable()
