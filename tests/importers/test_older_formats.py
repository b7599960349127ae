"""Files of older versions of the programs, and forms of records that a newer one no longer writes."""

import json
import sqlite3
from pathlib import Path

import pytest
from tests.importers import samples
from tests.importers.samples import START, Json, iso

from keryx import importers
from keryx.core.messages import Reasoning, ToolCall, ToolResult, join_text
from keryx.importers.conversation import (
    ForeignCall,
    ForeignCompaction,
    ForeignEntry,
    ForeignMessage,
    ForeignSession,
    ImportLog,
)


def read(name: str, source: Path) -> tuple[list[ForeignSession], list[list[ForeignEntry]], ImportLog]:
    log = ImportLog()
    sessions: list[ForeignSession] = []
    entries: list[list[ForeignEntry]] = []
    for session in importers.find_program(name).read(source, log):
        sessions.append(session)
        entries.append(list(session.entries()))
    return sessions, entries, log


def say(entries: list[ForeignEntry]) -> list[tuple[str, str]]:
    """The messages as roles and texts; calls and results by the name of the tool."""
    said: list[tuple[str, str]] = []
    for entry in entries:
        if isinstance(entry, ForeignMessage):
            tools = [part.name for part in entry.parts if isinstance(part, ToolCall | ToolResult)]
            said.append((entry.role.value, join_text(entry.parts) or " ".join(tools)))
    return said


TALK = [
    ("user", "hello there"),
    ("assistant", "Hello."),
    ("user", "please use-tool"),
    ("assistant", "shell"),
    ("tool", "shell"),
    ("assistant", "Tool said tool-ran."),
]
CALL: Json = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"}
OUTPUT: Json = {"type": "function_call_output", "call_id": "c1", "output": "tool-ran"}


def message(role: str, text: str) -> Json:
    kind = "input_text" if role == "user" else "output_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def test_codex_with_events_shows_the_events_and_takes_tools_from_the_items(tmp_path: Path) -> None:
    def event(kind: str, text: str) -> Json:
        return {"type": "event_msg", "payload": {"type": kind, "message": text}}

    def item(payload: Json) -> Json:
        return {"type": "response_item", "payload": payload}

    counts = {
        "input_tokens": 150,
        "cached_input_tokens": 30,
        "output_tokens": 15,
        "reasoning_output_tokens": 5,
    }
    info = {"last_token_usage": counts, "total_token_usage": {"total_tokens": 165}}
    tokens = {"type": "event_msg", "payload": {"type": "token_count", "info": info}}
    lines = [
        {
            "type": "session_meta",
            "payload": {"id": samples.CODEX_ONE, "timestamp": iso(0), "cwd": "/home/ada"},
        },
        item(message("user", "<environment_context>linux</environment_context>")),
        item(message("user", "hello there")),
        event("user_message", "hello there"),
        event("agent_message", "Hello."),
        item(message("assistant", "Hello.")),
        tokens,
        tokens,
        event("user_message", "please use-tool"),
        item(CALL),
        item(OUTPUT),
        event("agent_message", "Tool said tool-ran."),
    ]
    file = samples.write_lines(tmp_path / f"rollout-{samples.CODEX_ONE}.jsonl", lines)
    [session], [entries], log = read("codex", file)
    assert session.id == samples.CODEX_ONE
    assert say(entries) == TALK
    [used] = [entry.usage for entry in entries if isinstance(entry, ForeignCall)]
    assert (used.input, used.cache_read, used.output, used.reasoning) == (120, 30, 10, 5)
    assert log.losses == {}


def test_codex_without_envelopes_shows_the_items(tmp_path: Path) -> None:
    lines: list[Json] = [
        {"id": samples.CODEX_ONE, "timestamp": iso(0), "instructions": None, "git": {}},
        {"record_type": "state"},
        message("user", "<user_instructions>be kind</user_instructions>"),
        message("user", "hello there"),
        message("assistant", "Hello."),
        message("user", "please use-tool"),
        CALL,
        OUTPUT,
        message("assistant", "Tool said tool-ran."),
    ]
    file = samples.write_lines(tmp_path / f"rollout-{samples.CODEX_ONE}.jsonl", lines)
    [session], [entries], log = read("codex", file)
    assert session.created_at.isoformat() == "2026-11-16T08:00:00+00:00"
    assert say(entries) == TALK
    assert list(log.losses) == ["state of the program"]


