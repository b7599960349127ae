import asyncio
import os
import resource
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import LiteralString, cast

import psycopg
import pytest
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests import left_out
from tests.builders import Store, a_session, at_time, quiet
from tests.postgres import Server, Unstartable

from keryx.core.errors import (
    Conflict,
    DiskFull,
    Invalid,
    KeryxError,
    Retryable,
    StoreBroken,
    StoreDamaged,
    Unavailable,
)
from keryx.core.ids import DEFAULT_PROFILE, SessionId
from keryx.core.ports.adapter import Receipt
from keryx.store import inbox, sessions
from keryx.store.db import Transaction
from keryx.store.db.metrics import MeteredDatabase
from keryx.store.db.postgres import BATCH_SIZE, STATEMENT_SECONDS, PostgresDatabase, translate_error
from keryx.testing import START_TIME


async def opening(dsn: str) -> None:
    async with PostgresDatabase(dsn):
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    try:
        server = Server()
    except Unstartable as exc:
        left_out.skip("tests on PostgreSQL", why=str(exc), command=left_out.POSTGRES)
    server.start()
    yield server
    server.remove()


async def test_units_that_block_each_other_are_run_again(postgres: str, schema: str) -> None:
    meeting = threading.Barrier(2)
    runs: list[int] = []

    def unit(tx: Transaction, n: int, order: list[SessionId]) -> None:
        runs.append(n)
        sessions.lock(tx, order[0])
        if runs.count(n) == 1:
            meeting.wait(10)
        sessions.lock(tx, order[1])

    async with PostgresDatabase(postgres, schema=schema) as database:
        store = Store(database)
        pair = [(await store.write(a_session)).id for _ in range(2)]
        await asyncio.gather(store.write(unit, 1, pair), store.write(unit, 2, pair[::-1]))
    assert set(runs) == {1, 2}
    assert len(runs) > 2


# What a client sends when it closes a connection.
_GOODBYE = b"X\0\0\0\4"
# What a server sends when it waits for a statement.
_READY = b"Z\0\0\0\5"


class SilentProxy:
    """Forwards connections to a server until it is told to keep those that are open without forwarding anything."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._server = conninfo_to_dict(dsn)
        self._forwarding: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._silent = 0
        # Those that were opened to their end: a pool may be opening others.
        self._open: set[int] = set()
        # How many there were, and the numbers of the silent ones that were sent a statement.
        self.connections = 0
        self.unheard: set[int] = set()

    async def __aenter__(self) -> str:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        return make_conninfo(self._dsn, host="127.0.0.1", port=port)

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for task in self._forwarding:
            task.cancel()
        for writer in self._writers:
            writer.close()

    def go_silent(self) -> None:
        """From now on, what comes over the connections that are open goes nowhere."""
        self._silent = self.connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        host, port = str(self._server["host"]), int(self._server["port"] or 0)
        if host.startswith("/"):
            there, back = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            there, back = await asyncio.open_connection(host, port)
        self._writers += [writer, back]
        for source, target in ((reader, back), (there, writer)):
            forward = self._forward(source, target, self.connections, asks=source is reader)
            self._forwarding.add(asyncio.ensure_future(forward))

    async def _forward(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, number: int, *, asks: bool
    ) -> None:
        while data := await source.read(65_536):
            if number > self._silent:
                target.write(data)
                if not asks and _READY in data:
                    self._open.add(number)
            elif asks and data != _GOODBYE and number in self._open:
                self.unheard.add(number)
        target.close()


@pytest.mark.parametrize("key", ["", "one of many"])
async def test_a_connection_that_goes_silent_is_dropped_and_made_anew(
    postgres: str, schema: str, key: str
) -> None:
    proxy = SilentProxy(postgres)
    meeting = threading.Barrier(3)

    def meet(tx: Transaction) -> None:
        tx.row("select 1")
        meeting.wait(10)

    async with proxy as dsn, PostgresDatabase(dsn, schema=schema, deadline=1) as database:
        # Three connections have answered.
        await asyncio.gather(*(database.read("meet", meet) for _ in range(3)))
        proxy.go_silent()
        with pytest.raises(Retryable):
            await database.write("second", lambda tx: inbox.set_cursor(tx, "second", "2"), key=key)
        async with asyncio.timeout(60):
            # On a busy machine the new connection may be too slow for this deadline.
            while await _is_refused(database, lambda tx: inbox.set_cursor(tx, "second", "2"), key):
                pass
            while await _is_refused(database, lambda tx: inbox.get_cursor(tx, "second") == "2", key):
                pass
    # The other connections are as silent, but nobody has to wait for each of them.
    assert len(proxy.unheard) == 1


async def _is_refused(database: PostgresDatabase, work: Callable[[Transaction], object], key: str) -> bool:
    try:
        assert await database.write("again", work, key=key) is not False
    except Retryable:
        return True
    return False


def end_sessions(postgres: str, name: str) -> None:
    """End the sessions of this name, and wait until they are gone."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = %s",
            (name,),
        )


