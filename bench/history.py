"""History: the import of conversations of another program, compared with the same rows by the bare driver; and its memory.
Then many short conversations of programs that link theirs: what an import costs for each must not grow with their number."""

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.floor import Floor, Statement
from bench.stage import Place, Stage
from bench.table import Line, line
from keryx import importers
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR
from keryx.core.sessions import Viewer
from keryx.engine.conversation_import import BATCH_SIZE, import_conversations
from keryx.importers.conversation import ImportLog
from keryx.store.db import Database, Transaction

_MESSAGES = 100_000
_FEWER = 10
_EACH = 200
_SESSIONS = 100_000
_FEWER_SESSIONS = 20
_TABLES = (
    "sessions",
    "imports",
    "import_records",
    "messages",
    "turns",
    "usage",
    "aliases",
    "reads",
    "changes",
)
_NUMBERS = {"messages": "id", "turns": "position", "usage": "id", "changes": "position"}
_WORDS = "the answer of a model has some sentences, and this is one of them. " * 6


class Measurement(msgspec.Struct, frozen=True):
    seconds: float
    mebibytes: float


async def run(stage: Stage) -> AsyncIterator[Line]:
    few, many = stage.size(_MESSAGES // _FEWER), stage.size(_MESSAGES)
    rates: list[float] = []
    for count in (few, many):
        source = await asyncio.to_thread(write_source, stage.folder / f"history-{count}", count)
        place = stage.place()
        async with place.database():
            pass
        measured = await asyncio.to_thread(_import_elsewhere, place, source)
        floor = await _write_again(stage, place)
        size = f"{count:,} messages"
        rates.append(measured.seconds / count * 1000)
        yield line("import", size, measured.seconds, "s", floor=floor, most=4)
        yield line("import, peak memory", size, measured.mebibytes, "MiB", under=200)
        again = await asyncio.to_thread(_import_elsewhere, place, source)
        yield line("import again, nothing new", size, again.seconds, "s", against=measured.seconds, most=0.5, what="the first")  # fmt: skip
    yield line("import of one message, flat", f"{many:,} messages", rates[1], "ms", against=rates[0], most=1.5, what=f"{few:,}")  # fmt: skip
    for program, write in (
        (("hermes", _write_hermes), ("claude-code", _write_claude)) if not stage.dsn else ()
    ):
        costs: list[float] = []
        for count in (stage.size(_SESSIONS // _FEWER_SESSIONS), stage.size(_SESSIONS)):
            source = await asyncio.to_thread(write, stage.folder / f"{program}-{count}", count)
            place = stage.place()
            async with place.database():
                pass
            measured = await asyncio.to_thread(_import_elsewhere, place, source, program)
            costs.append(measured.seconds / count * 1000)
            size = f"{count:,} of {program}"
            yield line("import of short sessions", size, measured.seconds, "s")
            yield line("import, peak memory", size, measured.mebibytes, "MiB", under=400)
        yield line("import of one session, flat", size, costs[1], "ms", against=costs[0], most=1.5, what="a twentieth")  # fmt: skip


def _write_hermes(folder: Path, count: int) -> Path:
    """Write sessions of Hermes with four messages. Every tenth continues the one before it, and every tenth is a fork of it."""
    folder.mkdir(parents=True)
    connection = sqlite3.connect(folder / "state.db")
    connection.execute(
        "create table sessions (id text primary key, source, model_config, parent_session_id, started_at real, end_reason,"
        " title, input_tokens, output_tokens, model)"
    )
    connection.execute(
        "create table messages (id integer primary key, session_id text, role, content, timestamp real, active, compacted)"
    )
    connection.execute("create index of_session on messages (session_id, timestamp)")
    for n in range(count):
        parent = f"s{n - 1}" if n % 10 in (2, 5) else None
        branch = json.dumps({"_branched_from": parent}) if n % 10 == 5 else None
        end = "compression" if n % 10 == 1 else None
        row = (f"s{n}", "cli", branch, parent, 1_790_000_000 + n, end, f"Session {n}", 100, 10, "fake")
        connection.execute("insert into sessions values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        for k in range(4):
            said = (
                f"s{n}",
                ("user", "assistant")[k % 2],
                f"message {k} {_WORDS}",
                1_790_000_000 + n + k,
                1,
                0,
            )
            names = "session_id, role, content, timestamp, active, compacted"
            connection.execute(f"insert into messages ({names}) values (?, ?, ?, ?, ?, ?)", said)
    connection.commit()
    connection.close()
    return folder


def _write_claude(folder: Path, count: int) -> Path:
    """Write session files of Claude Code with four records, a hundred in a project. Every tenth is a fork of the one before."""
    for n in range(count):
        first = n - 1 if n % 10 == 5 else n
        lines = [_build_claude_record(first if k < 2 else n, n, k) for k in range(4)]
        file = folder / f"project-{n // 100}/s{n}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return folder


def _build_claude_record(family: int, session: int, n: int) -> dict[str, Any]:
    role = ("user", "assistant")[n % 2]
    text = {"type": "text", "text": f"message {n} {_WORDS}"}
    message = {"role": role, "content": [text], "id": f"m{family}-{n}"}
    parent = f"u{family if n < 3 else session}-{n - 1}" if n else None
    at = f"2026-11-{1 + session % 28:02d}T08:00:{10 * (session != family) + n:02d}Z"
    return {
        "uuid": f"u{family}-{n}", "parentUuid": parent, "sessionId": f"s{session}", "timestamp": at, "type": role,
        "cwd": "/work", "message": message,
    }  # fmt: skip


def write_source(folder: Path, count: int) -> Path:
    """Write sessions of Qwen Code: a question, an answer, a tool call and its result, again and again."""
    chats = folder / "project/chats"
    chats.mkdir(parents=True)
    for session in range(max(1, count // _EACH)):
        with (chats / f"s{session}.jsonl").open("w") as out:
            for n in range(min(_EACH, count)):
                out.write(json.dumps(_build_record(session, n)) + "\n")
    return folder


def _build_record(session: int, n: int) -> dict[str, Any]:
    call = {"id": f"c{n // 4}", "name": "run_shell_command"}
    kind, provenance, part = [
        ("user", "real_user", {"text": f"question {n} of session {session}"}),
        ("assistant", "assistant_output", {"functionCall": {**call, "args": {"command": "ls"}}}),
        ("tool_result", "tool_result", {"functionResponse": {**call, "response": {"output": _WORDS}}}),
        ("assistant", "assistant_output", {"text": _WORDS}),
    ][n % 4]
    used = (
        {"usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 10}}
        if kind == "assistant"
        else {}
    )
    parent = f"u{session}-{n - 1}" if n else None
    at = f"2026-11-{1 + session % 28:02d}T08:{n // 60 % 60:02d}:{n % 60:02d}Z"
    return {
        "uuid": f"u{session}-{n}", "parentUuid": parent, "sessionId": f"s{session}", "timestamp": at, "type": kind,
        "provenance": provenance, "cwd": "/work", "model": "fake", "message": {"parts": [part]}, **used,
    }  # fmt: skip


def _import_elsewhere(place: Place, source: Path, program: str = "qwen") -> Measurement:
    """Import in a process of its own, for its memory."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.history", str(place.path), place.dsn, str(source), program],
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Measurement)


async def _import(database: Database, source: Path, program: str) -> Measurement:
    log = ImportLog()
    found = importers.find_program(program).read(source, log)
    began = time.perf_counter()
    viewer = Viewer(DEFAULT_PROFILE, OPERATOR)
    await import_conversations(database, viewer, program, found, log)
    seconds = time.perf_counter() - began
    return Measurement(seconds, _read_peak())


def _read_peak() -> float:
    """Return the largest memory of this process so far, in MiB. `ru_maxrss` has that of the process that started it, too."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "there is no VmHWM in /proc/self/status"
    return int(found[1]) / 1024


async def _write_again(stage: Stage, place: Place) -> float:
    """Return the seconds that the bare driver needs for the rows that the import wrote, in batches of the same size."""
    empty = stage.place()
    async with empty.database():
        pass
    async with place.database() as database:
        batches = await database.read("bench", lambda tx: list(_read_rows(tx)))
    floor: Floor = stage.floor(empty)
    began = time.perf_counter()
    for batch in batches:
        floor.write(batch)
    seconds = time.perf_counter() - began
    floor.close()
    return seconds


def _read_rows(tx: Transaction) -> Iterator[Sequence[Statement]]:
    """Yield inserts of the rows of an import, as many in a batch as an import writes at once."""
    for table in _TABLES:
        [sample] = (
            tx.rows(f"select to_json(t) from {table} t limit 1") if tx.engine == "postgres" else [[None]]
        )
        if sample[0] is not None:
            columns = [name for name in dict(sample[0]) if name != _NUMBERS.get(table)]
        else:
            names = tx.rows("select name from pragma_table_info(:table)", {"table": table})
            columns = [name for (name,) in names if name != _NUMBERS.get(table)]
        marks = ", ".join(f":{name}" for name in columns)
        sql = f"insert into {table} ({', '.join(columns)}) values ({marks})"
        rows = tx.rows(f"select {', '.join(columns)} from {table}")
        for start in range(0, len(rows), BATCH_SIZE):
            yield [(sql, dict(zip(columns, row, strict=True))) for row in rows[start : start + BATCH_SIZE]]


async def _main(place: Place, source: Path, program: str) -> Measurement:
    async with place.database() as database:
        return await _import(database, source, program)


if __name__ == "__main__":
    file, dsn, folder, name = sys.argv[1:]
    measured = asyncio.run(_main(Place(Path(file), dsn), Path(folder), name))
    sys.stdout.buffer.write(msgspec.json.encode(measured))
