"""Sources that go on, sources that are damaged, and what the model is given of an imported conversation."""

import json
import sqlite3
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.builders import OPERATORS
from tests.importers import samples
from tests.importers.samples import SAMPLES, Json, iso
from tests.importers.test_programs import (
    BOTH_ENGINES,
    ON_SQLITE,
    count,
    list_sessions,
    read_messages,
    read_tables,
    take,
)

from keryx import importers
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import DEFAULT_PROFILE, PrincipalId
from keryx.core.messages import Image, Role, text_parts
from keryx.core.sessions import Viewer
from keryx.core.usage import UsageGrouping
from keryx.engine.conversation_import import import_conversations
from keryx.importers.claude_code import read_family
from keryx.importers.conversation import ImportLog, TreeNode, order_tree
from keryx.store import epochs, imports, messages, sessions, usage
from keryx.store.admin.verify import verify
from keryx.store.db import Database, Transaction

pytestmark = ON_SQLITE


def append(file: Path, *records: Json | str) -> None:
    with file.open("a", encoding="utf-8") as out:
        for record in records:
            out.write(record if isinstance(record, str) else json.dumps(record) + "\n")


def list_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def question(n: int, parent: str, text: str) -> Json:
    message = {"role": "user", "content": text}
    return {"uuid": f"u{n}", "parentUuid": parent, "type": "user", "timestamp": iso(n), "message": message}


async def model_texts(database: Database, n: int = 0) -> list[str]:
    """What the model is given of a session: the summary, then the messages."""

    def work(tx: Transaction) -> list[str]:
        session = list_sessions(tx)[n]
        epoch = epochs.find_current(tx, session.id)
        seen = epochs.load_model_view(tx, session.id)
        return [
            *([epoch.summary] if epoch else []),
            *(m.exact or m.text for m in seen if m.role is not Role.TOOL),
        ]

    return await database.read("test", work)


async def test_only_the_new_part_of_a_longer_source_is_added(database: Database, tmp_path: Path) -> None:
    source = samples.write_claude_code(tmp_path / "source")
    await take(database, "claude-code", source)
    append(next(source.rglob("s-one.jsonl")), question(80, "u14", "one more"))
    report = await take(database, "claude-code", source)
    assert count(report) == {"extended": 1, "unchanged": 2, "messages": 1}
    [session, *_] = await database.read("test", list_sessions)
    assert (await read_messages(database, session.id))[-1].text == "one more"
    assert await verify(database) == []


async def test_a_branch_that_was_left_is_undone_when_the_new_one_comes(
    database: Database, tmp_path: Path
) -> None:
    source = samples.write_claude_code(tmp_path / "source")
    await take(database, "claude-code", source)
    append(next(source.rglob("s-one.jsonl")), question(80, "u12", "and now, differently?"))
    await take(database, "claude-code", source)
    assert await model_texts(database) == ["They greeted.", "and now, differently?"]
    assert await verify(database) == []


async def test_a_conversation_that_went_on_here_too_gets_the_new_messages_at_its_end(
    database: Database, tmp_path: Path
) -> None:
    source = samples.write_qwen(tmp_path / "source")
    await take(database, "qwen", source)
    [session] = await database.read("test", list_sessions)
    said = text_parts("said here")
    await database.write("test", lambda tx: messages.append(tx, session.id, Role.USER, said))
    line = {
        **samples.qwen_lines()[0],
        "uuid": "q11",
        "parentUuid": "q10",
        "message": {"parts": [{"text": "said there"}]},
    }
    append(next(source.rglob("s1.jsonl")), line)
    report = await take(database, "qwen", source)
    assert report.messages == 1
    texts = [m.text for m in await read_messages(database, session.id)]
    assert texts[-2:] == ["said here", "said there"]


async def test_a_deleted_conversation_stays_deleted(database: Database, tmp_path: Path) -> None:
    source = samples.write_qwen(tmp_path / "source")
    await take(database, "qwen", source)
    [session] = await database.read("test", list_sessions)
    await database.write("test", lambda tx: sessions.soft_delete(tx, session, grace=timedelta(days=1)))
    log = ImportLog()
    report = await take(database, "qwen", source, log=log)
    assert count(report) == {}
    assert [loss.count for loss in log.losses.values() if "deleted here" in loss.what] == [1]


