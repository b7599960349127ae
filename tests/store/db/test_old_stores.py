"""Stores that an older Keryx has made: the first migrations, and rows by plain SQL."""

from collections.abc import Sequence
from pathlib import Path

import apsw
import msgspec
import psycopg
import pytest
from psycopg import sql
from tests.builders import ANN, ANNS, START_TIME, TELEGRAM, Store

from keryx.core.clock import to_micros
from keryx.core.deliveries import DeliveryState
from keryx.core.ids import DEFAULT_PROFILE, DeliveryId, SessionId, TurnId
from keryx.core.messages import Role
from keryx.core.turns import TurnState
from keryx.store import deliveries, frameworks, messages, sessions, turns
from keryx.store.db import Engine, Transaction, migrate
from keryx.store.db.postgres import PostgresDatabase, PostgresTransaction
from keryx.store.db.sqlite import APPLICATION_ID, SqliteDatabase, SqliteTransaction
from keryx.store.frameworks import checkpoints
from keryx.testing import FakeClock

# The first, and the last before one that changes rows or rules of these tables: who said a message, deliveries that are held
# (SQLite copies their table), turns that gather, versions of a question.
LEVELS = (1, 13, 17, 23, 37)
SESSION, TURN, QUEUED, SENT, READY = "s-old", "t-old", "t-queued", "d-sent", "d-ready"
ROWS = (
    """insert into sessions (id, profile, owner, surface, title, title_by, last_seq, messages, turns, created_at, active_at)
       values (:session, :profile, :ann, 'telegram', 'Old news', 'person', 3, 3, 2, :at, :at)""",
    """insert into turns (id, session, profile, owner, asker, surface, state, mode, attempts, input_seq, reply, created_at,
         ready_at, started_at, finished_at)
       values (:turn, :session, :profile, :ann, :ann, 'telegram', 'done', 'queue', 1, 1, :target, :at, null, :at, :at)""",
    """insert into turns (id, session, profile, owner, asker, surface, state, mode, input_seq, created_at, ready_at)
       values (:queued, :session, :profile, :ann, :ann, 'telegram', 'queued', 'queue', 3, :at, :at)""",
    """insert into messages (session, seq, role, parts, at, turn, surface, platform_id)
       values (:session, 1, 'user', '[{"type":"text","text":"what is new?"}]', :at, :turn, 'telegram', '"7"')""",
    """insert into messages (session, seq, role, parts, at, turn)
       values (:session, 2, 'assistant', '[{"type":"text","text":"nothing"}]', :at, :turn)""",
    """insert into messages (session, seq, role, parts, at, turn)
       values (:session, 3, 'user', '[{"type":"text","text":"and now?"}]', :at, :queued)""",
    """insert into deliveries (id, profile, owner, session, turn, target, target_key, platform, account, body, state, attempts,
         parts_sent, receipts, created_at, sent_at)
       values (:sent, :profile, :ann, :session, :turn, :target, :key, 'telegram', 'bot', '"nothing"', 'sent', 1, 1, '["8"]',
         :at, :at)""",
    """insert into deliveries (id, profile, owner, session, turn, target, target_key, platform, account, body, state, created_at)
       values (:ready, :profile, :ann, :session, null, :target, :key, 'telegram', 'bot', '"soon"', 'ready', :at)""",
)
# From level 32 to 39.
GRAPH_ROWS = (
    "insert into graph_threads (profile, owner, name, last_n, changed_at) values (:profile, :ann, 'thread', 1, :at)",
    """insert into graph_checkpoints (thread, n, namespace, id, parent, run, body)
       values (1, 1, '', :checkpoint, :parent, null, :body)""",
    """insert into graph_writes (thread, namespace, checkpoint, task, body)
       values (1, '', :checkpoint, :task, :written)""",
)


def pack(value: object) -> bytes:
    return frameworks.compress(msgspec.msgpack.encode(value))


VALUES = {
    "checkpoint": frameworks.pack_id("c1"),
    "parent": frameworks.pack_id("c0"),
    "body": pack(([b"body"], dict[str, object]())),
    "task": frameworks.pack_id("t1"),
    "written": pack(["", {0: ["a", [b"one"]]}]),
    "session": SESSION,
    "turn": TURN,
    "queued": QUEUED,
    "sent": SENT,
    "ready": READY,
    "profile": DEFAULT_PROFILE,
    "ann": ANN,
    "target": '{"platform":"telegram","account":"bot","chat":"42"}',
    "key": TELEGRAM.key,
    "at": to_micros(START_TIME),
}