def test_opencode_as_json_files_is_read(tmp_path: Path) -> None:
    times = {"created": START * 1000, "updated": (START + 9) * 1000}
    info = {"id": "ses_1", "title": "My talk", "projectID": "p", "directory": "/home/ada", "time": times}
    samples.write_json(tmp_path / "storage/session/p/ses_1.json", info)
    state: Json = {"status": "error", "input": {}, "error": "it failed"}
    said: list[tuple[str, str, list[Json]]] = [
        ("msg_1", "user", [{"type": "text", "text": "please use-tool"}]),
        ("msg_2", "assistant", [{"type": "tool", "tool": "shell", "callID": "c1", "state": state}]),
        (
            "msg_3",
            "assistant",
            [{"type": "reasoning", "text": "It failed."}, {"type": "text", "text": "Sorry."}],
        ),
    ]
    for n, (id_, role, parts) in enumerate(said):
        time = {"created": (START + n) * 1000, "completed": (START + n) * 1000}
        samples.write_json(tmp_path / f"storage/message/ses_1/{id_}.json", {"role": role, "time": time})
        for k, part in enumerate(parts):
            samples.write_json(tmp_path / f"storage/part/{id_}/prt_{n}{k}.json", part)
    [session], [entries], log = read("opencode", tmp_path)
    assert (session.title, session.cwd) == ("My talk", "/home/ada")
    spoken = say(entries)
    assert spoken == [("user", "please use-tool"), ("assistant", "shell"), ("tool", "shell"), ("assistant", ""), ("assistant", "Sorry.")]  # fmt: skip
    [result] = [part for e in entries if isinstance(e, ForeignMessage) for part in e.parts if isinstance(part, ToolResult)]  # fmt: skip
    assert (result.output, result.failed) == ("it failed", True)
    assert (log.losses, log.damages) == ({}, [])


def test_an_answer_of_opencode_that_is_not_finished_waits_for_the_next_import(tmp_path: Path) -> None:
    samples.write_json(
        tmp_path / "storage/session/p/ses_1.json", {"id": "ses_1", "time": {"created": START * 1000}}
    )
    samples.write_json(tmp_path / "storage/message/ses_1/msg_1.json", {"role": "assistant", "time": {}})
    samples.write_json(tmp_path / "storage/part/msg_1/prt_1.json", {"type": "text", "text": "half of"})
    _, [entries], log = read("opencode", tmp_path)
    assert entries == []
    assert sum(loss.count for what, loss in log.losses.items() if "not finished" in what) == 1


def test_gemini_as_one_object_is_read(tmp_path: Path) -> None:
    lines = samples.gemini_lines()
    record = {**lines[0], "messages": [lines[2], lines[3], lines[6], lines[8], lines[10]]}
    samples.write_json(tmp_path / "p/chats/session-1.json", record)
    [session], [entries], _ = read("gemini", tmp_path)
    assert session.id == "g1"
    names = [(role, text.replace("run_shell_command", "shell")) for role, text in say(entries)]
    # The reasoning and the call are records of one answer.
    assert names == [*TALK[:3], ("assistant", ""), *TALK[3:]]


def test_claude_ai_without_parents_is_a_line(tmp_path: Path) -> None:
    messages = [
        {"uuid": "m1", "sender": "human", "text": "hello there", "created_at": iso(1)},
        {"uuid": "m2", "sender": "assistant", "text": "Hello.", "created_at": iso(1)},
        {"uuid": "m3", "sender": "human", "text": "thanks", "created_at": iso(2)},
    ]
    record = {"uuid": "c1", "name": "", "created_at": iso(0), "chat_messages": messages}
    file = samples.write_json(tmp_path / "conversations.json", [record])
    _, [entries], _ = read("claude-ai", file)
    assert say(entries) == [("user", "hello there"), ("assistant", "Hello."), ("user", "thanks")]
    assert not any(entry.undone for entry in entries if isinstance(entry, ForeignMessage))


def test_open_webui_exports_are_arrays_or_lines(tmp_path: Path) -> None:
    record = {"id": "chat-1", "title": "My talk", "created_at": START, "chat": samples.open_webui_chat()}
    array = samples.write_json(tmp_path / "array.json", [record])
    lines = samples.write_lines(tmp_path / "lines.jsonl", [record])
    for file in (array, lines):
        [session], [entries], log = read("open-webui", file)
        assert session.title == "My talk"
        assert [text for _, text in say(entries)][:2] == ["hello there", "Hello."]
        assert log.damages == []


