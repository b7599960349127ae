import asyncio
from collections.abc import Iterator
from typing import cast

import psycopg
import pytest
from tests import left_out
from tests.builders import ANN, Store, a_message, a_session, after, at_time
from tests.postgres import Server, Unstartable

from keryx.core.changes import Change, ChangeKind
from keryx.core.errors import CursorExpired, Invalid
from keryx.core.ids import DEFAULT_PROFILE, Cursor
from keryx.store import change_feed, changes
from keryx.store.db import Engine, Transaction
from keryx.store.db.postgres import PostgresDatabase, PostgresTransaction
from keryx.testing import START_TIME


def note(tx: Transaction, subject: str, *, seconds: float = 0) -> None:
    changes.note(
        at_time(tx, after(seconds)), ChangeKind.SESSION, subject, changes.Scope(DEFAULT_PROFILE, ANN)
    )


def subjects(found: list[Change]) -> list[str]:
    return [change.subject for change in found]


async def everything(store: Store, cursor: Cursor, *, limit: int = 500) -> list[str]:
    seen: list[str] = []
    while found := await store.read(change_feed.list_after, cursor, limit=limit):
        seen += subjects(found)
        cursor = found[-1].cursor
    return seen


async def test_changes_come_in_the_order_of_their_commits(store: Store) -> None:
    cursor = await store.read(changes.get_head)
    for n in range(5):
        await store.write(note, str(n))
    assert await everything(store, cursor) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_a_reader_may_take_small_steps(store: Store, limit: int) -> None:
    def three(tx: Transaction, name: str) -> None:
        for n in range(3):
            note(tx, f"{name}{n}")

    cursor = await store.read(changes.get_head)
    await store.write(three, "a")
    await store.write(three, "b")
    assert await everything(store, cursor, limit=limit) == ["a0", "a1", "a2", "b0", "b1", "b2"]


async def test_a_snapshot_and_what_follows_it_make_the_whole(store: Store) -> None:
    await store.write(note, "before")
    cursor = await store.read(changes.get_head)
    assert await store.read(change_feed.list_after, cursor) == []
    await store.write(note, "after")
    assert await everything(store, cursor) == ["after"]


async def test_the_start_of_an_empty_feed_is_a_cursor(store: Store) -> None:
    cursor = await store.read(changes.get_head)
    assert await store.read(change_feed.list_after, cursor) == []
    await store.write(note, "first")
    assert await everything(store, cursor) == ["first"]


async def test_a_unit_that_failed_leaves_no_trace_in_the_feed(store: Store) -> None:
    def failing(tx: Transaction) -> None:
        note(tx, "lost")
        raise RuntimeError("no")

    cursor = await store.read(changes.get_head)
    with pytest.raises(RuntimeError):
        await store.write(failing)
    await store.write(note, "kept")
    assert await everything(store, cursor) == ["kept"]


async def test_a_message_comes_with_its_change(store: Store) -> None:
    session = await store.write(a_session)
    cursor = await store.read(changes.get_head)
    message = await store.write(a_message, session.id, "hello")
    (change,) = await store.read(change_feed.list_after, cursor)
    assert (change.kind, change.message, change.session) == (ChangeKind.MESSAGE, message, session.id)
    assert (change.at, change.owner, change.profile) == (START_TIME, ANN, DEFAULT_PROFILE)


async def test_writers_at_once_lose_and_repeat_nothing_for_a_reader_that_opens_among_them(
    store: Store,
) -> None:
    def opened(tx: Transaction) -> tuple[set[str], Cursor]:
        shown = {str(row[0]) for row in tx.rows("select subject from changes")}
        return shown, changes.get_head(tx)

    async def follow() -> list[str]:
        shown, cursor = await store.read(opened)
        seen = sorted(shown)
        while len(seen) < 120:
            found = await store.read(change_feed.list_after, cursor, limit=7)
            seen += subjects(found)
            cursor = found[-1].cursor if found else cursor
            await asyncio.sleep(0)
        return seen

    async def write(n: int) -> None:
        for m in range(10):
            await store.write(note, f"{n}.{m}")

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for n in range(6):
            group.create_task(write(n))
        followers: list[asyncio.Task[list[str]]] = []
        for _ in range(4):
            await asyncio.sleep(0.005)
            followers.append(group.create_task(follow()))
        for n in range(6, 12):
            group.create_task(write(n))
    for follower in followers:
        assert len(set(follower.result())) == len(follower.result()) == 120