def make_old(tx: Transaction, found: Sequence[migrate.Migration]) -> None:
    tx.run(
        "create table migrations"
        " (number bigint primary key, name text not null, checksum text not null, applied_at bigint not null)"
    )
    for migration in found:
        for statement in migrate.split_statements(migration.text, tx.engine):
            tx.run(statement)
        tx.run(
            "insert into migrations (number, name, checksum, applied_at) values (:number, :name, :checksum, 0)",
            {"number": migration.number, "name": migration.name, "checksum": migration.checksum},
        )
    graphs = GRAPH_ROWS if found[-1].number == 39 else ()
    for statement in (*ROWS, *graphs):
        names = {name: value for name, value in VALUES.items() if f":{name}" in statement}
        tx.run(statement, names)


@pytest.fixture
def old(
    engine: Engine, level: int, tmp_path: Path, clock: FakeClock, request: pytest.FixtureRequest
) -> SqliteDatabase | PostgresDatabase:
    """A store of an old level, which is not open yet."""
    found = [migration for migration in migrate.list_all() if migration.number <= level]
    if engine is Engine.SQLITE:
        file = tmp_path / "keryx.db"
        connection = apsw.Connection(str(file))
        with connection:
            tx = SqliteTransaction(connection, START_TIME)
            make_old(tx, found)
            tx.run(f"pragma application_id = {APPLICATION_ID}")
        connection.close()
        return SqliteDatabase(file, clock=clock)
    address, schema = request.getfixturevalue("postgres"), request.getfixturevalue("new_schema")
    with psycopg.connect(address, options=f"-c search_path={schema}", autocommit=True) as link:
        link.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
        with link.transaction():
            tx = PostgresTransaction(link, START_TIME)
            make_old(tx, found)
            tx.commit()
    return PostgresDatabase(address, clock=clock, schema=schema, connections=2)


@pytest.mark.parametrize("level", LEVELS)
async def test_an_old_store_is_read_and_written_after_its_migration(
    old: SqliteDatabase | PostgresDatabase,
) -> None:
    async with old as database:
        store = Store(database)
        session = await store.read(sessions.get, SessionId(SESSION), viewer=ANNS)
        assert (session.title, session.owner, session.active_at) == ("Old news", ANN, START_TIME)

        said = await store.read(messages.list_after, session.id, after=0)
        assert [(m.seq, m.role, m.text, m.turn) for m in said] == [
            (1, Role.USER, "what is new?", TURN),
            (2, Role.ASSISTANT, "nothing", TURN),
            (3, Role.USER, "and now?", QUEUED),
        ]
        done = await store.read(turns.get, TurnId(TURN))
        assert (done.state, done.attempts, done.finished_at) == (TurnState.DONE, 1, START_TIME)
        assert [turn.id for turn in await store.read(turns.list_queued, session.id)] == [QUEUED]

        kept = await store.read(deliveries.list_for_session, session.id)
        assert {(d.id, d.text, d.state, d.target) for d in kept} == {
            (SENT, "nothing", DeliveryState.SENT, TELEGRAM),
            (READY, "soon", DeliveryState.READY, TELEGRAM),
        }
        await store.write(messages.append, session.id, Role.USER, said[0].parts)
        assert (await store.read(sessions.get, session.id)).last_seq == 4
        assert (await store.read(deliveries.get, DeliveryId(SENT))).sent_at == START_TIME
        assert await store.write(migrate.apply) == 0


@pytest.mark.parametrize("level", [39])
async def test_checkpoints_of_an_old_store_keep_what_their_tasks_wrote(
    old: SqliteDatabase | PostgresDatabase,
) -> None:
    """Rows of level 39 have what tasks wrote apart from the checkpoint."""
    async with old as database:
        store = Store(database)
        query = checkpoints.CheckpointQuery(thread="thread")
        [key] = await store.read(checkpoints.list_keys, ANNS, query)
        assert (key.id, key.namespace, key.parent) == ("c1", "", "c0")
        wrote = checkpoints.NewWrite(index=0, channel="b", value=b"two", replace=False)
        where = {"thread": "thread", "namespace": "", "checkpoint": "c1"}
        await store.write(checkpoints.put_writes, ANNS, **where, task="t2", path="", writes=[wrote])
        loaded = await store.read(checkpoints.load, key)
        assert loaded is not None and loaded.body == b"body"
        assert [(w.task, w.channel, w.value) for w in loaded.writes] == [
            ("t1", "a", b"one"),
            ("t2", "b", b"two"),
        ]
        assert await store.read(lambda tx: list(checkpoints.find_damaged(tx))) == []