def test_tools_within_the_text_of_open_webui_are_calls(tmp_path: Path) -> None:
    chat = samples.open_webui_chat()
    tool = '<details type="tool_calls" done="true" id="c1" name="shell" arguments="{&quot;a&quot;: 1}" result="tool-ran">\n<summary>Tool</summary>\n</details>\nDone.'
    chat["history"]["messages"]["m5"] = {**chat["history"]["messages"]["m5"], "output": None, "content": tool}
    file = samples.write_json(tmp_path / "array.json", [{"id": "c", "created_at": START, "chat": chat}])
    _, [entries], _ = read("open-webui", file)
    assert say(entries)[-3:] == [("assistant", "shell"), ("tool", "shell"), ("assistant", "Done.")]


def test_windows_that_openclaw_reset_are_sessions_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "agents/main/sessions"
    samples.write_lines(folder / "s1.jsonl", samples.pi_entries("s1"))
    samples.write_lines(folder / "s1.jsonl.reset.2026-11-15", samples.pi_entries("s1"))
    sessions, _, log = read("openclaw", tmp_path)
    assert [session.id for session in sessions] == ["s1", "s1.jsonl.reset.2026-11-15"]
    assert log.damages == []


def test_compressed_events_of_openclaw_are_told(tmp_path: Path) -> None:
    source = samples.write_openclaw(tmp_path / "source")
    file = next(source.rglob("*.sqlite"))
    connection = sqlite3.connect(file)
    connection.execute("update transcript_events set event_json = null, event_zstd = x'00' where seq = 3")
    connection.commit()
    connection.close()
    _, entries, log = read("openclaw", source)
    assert [damage.place for damage in log.damages] == [f"{file}, session w1, event 3"]
    assert len(entries[0]) == 9


def test_structured_content_of_hermes_has_its_pictures(tmp_path: Path) -> None:
    tables = samples.hermes_tables()
    url = {"url": f"data:image/png;base64,{samples.PNG}"}
    blocks = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": url}]
    tables["messages"][1]["content"] = "\0json:" + json.dumps(blocks)
    samples.write_database(tmp_path / "state.db", tables)
    _, [entries, *_], _ = read("hermes", tmp_path)
    [first, *_] = [entry for entry in entries if isinstance(entry, ForeignMessage)]
    assert join_text(first.parts) == "look"
    assert first.files[0].load().startswith(b"\x89PNG")


def test_a_compaction_of_hermes_within_a_session_folds_the_copies(tmp_path: Path) -> None:
    def row(id_: int, role: str, content: str, *, compacted: int = 0) -> Json:
        marks = {"active": 1 - compacted, "compacted": compacted}
        return {
            "id": id_,
            "session_id": "s",
            "role": role,
            "content": content,
            "timestamp": START + id_,
            **marks,
        }

    rows = [
        row(1, "user", "one", compacted=1),
        row(2, "assistant", "first", compacted=1),
        row(3, "user", "two", compacted=1),
        row(4, "assistant", "second", compacted=1),
        row(5, "user", "[CONTEXT COMPACTION] Earlier.\nThey counted."),
        row(6, "user", "two"),
        row(7, "assistant", "second"),
        row(8, "user", "three"),
    ]
    samples.write_database(
        tmp_path / "state.db", {"sessions": [{"id": "s", "started_at": START}], "messages": rows}
    )
    _, [entries], log = read("hermes", tmp_path)
    assert [text for _, text in say(entries)] == ["one", "first", "two", "second", "three"]
    [compaction] = [entry for entry in entries if isinstance(entry, ForeignCompaction)]
    assert (compaction.summary, compaction.first_kept) == ("They counted.", "3")
    assert log.folded["copies after a compaction"] == 2


def test_thoughts_of_chatgpt_are_reasoning(tmp_path: Path) -> None:
    record = samples.chatgpt_record()
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "A", "content": "I think."}]}
    record["mapping"]["n2"]["message"]["content"] = thoughts
    file = samples.write_json(tmp_path / "conversations.json", [record])
    _, [entries], _ = read("chatgpt", file)
    found = [p for e in entries if isinstance(e, ForeignMessage) for p in e.parts if isinstance(p, Reasoning)]
    assert [part.text for part in found] == ["I think."]


@pytest.mark.parametrize("run", ["null", "started_at + 80000"])
def test_a_window_of_openclaw_has_the_time_of_its_beginning(tmp_path: Path, run: str) -> None:
    """Not that of its last run, which only chats have."""
    source = samples.write_openclaw(tmp_path / "source")
    with sqlite3.connect(next(source.rglob("*.sqlite"))) as connection:
        connection.execute("alter table session_windows add column created_at")
        connection.execute(f"update session_windows set created_at = started_at, started_at = {run}")
    connection.close()
    sessions, _, _ = read("openclaw", source)
    starts = {session.id: session.created_at.timestamp() for session in sessions}
    assert (starts["w1"], starts["w2"]) == (samples.START, samples.START + 90)