@pytest.mark.parametrize("key", ["", "one of many"])
async def test_a_connection_that_the_server_has_closed_is_not_used(
    postgres: str, schema: str, key: str
) -> None:
    name = f"keryx {schema}"
    async with PostgresDatabase(make_conninfo(postgres, application_name=name), schema=schema) as database:
        for n in range(3):
            await asyncio.to_thread(end_sessions, postgres, name)
            await database.write("write", lambda tx, n=n: inbox.set_cursor(tx, str(n), "1"), key=key)
            await asyncio.to_thread(end_sessions, postgres, name)
            assert await database.read("look", lambda tx, n=n: inbox.get_cursor(tx, str(n))) == "1"


@pytest.mark.parametrize("key", ["", "one of many"])
async def test_a_unit_whose_connection_is_lost_before_its_commit_is_run_again(
    postgres: str, schema: str, key: str
) -> None:
    name = f"keryx {schema}"
    runs: list[int] = []

    def unit(tx: Transaction) -> str | None:
        runs.append(1)
        inbox.set_cursor(tx, "name", f"{len(runs)}")
        inbox.get_cursor(tx, "name")
        if len(runs) == 1:
            end_sessions(postgres, name)
        return inbox.get_cursor(tx, "name")

    async with PostgresDatabase(make_conninfo(postgres, application_name=name), schema=schema) as database:
        assert await database.write("write", unit, key=key) == "2"
    assert len(runs) == 2


async def test_a_read_whose_connection_is_lost_is_run_again(postgres: str, schema: str) -> None:
    name = f"keryx {schema}"
    runs: list[int] = []

    def read(tx: Transaction) -> object:
        runs.append(1)
        tx.row("select 1")
        if len(runs) == 1:
            end_sessions(postgres, name)
        return tx.row("select 2")

    async with PostgresDatabase(make_conninfo(postgres, application_name=name), schema=schema) as database:
        assert await database.read("look", read) == (2,)
    assert len(runs) == 2


@pytest.mark.parametrize("key", ["", "one of many"])
async def test_a_commit_whose_outcome_is_unknown_is_not_repeated(
    postgres: str, schema: str, key: str
) -> None:
    name = f"keryx {schema}"
    runs: list[int] = []

    def unit(tx: Transaction) -> None:
        runs.append(1)
        inbox.set_cursor(tx, "name", "x")
        inbox.get_cursor(tx, "name")
        end_sessions(postgres, name)

    async with PostgresDatabase(make_conninfo(postgres, application_name=name), schema=schema) as database:
        with pytest.raises(Retryable):
            await database.write("write", unit, key=key)
    assert len(runs) == 1


async def test_a_session_that_waits_for_a_lock_ends_before_its_deadline(postgres: str, schema: str) -> None:
    """It would not notice that its connection is closed, and each attempt would leave one more behind."""
    async with PostgresDatabase(postgres, schema=schema) as database:
        found = await database.read(
            "test",
            lambda tx: tx.row("select cast(setting as int) from pg_settings where name = 'lock_timeout'"),
        )
    assert found and 0 < found[0] < STATEMENT_SECONDS * 1000


@pytest.mark.parametrize("table", ["messages", "turns", "changes"])
@pytest.mark.parametrize("mode", ["access exclusive", "share"])
async def test_a_table_that_somebody_keeps_locked_is_found_by_the_probe(
    postgres: str, schema: str, table: str, mode: str
) -> None:
    async with MeteredDatabase(PostgresDatabase(postgres, schema=schema), lock_seconds=0.1) as database:
        with psycopg.connect(postgres) as other:
            other.execute(cast(LiteralString, f'lock table "{schema}".{table} in {mode} mode'))
            for probe in (database.check_writable, database.rehearse_write):
                with pytest.raises(Retryable, match="pg_terminate_backend"):
                    await probe()
        await database.check_writable()


