import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.builders import Store, at_time, until

from keryx.core.errors import DiskFull, Retryable, StoreBroken, StoreDamaged
from keryx.store import inbox
from keryx.store.db import Transaction
from keryx.store.db.sqlite import (
    APPLICATION_ID,
    SqliteDatabase,
    SqliteTransaction,
    connect,
    open_store,
    translate_error,
)
from keryx.testing import START_TIME


def move(tx: Transaction, name: str) -> None:
    inbox.set_cursor(at_time(tx, START_TIME), name, "x")


def visible(path: Path) -> int:
    """How many cursors another process would see now."""
    connection = connect(path)
    try:
        found = SqliteTransaction(connection, START_TIME).row("select count(*) from cursors")
        assert found
        return int(found[0])
    finally:
        connection.close()


async def opening(path: Path) -> None:
    async with SqliteDatabase(path):
        pass


async def test_units_that_wait_together_share_one_commit(tmp_path: Path) -> None:
    path = tmp_path / "keryx.db"
    begun, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def hold(tx: Transaction) -> None:
        begun.set()
        assert go_on.wait(10)
        move(tx, "first")

    def unit(tx: Transaction, n: int) -> None:
        move(tx, str(n))
        seen.append(visible(path))

    async with SqliteDatabase(path) as database, asyncio.TaskGroup() as group:
        store = Store(database)
        group.create_task(store.write(hold))
        assert await asyncio.to_thread(begun.wait, 10)
        waiting = [group.create_task(store.write(unit, n)) for n in range(50)]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*waiting)
        assert seen == [1] * 50
        assert visible(path) == 51


async def test_a_unit_is_answered_only_when_others_can_see_it(tmp_path: Path) -> None:
    path = tmp_path / "keryx.db"
    async with SqliteDatabase(path) as database:
        for n in range(10):
            await Store(database).write(move, str(n))
            assert visible(path) == n + 1