async def test_the_model_gets_the_summary_and_what_came_after_it(database: Database, tmp_path: Path) -> None:
    await take(database, "claude-code", samples.write_claude_code(tmp_path / "source"))
    assert await model_texts(database) == ["They greeted.", "and now?", "Now we go on."]


async def test_the_model_keeps_the_messages_that_a_compaction_kept(
    database: Database, tmp_path: Path
) -> None:
    await take(database, "pi", samples.write_pi(tmp_path / "source"))
    expected = ["They greeted.", "please use-tool", "", "Tool said tool-ran.", "and now?", "Now we go on."]
    assert await model_texts(database) == expected


@pytest.mark.parametrize(
    ("name", "seq", "given"),
    [
        ("claude-code", 4, "<system-reminder>be kind</system-reminder>\n\nplease use-tool"),
        ("codex", 1, "<environment_context>linux</environment_context>\n\nhello there"),
        ("opencode", 1, "hello there\n\n<files>"),
        ("goose", 1, "<turn-context>linux\n\nhello there"),
        ("hermes", 1, "[Workspace] hello there"),
        ("hermes-webui", 1, "[W]\nhello there"),
    ],
)
async def test_what_the_model_was_given_is_kept_apart_from_what_people_saw(
    database: Database, tmp_path: Path, name: str, seq: int, given: str
) -> None:
    await take(database, name, SAMPLES[name].write(tmp_path / "source"))
    [session, *_] = await database.read("test", list_sessions)
    message = (await read_messages(database, session.id))[seq - 1]
    assert message.exact == given
    assert given not in message.text


async def test_a_fork_knows_its_parent_and_the_last_message_that_both_have(
    database: Database, tmp_path: Path
) -> None:
    await take(database, "codex", samples.write_codex(tmp_path / "source"))
    [parent, fork] = await database.read("test", list_sessions)
    assert (fork.parent, fork.parent_seq) == (parent.id, 2)
    assert (parent.pinned, parent.archived, fork.pinned, fork.archived) == (True, False, False, True)
    said = await read_messages(database, fork.id)
    assert [m.text for m in said] == ["hello there", "Hello.", "another way", "Another answer."]


async def test_a_sub_agent_hangs_on_its_call_and_is_archived(database: Database, tmp_path: Path) -> None:
    await take(database, "claude-code", samples.write_claude_code(tmp_path / "source"))
    [parent, helper, _] = await database.read("test", list_sessions)
    assert (helper.parent, helper.archived, helper.title) == (parent.id, True, "A part")
    call = (await read_messages(database, parent.id))[(helper.parent_seq or 0) - 1]
    assert [part.name for part in call.calls] == ["Bash"]


async def test_a_chat_keeps_its_address(database: Database, tmp_path: Path) -> None:
    await take(database, "hermes", samples.write_hermes(tmp_path / "source"))
    [session, *_] = await database.read("test", list_sessions)
    assert session.surface == "telegram"
    assert session.origin is not None
    assert (session.origin.chat, session.origin.user_name) == ("4242", "Ada")


async def test_usage_and_cost_are_counted_once(database: Database, tmp_path: Path) -> None:
    await take(database, "claude-code", samples.write_claude_code(tmp_path / "source"))
    [session, _, fork] = await database.read("test", list_sessions)
    assert (session.tokens.input, session.tokens.output, session.tokens.cache_read) == (400, 48, 80)
    assert (session.cost, session.cost_status) == (500_000, "estimated")
    # The fork repeats the answers of its parent, and their usage is counted there.
    assert fork.tokens.input == 0
    since, until = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
    totals = await database.read(
        "test",
        lambda tx: usage.list_totals(tx, OPERATORS, by=UsageGrouping.MODEL, since=since, until=until),
    )
    assert [(t.key, t.tokens.input) for t in totals] == [("claude", 400)]


