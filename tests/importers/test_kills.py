"""An import that is killed goes on where it was, and ends with the same store."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.builders import OPERATORS
from tests.importers import samples
from tests.importers.samples import Json, iso
from tests.importers.test_programs import ON_SQLITE, read_tables, take

from keryx import importers
from keryx.core.errors import Retryable
from keryx.engine.conversation_import import import_conversations
from keryx.importers.conversation import ImportLog
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


def run_until_killed(store: Path, source: Path, nth: int, when: str) -> int:
    words = [str(store), "qwen", str(source), str(nth), when]
    command = [sys.executable, "-m", "tests.importers.killed_import", *words]
    return subprocess.run(command, cwd=ROOT, timeout=120).returncode


async def check_kill(tmp_path: Path, source: Path, nth: int, when: str) -> None:
    store = tmp_path / f"killed-{nth}-{when}.db"
    assert await asyncio.to_thread(run_until_killed, store, source, nth, when) == -signal.SIGKILL
    async with SqliteDatabase(tmp_path / f"whole-{nth}-{when}.db") as whole, SqliteDatabase(store) as killed:
        await take(whole, "qwen", source)
        await take(killed, "qwen", source)
        assert await verify(killed) == []
        expected, found = await read_tables(whole), await read_tables(killed)
        for name in ("epochs", "usage", "turns", "aliases"):
            assert len(found[name]) == len(expected[name]), name
        columns = "session, seq, role, parts, at, turn, epoch, undone, exact"
        sql = f"select {columns} from messages order by session, seq"
        rows = [await database.read("test", lambda tx: tx.rows(sql)) for database in (whole, killed)]
        assert rows[0] == rows[1]


async def test_an_import_that_is_killed_in_the_middle_goes_on(tmp_path: Path) -> None:
    await check_kill(tmp_path, write_long(tmp_path / "source"), 3, "after")


@pytest.mark.faults
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", [1, 2, 4, 5, 6])
async def test_an_import_that_is_killed_at_any_commit_goes_on(tmp_path: Path, nth: int, when: str) -> None:
    await check_kill(tmp_path, write_long(tmp_path / "source"), nth, when)


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
