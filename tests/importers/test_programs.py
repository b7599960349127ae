"""The conversations of every program come in whole, once, and in the order in which people saw them."""

from pathlib import Path

import msgspec
import pytest
from tests.builders import OPERATORS
from tests.importers.samples import SAMPLES

from keryx import importers
from keryx.core.ids import SessionId
from keryx.core.messages import Message
from keryx.core.sessions import Session, SessionFilter
from keryx.engine.conversation_import import ConversationReport, import_conversations
from keryx.importers.conversation import ImportLog
from keryx.store import messages, sessions
from keryx.store.admin.copy import TABLES
from keryx.store.admin.verify import verify
from keryx.store.db import Database, Engine, Row, Transaction

EVERY_PROGRAM = pytest.mark.parametrize("name", list(SAMPLES))
ON_SQLITE = pytest.mark.engines(Engine.SQLITE)
# For single tests of modules that run on SQLite.
BOTH_ENGINES = pytest.mark.engines(*Engine)


async def take(
    database: Database, name: str, source: Path, *, dry_run: bool = False, log: ImportLog | None = None
) -> ConversationReport:
    program = importers.find_program(name)
    log = log or ImportLog()
    found = program.read(source, log)
    return await import_conversations(database, OPERATORS, program.key, found, log, dry_run=dry_run)


def count(report: ConversationReport) -> dict[str, int]:
    """What a report counts, without zeros."""
    return {
        name: value
        for name, value in msgspec.structs.asdict(report).items()
        if value and name not in ("program", "dry_run")
    }


def list_sessions(tx: Transaction) -> list[Session]:
    found, _ = sessions.list_page(tx, OPERATORS, SessionFilter(archived=None, jobs=True, limit=100))
    return sorted((item.session for item in found), key=lambda session: session.created_at)


async def read_messages(database: Database, session: SessionId) -> list[Message]:
    return await database.read("test", lambda tx: messages.list_after(tx, session, after=0))


async def read_tables(database: Database) -> dict[str, list[Row]]:
    """Everything that is stored, except the feed of changes."""

    def work(tx: Transaction) -> dict[str, list[Row]]:
        names = [table.name for table in TABLES if table.name != "changes"]
        return {name: sorted(tx.rows(f"select * from {name}"), key=str) for name in names}

    return await database.read("test", work)


async def check_sample(database: Database, name: str, folder: Path) -> None:
    sample = SAMPLES[name]
    source = sample.write(folder)
    log = ImportLog()
    planned = await take(database, name, source, dry_run=True)
    report = await take(database, name, source, log=log)
    assert log.damages == []
    assert count(report) == sample.counts
    assert count(planned) == count(report)
    found = await database.read("test", list_sessions)
    assert [session.title for session in found] == sample.titles
    said = await read_messages(database, found[0].id)
    assert [(m.role.value, m.text) for m in said] == sample.shown
    before = await read_tables(database)
    assert count(await take(database, name, source)) == {"unchanged": report.created}
    assert await read_tables(database) == before
    assert await verify(database) == []


@EVERY_PROGRAM
async def test_a_source_comes_in_as_people_saw_it_and_only_once(
    database: Database, name: str, tmp_path: Path
) -> None:
    await check_sample(database, name, tmp_path / "source")


@EVERY_PROGRAM
@ON_SQLITE
async def test_a_changed_fingerprint_alone_adds_nothing(
    database: Database, name: str, tmp_path: Path
) -> None:
    source = SAMPLES[name].write(tmp_path / "source")
    first = await take(database, name, source)
    await database.write("test", lambda tx: tx.run("update imports set fingerprint = 'another'"))
    again = await take(database, name, source)
    assert count(again) == {"unchanged": first.created}


@EVERY_PROGRAM
@ON_SQLITE
async def test_old_ids_lead_to_the_sessions(database: Database, name: str, tmp_path: Path) -> None:
    source = SAMPLES[name].write(tmp_path / "source")
    program = importers.find_program(name)
    old = [session.id for session in program.read(source, ImportLog())]
    await take(database, name, source)
    for id_ in old:
        found = await database.read("test", lambda tx, id_=id_: sessions.resolve(tx, OPERATORS, id_))
        assert found.messages > 0


@EVERY_PROGRAM
@ON_SQLITE
async def test_a_reader_writes_nothing_into_its_source(database: Database, name: str, tmp_path: Path) -> None:
    source = SAMPLES[name].write(tmp_path / "source")
    before = {file: file.read_bytes() for file in (tmp_path / "source").rglob("*") if file.is_file()}
    await take(database, name, source)
    assert {file: file.read_bytes() for file in (tmp_path / "source").rglob("*") if file.is_file()} == before