async def test_old_changes_are_trimmed_and_readers_behind_are_told(store: Store) -> None:
    start = await store.read(changes.get_head)
    for n in range(4):
        await store.write(note, str(n), seconds=n)
    second = (await store.read(change_feed.list_after, start, limit=2))[-1].cursor
    assert await store.write(changes.trim, before=after(2)) == 2
    with pytest.raises(CursorExpired, match="open again"):
        await store.read(change_feed.list_after, start)
    assert await everything(store, second) == ["2", "3"]
    assert await store.write(changes.trim, before=after(2)) == 0


async def test_a_reader_that_is_up_to_date_survives_a_trim_of_everything(store: Store) -> None:
    await store.write(note, "old")
    cursor = await store.read(changes.get_head)
    await store.write(changes.trim, before=after(10))
    assert await store.read(change_feed.list_after, cursor) == []
    await store.write(note, "new")
    assert await everything(store, cursor) == ["new"]
    assert await everything(store, await store.read(changes.get_head)) == []


async def test_a_cursor_that_keryx_did_not_give_is_refused(store: Store, subtests: pytest.Subtests) -> None:
    for cursor in ["", "x", "-1", "1.2.3", "1.", ".1", "٣", "\ud800", "\x00", "1" * 40, "1 1", "0x1"]:
        with subtests.test(ascii(cursor)):
            with pytest.raises(Invalid, match="not a cursor"):
                await store.read(change_feed.list_after, Cursor(cursor))


@pytest.mark.engines(Engine.POSTGRES)
async def test_a_cursor_with_a_broken_snapshot_is_refused(store: Store, subtests: pytest.Subtests) -> None:
    for snapshot in [
        "x",
        "1",
        "1:",
        "1:2",
        "2:1:",
        "0:1:",
        "1:5:7",
        "1:5:5",
        "3:5:1",
        "1:5:3,2",
        "1:5:a",
        "1:5:2,",
        "1:5:2:3",
        "1'",
    ]:
        with subtests.test(ascii(snapshot)):
            with pytest.raises(Invalid, match="not a cursor"):
                await store.read(change_feed.list_after, Cursor(f"1.1@{snapshot}"))


@pytest.mark.engines(Engine.POSTGRES)
async def test_a_cursor_with_any_good_snapshot_is_taken(store: Store, subtests: pytest.Subtests) -> None:
    for snapshot in ["", "1:1:", "1:5:", "1:5:1", "2:9:2,5,8"]:
        with subtests.test(ascii(snapshot)):
            assert isinstance(await store.read(change_feed.list_after, Cursor(f"1.1@{snapshot}")), list)


def raw(dsn: str, schema: str, name: str = "keryx test") -> psycopg.Connection[object]:
    """A session beside those of the store, by default one of another node."""
    return cast(
        "psycopg.Connection[object]",
        psycopg.connect(dsn, options=f"-c search_path={schema}", application_name=name),
    )


def noted(connection: psycopg.Connection[object], text: str) -> None:
    """Note a change and leave its transaction open."""
    tx = PostgresTransaction(connection, START_TIME)
    note(tx, text)
    tx.row("select 1")


async def test_a_transaction_that_commits_late_is_neither_skipped_nor_repeated(
    postgres: str, schema: str
) -> None:
    async with PostgresDatabase(postgres, schema=schema) as database:
        store = Store(database)
        start = await store.read(changes.get_head)
        with raw(postgres, schema) as slow, raw(postgres, schema) as quick:
            noted(slow, "slow")
            noted(quick, "quick")
            quick.commit()
            between = await store.read(changes.get_head)
            early = await store.read(change_feed.list_after, start)
            slow.commit()
        seen = subjects(early) + await everything(store, early[-1].cursor if early else start)
        assert sorted(seen) == ["quick", "slow"]
        assert await everything(store, between) == ["slow"]


async def test_a_snapshot_among_late_transactions_shows_each_change_on_one_side(
    postgres: str, schema: str
) -> None:
    async with PostgresDatabase(postgres, schema=schema) as database:
        store = Store(database)
        writers = [raw(postgres, schema) for _ in range(5)]
        for n, writer in enumerate(writers):
            noted(writer, str(n))
        for n in (1, 3):
            writers[n].commit()
        cursor = await store.read(changes.get_head)
        for n in (4, 0, 2):
            writers[n].commit()
        await store.write(note, "last")
        for limit in (1, 2, 100):
            assert await everything(store, cursor, limit=limit) == ["0", "2", "4", "last"]
        for writer in writers:
            writer.close()


