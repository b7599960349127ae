"""An import that is killed goes on where it was, and ends with the same store."""

import asyncio
import base64
import json
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.builders import OPERATORS
from tests.engine.support.fault_recorder import FaultRecorder, changed
from tests.importers import samples
from tests.importers.samples import Json, iso
from tests.importers.test_programs import ON_SQLITE, list_sessions, read_tables, take

from keryx import importers
from keryx.core.errors import Retryable
from keryx.engine.conversation_import import BATCH_SIZE, WatchMark, import_conversations
from keryx.importers.conversation import ImportLog
from keryx.store import imports
from keryx.store.admin.verify import verify
from keryx.store.db import Database
from keryx.store.db.sqlite import SqliteDatabase
from keryx.testing.fault_injection import CrashingDatabase, DatabaseFault, FaultTiming

ROOT = Path(__file__).parent.parent.parent


def write_long(folder: Path) -> Path:
    """One conversation of several batches, with a compaction and a tool in each, and two short ones."""
    lines: list[Json] = []
    parent = None
    for n in range(1200):
        talk = samples.qwen_lines()
        for line in talk[: 10 if n % 50 == 0 else 2]:
            line["uuid"] = f"{line['uuid']}-{n}"
            line["parentUuid"] = parent
            line["timestamp"] = iso(n % 3000)
            parent = line["uuid"]
            lines.append(line)
    samples.write_lines(folder / "p/chats/long.jsonl", lines)
    for name in ("a", "b"):
        short = [{**line, "sessionId": name} for line in samples.qwen_lines()]
        samples.write_lines(folder / f"p/chats/{name}.jsonl", short)
    return folder


def write_long_database(folder: Path) -> Path:
    """The same as a database of Hermes, with two short conversations more."""
    tables = samples.hermes_tables()
    talk = {row["role"]: row for row in tables["messages"][1:3]}
    rows = [
        {
            **talk[role],
            "id": 1000 + n,
            "session_id": "long",
            "content": f"{role} {n}",
            "timestamp": samples.START + n,
        }
        for n in range(1200)
        for role in ("user", "assistant")[n % 2 : n % 2 + 1]
    ]
    tables["sessions"].append({**tables["sessions"][0], "id": "long", "title": "Long", "end_reason": None})
    samples.write_database(folder / "state.db", {**tables, "messages": [*tables["messages"], *rows]})
    return folder


def write_long_archive(folder: Path) -> Path:
    """An export of ChatGPT: one conversation of several batches, with a picture, and short ones."""
    long = samples.chatgpt_record()
    leaf = "n6"
    for n in range(600):
        for role in ("user", "assistant"):
            message = {
                **long["mapping"]["n2"]["message"],
                "author": {"role": role},
                "create_time": samples.START + 10 + n,
            }
            text = {"content_type": "text", "parts": [f"{role} {n}"]}
            node = {"id": f"{role}{n}", "parent": leaf, "message": {**message, "content": text}}
            long["mapping"][node["id"]] = node
            leaf = node["id"]
    records = [{**long, "current_node": leaf, "conversation_id": "long"}]
    records += [{**samples.chatgpt_record(), "conversation_id": name} for name in ("a", "b", "c")]
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "export.zip", "w") as archive:
        archive.writestr("conversations.json", json.dumps(records))
        archive.writestr("file-ABC123-photo.png", base64.b64decode(samples.PNG))
    return folder / "export.zip"


LONG_SOURCES = {"qwen": write_long, "hermes": write_long_database, "chatgpt": write_long_archive}


def run_until_killed(
    store: Path, name: str, source: Path, nth: int, when: str, *, batch: int = BATCH_SIZE
) -> int:
    words = [str(store), name, str(source), str(nth), when, str(batch)]
    command = [sys.executable, "-m", "tests.importers.killed_import", *words]
    return subprocess.run(command, cwd=ROOT, timeout=120).returncode


async def check_kill(tmp_path: Path, name: str, nth: int, when: str) -> None:
    source = LONG_SOURCES[name](tmp_path / "source")
    store = tmp_path / "killed.db"
    assert await asyncio.to_thread(run_until_killed, store, name, source, nth, when) == -signal.SIGKILL
    await check_rest(tmp_path / "whole.db", store, name, source)


async def check_rest(other: Path, store: Path, name: str, source: Path) -> None:
    """The same import again brings what is missing: then the store is as one in which nothing was killed."""
    async with SqliteDatabase(other) as whole, SqliteDatabase(store) as killed:
        await take(whole, name, source)
        await take(killed, name, source)
        assert await verify(killed) == []
        expected, found = await read_tables(whole), await read_tables(killed)
        for table in ("sessions", "epochs", "usage", "turns", "aliases", "media"):
            assert len(found[table]) == len(expected[table]), table
        columns = "s.source, m.seq, m.role, m.at, m.epoch, m.undone, m.exact"
        sql = f"select {columns} from messages m join imports s on s.session = m.session order by s.source, m.seq"
        rows = [await database.read("test", lambda tx: tx.rows(sql)) for database in (whole, killed)]
        assert rows[0] == rows[1]