async def test_the_folder_is_made_and_the_file_marked_as_ours(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "keryx.db"
    async with SqliteDatabase(path) as database:
        row = await Store(database).read(lambda tx: tx.row("select * from pragma_application_id"))
        assert row and row[0] == APPLICATION_ID


async def test_commits_are_synced_and_links_between_rows_hold(tmp_path: Path) -> None:
    def settings(tx: Transaction) -> list[object]:
        pragmas = ("journal_mode", "synchronous", "foreign_keys")
        return [row[0] for p in pragmas if (row := tx.row(f"select * from pragma_{p}"))]

    async with SqliteDatabase(tmp_path / "keryx.db") as database:
        assert await Store(database).write(settings) == ["wal", 2, 1]


async def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    path = tmp_path / "keryx.db"
    path.touch()
    await opening(path)


async def test_a_file_of_another_program_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "keryx.db"
    connection = sqlite3.connect(path)
    connection.execute("create table theirs (a)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreBroken, match="another program"):
        await opening(path)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "keryx.db"
    path.write_text("Dear diary, " * 100)
    with pytest.raises(StoreBroken, match="not a Keryx store"):
        await opening(path)
    assert path.read_text() == "Dear diary, " * 100


async def test_a_damaged_store_is_an_error_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "keryx.db"
    await opening(path)
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xff" * 3996
    path.write_bytes(content)
    with pytest.raises(StoreBroken, match="damaged"):
        await opening(path)


async def test_a_place_that_cannot_be_written_is_named_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "keryx.db", tmp_path):
        with pytest.raises(StoreBroken, match=r"(check its rights|is not a file).*KERYX_HOME") as raised:
            await opening(path)
        assert str(path.parent) in str(raised.value)


@pytest.mark.parametrize(
    ("error", "ours", "advice"),
    [
        (apsw.BusyError(), Retryable, "try again"),
        (apsw.LockedError(), Retryable, "try again"),
        (apsw.FullError(), DiskFull, "free some space"),
        (apsw.CorruptError(), StoreDamaged, "restore a backup"),
        (apsw.IOError(), StoreBroken, "check the disk"),
        (apsw.ReadOnlyError(), StoreBroken, "check its rights"),
        (apsw.SQLError("odd"), StoreDamaged, "odd"),
    ],
)
def test_errors_of_sqlite_become_ours(error: apsw.Error, ours: type[Exception], advice: str) -> None:
    translated = translate_error(error)
    assert type(translated) is ours
    assert advice in str(translated)


async def test_a_full_store_refuses_the_write_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    def limit(tx: Transaction, pages: int) -> None:
        tx.rows(f"pragma max_page_count = {pages}")

    async with SqliteDatabase(tmp_path / "keryx.db") as database:
        store = Store(database)
        await store.write(limit, 1)
        with pytest.raises(DiskFull):
            await store.at(START_TIME).write(inbox.set_cursor, "big", "x" * 1_000_000)
        await store.write(limit, 1_000_000)
        await store.at(START_TIME).write(inbox.set_cursor, "big", "x" * 1_000_000)
        assert len(await store.read(inbox.get_cursor, "big") or "") == 1_000_000


def test_whoever_begins_with_the_same_new_file_waits_for_the_others(tmp_path: Path) -> None:
    with ThreadPoolExecutor(6) as threads:
        for n in range(10):
            start = threading.Barrier(6)

            def begin(path: Path, start: threading.Barrier = start) -> str:
                start.wait()
                with closing(open_store(path)) as connection:
                    return str(SqliteTransaction(connection, START_TIME).row("pragma journal_mode"))

            assert set(threads.map(begin, [tmp_path / f"{n}.db"] * 6)) == {"('wal',)"}


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_store_that_is_removed_while_it_is_open_ends_the_process(
    tmp_path: Path, suffix: str, replaced: bool
) -> None:
    """What is committed to a file without a name is gone when the process ends, so it is not acknowledged."""
    reasons: list[str] = []
    path = tmp_path / "keryx.db"
    async with SqliteDatabase(path, fatal=reasons.append) as database:
        await database.write("before", lambda tx: move(tx, "one"))
        file = tmp_path / f"keryx.db{suffix}"
        file.rename(tmp_path / "moved")
        if replaced:
            file.touch()
        with pytest.raises(StoreBroken, match="was removed"):
            await database.write("after", lambda tx: move(tx, "two"))
        assert len(reasons) == 1
        assert str(path) in reasons[0]
        (tmp_path / "moved").rename(file)
        await database.write("put back", lambda tx: move(tx, "three"))


@pytest.mark.parametrize("index", [False, True], ids=["the log", "the log and its index"])
async def test_what_was_in_a_log_that_is_removed_is_saved(tmp_path: Path, index: bool) -> None:
    reasons: list[str] = []
    path = tmp_path / "keryx.db"
    async with SqliteDatabase(path, fatal=reasons.append) as database:
        for n in range(5):
            await database.write("before", lambda tx, n=n: move(tx, str(n)))
        (tmp_path / "keryx.db-wal").unlink()
        if index:
            (tmp_path / "keryx.db-shm").unlink()
        with pytest.raises(StoreBroken, match="is in the store now"):
            await database.write("after", lambda tx: move(tx, "after"))
        assert len(reasons) == 1
    (tmp_path / "keryx.db-shm").unlink(missing_ok=True)
    assert visible(path) == 5


def overwrite(path: Path, content: bytes) -> None:
    """Write other content into a file, as `cp` does."""
    with path.open("wb") as file:
        file.write(content)


async def make_store(path: Path) -> bytes:
    async with SqliteDatabase(path) as database:
        await database.write("first", lambda tx: move(tx, path.name))
    return read(path)


def read(path: Path) -> bytes:
    return path.read_bytes()


def list_logs_aside(folder: Path) -> list[Path]:
    return list(folder.glob("keryx.db.before-*-wal"))


@pytest.mark.parametrize(
    "other", ["another store", "an older copy", "the first half", "nothing", "another program's"]
)
async def test_a_store_that_is_overwritten_while_it_is_open_ends_the_process(
    tmp_path: Path, other: str
) -> None:
    reasons: list[str] = []
    path = tmp_path / "keryx.db"
    older = await make_store(path)
    with closing(apsw.Connection(str(tmp_path / "foreign.db"))) as connection:
        connection.execute("create table notes (text)")  # pyright: ignore[reportUnknownMemberType]
    contents = {
        "another store": await make_store(tmp_path / "other.db"),
        "an older copy": older,
        "the first half": older[: len(older) // 2],
        "nothing": b"",
        "another program's": (tmp_path / "foreign.db").read_bytes(),
    }
    async with SqliteDatabase(path, fatal=reasons.append) as database:
        await database.write("before", lambda tx: move(tx, "one"))
        overwrite(path, contents[other])
        with pytest.raises(StoreBroken, match="was overwritten while it was in use"):
            await database.write("after", lambda tx: move(tx, "two"))
        assert str(path) in reasons[0] and "keryx restore" in reasons[0]
    # Nothing of the log was added to it, and the log is not there to be added later.
    assert path.read_bytes() == contents[other]
    assert not (tmp_path / "keryx.db-wal").exists()
    assert len(list_logs_aside(tmp_path)) == 1


async def test_a_log_that_is_cut_while_it_is_in_use_ends_the_process(tmp_path: Path) -> None:
    reasons: list[str] = []
    path = tmp_path / "keryx.db"
    async with SqliteDatabase(path, fatal=reasons.append) as database:
        await database.write("before", lambda tx: move(tx, "one"))
        (tmp_path / "keryx.db-wal").write_bytes(b"")
        with pytest.raises(StoreBroken, match="was cut while it was in use"):
            await database.write("after", lambda tx: move(tx, "two"))
    assert "keryx restore" in reasons[0]


async def test_what_other_programs_do_to_an_open_store_by_sqlite_is_no_fault(tmp_path: Path) -> None:
    reasons: list[str] = []
    path = tmp_path / "keryx.db"

    async def write_long(database: SqliteDatabase, name: str) -> None:
        await database.write(
            "long", lambda tx: [move(tx, f"{name} {n} {'x' * 1000}") for n in range(500)] and None
        )

    async with SqliteDatabase(path, fatal=reasons.append) as here:
        await write_long(here, "here")
        async with SqliteDatabase(path, fatal=reasons.append) as there:
            await write_long(there, "there")
            await write_long(here, "here again")
        for statement in (
            "pragma wal_checkpoint(passive)",
            "delete from cursors where name like 'there%'",
            "vacuum",
            "pragma wal_checkpoint(truncate)",
            "create table more (text)",
            "pragma wal_checkpoint(restart)",
        ):
            with closing(apsw.Connection(str(path))) as other:
                other.set_busy_timeout(10_000)
                other.execute(statement)  # pyright: ignore[reportUnknownMemberType]
            await here.write("next", lambda tx, name=statement: move(tx, name))
    assert reasons == []
    assert visible(path) == 1006


async def test_a_file_without_its_own_log_is_not_opened(tmp_path: Path) -> None:
    path, log = tmp_path / "keryx.db", tmp_path / "keryx.db-wal"
    other = await make_store(tmp_path / "other.db")
    await make_store(path)
    with closing(open_store(path)) as connection:
        # A new table changes the first page, which tells whose the log is.
        connection.execute("create table more (text)")  # pyright: ignore[reportUnknownMemberType]
        kept = log.read_bytes()
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    path.write_bytes(other)
    for _ in range(2):
        with pytest.raises(StoreBroken, match="not of the same store"):
            await opening(path)
    assert (path.read_bytes(), log.read_bytes()) == (other, kept)


@pytest.mark.parametrize("error", [MemoryError(), apsw.NoMemError("out of memory")])
@pytest.mark.parametrize("rolled_back", [False, True])
async def test_a_unit_without_memory_fails_and_the_next_ones_are_written(
    tmp_path: Path, error: Exception, rolled_back: bool
) -> None:
    """SQLite rolls the transaction back by itself when it has no memory."""

    def fail_read(tx: Transaction) -> None:
        if rolled_back:
            tx.run("rollback")
        raise error

    def fail_write(tx: Transaction) -> None:
        move(tx, "lost")
        fail_read(tx)

    path = tmp_path / "keryx.db"
    async with SqliteDatabase(path) as database:
        with pytest.raises(Retryable, match="no memory left"):
            await database.write("fails", fail_write)
        with pytest.raises(Retryable, match="no memory left"):
            await database.read("fails", fail_read)
        await database.write("works", lambda tx: move(tx, "kept"))
        assert visible(path) == 1


async def test_units_beside_one_without_memory_fail_with_it_or_are_written(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        begun.set()
        assert go_on.wait(10)

    def fail(tx: Transaction) -> None:
        tx.run("rollback")
        raise MemoryError

    path = tmp_path / "keryx.db"
    async with SqliteDatabase(path) as database:
        first = asyncio.create_task(database.write("hold", hold))
        await asyncio.to_thread(begun.wait, 10)
        beside = asyncio.create_task(database.write("beside", lambda tx: move(tx, "beside")))
        failing = asyncio.create_task(database.write("fails", fail))
        await asyncio.sleep(0.05)
        go_on.set()
        await first
        done = await asyncio.gather(beside, failing, return_exceptions=True)
        assert [type(one) for one in done] == [Retryable, Retryable]
        assert visible(path) == 0
        await database.write("again", lambda tx: move(tx, "beside"))
        assert visible(path) == 1


async def test_a_writer_that_fails_ends_the_process(tmp_path: Path) -> None:
    """Else every further write would wait for ever."""
    reasons: list[str] = []

    def end_thread(tx: Transaction) -> None:
        raise SystemExit

    database = SqliteDatabase(tmp_path / "keryx.db", fatal=reasons.append)
    async with database:
        waiting = asyncio.create_task(database.write("ends", end_thread))
        await until(lambda: bool(reasons))
        waiting.cancel()
    assert "the writer of" in reasons[0]
