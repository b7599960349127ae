"""Whether a store takes writes, as the wrapper that counts them knows it."""

from pathlib import Path

import pytest

from keryx.core.errors import Unavailable
from keryx.store import inbox
from keryx.store.db import Transaction
from keryx.store.db.metrics import MeteredDatabase
from keryx.store.db.sqlite import SqliteDatabase


async def test_a_store_that_refuses_writes_is_not_writable(tmp_path: Path) -> None:
    def set_cursor(tx: Transaction) -> None:
        inbox.set_cursor(tx, "name", "value")

    async with MeteredDatabase(SqliteDatabase(tmp_path / "keryx.db")) as database:
        await database.check_writable()
        await database.write("forbid", lambda tx: tx.run("pragma query_only = on"))
        with pytest.raises(Unavailable):
            await database.write("receive", set_cursor)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await database.check_writable()


async def test_what_is_refused_for_another_reason_leaves_the_store_writable(tmp_path: Path) -> None:
    def fail(tx: Transaction) -> None:
        raise ValueError

    async with MeteredDatabase(SqliteDatabase(tmp_path / "keryx.db")) as database:
        with pytest.raises(ValueError):
            await database.write("receive", fail)
        await database.check_writable()
        assert "ready" not in database.meters


async def test_a_failure_that_has_passed_is_forgotten_by_the_probe(tmp_path: Path) -> None:
    def fail(tx: Transaction) -> None:
        raise Unavailable("the disk was full")

    async with MeteredDatabase(SqliteDatabase(tmp_path / "keryx.db")) as database:
        with pytest.raises(Unavailable):
            await database.write("receive", fail)
        await database.check_writable()
        await database.check_writable()
        assert database.meters["ready"].units == 1