async def test_totals_of_a_session_are_added_as_far_as_they_grew(database: Database, tmp_path: Path) -> None:
    source = samples.write_hermes(tmp_path / "source")
    await take(database, "hermes", source)
    with sqlite3.connect(source / "state.db") as connection:
        connection.execute("update sessions set input_tokens = 70 where title = 'Trip #2'")
    connection.close()
    report = await take(database, "hermes", source)
    assert report.usage == 1
    [session, *_] = await database.read("test", list_sessions)
    assert session.tokens.input == 170


async def test_hermes_and_hermes_webui_are_one_conversation(database: Database, tmp_path: Path) -> None:
    tables = samples.hermes_tables()
    first = {**tables["sessions"][0], "id": "aabbccddeeff", "end_reason": None, "title": "Auto"}
    rows = [
        {"id": n, "session_id": "aabbccddeeff", "role": role, "content": text, "timestamp": samples.START + n}
        for n, (role, text) in enumerate([("user", "hello there"), ("assistant", "Hello.")], 1)
    ]
    samples.write_database(tmp_path / "hermes/state.db", {"sessions": [first], "messages": rows})
    await take(database, "hermes", tmp_path / "hermes")
    report = await take(database, "hermes-webui", samples.write_hermes_webui(tmp_path / "webui"))
    # Two of the seven messages are in both.
    assert (report.created, report.extended, report.messages) == (0, 1, 5)
    [session] = await database.read("test", list_sessions)
    assert (session.pinned, session.title, session.tokens.input) == (True, "My talk", 100)
    assert session.project is not None
    before = await read_tables(database)
    again = await take(database, "hermes-webui", tmp_path / "webui")
    assert count(again) == {"unchanged": 1}
    assert await read_tables(database) == before


async def test_two_people_import_the_same_source_each_for_themselves(
    database: Database, tmp_path: Path
) -> None:
    source = samples.write_qwen(tmp_path / "source")
    for person in ("ann", "bob"):
        viewer = Viewer(DEFAULT_PROFILE, PrincipalId(person))
        log = ImportLog()
        found = importers.find_program("qwen").read(source, log)
        report = await import_conversations(database, viewer, "qwen", found, log)
        assert report.created == 1
    owners = [session.owner for session in await database.read("test", list_sessions)]
    assert sorted(owners) == ["ann", "bob"]


@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini", "qwen", "pi"])
def test_every_line_is_imported_folded_or_named(tmp_path: Path, name: str) -> None:
    lines = {
        "claude-code": lambda: samples.claude_records("s"),
        "codex": lambda: samples.codex_lines(samples.CODEX_ONE),
        "gemini": lambda: samples.gemini_lines()[:4],
        "qwen": samples.qwen_lines,
        "pi": lambda: samples.pi_entries("p"),
    }
    records: list[Json] = lines[name]()
    strange = {"type": "from-the-future", "uuid": "x", "id": "x", "timestamp": iso(59)}
    file = samples.write_lines(tmp_path / "session-x.jsonl", [*records, strange])
    log = ImportLog()
    [session] = list(importers.find_program(name).read(file, log))
    entries = list(session.entries())
    told = sum(log.folded.values()) + sum(loss.count for loss in log.losses.values()) + len(log.damages)
    # The change of Gemini that sets the messages counts as well as the message in it.
    assert len(entries) + told == len(records) + 1 + (name == "gemini")
    assert any("from-the-future" in what for what in log.losses)


@pytest.mark.parametrize("name", ["claude-code", "codex", "qwen", "pi", "gemini"])
async def test_a_half_written_line_is_told_with_its_place_and_loses_nothing_else(
    database: Database, tmp_path: Path, name: str
) -> None:
    source = SAMPLES[name].write(tmp_path / "source")
    file = sorted(source.rglob("*.jsonl"))[0]
    lines = file.read_text().count("\n")
    append(file, '{"type":"user","uuid":"zz')
    log = ImportLog()
    report = await take(database, name, source, log=log)
    assert [damage.place for damage in log.damages] == [f"{file}:{lines + 1}"]
    assert "half-written" in log.damages[0].text
    assert report.messages == SAMPLES[name].counts["messages"]