@pytest.mark.parametrize("name", list(LONG_SOURCES))
async def test_an_import_that_is_killed_in_the_middle_goes_on(tmp_path: Path, name: str) -> None:
    await check_kill(tmp_path, name, 3, "after")


@pytest.mark.faults
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", list(LONG_SOURCES))
async def test_an_import_that_is_killed_at_any_commit_goes_on(
    tmp_path: Path, name: str, nth: int, when: str
) -> None:
    await check_kill(tmp_path, name, nth, when)


@pytest.mark.faults
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", list(samples.SAMPLES))
async def test_an_import_of_any_program_that_is_killed_goes_on(tmp_path: Path, name: str) -> None:
    """Killed at ten moments: before and after each of five commits, which have one record each."""
    source = samples.SAMPLES[name].write(tmp_path / "source")
    for nth in range(1, 6):
        for when in ("before", "after"):
            store = tmp_path / f"{nth}-{when}.db"
            code = await asyncio.to_thread(run_until_killed, store, name, source, nth, when, batch=1)
            assert code == -signal.SIGKILL
            await check_rest(tmp_path / f"{nth}-{when}-whole.db", store, name, source)


@ON_SQLITE
@pytest.mark.parametrize("when", list(FaultTiming))
async def test_an_error_at_any_commit_loses_and_doubles_nothing(
    database: Database, tmp_path: Path, when: FaultTiming
) -> None:
    source = samples.write_claude_code(tmp_path / "source")
    program = importers.find_program("claude-code")
    # After an error behind a commit, the next attempt finds one session more.
    for _ in range(1 if when is FaultTiming.BEFORE else 3):
        crashing = CrashingDatabase(database, DatabaseFault("import", when))
        log = ImportLog()
        with pytest.raises(Retryable):
            await import_conversations(crashing, OPERATORS, program.key, program.read(source, log), log)
    await take(database, "claude-code", source)
    tables = await read_tables(database)
    assert len(tables["messages"]) == samples.SAMPLES["claude-code"].counts["messages"]
    assert await verify(database) == []


@pytest.mark.parametrize("when", list(FaultTiming))
async def test_an_error_while_another_reader_adds_to_a_conversation_is_made_good(
    database: Database, tmp_path: Path, when: FaultTiming
) -> None:
    await take(database, "hermes", write_shared(tmp_path / "hermes"))
    source = samples.write_hermes_webui(tmp_path / "webui")
    recorder = FaultRecorder(database)
    recorder.strike("import.supplement", when)
    with pytest.raises(Retryable):
        await take(recorder, "hermes-webui", source)
    found = await recorder.look()
    assert not changed(found, recorder.before if when is FaultTiming.BEFORE else recorder.after)
    await take(recorder, "hermes-webui", source)
    [session] = await database.read("test", list_sessions)
    assert (session.pinned, session.title, session.messages) == (True, "My talk", 7)
    assert await verify(database) == []


def write_shared(folder: Path) -> Path:
    """The first two messages of the conversation that hermes-webui has, as Hermes has them."""
    session = {
        **samples.hermes_tables()["sessions"][0],
        "id": "aabbccddeeff",
        "end_reason": None,
        "title": "Auto",
    }
    rows = [
        {"id": n, "session_id": "aabbccddeeff", "role": role, "content": text, "timestamp": samples.START + n}
        for n, (role, text) in enumerate([("user", "hello there"), ("assistant", "Hello.")], 1)
    ]
    samples.write_database(folder / "state.db", {"sessions": [session], "messages": rows})
    return folder


@pytest.mark.parametrize("when", list(FaultTiming))
async def test_an_error_while_a_conversation_becomes_a_watched_one_is_made_good(
    database: Database, tmp_path: Path, when: FaultTiming
) -> None:
    source = samples.write_qwen(tmp_path / "source")
    await take(database, "qwen", source)
    mark = WatchMark(machine="desk", stamps={str(next(source.rglob("*.jsonl"))): "1"})
    recorder = FaultRecorder(database)
    recorder.strike("import.watch", when)

    async def watch() -> None:
        program, log = importers.find_program("qwen"), ImportLog()
        await import_conversations(recorder, OPERATORS, "qwen", program.read(source, log), log, watched=mark)

    with pytest.raises(Retryable):
        await watch()
    found = await recorder.look()
    assert not changed(found, recorder.before if when is FaultTiming.BEFORE else recorder.after)
    await watch()
    [session] = await database.read("test", list_sessions)
    watched = await database.read("test", lambda tx: imports.find_watched(tx, session.id))
    assert watched is not None and watched.machine == "desk"
    assert await verify(database) == []
