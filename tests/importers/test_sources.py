"""Every record of a source is imported, folded or named; links in it are not followed; what is damaged or hostile is told."""

import json
import re
import shutil
import sqlite3
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import zstandard
from tests.importers import samples
from tests.importers.samples import SAMPLES, START

from keryx import importers
from keryx.core.errors import Invalid
from keryx.importers.conversation import ForeignMessage, ImportLog, as_dict, as_list

EVERY_PROGRAM = pytest.mark.parametrize("name", list(SAMPLES))
MEMBER = "export/conversations-000.json"
# Changes without an effect: records that are counted as a whole, and those that another one repeats.
REPEATED = {
    "codex": re.compile(r"rollout-.*:(3|5|7|15), change 1|threads \d"),
    "gemini": re.compile(r"session-.*:(2|3|8), change \d"),
}
# What is changed in a source, and the function that changes it.
Change = tuple[str, Callable[[Path], None]]


class Outcome(msgspec.Struct, frozen=True):
    """What a reader returns of a source: sessions with their entries, as text."""

    sessions: list[str]
    log: ImportLog

    @property
    def told(self) -> list[str]:
        """The counts of the report."""
        losses = [f"{loss.what}: {loss.count}" for loss in self.log.losses.values()]
        return [str(sorted(self.log.folded.items())), *losses, f"{len(self.log.damages)} damages"]

    def find(self, place: Path) -> list[str]:
        """What the report says about a place."""
        losses = [loss.what for loss in self.log.losses.values() if str(place) in loss.place]
        return losses + [damage.text for damage in self.log.damages if str(place) in damage.place]


def read(name: str, source: Path) -> Outcome:
    log = ImportLog()
    found: list[str] = []
    try:
        for session in importers.find_program(name).read(source, log):
            about = msgspec.structs.replace(session, place="", fingerprint="", entries=lambda: iter(()))
            text = str({k: v for k, v in msgspec.structs.asdict(about).items() if k != "entries"})
            for entry in session.entries():
                files = entry.files if isinstance(entry, ForeignMessage) else ()
                bodies = [(file.name, file.mime, file.load()) for file in files]
                plain = (
                    msgspec.structs.replace(entry, files=()) if isinstance(entry, ForeignMessage) else entry
                )
                text += f"\n{plain} {bodies}"
            found.append(text)
    except Invalid as exc:
        return Outcome([f"refused: {type(exc).__name__}"], log)
    return Outcome(found, log)


def list_smaller(value: object) -> Iterator[object]:
    """The same JSON value with one object less, for each object in an array, or in a map of messages."""
    items = as_list(value)
    for n, item in enumerate(items):
        if as_dict(item):
            yield [*items[:n], *items[n + 1 :]]
        for changed in list_smaller(item):
            yield [*items[:n], changed, *items[n + 1 :]]
    for key, child in as_dict(value).items():
        if as_dict(child) and "parent" in str(child):
            yield {name: other for name, other in as_dict(value).items() if name != key}
        for changed in list_smaller(child):
            yield {**as_dict(value), key: changed}


def list_changes(source: Path) -> Iterator[Change]:
    """Every way to take one record out of a source."""
    for file in [source] if source.is_file() else sorted(f for f in source.rglob("*") if f.is_file()):
        if file.suffix == ".jsonl":
            yield from list_line_changes(file)
        elif file.suffix == ".json":
            for n, smaller in enumerate(list_smaller(json.loads(file.read_text()))):
                yield (
                    f"{file.name}, object {n}",
                    lambda path, smaller=smaller: write_text(path, json.dumps(smaller)),
                )
        elif file.suffix in (".db", ".sqlite"):
            yield from list_row_changes(file)
        elif file.suffix == ".zip":
            for n, smaller in enumerate(list_smaller(json.loads(zipfile.ZipFile(file).read(MEMBER)))):
                yield (
                    f"{MEMBER}, object {n}",
                    lambda path, smaller=smaller: rewrite_member(path, MEMBER, json.dumps(smaller)),
                )


def list_line_changes(file: Path) -> Iterator[Change]:
    lines = file.read_text().splitlines()
    for n, line in enumerate(lines):
        for m, smaller in enumerate([None, *list_smaller(json.loads(line))]):
            changed = [*lines[:n], *([json.dumps(smaller)] if smaller is not None else []), *lines[n + 1 :]]
            text = "".join(f"{one}\n" for one in changed)
            yield f"{file.name}:{n + 1}, change {m}", lambda path, text=text: write_text(path, text)


