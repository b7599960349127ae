"""What is too large, damaged or hostile in a source is told with its place, and nothing else is lost."""

import json
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.importers import samples
from tests.importers.samples import SAMPLES, START, Json
from tests.importers.test_sources import read, run

from keryx.core.errors import Invalid
from keryx.importers import find_program
from keryx.importers.conversation import ImportLog

GIGABYTE = 1 << 30
LIMIT = 1 << 20
LONG = "x" * 3 * LIMIT
DATABASES = ["hermes", "opencode", "openclaw", "open-webui", "goose"]


def insert_line(pattern: str, record: Json) -> Callable[[Path], str]:
    """Put a line into the middle of a file; return its place."""

    def change(source: Path) -> str:
        file = next(source.rglob(pattern))
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join([*lines[:2], json.dumps(record) + "\n", *lines[2:]]))
        return f"{file}:3"

    return change


def insert_row(pattern: str, table: str, row: Json) -> Callable[[Path], str]:
    def change(source: Path) -> str:
        file = next(source.rglob(pattern))
        marks = ", ".join("?" for _ in row)
        run(file, f"insert into {table} ({', '.join(row)}) values ({marks})", *row.values())
        return f"{file}, table {table}, {next(iter(row.values()))}"

    return change


def add_file(name: str, record: Json) -> Callable[[Path], str]:
    def change(source: Path) -> str:
        return str(samples.write_json(source / name, record))

    return change


def prepend_object(record: Json) -> Callable[[Path], str]:
    """Put a conversation before the first one of an export."""

    def change(source: Path) -> str:
        if source.suffix == ".zip":
            member = "export/conversations-000.json"
            with zipfile.ZipFile(source) as archive:
                bodies = {name: archive.read(name) for name in archive.namelist()}
            bodies[member] = json.dumps([record, *json.loads(bodies[member])]).encode()
            with zipfile.ZipFile(source, "w") as archive:
                for name, body in bodies.items():
                    archive.writestr(name, body)
            return f"{member}, byte"
        file = next(source.rglob("conversations.json"))
        file.write_text(json.dumps([record, *json.loads(file.read_text())]))
        return f"{file.name}, byte"

    return change


TOO_LARGE: dict[str, Callable[[Path], str]] = {
    "claude-code": insert_line("s-one.jsonl", {"uuid": "x", "type": "user", "message": {"content": LONG}}),
    "codex": insert_line("rollout-*001.jsonl", {"type": "response_item", "payload": {"text": LONG}}),
    "gemini": insert_line("*.jsonl", {"id": "x", "type": "user", "content": [{"text": LONG}]}),
    "qwen": insert_line("*.jsonl", {"uuid": "x", "type": "user", "message": {"parts": [{"text": LONG}]}}),
    "pi": insert_line("*.jsonl", {"type": "message", "id": "x", "message": {"content": LONG}}),
    "hermes": insert_row("state.db", "messages", {"id": 77, "session_id": "20261116_084001_aa", "role": "user", "content": LONG}),
    "opencode": insert_row("opencode.db", "part", {"id": "prt_x", "message_id": "msg_1", "session_id": "ses_1", "data": LONG}),
    "openclaw": insert_row("*.sqlite", "transcript_events", {"session_id": "w1", "seq": 5, "event_json": LONG}),
    "goose": insert_row("sessions.db", "messages", {"id": 77, "session_id": "20261116_1", "content_json": LONG}),
    "open-webui": insert_row("webui.db", "chat", {"id": "chat-2", "created_at": 1, "chat": LONG}),
    "hermes-webui": add_file("sessions/0123.json", {"session_id": "0123", "messages": [{"content": LONG}]}),
    "librechat": add_file("long.json", {"conversationId": "c2", "messages": [{"text": LONG}]}),
    "chatgpt": prepend_object({"conversation_id": "c2", "mapping": {"x": {"message": {"text": LONG}}}}),
    "claude-ai": prepend_object({"uuid": "c2", "chat_messages": [{"text": LONG}]}),
}  # fmt: skip