@pytest.fixture
def role(postgres: str) -> Iterator[str]:
    """A role that may log in, and nothing else."""
    name = f"role_{secrets.token_hex(6)}"
    administer(postgres, f"create role {name} login")
    yield name
    administer(postgres, f"drop owned by {name}; drop role {name}")


def administer(postgres: str, sql: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(cast(LiteralString, sql))


@pytest.mark.parametrize(
    ("change", "ours", "words"),
    [
        ("alter role {role} nologin", StoreBroken, "alter role … login"),
        ("alter role {role} connection limit 0", Retryable, "no connection left"),
        ("drop role {role}; create role other_{role}", StoreBroken, "make the role"),
        ("grant usage on schema {schema} to {role}", StoreBroken, "owner of the tables"),
        ("alter role {role} set default_transaction_read_only = on", StoreBroken, "name the primary"),
    ],
)
async def test_what_postgresql_refuses_to_a_role_is_explained(
    postgres: str, schema: str, role: str, change: str, ours: type[KeryxError], words: str
) -> None:
    administer(postgres, change.format(role=role, schema=schema))
    try:
        with pytest.raises(ours, match=words) as refused:
            await opening(make_conninfo(postgres, user=role, options=f"-c search_path={schema}"))
    finally:
        if change.startswith("drop"):
            administer(postgres, f"alter role other_{role} rename to {role}")
    assert "\n" not in str(refused.value)


async def test_a_database_that_does_not_exist_or_is_closed_to_a_role_is_explained(
    own_postgres: str, role: str
) -> None:
    with pytest.raises(StoreBroken, match="createdb"):
        await opening(make_conninfo(own_postgres, dbname="no_such_database"))
    name = str(conninfo_to_dict(own_postgres)["dbname"])
    administer(own_postgres, f"revoke connect on database {name} from public")
    with pytest.raises(StoreBroken, match="grant connect"):
        await opening(make_conninfo(own_postgres, user=role))


async def test_rights_that_are_taken_away_are_explained_at_the_next_write(
    own_postgres: str, role: str
) -> None:
    name = str(conninfo_to_dict(own_postgres)["dbname"])
    administer(
        own_postgres, f"alter database {name} owner to {role}; grant create on schema public to {role}"
    )
    async with MeteredDatabase(PostgresDatabase(make_conninfo(own_postgres, user=role))) as database:
        await database.check_writable()
        administer(
            own_postgres,
            f"revoke insert, update, delete, truncate on all tables in schema public from {role}",
        )
        with pytest.raises(StoreBroken, match="owner of the tables"):
            await database.rehearse_write()
    administer(own_postgres, f"reassign owned by {role} to postgres; drop owned by {role}")


async def test_why_there_is_no_connection_is_told_while_a_node_runs(server: Server) -> None:
    administer(server.dsn, "create role keryx login; grant create on schema public to keryx")
    async with PostgresDatabase(make_conninfo(server.dsn, user="keryx"), deadline=1) as database:
        administer(server.dsn, "alter role keryx nologin")
        await asyncio.to_thread(server.restart)
        async with asyncio.timeout(60):
            while True:
                with pytest.raises(Unavailable) as refused:
                    await database.read("look", lambda tx: tx.row("select 1"))
                if "alter role … login" in str(refused.value):
                    break


async def test_work_that_is_known_to_be_long_has_no_such_deadline(postgres: str, schema: str) -> None:
    async with PostgresDatabase(postgres, schema=schema, deadline=0.1) as database:
        await database.read("verify", lambda tx: tx.row("select pg_sleep(0.5)"))
        with pytest.raises(Retryable):
            await database.read("look", lambda tx: tx.row("select pg_sleep(5)"))


class Held:
    """A unit that keeps its place busy, so that what is asked meanwhile comes together."""

    def __init__(self, store: Store) -> None:
        self._begun, self._go_on = threading.Event(), threading.Event()
        self._unit = asyncio.ensure_future(store.write(self._wait))

    async def __aenter__(self) -> None:
        assert await asyncio.to_thread(self._begun.wait, 10)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)  # for what was asked to come to the queue
        self._go_on.set()
        await asyncio.gather(self._unit, return_exceptions=True)

    def _wait(self, tx: Transaction) -> None:
        self._begun.set()
        assert self._go_on.wait(10)


def transaction(tx: Transaction) -> str:
    """Which transaction this is."""
    found = tx.row("select cast(pg_current_xact_id() as text)")
    assert found
    return str(found[0])