async def test_a_broken_line_in_the_middle_is_told_and_the_rest_comes(
    database: Database, tmp_path: Path
) -> None:
    source = samples.write_qwen(tmp_path / "source")
    file = next(source.rglob("*.jsonl"))
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:3], '{"type": "user", "uuid": \x07}\n', *lines[3:]]))
    log = ImportLog()
    report = await take(database, "qwen", source, log=log)
    assert [damage.place for damage in log.damages] == [f"{file}:4"]
    assert report.messages == 8


@pytest.mark.parametrize("name", ["hermes", "opencode", "openclaw", "open-webui", "goose"])
async def test_a_damaged_database_is_told_and_stops_nothing(
    database: Database, tmp_path: Path, name: str
) -> None:
    source = SAMPLES[name].write(tmp_path / "source")
    file = next(f for f in source.rglob("*") if f.suffix in (".db", ".sqlite"))
    body = file.read_bytes()
    file.write_bytes(body[: len(body) // 2])
    log = ImportLog()
    await take(database, name, source, log=log)
    assert any(str(file) in damage.place for damage in log.damages)
    assert await verify(database) == []


@pytest.mark.parametrize("name", ["hermes", "opencode", "openclaw", "open-webui", "goose"])
async def test_a_database_of_another_program_is_told(database: Database, tmp_path: Path, name: str) -> None:
    file = samples.write_database(tmp_path / "other.db", {"things": [{"id": 1}]})
    log = ImportLog()
    report = await take(database, name, file, log=log)
    assert count(report) == {}
    assert [damage.place for damage in log.damages] == [str(file)]


async def test_a_cut_export_brings_what_is_whole(database: Database, tmp_path: Path) -> None:
    other = {**samples.chatgpt_record(), "conversation_id": "c2"}
    text = json.dumps([samples.chatgpt_record(), other], indent=1)
    file = tmp_path / "conversations.json"
    file.write_text(text[:-400])
    log = ImportLog()
    report = await take(database, "chatgpt", file, log=log)
    assert report.created == 1
    assert "ends within" in log.damages[0].text


async def test_an_empty_source_says_what_to_give(tmp_path: Path) -> None:
    for name in SAMPLES:
        with pytest.raises(Invalid, match="give"):
            list(importers.find_program(name).read(tmp_path, ImportLog()))


def test_an_unknown_program_is_refused_with_the_list() -> None:
    with pytest.raises(NotFound, match="hermes, hermes-webui, openclaw"):
        importers.find_program("nonsense")


async def test_rows_that_are_only_in_the_write_ahead_log_are_read(database: Database, tmp_path: Path) -> None:
    source = samples.write_hermes(tmp_path / "source")
    connection = sqlite3.connect(source / "state.db")
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma wal_autocheckpoint = 0")
    row = (99, "20261116_084101_bb", "user", "only in the log", samples.START + 99, 1, 0, 0)
    names = "id, session_id, role, content, timestamp, active, compacted, observed"
    connection.execute(f"insert into messages ({names}) values (?, ?, ?, ?, ?, ?, ?, ?)", row)
    connection.commit()
    report = await take(database, "hermes", source)
    connection.close()
    assert report.messages == SAMPLES["hermes"].counts["messages"] + 1


@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to])
async def test_links_that_lead_out_of_the_source_are_not_followed(
    database: Database, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    source = samples.write_qwen(tmp_path / "source")
    outside = samples.write_lines(tmp_path / "outside.jsonl", samples.qwen_lines())
    make(source / "-home-ada/chats/evil.jsonl", outside)
    log = ImportLog()
    await take(database, "qwen", source, log=log)
    followed = make is Path.hardlink_to
    assert any("symbolic links" in what for what in log.losses) is not followed


async def test_a_path_in_a_record_is_never_opened_outside_the_source(
    database: Database, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"secret bytes")
    chat = samples.open_webui_chat()
    hostile = ["../secret.png", str(secret), f"file://{secret}", "..", "x" * 5000]
    chat["history"]["messages"]["m1"]["files"] = [{"type": "file", "id": n, "url": n} for n in hostile]
    row = {
        "id": "../../etc/passwd",
        "title": "a\u202eb",
        "created_at": samples.START,
        "chat": json.dumps(chat),
    }
    folder = tmp_path / "data"
    samples.write_database(folder / "webui.db", {"chat": [row]})
    (folder / "uploads").mkdir()
    log = ImportLog()
    report = await take(database, "open-webui", folder, log=log)
    assert (report.created, report.files) == (1, 0)
    assert log.losses["files that are not in the source"].count == len(hostile)
    tables = await read_tables(database)
    assert "secret bytes" not in str(tables)
    assert tables["media"] == []
    assert tables["aliases"] == []


async def test_names_in_an_archive_are_not_used_as_paths(database: Database, tmp_path: Path) -> None:
    record = samples.chatgpt_record()
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("../../conversations.json", json.dumps([record]))
        archive.writestr("../../file-ABC123.png", b"\x89PNG\r\n\x1a\n")
    before = list_files(tmp_path)
    report = await take(database, "chatgpt", tmp_path / "export.zip")
    assert (report.created, report.files) == (1, 1)
    assert list_files(tmp_path) == before


async def test_an_archive_that_unpacks_to_far_more_than_conversations_do_is_refused(
    database: Database, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for n in range(3):
            with archive.open(f"conversations-{n}.json", "w") as member:
                for _ in range(100):
                    member.write(b" " * 1_000_000)
    with pytest.raises(Invalid, match="too many for its length"):
        await take(database, "chatgpt", tmp_path / "export.zip")


def test_a_deep_conversation_is_ordered_in_a_time_that_grows_with_it() -> None:
    """A line of messages, the last first, each below the one before it."""
    nodes = {str(n): TreeNode(str(n), str(n - 1) if n else "", None, {}) for n in reversed(range(50_000))}
    ordered = order_tree(nodes, datetime(2026, 1, 1, tzinfo=UTC))
    assert [node.id for node, _ in ordered] == [str(n) for n in range(50_000)]


async def test_strange_values_in_every_field_are_told_or_kept(database: Database, tmp_path: Path) -> None:
    strange: list[object] = [None, 1, -1, 1e308, True, [], {}, [[]], "x" * 3000, "\u0000\ud800", {"text": {}}]
    for name, lines in (("claude-code", samples.claude_records("s")), ("qwen", samples.qwen_lines())):
        for n, value in enumerate(strange):
            records = [
                {key: value if k == n % len(record) else kept for k, (key, kept) in enumerate(record.items())}
                for record in lines
            ]
            samples.write_lines(tmp_path / name / f"chats/{n}.jsonl", records)
        await take(database, name, tmp_path / name)
    assert await verify(database) == []


async def test_a_file_that_is_in_the_source_comes_with_its_message(
    database: Database, tmp_path: Path
) -> None:
    await take(database, "chatgpt", samples.write_chatgpt(tmp_path / "source"))
    [session] = await database.read("test", list_sessions)
    first = (await read_messages(database, session.id))[0]
    [picture] = [part for part in first.parts if isinstance(part, Image)]
    assert (picture.name, picture.mime) == ("file-ABC123-photo.png", "image/png")


async def test_positions_are_kept_per_conversation(database: Database, tmp_path: Path) -> None:
    await take(database, "qwen", samples.write_qwen(tmp_path / "source"))
    [session] = await database.read("test", list_sessions)
    known = await database.read("test", lambda tx: imports.load_records(tx, session.id))
    assert sorted(known.values()) == [0, 1, 2, 3, 4, 5, 6, 7, 8]


async def test_a_fork_of_opencode_is_linked_and_its_usage_is_counted_once(
    database: Database, tmp_path: Path
) -> None:
    source = samples.write_opencode(tmp_path / "source")
    copies = {"ses_1": "ses_3", "msg_1": "msg_11", "msg_2": "msg_12", "prt_01": "prt_21", "prt_02": "prt_22", "prt_03": "prt_23", "prt_04": "prt_24", "prt_05": "prt_25"}  # fmt: skip
    with sqlite3.connect(source / "opencode.db") as connection:
        for table in ("session", "message", "part"):
            cursor = connection.execute(f"select * from {table}")
            for row in cursor.fetchall():
                if row[0] in copies:
                    copy = [copies.get(str(value), value) for value in row]
                    connection.execute(f"insert into {table} values ({', '.join('?' * len(row))})", copy)
        connection.execute("update session set title = 'My talk (fork #1)', revert = null, time_created = time_created + 30000 where id = 'ses_3'")  # fmt: skip
        message = {"role": "user", "time": {"created": (samples.START + 40) * 1000}}
        connection.execute("insert into message values ('msg_13', 'ses_3', 9e12, ?)", [json.dumps(message)])
        part = {"type": "text", "text": "another way"}
        connection.execute("insert into part values ('prt_26', 'msg_13', 'ses_3', ?)", [json.dumps(part)])
    connection.close()
    report = await take(database, "opencode", source)
    assert (report.created, report.forks) == (3, 1)
    [parent, _, fork] = await database.read("test", list_sessions)
    assert (fork.parent, fork.parent_seq) == (parent.id, 2)
    assert [m.text for m in await read_messages(database, fork.id)] == [
        "hello there",
        "Hello.",
        "another way",
    ]
    assert (parent.tokens.input, fork.tokens.input, fork.cost) == (300, 0, None)


@pytest.mark.parametrize("together", [True, False])
async def test_a_fork_of_claude_code_that_begins_with_a_compaction_knows_its_parent(
    database: Database, tmp_path: Path, together: bool
) -> None:
    source = samples.write_claude_code(tmp_path / "source")
    if not together:
        await take(database, "claude-code", source)
    # It repeats the compaction and what came after it, and the answers that the model kept behind the summary.
    boundary, summary, *later = samples.claude_records("s-three")[11:15]
    kept = {**samples.claude_records("s-three")[10], "parentUuid": "u12"}
    own = [question(80, "u14", "another way"), question(81, "u80", "and another")]
    file = next(source.rglob("s-one.jsonl")).with_name("a-fork.jsonl")
    samples.write_lines(file, [boundary, summary, kept, *later, *own])
    # A fork of that fork, after a second compaction.
    second = {**boundary, "uuid": "u82", "logicalParentUuid": "u81", "timestamp": iso(82)}
    again = {**summary, "uuid": "u83", "parentUuid": "u82", "timestamp": iso(83)}
    append(file, second, again, question(84, "u83", "still here?"))
    forked = [second, again, question(84, "u83", "still here?"), question(90, "u84", "a third way")]
    samples.write_lines(file.with_name("b-fork.jsonl"), forked)
    report = await take(database, "claude-code", source)
    assert report.forks == (3 if together else 2)
    found = {s.title: s for s in await database.read("test", list_sessions)}
    parent, fork = found["My talk"], found["and now?"]
    assert (fork.parent, (await read_messages(database, parent.id))[(fork.parent_seq or 0) - 1].text) == (
        parent.id,
        "Now we go on.",
    )
    # What it repeats is counted there.
    assert fork.tokens.input == 0
    last = found["still here?"]
    shared = (await read_messages(database, fork.id))[(last.parent_seq or 0) - 1]
    assert (last.parent, shared.text) == (fork.id, "still here?")
    # The file alone, as somebody who watches it reads it.
    assert [s.parent for s in read_family(file, ImportLog()) if s.id == "a-fork"] == ["s-one"]
    assert await verify(database) == []


async def test_answers_of_codex_whose_ids_are_repeated_all_come(database: Database, tmp_path: Path) -> None:
    lines = samples.codex_lines(samples.CODEX_ONE)
    for line in lines:
        item = line["payload"].get("item", {})
        if item.get("type") == "AgentMessage":
            item["id"] = "msg_0"
    repeated = {**lines[7], "ordinal": 19}
    source = samples.write_lines(
        tmp_path / f"rollout-2026-11-16T08-00-00-{samples.CODEX_ONE}.jsonl", [*lines, repeated]
    )
    log = ImportLog()
    report = await take(database, "codex", source, log=log)
    assert report.messages == 8
    assert log.folded["repeated records"] == 1
    [session] = await database.read("test", list_sessions)
    texts = [m.text for m in await read_messages(database, session.id) if m.role is Role.ASSISTANT]
    assert texts == ["Hello.", "", "Tool said tool-ran.", "Now we go on."]


async def test_rows_that_goose_writes_anew_are_the_same_messages(database: Database, tmp_path: Path) -> None:
    source = samples.write_goose(tmp_path / "source")
    await take(database, "goose", source)
    # As a compaction does: the rows get new numbers, and those that follow name their provider's answers as earlier ones.
    with sqlite3.connect(source / "sessions.db") as connection:
        connection.execute("update messages set id = id + 100")
        connection.execute("update sessions set updated_at = '2026-11-16 08:02:00'")
        new = (111, "m10", json.dumps([{"type": "text", "text": "Another answer."}]), samples.START + 11)
        connection.execute(
            "insert into messages select ?, ?, session_id, role, ?, ?, metadata_json from messages where id = 110",
            new,
        )
    connection.close()
    report = await take(database, "goose", source)
    assert count(report) == {"extended": 1, "messages": 1, "usage": 1}
    [session] = await database.read("test", list_sessions)
    said = await read_messages(database, session.id)
    assert [m.text for m in said[-2:]] == ["Now we go on.", "Another answer."]


async def test_a_fork_of_pi_knows_the_last_message_that_both_have(database: Database, tmp_path: Path) -> None:
    source = samples.write_pi(tmp_path / "source")
    parent_file = next(source.rglob("*.jsonl"))
    header, *entries = samples.pi_entries("01a2")
    header |= {"timestamp": iso(60), "parentSession": f"/elsewhere/{parent_file.name}"}
    own = {"type": "message", "id": "f1", "parentId": "e8", "timestamp": iso(61), "message": {"role": "user", "content": "another way"}}  # fmt: skip
    samples.write_lines(parent_file.with_name("2026-11-16T08-01-00_01a2.jsonl"), [header, *entries[:8], own])
    await take(database, "pi", source)
    [parent, fork] = await database.read("test", list_sessions)
    shared = (await read_messages(database, parent.id))[(fork.parent_seq or 0) - 1]
    assert (fork.parent, shared.text, fork.tokens.input) == (parent.id, "Tool said tool-ran.", 0)


@pytest.mark.parametrize("name", ["goose", "opencode"])
async def test_the_usage_of_a_compaction_counts_once(database: Database, tmp_path: Path, name: str) -> None:
    source = SAMPLES[name].write(tmp_path / "source")
    await take(database, name, source)
    [session, *_] = await database.read("test", list_sessions)
    file = source / ("sessions.db" if name == "goose" else "opencode.db")
    with sqlite3.connect(file) as connection:
        if name == "goose":
            columns = "id, session_id, created_timestamp, model, input_tokens, output_tokens, cache_read_tokens, is_compaction"
            connection.execute(f"create table usage_ledger ({columns})")
            for n in (0, 1):
                row = (n + 1, "20261116_1", samples.START + 20, "fake", 70, 7, 20, n)
                connection.execute("insert into usage_ledger values (?, ?, ?, ?, ?, ?, ?, ?)", row)
            connection.execute("update sessions set updated_at = '2026-11-16 08:02:00'")
        else:
            tokens = {"input": 50, "output": 7, "reasoning": 0, "cache": {"read": 20, "write": 0}}
            about = {"role": "assistant", "summary": True, "modelID": "fake", "tokens": tokens, "time": {"created": 9e12, "completed": 9e12}}  # fmt: skip
            connection.execute("insert into message values ('msg_99', 'ses_1', 9e12, ?)", [json.dumps(about)])
            part = {"type": "text", "text": "They greeted."}
            connection.execute("insert into part values ('prt_99', 'msg_99', 'ses_1', ?)", [json.dumps(part)])
    connection.close()
    report = await take(database, name, source)
    assert report.usage == 1
    [after, *_] = await database.read("test", list_sessions)
    assert (after.tokens.input - session.tokens.input, after.tokens.output - session.tokens.output) == (50, 7)
    assert count(await take(database, name, source)) == {"unchanged": SAMPLES[name].counts["created"]}


def write_hermes_rows(folder: Path, *rows: tuple[int, str, str, float]) -> Path:
    """Write a session of Hermes; each row is an id, a role, a text and its second."""
    (folder / "state.db").unlink(missing_ok=True)
    written = [
        {
            "id": id_,
            "session_id": "s",
            "role": role,
            "content": text,
            "timestamp": samples.START + second,
            "finish_reason": "stop" if role == "assistant" and not text.startswith("[") else None,
            "active": 1,
            "compacted": 0,
        }
        for id_, role, text, second in rows
    ]
    tables = {"sessions": [{"id": "s", "source": "cli", "started_at": samples.START}], "messages": written}
    samples.write_database(folder / "state.db", tables)
    return folder


HERMES_TALK = [
    (1, "user", "one", 1.0),
    (2, "assistant", "first", 1.5),
    (3, "user", "two", 2.0),
    (4, "assistant", "second", 2.5),
    (5, "user", "three", 3.0),
    (6, "assistant", "third", 3.5),
]
SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns.\nThey counted."
END = "\n\n--- END OF CONTEXT SUMMARY — respond to the message below ---"


@BOTH_ENGINES
@pytest.mark.parametrize("form", ["alone", "merged"])
async def test_what_hermes_writes_anew_at_a_compression_is_the_same_conversation(
    database: Database, tmp_path: Path, form: str
) -> None:
    source = write_hermes_rows(tmp_path / "hermes", *HERMES_TALK)
    await take(database, "hermes", source)
    three = "three"
    if form == "merged":
        three = f"[PRIOR CONTEXT — for reference only; not a new message]\nthree\n\n[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]\n\n{SUMMARY}{END}"
    alone = [(21, "assistant", SUMMARY + END, 9.0)] if form == "alone" else []
    rows = [(20, "user", "one", 1.0), *alone, (22, "user", three, 3.0), (23, "assistant", "third", 3.5)]
    write_hermes_rows(source, *rows, (24, "user", "four", 10.0))
    planned = await take(database, "hermes", source, dry_run=True)
    report = await take(database, "hermes", source)
    assert count(report) == count(planned) == {"extended": 1, "messages": 1, "compactions": 1}
    [session] = await database.read("test", list_sessions)
    said = [m.text for m in await read_messages(database, session.id)]
    assert said == ["one", "first", "two", "second", "three", "third", "four"]
    assert await model_texts(database) == ["They counted.", "three", "third", "four"]
    # It is written anew once more, as after each /undo, and goes on.
    again = [(n + 40, role, text, second) for n, role, text, second in rows]
    write_hermes_rows(source, *again, (70, "user", "four", 10.0), (71, "assistant", "fourth", 11.0))
    assert count(await take(database, "hermes", source)) == {"extended": 1, "messages": 1}
    found = (await read_messages(database, session.id))[-2:]
    assert [m.text for m in found] == ["four", "fourth"]
    assert found[0].turn == found[1].turn
    assert count(await take(database, "hermes", source)) == {"unchanged": 1}
    assert await verify(database) == []


async def test_two_messages_of_one_second_are_two(database: Database, tmp_path: Path) -> None:
    source = write_hermes_rows(tmp_path / "hermes", *HERMES_TALK)
    await take(database, "hermes", source)
    write_hermes_rows(source, *HERMES_TALK, (7, "user", "three, I mean", 3.0))
    assert count(await take(database, "hermes", source)) == {"extended": 1, "messages": 1}


async def test_after_a_reset_of_openclaw_the_model_gets_nothing_from_before(
    database: Database, tmp_path: Path
) -> None:
    source = samples.write_openclaw(tmp_path / "source")
    later = [
        {"type": "reset", "id": "r1", "parentId": "e11", "timestamp": iso(50), "reason": "new"},
        {"type": "message", "id": "r2", "parentId": "r1", "timestamp": iso(51), "message": {"role": "user", "content": "a new beginning"}},
    ]  # fmt: skip
    with sqlite3.connect(next(source.rglob("*.sqlite"))) as connection:
        for n, event in enumerate(later, 100):
            connection.execute(
                "insert into transcript_events (session_id, seq, event_json) values ('w1', ?, ?)",
                (n, json.dumps(event)),
            )
    connection.close()
    await take(database, "openclaw", source)
    found = await database.read("test", list_sessions)
    [n] = [n for n, session in enumerate(found) if session.title == "Ada"]
    assert (await read_messages(database, found[n].id))[0].text == "hello there"
    summary, *given = await model_texts(database, n)
    assert "nothing of what was said before" in summary
    assert given == ["a new beginning"]