@pytest.mark.parametrize("name", list(SAMPLES))
def test_a_record_that_is_too_large_is_told_and_the_rest_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    source = SAMPLES[name].write(tmp_path / "source")
    before = read(name, source)
    monkeypatch.setattr("keryx.importers.source_files.MAX_RECORD_BYTES", LIMIT)
    place = TOO_LARGE[name](source)
    after = read(name, source)
    assert [damage.place.startswith(place) for damage in after.log.damages] == [True]
    assert "more than 1 MB" in after.log.damages[0].text
    assert after.sessions == before.sessions


READ_HUGE = r"""
import re, sys
from pathlib import Path
from tests.importers.test_sources import read

def read_peak():
    # `ru_maxrss` has the memory of the process that started this one, too.
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])

before = read_peak()
outcome = read(sys.argv[1], Path(sys.argv[2]))
print(len(outcome.sessions), len(outcome.log.damages), read_peak() - before)
"""


def write_hole(file: Path, head: bytes, tail: bytes) -> Path:
    """Write a file with a gigabyte of zeros in it, which take no room on the disk."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        out.write(head)
        out.seek(GIGABYTE, 1)
        out.write(tail)
    return file


@pytest.mark.faults
@pytest.mark.parametrize("name", ["qwen", "gemini", "chatgpt"])
def test_a_gigabyte_is_read_with_bounded_memory(tmp_path: Path, name: str) -> None:
    if name == "chatgpt":
        whole = json.dumps([samples.chatgpt_record()])
        source = write_hole(tmp_path / "conversations.json", b'[{"a": "', f'"}}, {whole[1:]}'.encode())
    else:
        records = samples.qwen_lines() if name == "qwen" else samples.gemini_lines()
        lines = [json.dumps(record).encode() + b"\n" for record in records]
        source = write_hole(
            tmp_path / "session-1.jsonl", lines[0] + b'{"a": "', b'"}\n' + b"".join(lines[1:])
        )
    words = [sys.executable, "-c", READ_HUGE, name, str(source)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    sessions, damages, kilobytes = map(int, done.stdout.split())
    assert (sessions, damages) == (1, 1)
    assert kilobytes < 400_000


@pytest.mark.parametrize("kind", ["view", "virtual"])
def test_a_view_or_a_virtual_table_is_no_table(tmp_path: Path, kind: str) -> None:
    source = samples.write_hermes(tmp_path / "source")
    run(source / "state.db", "alter table messages rename to hidden")
    columns = "id, session_id, role, content"
    hostile = {
        "view": f"create view messages as select {columns} from hidden",
        "virtual": f"create virtual table messages using fts5({columns})",
    }
    run(source / "state.db", hostile[kind])
    outcome = read("hermes", source)
    assert outcome.sessions == []
    assert [damage.text for damage in outcome.log.damages] == [
        "it is not a database of Hermes: table messages is missing or another one"
    ]


def test_what_a_schema_computes_or_starts_is_not_run(tmp_path: Path) -> None:
    source = samples.write_hermes(tmp_path / "source")
    before = read("hermes", source)
    bomb = "(with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n)"
    for sql in (
        "alter table messages add column bomb text generated always as (hex(zeroblob(999999999)))",
        f"create trigger started after insert on messages begin select {bomb}; end",
        f"create view endless as select {bomb} as i",
        "create table log (x)",
        "create index strange on messages (length(content)) where content is not null",
    ):
        run(source / "state.db", sql)
    assert read("hermes", source).sessions == before.sessions


def test_a_damaged_page_loses_only_the_conversation_on_it(tmp_path: Path) -> None:
    tables = samples.hermes_tables()
    talk = tables["messages"][1]
    tables["sessions"] = [{**tables["sessions"][0], "id": id_, "end_reason": None} for id_ in ("one", "two")]
    tables["messages"] = [
        {**talk, "id": n, "session_id": "one" if n < 200 else "two", "content": f"{n} " + "word " * 100}
        for n in range(400)
    ]
    file = samples.write_database(tmp_path / "state.db", tables)
    run(file, "create index by_session on messages (session_id, id)")
    whole = read("hermes", file)
    body = bytearray(file.read_bytes())
    page = body.index(b"350 word") // 4096 * 4096
    body[page : page + 4096] = b"\xff" * 4096
    file.write_bytes(body)
    outcome = read("hermes", file)
    assert outcome.sessions[0] == whole.sessions[0]
    assert "200 word" in outcome.sessions[1] and "350 word" not in outcome.sessions[1]
    assert outcome.find(file)


def write_archive(file: Path, name: str) -> Path:
    """Write an export with two files of conversations."""
    records = {
        "chatgpt": [{**samples.chatgpt_record(), "conversation_id": id_} for id_ in ("c1", "c2")],
        "claude-ai": [
            {"uuid": id_, "name": id_, "chat_messages": [{"uuid": "m", "sender": "human", "text": "hello"}]}
            for id_ in ("c1", "c2")
        ],
    }
    with zipfile.ZipFile(file, "w") as archive:
        for n, record in enumerate(records[name]):
            archive.writestr(f"conversations-00{n}.json", json.dumps([record]))
    return file


@pytest.mark.parametrize("name", ["chatgpt", "claude-ai"])
def test_a_damaged_archive_is_told_and_its_other_files_come(tmp_path: Path, name: str) -> None:
    file = write_archive(tmp_path / "export.zip", name)
    whole = read(name, file)
    assert len(whole.sessions) == 2
    body = bytearray(file.read_bytes())
    body[body.index(b"[{") + 40] ^= 0xFF
    file.write_bytes(body)
    outcome = read(name, file)
    assert outcome.sessions == whole.sessions[1:]
    assert {damage.place.partition(",")[0] for damage in outcome.log.damages} == {"conversations-000.json"}


@pytest.mark.parametrize("name", ["chatgpt", "claude-ai"])
def test_an_archive_that_was_cut_is_refused_with_its_name(tmp_path: Path, name: str) -> None:
    file = write_archive(tmp_path / "export.zip", name)
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(Invalid, match=r"export\.zip is a damaged ZIP archive"):
        list(find_program(name).read(file, ImportLog()))


def cut(file: Path) -> Path:
    file.write_bytes(file.read_bytes()[:-20])
    return file


@pytest.mark.parametrize("name", ["librechat", "hermes-webui", "gemini", "opencode"])
def test_a_cut_file_is_told_and_the_others_come(tmp_path: Path, name: str) -> None:
    source = SAMPLES[name].write(tmp_path / "source")
    if name == "librechat":
        damaged = cut(samples.write_json(source / "other.json", {"conversationId": "c2", "messages": []}))
    elif name == "hermes-webui":
        damaged = cut(
            samples.write_json(source / "sessions/0123.json", {"session_id": "0123", "messages": []})
        )
    elif name == "gemini":
        record = {"sessionId": "g2", "messages": samples.gemini_lines()[2:4]}
        damaged = cut(samples.write_json(source / "project/chats/session-2.json", record))
    else:
        (source / "opencode.db").unlink()
        for id_ in ("ses_1", "ses_2"):
            info = {"id": id_, "time": {"created": START * 1000}}
            samples.write_json(source / f"storage/session/p/{id_}.json", info)
            samples.write_json(source / f"storage/message/{id_}/m{id_}.json", {"role": "user"})
            samples.write_json(
                source / f"storage/part/m{id_}/p.json", {"type": "text", "text": "hello there"}
            )
        damaged = cut(source / "storage/part/mses_2/p.json")
    outcome = read(name, source)
    assert outcome.find(damaged)
    assert "hello there" in str(outcome.sessions)


def test_an_export_without_conversations_says_so(tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    file.write_text("no JSON")
    assert read("chatgpt", file).find(Path("conversations.json")) == ["it has no JSON objects"]


@pytest.mark.parametrize("name", DATABASES)
def test_a_database_whose_rows_are_damaged_names_the_table(tmp_path: Path, name: str) -> None:
    source = SAMPLES[name].write(tmp_path / "source")
    file = next(f for f in source.rglob("*") if f.suffix in (".db", ".sqlite"))
    connection = sqlite3.connect(file)
    pages = connection.execute("select name, rootpage from sqlite_schema where type = 'table'").fetchall()
    connection.close()
    table, page = next(row for row in pages if row[0] in ("messages", "part", "transcript_events", "chat"))
    body = bytearray(file.read_bytes())
    body[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    file.write_bytes(body)
    assert f"{file}, table {table}" in [damage.place for damage in read(name, source).log.damages]
