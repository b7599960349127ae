"""A store goes from one engine to the other and back without losing anything."""

from pathlib import Path

import pytest
from tests.builders import (
    ANNS,
    ODD_TEXTS,
    WORKER,
    Store,
    a_delivery,
    a_job,
    a_message,
    a_running_turn,
    a_session,
    a_turn,
    after,
    at_time,
)

from keryx.core.errors import Conflict, Invalid
from keryx.core.jobs import RunOutcome
from keryx.core.messages import Role, text_parts
from keryx.core.questions import Consent, Question, QuestionState
from keryx.core.turns import TurnState
from keryx.store import changes, jobs, messages, people, projects, questions, sessions, turns, workers
from keryx.store.admin import copy
from keryx.store.admin.copy import TABLES
from keryx.store.admin.verify import verify
from keryx.store.change_feed import list_after
from keryx.store.db import Database, Engine, Transaction
from keryx.store.db.postgres import PostgresDatabase
from keryx.store.db.sqlite import SqliteDatabase
from keryx.store.workers import Worker
from keryx.testing import START_TIME

_DERIVED = {"migrations", "search", "search_state"}


def filled(tx: Transaction) -> None:
    session = a_session(tx, title="Trip")
    turn = a_running_turn(tx, session)
    asked = questions.add(
        at_time(tx, START_TIME),
        turn,
        Question(key="1", title=ODD_TEXTS[0]),
        shared=False,
        expires_at=after(9),
    )
    questions.close(
        at_time(tx, START_TIME), asked, QuestionState.ANSWERED, answer=ODD_TEXTS[1], by=session.owner
    )
    questions.set_consent(at_time(tx, START_TIME), session.id, "tool", Consent.ALLOW_ALWAYS, by=session.owner)
    turns.finish(at_time(tx, after(1)), turn, TurnState.DONE)
    for text in ODD_TEXTS:
        messages.append(
            at_time(tx, START_TIME), session.id, Role.USER, text_parts(text), author=text, exact=text
        )
    a_turn(tx, session, at=after(2))
    job = a_job(tx, prompt=ODD_TEXTS[0])
    jobs.claim_run(at_time(tx, START_TIME), job, due_at=START_TIME)
    jobs.finish_run(
        tx, job, RunOutcome.STARTED, due_at=START_TIME, session=session.id, turn=turn.id, error=ODD_TEXTS[1]
    )
    a_delivery(tx, session=session)
    project = projects.add(at_time(tx, START_TIME), ANNS, name="travel", colour="")
    sessions.set_project(at_time(tx, START_TIME), session, project.id)
    sessions.add_alias(tx, session, "old")
    people.resolve(at_time(tx, START_TIME), profile=session.profile, platform="x", person="y", name="\0 z")
    workers.heartbeat(
        tx, Worker(id=WORKER, kind="serve", host="h", pid=1, started_at=START_TIME, seen_at=START_TIME)
    )
    gone = a_session(tx, title="Gone")
    a_message(tx, gone.id)
    sessions.erase(at_time(tx, START_TIME), gone)


@pytest.fixture
async def postgresql(postgres: str, schema: str) -> PostgresDatabase:
    return PostgresDatabase(postgres, schema=schema, connections=4)


async def rows(database: Database) -> dict[str, list[object]]:
    def read(tx: Transaction) -> dict[str, list[object]]:
        return {
            t.name: sorted(
                map(list, tx.rows(f"select {', '.join(_columns(tx, t.name))} from {t.name}")), key=repr
            )
            for t in TABLES
        }

    return await database.read("test", read)


def _columns(tx: Transaction, table: str) -> list[str]:
    found = tx.rows("select name from pragma_table_info(:table) order by name", {"table": table})
    return [str(row[0]) for row in found]


async def test_there_and_back_again_is_the_same(postgresql: PostgresDatabase, tmp_path: Path) -> None:
    async with (
        SqliteDatabase(tmp_path / "one.db") as one,
        postgresql as two,
        SqliteDatabase(tmp_path / "three.db") as three,
    ):
        await Store(one).write(filled)
        sent = await copy.copy_store(one, two)
        assert await copy.copy_store(two, three) == sent
        assert await rows(three) == await rows(one)
        for database in (one, two, three):
            assert await verify(database) == []


async def test_numbers_go_on_after_a_copy(postgresql: PostgresDatabase, tmp_path: Path) -> None:
    async with SqliteDatabase(tmp_path / "one.db") as one, postgresql as two:
        await Store(one).write(filled)
        before = await Store(one).read(lambda tx: int(changes.get_head(tx)))
        await copy.copy_store(one, two)
        store = Store(two)
        session = await store.write(a_session, title="New")
        await store.write(a_running_turn, session)
        assert await verify(two) == []
        row = await store.read(lambda tx: tx.row("select max(position) from changes"))
        assert row is not None
        assert row[0] > before


async def test_a_reader_follows_on_after_a_copy(postgresql: PostgresDatabase, tmp_path: Path) -> None:
    async with SqliteDatabase(tmp_path / "one.db") as one, postgresql as two:
        await Store(one).write(filled)
        await copy.copy_store(one, two)
        store = Store(two)
        cursor = await store.read(changes.get_head)
        assert await store.read(list_after, cursor) == []
        session = await store.write(a_session, title="New")
        assert [c.subject for c in await store.read(list_after, cursor)][:1] == [session.id]


async def test_the_trim_point_is_translated(postgresql: PostgresDatabase, tmp_path: Path) -> None:
    async with (
        SqliteDatabase(tmp_path / "one.db") as one,
        postgresql as two,
        SqliteDatabase(tmp_path / "three.db") as three,
    ):
        store = Store(one)
        await store.write(filled)
        await store.write(changes.trim, before=after(1))
        await copy.copy_store(one, two)
        await copy.copy_store(two, three)
        assert await verify(two) == []
        assert await rows(three) == await rows(one)


async def test_a_target_with_anything_in_it_is_refused(store: Store, tmp_path: Path) -> None:
    async with SqliteDatabase(tmp_path / "source.db") as source:
        await Store(source).write(filled)
        await store.write(a_session)
        with pytest.raises(Conflict, match="not empty"):
            await copy.copy_store(source, store.database)


async def test_two_postgresql_databases_are_refused(postgresql: PostgresDatabase) -> None:
    async with postgresql as database:
        with pytest.raises(Invalid, match="pg_dump"):
            await copy.copy_store(database, database)


async def test_every_table_is_copied(database: Database) -> None:
    """A table that a migration adds must be listed, or said to be derived."""

    def names(tx: Transaction) -> set[str]:
        if tx.engine is Engine.SQLITE:
            found = tx.rows(
                "select name from sqlite_schema where type = 'table' and name not like 'sqlite_%'"
            )
        else:
            found = tx.rows("select tablename from pg_tables where schemaname = current_schema()")
        return {str(row[0]) for row in found}

    there = await database.read("test", names)
    assert {t.name for t in TABLES} == {
        name for name in there if name not in _DERIVED and not name.startswith("search")
    }