def list_row_changes(file: Path) -> Iterator[Change]:
    with sqlite3.connect(file) as connection:
        tables = [row[0] for row in connection.execute("select name from sqlite_schema where type = 'table'")]
        for table in tables:
            cursor = connection.execute(f"select rowid, * from {table}")
            columns = [column[0] for column in cursor.description]
            for row in cursor.fetchall():
                yield (
                    f"{table} {row[0]}",
                    lambda path, sql=f"delete from {table} where rowid = {row[0]}": run(path, sql),
                )
                for column, value in zip(columns[1:], row[1:], strict=True):
                    if isinstance(value, str) and value[:2] in ('{"', "[{"):
                        sql = f"update {table} set {column} = ? where rowid = {row[0]}"
                        for n, smaller in enumerate(list_smaller(json.loads(value))):
                            text = json.dumps(smaller)
                            yield (
                                f"{table} {row[0]}, {column}, object {n}",
                                lambda path, sql=sql, text=text: run(path, sql, text),
                            )
    connection.close()


def run(file: Path, sql: str, *values: object) -> None:
    connection = sqlite3.connect(file)
    connection.execute(sql, values)
    connection.commit()
    connection.close()


def write_text(file: Path, text: str) -> None:
    file.write_text(text)


def rewrite_member(file: Path, name: str, text: str) -> None:
    with zipfile.ZipFile(file) as archive:
        bodies = {member: archive.read(member) for member in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for member, body in bodies.items():
            archive.writestr(member, text if member == name else body)


@EVERY_PROGRAM
def test_every_record_is_imported_folded_or_named(tmp_path: Path, name: str) -> None:
    """Without the record, the outcome or the report is another one."""
    source = SAMPLES[name].write(tmp_path / "source")
    whole = read(name, source)
    assert whole.log.damages == []
    silent: list[str] = []
    total = 0
    repeated = REPEATED.get(name, re.compile("none"))
    for file in [source] if source.is_file() else sorted(f for f in source.rglob("*") if f.is_file()):
        kept = file.read_bytes()
        for what, change in list_changes(file):
            total += 1
            change(file)
            after = read(name, source)
            same = (after.sessions, after.told) == (whole.sessions, whole.told)
            if same and not repeated.fullmatch(what):
                silent.append(what)
            file.write_bytes(kept)
    assert total > 5
    assert not silent, "\n".join(silent)


@EVERY_PROGRAM
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_link_in_a_source_is_named_and_not_followed(tmp_path: Path, name: str, kind: str) -> None:
    """It is as if the file or folder were missing."""
    source = SAMPLES[name].write(tmp_path / "source")
    add_neighbours(name, source)
    found = sorted(path for path in source.rglob("*") if path.is_dir() == (kind == "folder"))
    for path in found if source.is_dir() else ():
        outside = tmp_path / "outside"
        shutil.move(path, outside)
        without = read(name, source)
        path.symlink_to(outside)
        linked = read(name, source)
        if "refused" not in str(without.sessions + linked.sessions):
            assert linked.sessions == without.sessions, path
        assert linked.find(path) or "refused" in str(linked.sessions), path
        path.unlink()
        shutil.move(outside, path)


def add_neighbours(name: str, source: Path) -> None:
    """Add files that a reader opens beside those of the conversations."""
    if name == "hermes-webui":
        file = source / "sessions/aabbccddeeff.json"
        more = {**json.loads(file.read_text()), "messages": [{"role": "user", "content": "x"}] * 20}
        samples.write_json(file.with_name(f"{file.name}.bak"), more)
    if name == "open-webui":
        chat = samples.open_webui_chat()
        chat["history"]["messages"]["m3"]["files"] = [{"type": "file", "id": "0123abcd-1", "name": "a.txt"}]
        run(source / "webui.db", "update chat set chat = ?", json.dumps(chat))
        (source / "uploads").mkdir()
        (source / "uploads/0123abcd-1_a.txt").write_text("my notes")
    if name == "opencode":
        (source / "opencode.db").unlink()
        info = {"id": "ses_1", "time": {"created": START * 1000}}
        samples.write_json(source / "storage/session/p/ses_1.json", info)
        samples.write_json(source / "storage/message/ses_1/msg_1.json", {"role": "user"})
        samples.write_json(source / "storage/part/msg_1/prt_1.json", {"type": "text", "text": "hello"})


def test_a_write_ahead_log_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    source = samples.write_hermes(tmp_path / "source")
    (tmp_path / "outside").write_text("secret")
    (source / "state.db-wal").symlink_to(tmp_path / "outside")
    outcome = read("hermes", source)
    assert outcome.sessions == []
    assert outcome.find(source / "state.db") == [
        "it cannot be read: it is a symbolic link, or in a folder that is one"
    ]


def test_a_source_may_be_a_link_itself(tmp_path: Path) -> None:
    source = samples.write_qwen(tmp_path / "source")
    (tmp_path / "link").symlink_to(source)
    assert read("qwen", tmp_path / "link").sessions == read("qwen", source).sessions != []


def test_an_upload_is_brought(tmp_path: Path) -> None:
    source = samples.write_open_webui(tmp_path / "source")
    add_neighbours("open-webui", source)
    assert "('a.txt', '', b'my notes')" in read("open-webui", source).sessions[0]


def test_pictures_that_a_record_only_refers_to_are_named(tmp_path: Path) -> None:
    url = "https://example.org/a.png"
    claude = samples.claude_records("s")
    claude[1]["message"] = {
        "role": "user",
        "content": [{"type": "image", "source": {"type": "url", "url": url}}],
    }
    codex = samples.codex_lines(samples.CODEX_ONE)
    codex[5]["payload"]["item"]["content"] += [
        {"type": "image", "image_url": url},
        {"type": "local_image", "path": "/x"},
    ]
    pi = samples.pi_entries("p")
    pi[2]["message"]["content"] = [{"type": "image", "url": url}]
    gemini = samples.gemini_lines()
    gemini[6]["content"] = [{"text": "look"}, {"fileData": {"fileUri": url}}]
    qwen = samples.qwen_lines()
    qwen[0]["message"]["parts"].append({"fileData": {"fileUri": url}})
    files = {
        "claude-code": (claude, 1),
        "codex": (codex, 2),
        "pi": (pi, 1),
        "gemini": (gemini, 1),
        "qwen": (qwen, 1),
    }
    for name, (lines, count) in files.items():
        file = samples.write_lines(tmp_path / name / f"session-{samples.CODEX_ONE}.jsonl", lines)
        assert read(name, file).log.losses["files that are not in the source"].count == count, name


def test_citations_and_other_files_of_an_export_are_named(tmp_path: Path) -> None:
    record = samples.chatgpt_record()
    answer = record["mapping"]["n2"]["message"]
    answer["content"]["parts"] = ["Hello\ue200cite\ue202turn0search0\ue201."]
    answer["metadata"]["content_references"] = [{"matched_text": "\ue200cite\ue202turn0search0\ue201"}]
    samples.write_json(tmp_path / "conversations.json", [record])
    samples.write_json(tmp_path / "message_feedback.json", [{"id": "1"}])
    outcome = read("chatgpt", tmp_path)
    assert "Text(text='Hello.'" in outcome.sessions[0]
    assert "citations" in outcome.log.losses
    assert outcome.find(Path("message_feedback.json"))


def test_what_the_model_was_given_besides_the_question_is_kept_with_it(tmp_path: Path) -> None:
    lines = samples.qwen_lines()
    reminder = {
        **lines[0],
        "uuid": "q0",
        "provenance": "system",
        "message": {"parts": [{"text": "<reminder>"}]},
    }
    file = samples.write_lines(
        tmp_path / "s1.jsonl", [reminder, {**lines[0], "parentUuid": "q0"}, *lines[1:]]
    )
    assert "exact='<reminder>\\n\\nhello there'" in read("qwen", file).sessions[0]
    gemini = samples.write_gemini(tmp_path / "gemini")
    assert "exact='<session_context>linux\\n\\nhello there'" in read("gemini", gemini).sessions[0]


def compress_events(source: Path) -> Path:
    file = next(source.rglob("*.sqlite"))
    connection = sqlite3.connect(file)
    for row, text in connection.execute("select rowid, event_json from transcript_events").fetchall():
        sql = "update transcript_events set event_zstd = ?, event_json = null where rowid = ?"
        connection.execute(sql, (zstandard.compress(text.encode()), row))
    connection.commit()
    connection.close()
    return file


def test_compressed_events_of_openclaw_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = samples.write_openclaw(tmp_path / "source")
    plain = read("openclaw", source)
    file = compress_events(source)
    assert read("openclaw", source).sessions == plain.sessions
    # As on a machine where the package is not installed.
    monkeypatch.setitem(sys.modules, "zstandard", None)
    [text, *_] = read("openclaw", source).find(file)
    assert "[openclaw]" in text


def test_a_compressed_event_of_openclaw_cannot_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = samples.write_openclaw(tmp_path / "source")
    plain = read("openclaw", source)
    run(
        next(source.rglob("*.sqlite")),
        "update transcript_events set event_json = event_json || ? where seq = 5",
        " " * 9999,
    )
    compress_events(source)
    monkeypatch.setattr("keryx.importers.openclaw.MAX_RECORD_BYTES", 9000)
    outcome = read("openclaw", source)
    assert [damage.place.rpartition(", ")[2] for damage in outcome.log.damages] == ["event 5"]
    assert outcome.sessions[1:] == plain.sessions[1:]