async def test_units_that_wait_at_one_place_share_a_transaction(postgres: str, schema: str) -> None:
    async with PostgresDatabase(postgres, schema=schema) as database:
        store = Store(database, key="here")
        async with Held(store):
            units = [asyncio.ensure_future(store.write(transaction)) for _ in range(BATCH_SIZE)]
        assert len(set(await asyncio.gather(*units))) == 1
        alone = [await store.write(transaction) for _ in range(3)]
        assert len(set(alone)) == 3


async def test_if_one_of_them_fails_each_has_a_transaction_of_its_own(postgres: str, schema: str) -> None:
    runs: list[int] = []

    def unit(tx: Transaction, n: int) -> str:
        runs.append(n)
        inbox.set_cursor(at_time(tx, START_TIME), str(n), "x")
        if n == 3:
            raise Invalid("not this one")
        return transaction(tx)

    async with PostgresDatabase(postgres, schema=schema) as database:
        store = Store(database, key="here")
        async with Held(store):
            units = [asyncio.ensure_future(store.write(unit, n)) for n in range(5)]
        outcomes = await asyncio.gather(*units, return_exceptions=True)
        kept = await store.read(lambda tx: sorted(row[0] for row in tx.rows("select name from cursors")))
    assert [type(o) for o in outcomes] == [str, str, str, Invalid, str]
    assert len(set(map(str, outcomes))) == 5
    assert (kept, runs) == (["0", "1", "2", "4"], [0, 1, 2, 3, 0, 1, 2, 3, 4])


async def test_units_together_that_block_those_of_another_node_are_run_one_by_one(
    postgres: str, schema: str
) -> None:
    meeting = threading.Barrier(2)
    runs: Counter[tuple[int, SessionId]] = Counter()

    def unit(tx: Transaction, node: int, session: SessionId) -> None:
        sessions.lock(tx, session)
        runs[node, session] += 1
        if sum(n for (where, _), n in runs.items() if where == node) == 1:
            meeting.wait(10)

    async with (
        PostgresDatabase(postgres, schema=schema) as here,
        PostgresDatabase(postgres, schema=schema) as there,
    ):
        stores = [Store(node, key="here") for node in (here, there)]
        pair = [(await stores[0].write(a_session)).id for _ in range(2)]
        async with Held(stores[0]), Held(stores[1]):
            units = [
                asyncio.ensure_future(store.write(unit, node, session))
                for node, store in enumerate(stores)
                for session in pair[:: 1 - 2 * node]
            ]
        await asyncio.gather(*units)
    assert len(runs) == 4
    assert sum(runs.values()) > 4


async def test_units_together_whose_server_dies_are_run_by_nobody_else(server: Server) -> None:
    runs: list[int] = []

    def unit(tx: Transaction, n: int) -> None:
        runs.append(n)
        inbox.set_cursor(at_time(tx, START_TIME), str(n), "x")
        if n == 2:
            server.kill()

    async with PostgresDatabase(server.dsn) as database:
        store = Store(database, key="here")
        async with Held(store):
            units = [asyncio.ensure_future(store.write(unit, n)) for n in range(3)]
        outcomes = await asyncio.gather(*units, return_exceptions=True)
    assert [type(o) for o in outcomes] == [Retryable] * 3
    assert runs == [0, 1, 2]


async def test_a_race_that_is_never_won_ends_as_a_conflict(postgres: str, schema: str) -> None:
    runs: list[int] = []

    def twice(tx: Transaction) -> None:
        runs.append(1)
        for _ in range(2):
            inbox.record(
                at_time(tx, START_TIME), Receipt(duplicate=False), platform="p", account="a", event="1"
            )

    async with PostgresDatabase(postgres, schema=schema) as database:
        with pytest.raises(Conflict, match="try again"):
            await Store(database).write(twice)
    assert len(runs) > 1


async def test_the_server_lets_go_of_what_a_silent_node_holds(postgres: str, schema: str) -> None:
    async with PostgresDatabase(postgres, schema=schema) as database:
        found = await database.read("test", lambda tx: tx.row("show idle_in_transaction_session_timeout"))
    assert found == ("5s",)


async def test_what_the_address_asks_of_connections_stays(postgres: str, schema: str) -> None:
    async with PostgresDatabase(postgres, schema=schema):
        pass
    asked = f"-c search_path={schema} -c statement_timeout=61s"
    shown = "select current_schema(), current_setting('statement_timeout'), current_setting('{}')"
    async with PostgresDatabase(make_conninfo(postgres, options=asked, keepalives_idle="77")) as database:
        store = Store(database)
        await store.write(a_session)
        found = await database.read(
            "test", lambda tx: tx.row(shown.format("idle_in_transaction_session_timeout"))
        )
    assert found == (schema, "61s", "5s")


