"""Files leave the store with their sessions and come back the same."""

import io
import json
from pathlib import Path

import pytest
from tests.builders import ANN, ANNS, BOBS, OPERATORS, Store, a_session, at_time
from tests.conftest import Open

from keryx.core import media
from keryx.core.errors import NotFound
from keryx.core.ids import SessionId
from keryx.core.media import Attachment
from keryx.core.messages import Part, Role, Text
from keryx.core.sessions import Viewer
from keryx.engine.export import ExportFormat, export
from keryx.engine.importer import ImportReport, import_sessions
from keryx.engine.media import MediaStorage
from keryx.store import messages
from keryx.store.admin import copy
from keryx.store.admin.verify import verify
from keryx.store.db import Database, Engine, Transaction
from keryx.store.db.sqlite import SqliteDatabase
from keryx.testing import START_TIME, FakeClock

BODY = b"%PDF-" + bytes(range(256)) * 2500
BOOK = Attachment(name="book \ud83d.pdf", mime="application/pdf", body=BODY)


def shows(tx: Transaction, part: Part) -> SessionId:
    session = a_session(tx, owner=ANN)
    messages.append(at_time(tx, START_TIME), session.id, Role.USER, (Text("look"), part))
    return session.id


async def a_book(database: Database, *, sessions: int = 1) -> None:
    part = await MediaStorage(database, limit=len(BODY)).save(ANNS, BOOK)
    for _ in range(sessions):
        await Store(database).write(shows, part)


async def exported(database: Database, *, redact: bool = False) -> list[str]:
    pieces: list[str] = []
    await export(database, OPERATORS, None, ExportFormat.JSONL, pieces.append, redact=redact)
    return "".join(pieces).splitlines()


async def loaded(database: Database, lines: list[str], *, viewer: Viewer = ANNS) -> ImportReport:
    return await import_sessions(database, FakeClock(), viewer, io.BytesIO("\n".join(lines).encode()))


async def fetched(database: Database, viewer: Viewer = ANNS) -> bytes:
    return (await MediaStorage(database, limit=1).fetch(viewer, media.hash_body(BODY))).body


async def test_a_file_comes_back_with_its_session(database: Database, tmp_path: Path) -> None:
    await a_book(database, sessions=2)
    lines = await exported(database)
    assert [json.loads(x)["record"] for x in lines].count("media") == 3
    async with SqliteDatabase(tmp_path / "other.db") as other:
        report = await loaded(other, lines)
        assert (report.created, report.files, report.damage, report.troubles) == (2, 1, 0, report.troubles)
        assert await fetched(other) == BODY
        with pytest.raises(NotFound):
            await fetched(other, BOBS)
        assert await verify(other) == []
        again = await loaded(other, lines)
        assert (again.created, again.unchanged, again.damage) == (0, 2, 0)
        assert await exported(other) == lines


@pytest.mark.parametrize("harm", ["cut", "gap", "bytes"])
async def test_a_damaged_file_is_left_out_and_reported(database: Database, tmp_path: Path, harm: str) -> None:
    await a_book(database)
    lines = await exported(database)
    chunks = [n for n, x in enumerate(lines) if '"record":"media"' in x]
    if harm == "cut":
        del lines[chunks[-1]]
    elif harm == "gap":
        del lines[chunks[1]]
    else:
        record = json.loads(lines[chunks[1]])
        record["body"] = record["body"][::-1].lstrip("=")
        lines[chunks[1]] = json.dumps(record)
    async with SqliteDatabase(tmp_path / "other.db") as other:
        report = await loaded(other, lines)
        assert report.created == 1
        assert report.damage >= 1
        told = [t.text for t in report.troubles]
        assert any("left out" in t for t in told)
        assert "1 file of its messages is not in this export: the names are kept" in told
        with pytest.raises(NotFound):
            await fetched(other)
        assert await verify(other) == []


async def test_an_export_with_redaction_holds_no_files(database: Database) -> None:
    await a_book(database)
    assert not [x for x in await exported(database, redact=True) if '"record":"media"' in x]


async def test_an_import_cannot_claim_the_file_of_somebody_else(database: Database) -> None:
    await a_book(database)
    lines = [x for x in await exported(database) if '"record":"media"' not in x]
    await loaded(database, lines, viewer=BOBS)
    with pytest.raises(NotFound):
        await fetched(database, BOBS)


async def test_files_go_from_one_engine_to_the_other(
    database: Database, engine: Engine, opener: Open, tmp_path: Path
) -> None:
    await a_book(database)
    async with SqliteDatabase(tmp_path / "copy.db") as other:
        await copy.copy_store(database, other)
        assert await fetched(other) == BODY
        assert await verify(other) == []