async def test_a_change_waits_until_everything_before_it_is_decided(postgres: str, schema: str) -> None:
    async with PostgresDatabase(postgres, schema=schema) as database:
        store = Store(database)
        cursor = await store.read(changes.get_head)
        with raw(postgres, schema) as slow:
            noted(slow, "slow")
            await store.write(note, "quick")
            assert await store.read(change_feed.list_after, cursor) == []
            assert await store.read(change_feed.has_held_back)
            slow.rollback()
        assert not await store.read(change_feed.has_held_back)
        assert await everything(store, cursor) == ["quick"]


@pytest.fixture
def plain_role(own_postgres: str) -> Iterator[str]:
    """The address of a database that a role without any rights on the server owns."""
    with psycopg.connect(own_postgres, autocommit=True) as connection:
        connection.execute("create role plain login")
        connection.execute(
            "do $$ begin execute 'alter database ' || current_database() || ' owner to plain'; end $$"
        )
        yield own_postgres.replace("//postgres@", "//plain@")
        connection.execute("reassign owned by plain to postgres")
        connection.execute("drop role plain")


@pytest.mark.parametrize("foreigner", ["same role", "other role", "other database"])
async def test_a_transaction_of_another_program_holds_no_change_back(
    postgres: str, own_postgres: str, plain_role: str, foreigner: str
) -> None:
    address = {"same role": plain_role, "other role": own_postgres, "other database": postgres}[foreigner]
    async with PostgresDatabase(plain_role) as database:
        store = Store(database)
        before = await store.read(changes.get_head)
        with raw(address, "public", name="") as foreign:
            foreign.execute("select pg_current_xact_id()")
            await store.write(note, "one")
            during = await store.read(changes.get_head)
            assert not await store.read(change_feed.has_held_back)
            assert await everything(store, before) == ["one"]
            await store.write(note, "two")
            assert await everything(store, during) == ["two"]
            foreign.rollback()
        assert await everything(store, before) == ["one", "two"]


async def test_a_cursor_from_beside_a_long_foreign_transaction_starts_at_the_end(
    postgres: str, schema: str
) -> None:
    """Else the next read would go over everything since that transaction began, and trimming would overtake the cursor."""
    async with PostgresDatabase(postgres, schema=schema) as database:
        store = Store(database)
        with raw(postgres, schema, name="psql") as foreign:
            foreign.execute("select pg_current_xact_id()")
            for n in range(3):
                await store.write(note, str(n))
            cursor = await store.read(changes.get_head)
            assert await store.write(changes.trim, before=after(10)) == 3
            assert await everything(store, cursor) == []
            await store.write(note, "next")
            assert await everything(store, cursor) == ["next"]


async def test_readers_wait_for_a_savepoint_of_another_node(postgres: str, schema: str) -> None:
    async with PostgresDatabase(postgres, schema=schema) as database:
        store = Store(database)
        cursor = await store.read(changes.get_head)
        with raw(postgres, schema) as slow:
            slow.execute("savepoint first")
            noted(slow, "slow")
            slow.execute("savepoint second")
            await store.write(note, "quick")
            assert await everything(store, cursor) == []
            slow.execute("rollback to second")
            slow.execute("release first")
            slow.commit()
        assert await everything(store, cursor) == ["slow", "quick"]


async def test_a_session_without_the_name_cannot_write_to_the_feed(postgres: str, schema: str) -> None:
    with raw(postgres, schema, name="") as nameless:
        with pytest.raises(psycopg.errors.NotNullViolation, match="xid"):
            noted(nameless, "lost")


async def test_an_old_server_with_a_prepared_transaction_holds_no_change_back() -> None:
    try:
        server = Server(epoch=5)
    except Unstartable as exc:
        left_out.skip("tests on PostgreSQL", why=str(exc), command=left_out.POSTGRES)
    server.start()
    try:
        async with PostgresDatabase(server.dsn) as database:
            store = Store(database)
            cursor = await store.read(changes.get_head)
            with raw(server.dsn, "public", name="") as foreign, raw(server.dsn, "public") as slow:
                foreign.execute("select pg_current_xact_id()")
                foreign.execute("prepare transaction 'foreign'")
                await store.write(note, "one")
                assert await everything(store, cursor) == ["one"]
                noted(slow, "slow")
                await store.write(note, "two")
                assert await everything(store, cursor) == ["one"]
                slow.commit()
            assert await everything(store, cursor) == ["one", "slow", "two"]
    finally:
        server.remove()