@pytest.mark.parametrize(
    ("asked", "name"), [("", "keryx"), ("berlin", "keryx berlin"), ("keryx-berlin", "keryx-berlin")]
)
async def test_every_session_has_a_name_that_says_it_is_of_keryx(
    postgres: str, schema: str, asked: str, name: str
) -> None:
    address = make_conninfo(postgres, application_name=asked) if asked else postgres
    async with PostgresDatabase(address, schema=schema) as database:
        found = await database.read("test", lambda tx: tx.row("select current_setting('application_name')"))
    assert found == (name,)


async def test_an_address_that_cannot_work_is_refused_with_advice(postgres: str) -> None:
    with pytest.raises(Invalid, match="postgresql://"):
        await opening("nonsense")
    with pytest.raises(Retryable, match="check that it runs"):
        await opening("postgresql://postgres@127.0.0.1:1/postgres")
    unknown = make_conninfo(postgres, dbname="no_such_database")
    with pytest.raises(StoreBroken, match="KERYX_DATABASE"):
        await opening(unknown)


async def test_what_was_committed_survives_a_crash_and_the_store_comes_back(server: Server) -> None:
    async with PostgresDatabase(server.dsn, connections=2, deadline=3) as database:
        store = Store(database)
        session = await store.write(a_session)
        server.kill()
        with pytest.raises(Unavailable):
            await store.write(a_session)
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(30):
            while True:
                try:
                    assert (await store.read(sessions.get, session.id)).id == session.id
                    break
                except Retryable:
                    await asyncio.sleep(0.05)
            seen = database.wake.count
            while database.wake.count == seen:
                await store.at(START_TIME).write(
                    sessions.create,
                    profile=DEFAULT_PROFILE,
                    owner=session.owner,
                    surface="web",
                )
                await asyncio.sleep(0.05)


async def test_many_commits_wake_every_process_and_none_more_often_than_they_are(server: Server) -> None:
    async with PostgresDatabase(server.dsn) as here, PostgresDatabase(server.dsn) as there:
        before = [await quiet(database) for database in (here, there)]
        await asyncio.gather(*(Store(here).write(a_session) for _ in range(20)))
        woken = [await quiet(database) for database in (here, there)]
        assert all(1 <= now - then <= 20 for then, now in zip(before, woken, strict=True))


async def test_a_process_with_many_open_files_is_woken(server: Server) -> None:
    """The old call that waits for several files knows but 1,024 of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1_200:
        pytest.skip("so many files cannot be opened here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1_200), hard))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1_030):
            stack.enter_context(open(os.devnull, "rb"))  # noqa: ASYNC230 it never waits
        async with PostgresDatabase(server.dsn) as here, PostgresDatabase(server.dsn) as there:
            seen = await quiet(here)
            await Store(there).write(a_session)
            async with asyncio.timeout(60):
                await here.wake.wait(seen)


async def test_a_commit_wakes_its_own_process_once(server: Server) -> None:
    async with PostgresDatabase(server.dsn) as database:
        for _ in range(3):
            before = await quiet(database)
            await Store(database).write(a_session)
            async with asyncio.timeout(60):
                await database.wake.wait(before)
            assert await quiet(database) == before + 1


async def test_a_process_that_ends_at_once_has_woken_the_others(server: Server) -> None:
    async with PostgresDatabase(server.dsn) as here:
        for _ in range(5):
            async with PostgresDatabase(server.dsn) as there:
                seen = await quiet(here)
                await Store(there).write(a_session)
            async with asyncio.timeout(60):
                await here.wake.wait(seen)


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (pg.IdleInTransactionSessionTimeout("idle"), Retryable),
        (pg.DiskFull(), DiskFull),
        (pg.AdminShutdown(), Retryable),
        (pg.ForeignKeyViolation("x"), Conflict),
        (pg.UndefinedTable("x"), StoreDamaged),
        (pg.ReadOnlySqlTransaction("x"), StoreBroken),
        (psycopg.OperationalError("gone\nfor good"), Retryable),
        (RuntimeError("odd"), Unavailable),
    ],
)
def test_errors_of_postgresql_become_ours(error: Exception, ours: type[KeryxError]) -> None:
    translated = translate_error(error)
    assert type(translated) is ours
    assert "\n" not in str(translated)
