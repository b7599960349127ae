"""Small sources of every program, written by hand in its format: two questions, a tool call, and what else the program has."""

import base64
import json
import sqlite3
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

Json = dict[str, Any]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
START = 1_794_818_000


class Sample(msgspec.Struct, frozen=True):
    """A source, and what an import of it adds."""

    write: Callable[[Path], Path]
    counts: Mapping[str, int]
    # Titles of the sessions, oldest first.
    titles: list[str]
    # The conversation of the first session as people see it: roles and texts.
    shown: list[tuple[str, str]]


def iso(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"2026-11-16T08:{int(minutes):02d}:{rest:06.3f}Z"


def write_lines(file: Path, records: Iterable[Json]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file


def write_json(file: Path, value: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value), encoding="utf-8")
    return file


def write_database(file: Path, tables: Mapping[str, list[Json]]) -> Path:
    """Write tables with the columns that their rows have."""
    file.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(file)
    for table, rows in tables.items():
        columns = list(dict.fromkeys(name for row in rows for name in row))
        connection.execute(f"create table {table} ({', '.join(columns)})")
        for row in rows:
            marks = ", ".join("?" for _ in columns)
            connection.execute(f"insert into {table} values ({marks})", [row.get(name) for name in columns])
    connection.commit()
    connection.close()
    return file


def chat_call(id_: str) -> str:
    function = {"name": "terminal", "arguments": json.dumps({"command": "echo tool-ran"})}
    return json.dumps([{"id": id_, "type": "function", "function": function}])


def hermes_tables() -> dict[str, list[Json]]:
    """A chat that was compressed into a second session, a fork of it, and a sub-agent."""
    chat = {
        "source": "telegram",
        "user_id": "4242",
        "chat_id": "4242",
        "chat_type": "dm",
        "origin_json": json.dumps({"chat_name": "Ada", "user_name": "Ada"}),
        "cwd": None,
        "archived": 0,
    }

    def session(id_: str, at: float, **more: Any) -> Json:
        return {"id": id_, "started_at": START + at, **chat, **more}

    def message(id_: int, session: str, role: str, content: str, **more: Any) -> Json:
        return {
            "id": id_,
            "session_id": session,
            "role": role,
            "content": content,
            "timestamp": START + id_,
            "active": 1,
            "compacted": 0,
            "observed": 0,
            **more,
        }

    first, second, fork, helper = (
        "20261116_084001_aa",
        "20261116_084101_bb",
        "20261116_084201_cc",
        "0123456789ab",
    )
    return {
        "sessions": [
            session(first, 0, title="Trip", end_reason="compression", ended_at=START + 6, model="fake", input_tokens=100, output_tokens=12),
            session(second, 10, parent_session_id=first, title="Trip #2", model="fake", input_tokens=50, output_tokens=8),
            session(fork, 20, parent_session_id=first, title="Fork", model_config=json.dumps({"_branched_from": first})),
            session(helper, 30, parent_session_id=second, source="tool", chat_id=None),
        ],
        "messages": [
            message(1, first, "session_meta", ""),
            message(2, first, "user", "hello there", api_content="[Workspace] hello there"),
            message(3, first, "assistant", "Hello Ada.", reasoning="She greets."),
            message(4, first, "user", "please use-tool"),
            message(5, first, "assistant", "", tool_calls=chat_call("call_1")),
            message(6, first, "tool", '{"output":"tool-ran"}', tool_call_id="call_1", tool_name="terminal"),
            message(7, first, "assistant", "Tool said tool-ran."),
            message(8, second, "user", "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns.\nThey greeted."),
            message(9, second, "assistant", "Tool said tool-ran."),
            message(10, second, "user", "and now?"),
            message(11, second, "assistant", "Now we go on."),
            message(12, second, "user", "forget this", active=0),
            message(13, fork, "session_meta", ""),
            message(14, fork, "user", "hello there"),
            message(15, fork, "assistant", "Hello Ada."),
            message(16, fork, "user", "another way"),
            message(17, fork, "assistant", "Another answer."),
            message(18, helper, "user", "do a part"),
            message(19, helper, "assistant", "Done."),
        ],
    }  # fmt: skip


def write_hermes(folder: Path) -> Path:
    write_database(folder / "state.db", hermes_tables())
    return folder


def write_hermes_webui(folder: Path) -> Path:
    write_json(folder / "projects.json", [{"project_id": "p1", "name": "Work"}])
    call = json.loads(chat_call("call_1"))
    messages = [
        {
            "role": "user",
            "content": "hello there",
            "timestamp": START + 1,
            "id": 1,
            "api_content": "[W]\nhello there",
        },
        {"role": "assistant", "content": "Hello.", "timestamp": START + 2, "id": 2},
        {"role": "user", "content": "please use-tool", "timestamp": START + 3, "id": 3},
        {"role": "assistant", "content": "", "tool_calls": call, "timestamp": START + 4, "id": 4},
        {"role": "tool", "tool_name": "terminal", "tool_call_id": "call_1", "content": "tool-ran", "id": 5},
        {"role": "assistant", "content": "Tool said tool-ran.", "id": 6},
    ]
    record = {
        "session_id": "aabbccddeeff",
        "title": "My talk",
        "manual_title": True,
        "pinned": True,
        "project_id": "p1",
        "created_at": START,
        "model": "fake",
        "input_tokens": 150,
        "output_tokens": 20,
        "messages": messages,
        "pending_user_message": "are you there?",
        "pending_started_at": START + 9,
    }
    write_json(folder / "sessions/aabbccddeeff.json", record)
    write_json(folder / "sessions/_index.json", {})
    return folder


def claude_records(session: str) -> list[Json]:
    """Two questions, an answer in two blocks with a tool, an edited question, and a compaction."""

    def record(n: int, parent: int | None, kind: str, message: Json | None = None, **more: Any) -> Json:
        made = {"uuid": f"u{n}", "parentUuid": parent and f"u{parent}", "type": kind, "timestamp": iso(n)}
        return {**made, "sessionId": session, "cwd": "/home/ada/project", "message": message, **more}

    def answer(id_: str, block: Json) -> Json:
        used = {"input_tokens": 100, "output_tokens": 12, "cache_read_input_tokens": 20}
        return {"id": id_, "role": "assistant", "model": "claude", "content": [block], "usage": used}

    result: Json = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "tool-ran", "is_error": False}
    call: Json = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "echo tool-ran"}}
    kept: Json = {"preservedMessages": {"uuids": []}}
    return [
        {"type": "queue-operation", "operation": "enqueue", "sessionId": session},
        record(1, None, "user", {"role": "user", "content": "hello there"}),
        record(2, 1, "attachment", attachment={"type": "environment"}),
        record(3, 2, "assistant", answer("msg_1", {"type": "text", "text": "Hello."})),
        record(4, 3, "user", {"role": "user", "content": "use-tool, wrongly"}),
        record(
            5,
            3,
            "user",
            {"role": "user", "content": "<system-reminder>be kind</system-reminder>"},
            isMeta=True,
        ),
        record(6, 5, "user", {"role": "user", "content": "please use-tool"}),
        record(7, 6, "assistant", answer("msg_2", {"type": "text", "text": "I will run it."})),
        record(8, 7, "assistant", answer("msg_2", call)),
        record(9, 8, "user", {"role": "user", "content": [result]}),
        record(10, 9, "assistant", answer("msg_3", {"type": "text", "text": "Tool said tool-ran."})),
        record(11, None, "system", subtype="compact_boundary", logicalParentUuid="u10", compactMetadata=kept),
        record(12, 11, "user", {"role": "user", "content": "They greeted."}, isCompactSummary=True),
        record(13, 12, "user", {"role": "user", "content": "and now?"}),
        record(14, 13, "assistant", answer("msg_4", {"type": "text", "text": "Now we go on."})),
        {"type": "custom-title", "customTitle": "My talk", "sessionId": session},
        {"type": "cost-state", "totalCostUSD": 0.5, "modelUsage": {"claude": {"costUSD": 0.5}}},
    ]


def write_claude_code(folder: Path) -> Path:
    project = folder / "-home-ada-project"
    records = claude_records("s-one")
    write_lines(project / "s-one.jsonl", records)
    own = {"uuid": "f1", "parentUuid": "u10", "type": "user", "timestamp": iso(70), "sessionId": "s-two"}
    answer: Json = {
        "id": "msg_f",
        "role": "assistant",
        "content": [{"type": "text", "text": "Another answer."}],
    }
    fork = [
        *({**record, "sessionId": "s-two"} for record in records[:11]),
        {**own, "message": {"role": "user", "content": "another way"}},
        {
            **own,
            "uuid": "f2",
            "parentUuid": "f1",
            "type": "assistant",
            "timestamp": iso(71),
            "message": answer,
        },
    ]
    write_lines(project / "s-two.jsonl", fork)
    helper = {"isSidechain": True, "agentId": "a1", "sessionId": "s-one", "timestamp": iso(8)}
    said = {"id": "msg_a", "role": "assistant", "content": [{"type": "text", "text": "Done."}]}
    write_lines(
        project / "s-one/subagents/agent-a1.jsonl",
        [
            {**helper, "uuid": "a1", "parentUuid": None, "type": "user", "message": {"role": "user", "content": "do a part"}},
            {**helper, "uuid": "a2", "parentUuid": "a1", "type": "assistant", "message": said},
        ],
    )  # fmt: skip
    write_json(
        project / "s-one/subagents/agent-a1.meta.json", {"description": "A part", "toolUseId": "toolu_1"}
    )
    return folder


CODEX_ONE = "01a10000-0000-7000-8000-000000000001"
CODEX_TWO = "01a10000-0000-7000-8000-000000000002"


def codex_lines(id_: str) -> list[Json]:
    def line(n: int, kind: str, payload: Json) -> Json:
        return {"timestamp": iso(n), "ordinal": n, "type": kind, "payload": payload}

    def item(n: int, kind: str, item_id: str, text: str) -> Json:
        block = {"type": "text" if kind == "UserMessage" else "Text", "text": text}
        about = {"type": kind, "id": item_id, "content": [block]}
        return line(n, "event_msg", {"type": "item_completed", "turn_id": "t", "item": about})

    def message(n: int, role: str, text: str) -> Json:
        kind = "input_text" if role == "user" else "output_text"
        return line(
            n, "response_item", {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        )

    used: Json = {
        "input_tokens": 150,
        "cached_input_tokens": 30,
        "output_tokens": 15,
        "reasoning_output_tokens": 5,
    }
    return [
        line(0, "session_meta", {"id": id_, "timestamp": iso(0), "cwd": "/home/ada/project"}),
        line(1, "turn_context", {"model": "fake"}),
        message(2, "developer", "You are careful."),
        message(3, "user", "<environment_context>linux</environment_context>"),
        message(4, "user", "hello there"),
        item(5, "UserMessage", "i1", "hello there"),
        message(6, "assistant", "Hello."),
        item(7, "AgentMessage", "i2", "Hello."),
        line(8, "token_usage_record", {"usage": used}),
        item(9, "UserMessage", "i3", "please use-tool"),
        line(10, "response_item", {"type": "function_call", "name": "exec_command", "arguments": '{"cmd":"echo tool-ran"}', "call_id": "call_1"}),
        line(11, "response_item", {"type": "function_call_output", "call_id": "call_1", "output": "tool-ran\n"}),
        line(12, "event_msg", {"type": "item_completed", "item": {"type": "CommandExecution", "id": "call_1"}}),
        item(13, "AgentMessage", "i4", "Tool said tool-ran."),
        message(14, "assistant", "Summary: they greeted."),
        line(15, "compacted", {"message": "They greeted.", "replacement_history": []}),
        item(16, "UserMessage", "i5", "and now?"),
        item(17, "AgentMessage", "i6", "Now we go on."),
        line(18, "event_msg", {"type": "task_complete"}),
    ]  # fmt: skip


def write_codex(folder: Path) -> Path:
    day = folder / "sessions/2026/11/16"
    write_lines(day / f"rollout-2026-11-16T08-00-00-{CODEX_ONE}.jsonl", codex_lines(CODEX_ONE))
    meta = {
        "id": CODEX_TWO,
        "timestamp": iso(30),
        "cwd": "/",
        "forked_from_id": CODEX_ONE,
        "forked_from_ordinal_exclusive": 8,
    }
    question = {"type": "UserMessage", "id": "j1", "content": [{"type": "text", "text": "another way"}]}
    answer: Json = {
        "type": "AgentMessage",
        "id": "j2",
        "content": [{"type": "Text", "text": "Another answer."}],
    }
    lines = [
        {"timestamp": iso(30), "ordinal": 8, "type": "session_meta", "payload": meta},
        {"timestamp": iso(31), "ordinal": 9, "type": "event_msg", "payload": {"type": "item_completed", "item": question}},
        {"timestamp": iso(32), "ordinal": 10, "type": "event_msg", "payload": {"type": "item_completed", "item": answer}},
    ]  # fmt: skip
    write_lines(folder / f"archived_sessions/rollout-2026-11-16T08-00-30-{CODEX_TWO}.jsonl", lines)
    threads = [
        {"id": CODEX_ONE, "title": "hello there", "first_user_message": "hello there", "name": "My talk", "archived": 0, "is_pinned": 1},
        {"id": CODEX_TWO, "title": "hello there", "first_user_message": "hello there", "name": None, "archived": 1, "is_pinned": 0},
    ]  # fmt: skip
    write_database(folder / "state_4.sqlite", {"threads": []} | {"threads": [{"id": "old"}]})
    write_database(folder / "state_5.sqlite", {"threads": threads})
    return folder


def write_opencode(folder: Path) -> Path:
    def session(id_: str, at: int, title: str, **more: Any) -> Json:
        times = {
            "time_created": (START + at) * 1000,
            "time_updated": (START + at + 9) * 1000,
            "time_archived": None,
        }
        return {
            "id": id_,
            "project_id": "p",
            "parent_id": None,
            "directory": "/home/ada",
            "title": title,
            "revert": None,
            **times,
            **more,
        }

    def message(id_: str, at: int, data: Json, session: str = "ses_1") -> Json:
        millis = (START + at) * 1000
        time = {"created": millis, "completed": millis + 500}
        return {
            "id": id_,
            "session_id": session,
            "time_created": millis,
            "data": json.dumps({"time": time, **data}),
        }

    def part(id_: str, message: str, data: Json, session: str = "ses_1") -> Json:
        return {"id": id_, "message_id": message, "session_id": session, "data": json.dumps(data)}

    used: Json = {
        "tokens": {"input": 100, "output": 12, "reasoning": 0, "cache": {"read": 20, "write": 0}},
        "cost": 0.01,
    }
    answer: Json = {"role": "assistant", "modelID": "fake", **used}
    state = {"status": "completed", "input": {"command": "echo tool-ran"}, "output": "tool-ran\n", "time": {}}
    tool = {"type": "tool", "tool": "bash", "callID": "call_1", "state": state}
    picture = {
        "type": "file",
        "filename": "a.png",
        "mime": "image/png",
        "url": f"data:image/png;base64,{PNG}",
    }
    tables = {
        "project": [{"id": "p", "worktree": "/home/ada/project", "name": None}],
        "session": [
            session("ses_1", 0, "My talk", revert=json.dumps({"messageID": "msg_5"})),
            session("ses_2", 20, "A part", parent_id="ses_1"),
        ],
        "message": [
            message("msg_1", 1, {"role": "user"}),
            message("msg_2", 2, answer),
            message("msg_3", 3, {"role": "user"}),
            message("msg_4", 4, answer),
            message("msg_4b", 5, answer),
            message("msg_5", 6, {"role": "user"}),
            message("msg_6", 21, {"role": "user"}, "ses_2"),
            message("msg_7", 22, answer, "ses_2"),
        ],
        "part": [
            part("prt_01", "msg_1", {"type": "text", "text": "hello there"}),
            part("prt_02", "msg_1", {"type": "text", "text": "<files>", "synthetic": True}),
            part("prt_03", "msg_1", picture),
            part("prt_04", "msg_2", {"type": "step-start"}),
            part("prt_05", "msg_2", {"type": "text", "text": "Hello."}),
            part("prt_06", "msg_3", {"type": "text", "text": "please use-tool"}),
            part("prt_07", "msg_4", {"type": "text", "text": "I will run it."}),
            part("prt_08", "msg_4", tool),
            part("prt_09", "msg_4b", {"type": "text", "text": "Tool said tool-ran."}),
            part("prt_10", "msg_5", {"type": "text", "text": "forget this"}),
            part("prt_11", "msg_6", {"type": "text", "text": "do a part"}, "ses_2"),
            part("prt_12", "msg_7", {"type": "text", "text": "Done."}, "ses_2"),
        ],
    }
    write_database(folder / "opencode.db", tables)
    return folder


def pi_entries(id_: str) -> list[Json]:
    def entry(n: int, parent: int | None, message: Json) -> Json:
        return {
            "type": "message",
            "id": f"e{n}",
            "parentId": parent and f"e{parent}",
            "timestamp": iso(n),
            "message": message,
        }

    def answer(*blocks: Json) -> Json:
        used = {"input": 100, "output": 12, "cacheRead": 20, "cacheWrite": 0, "cost": {"total": 0.01}}
        return {
            "role": "assistant",
            "content": list(blocks),
            "provider": "rig",
            "model": "fake",
            "usage": used,
        }

    call: Json = {
        "type": "toolCall",
        "id": "call_1",
        "name": "bash",
        "arguments": {"command": "echo tool-ran"},
    }
    result: Json = {
        "role": "toolResult",
        "toolCallId": "call_1",
        "toolName": "bash",
        "content": [{"type": "text", "text": "tool-ran"}],
    }
    return [
        {"type": "session", "version": 3, "id": id_, "timestamp": iso(0), "cwd": "/home/ada"},
        {"type": "model_change", "provider": "rig", "modelId": "fake", "id": "e1", "parentId": None, "timestamp": iso(1)},
        entry(2, 1, {"role": "user", "content": "hello there"}),
        entry(3, 2, answer({"type": "text", "text": "Hello."})),
        entry(4, 3, {"role": "user", "content": "another way"}),
        entry(5, 3, {"role": "user", "content": [{"type": "text", "text": "please use-tool"}]}),
        entry(6, 5, answer({"type": "thinking", "thinking": "A tool."}, call)),
        entry(7, 6, result),
        entry(8, 7, answer({"type": "text", "text": "Tool said tool-ran."})),
        {"type": "compaction", "id": "e9", "parentId": "e8", "timestamp": iso(9), "summary": "They greeted.", "firstKeptEntryId": "e5"},
        entry(10, 9, {"role": "user", "content": "and now?"}),
        entry(11, 10, answer({"type": "text", "text": "Now we go on."})),
    ]  # fmt: skip


def write_pi(folder: Path) -> Path:
    write_lines(folder / "--home-ada--/2026-11-16T08-00-00_01a1.jsonl", pi_entries("01a1"))
    return folder


def write_openclaw(folder: Path) -> Path:
    events = [
        {"session_id": "w1", "seq": n, "event_json": json.dumps(event), "event_zstd": None}
        for n, event in enumerate(pi_entries("w1"))
    ]
    mirror: Json = {"role": "assistant", "provider": "openclaw", "model": "delivery-mirror", "content": []}
    events.append(
        {
            "session_id": "w1",
            "seq": 99,
            "event_json": json.dumps({"type": "message", "id": "m", "parentId": "e11", "message": mirror}),
        }
    )
    sent = {
        "role": "user",
        "content": "new talk",
        "__openclaw": {"senderName": "Ada", "transport": {"messageId": "12"}},
    }
    events.append(
        {
            "session_id": "w2",
            "seq": 0,
            "event_json": json.dumps(
                {"type": "message", "id": "n1", "parentId": None, "timestamp": iso(90), "message": sent}
            ),
        }
    )
    key = "agent:main:telegram:direct:4242"
    window = {"session_key": key, "chat_type": "direct", "primary_conversation_id": "conv_1"}
    tables = {
        "session_nodes": [{"session_key": key, "current_session_id": "w2", "entry_json": "{}", "display_name": "Ada", "pinned_at": START * 1000, "archived_at": None, "spawned_by": None}],
        "session_windows": [
            {**window, "session_id": "w1", "previous_session_id": None, "started_at": START * 1000},
            {**window, "session_id": "w2", "previous_session_id": "w1", "started_at": (START + 90) * 1000},
        ],
        "transcript_events": events,
        "conversations": [{"conversation_id": "conv_1", "channel": "telegram", "account_id": "default", "kind": "direct", "peer_id": "4242", "label": "Ada", "thread_id": None}],
    }  # fmt: skip
    write_database(folder / "agents/main/agent/openclaw-agent.sqlite", tables)
    write_lines(folder / "agents/main/sessions/old1.jsonl", pi_entries("old1"))
    write_json(
        folder / "agents/main/sessions/sessions.json", {key: {"sessionId": "old1", "label": "Old talk"}}
    )
    return folder


def chatgpt_record() -> Json:
    def node(id_: str, parent: str | None, message: Json | None) -> Json:
        return {"id": id_, "parent": parent, "children": [], "message": message}

    def message(role: str, at: float | None, content: Json, **more: Any) -> Json:
        return {
            "author": {"role": role, "name": "python"},
            "create_time": at,
            "content": content,
            "metadata": {},
            **more,
        }

    def text(words: str) -> Json:
        return {"content_type": "text", "parts": [words]}

    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-ABC123"}
    nodes = [
        node("root", None, None),
        node("sys", "root", message("system", None, text(""))),
        node("n1", "sys", message("user", START + 1, {"content_type": "multimodal_text", "parts": [picture, "hello there"]})),
        node("n2", "n1", message("assistant", START + 2, text("Hello."))),
        node("n3", "n2", message("user", START + 3, text("please use-tool"))),
        node("n4", "n3", message("assistant", START + 4, {"content_type": "code", "language": "unknown", "text": "print('tool-ran')"}, recipient="python")),
        node("n5", "n4", message("tool", START + 5, {"content_type": "execution_output", "text": "tool-ran"})),
        node("n6", "n5", message("assistant", START + 6, text("Tool said tool-ran."))),
        node("n7", "n2", message("user", START + 2.5, text("another way"))),
    ]  # fmt: skip
    return {
        "conversation_id": "c1",
        "title": "My talk",
        "create_time": START,
        "update_time": START + 6,
        "mapping": {entry["id"]: entry for entry in nodes},
        "current_node": "n6",
        "is_starred": True,
        "is_archived": False,
    }


def write_chatgpt(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "export.zip", "w") as archive:
        archive.writestr("export/conversations-000.json", json.dumps([chatgpt_record()], indent=1))
        archive.writestr("export/file-ABC123-photo.png", base64.b64decode(PNG))
        archive.writestr("__MACOSX/conversations-000.json", "junk")
        archive.writestr("export/chat.html", "<html>")
    return folder / "export.zip"


def write_claude_ai(folder: Path) -> Path:
    def message(id_: str, parent: str, sender: str, at: int, *content: Json, **more: Any) -> Json:
        return {
            "uuid": id_,
            "parent_message_uuid": parent,
            "sender": sender,
            "created_at": iso(at),
            "text": "",
            "content": list(content),
            **more,
        }

    def text(words: str) -> Json:
        return {"type": "text", "text": words}

    call: Json = {"type": "tool_use", "id": "t1", "name": "repl", "input": {"code": "1"}}
    result: Json = {"type": "tool_result", "tool_use_id": "t1", "name": "repl", "content": [text("tool-ran")]}
    notes = {"file_name": "notes.txt", "extracted_content": "my notes"}
    messages = [
        message("m1", "0000", "human", 1, text("hello there"), attachments=[notes]),
        message("m2", "m1", "assistant", 2, {"type": "thinking", "thinking": "A greeting."}, text("Hello.")),
        message("m3", "m2", "human", 3, text("another way")),
        message("m4", "m2", "human", 4, text("please use-tool")),
        message(
            "m5", "m4", "assistant", 5, text("I will run it."), call, result, text("Tool said tool-ran.")
        ),
    ]
    record = {"uuid": "c1", "name": "My talk", "created_at": iso(0), "updated_at": iso(5), "chat_messages": messages, "project": {"uuid": "p1"}}  # fmt: skip
    write_json(folder / "conversations.json", [record])
    write_json(folder / "projects.json", [{"uuid": "p1", "name": "Work"}])
    return folder


def open_webui_chat() -> Json:
    output = [
        {"type": "reasoning", "content": [{"type": "text", "text": "A tool."}]},
        {"type": "function_call", "call_id": "call_1", "name": "shell", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "call_1",
            "output": [{"type": "input_text", "text": "tool-ran"}],
        },
        {"type": "message", "content": [{"type": "output_text", "text": "Tool said tool-ran."}]},
    ]
    old = '<details type="reasoning" done="true">\n<summary>Thought</summary>\n&gt; A greeting.\n</details>\nHello.'
    picture = {"type": "image", "url": f"data:image/png;base64,{PNG}"}
    used: Json = {
        "prompt_tokens": 120,
        "completion_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 20},
    }
    messages = {
        "m1": {"id": "m1", "parentId": None, "role": "user", "content": "hello there", "timestamp": START + 1, "files": [picture]},
        "m2": {"id": "m2", "parentId": "m1", "role": "assistant", "content": old, "timestamp": START + 2, "model": "fake", "usage": used},
        "m3": {"id": "m3", "parentId": "m2", "role": "user", "content": "another way", "timestamp": START + 3},
        "m4": {"id": "m4", "parentId": "m2", "role": "user", "content": "please use-tool", "timestamp": START + 4},
        "m5": {"id": "m5", "parentId": "m4", "role": "assistant", "content": "", "output": output, "timestamp": START + 5, "done": True},
    }  # fmt: skip
    return {"models": ["fake"], "history": {"currentId": "m5", "messages": messages}, "messages": []}


def write_open_webui(folder: Path) -> Path:
    row = {"id": "chat-1", "user_id": "u1", "title": "My talk", "created_at": START, "updated_at": START + 5, "archived": 0, "pinned": 1, "folder_id": "f1", "meta": "{}", "chat": json.dumps(open_webui_chat())}  # fmt: skip
    stored = {"id": "chat-1-m2", "chat_id": "chat-1", "role": "assistant", "content": "Hello again."}
    tables = {"chat": [row], "folder": [{"id": "f1", "name": "Work"}], "chat_message": [stored]}
    write_database(folder / "webui.db", tables)
    return folder


def write_goose(folder: Path) -> Path:
    def message(
        n: int, role: str, *blocks: Json, shown: bool = True, given: bool = True, **more: Any
    ) -> Json:
        about = {"userVisible": shown, "agentVisible": given, **more}
        return {"id": n, "message_id": f"m{n}", "session_id": "20261116_1", "role": role, "content_json": json.dumps(blocks), "created_timestamp": START + n, "metadata_json": json.dumps(about)}  # fmt: skip

    def text(words: str) -> Json:
        return {"type": "text", "text": words}

    request: Json = {
        "type": "toolRequest",
        "id": "call_1",
        "toolCall": {"status": "success", "value": {"name": "shell", "arguments": {}}},
    }
    response: Json = {
        "type": "toolResponse",
        "id": "call_1",
        "toolResult": {"status": "success", "value": {"content": [text("tool-ran")], "isError": False}},
    }
    used: Json = {"usage": {"inputTokens": 120, "outputTokens": 12, "cacheReadTokens": 20}}
    session: Json = {"id": "20261116_1", "name": "My talk", "user_set_name": 1, "session_type": "user", "working_dir": "/home/ada", "created_at": "2026-11-16 08:00:00", "updated_at": "2026-11-16 08:01:00", "accumulated_cost": 0.02, "model_config_json": json.dumps({"model_name": "fake"}), "archived_at": None, "parent_session_id": None}  # fmt: skip
    rows = [
        message(1, "user", text("<turn-context>linux"), shown=False, turnContext=True),
        message(2, "user", text("hello there"), given=False),
        message(3, "assistant", text("Hello."), given=False, **used),
        message(4, "user", text("please use-tool"), given=False),
        message(5, "assistant", request, given=False, **used),
        message(6, "user", response, given=False),
        message(7, "assistant", text("Tool said tool-ran."), given=False, **used),
        message(8, "user", text("They greeted."), shown=False),
        message(9, "user", text("and now?")),
        message(10, "assistant", text("Now we go on."), **used),
    ]
    write_database(folder / "sessions.db", {"sessions": [session], "messages": rows})
    return folder


def gemini_lines() -> list[Json]:
    tokens = {"input": 100, "output": 10, "cached": 20, "thoughts": 5, "tool": 0, "total": 115}
    response: Json = {
        "functionResponse": {"id": "call_1", "name": "run_shell_command", "response": {"output": "tool-ran"}}
    }
    call: Json = {"id": "call_1", "name": "run_shell_command", "args": {"command": "echo tool-ran"}, "result": [response], "status": "success"}  # fmt: skip
    header = {"sessionId": "g1", "startTime": iso(0), "lastUpdated": iso(9), "kind": "main"}
    first: Json = {"id": "m1", "timestamp": iso(1), "type": "user", "content": [{"text": "hello there"}]}
    second: Json = {
        "id": "m2",
        "timestamp": iso(2),
        "type": "gemini",
        "content": "Hello.",
        "tokens": tokens,
        "model": "fake",
    }
    third: Json = {"id": "m3", "timestamp": iso(3), "type": "user", "content": [{"text": "please use-tool"}]}
    fourth = {"id": "m4", "timestamp": iso(4), "type": "gemini", "content": "", "thoughts": [{"subject": "A tool", "description": "Run it."}], "tokens": tokens, "model": "fake"}  # fmt: skip
    context = {"id": "m0", "type": "user", "content": [{"text": "<session_context>linux"}]}
    return [
        header,
        {"$set": {"messages": [context]}},
        first,
        second,
        header,
        {"$set": {"messages": [context, {**first, "timestamp": iso(50)}, {**second, "timestamp": iso(50)}]}},
        third,
        fourth,
        {**fourth, "toolCalls": [call]},
        {"id": "m5", "timestamp": iso(5), "type": "user", "content": [response]},
        {
            "id": "m6",
            "timestamp": iso(6),
            "type": "gemini",
            "content": "Tool said tool-ran.",
            "tokens": tokens,
        },
    ]


def write_gemini(folder: Path) -> Path:
    write_lines(folder / "project/chats/session-2026-11-16T08-00-g1.jsonl", gemini_lines())
    (folder / "project/.project_root").write_text("/home/ada/project")
    return folder


def qwen_lines() -> list[Json]:
    def line(n: int, parent: int | None, kind: str, provenance: str, *parts: Json, **more: Any) -> Json:
        about = {
            "uuid": f"q{n}",
            "parentUuid": parent and f"q{parent}",
            "sessionId": "s1",
            "timestamp": iso(n),
        }
        return {
            **about,
            "type": kind,
            "provenance": provenance,
            "cwd": "/home/ada",
            "message": {"parts": list(parts)},
            **more,
        }

    used: Json = {
        "promptTokenCount": 120,
        "candidatesTokenCount": 12,
        "cachedContentTokenCount": 20,
        "thoughtsTokenCount": 3,
    }
    answer: Json = {"model": "fake", "usageMetadata": used}
    history = {"compressedHistory": [{"role": "user", "parts": [{"text": "They greeted."}]}]}
    call: Json = {"functionCall": {"id": "call_1", "name": "run_shell_command", "args": {}}}
    result: Json = {
        "functionResponse": {"id": "call_1", "name": "run_shell_command", "response": {"output": "tool-ran"}}
    }
    return [
        line(1, None, "user", "real_user", {"text": "hello there"}),
        line(
            2,
            1,
            "assistant",
            "assistant_output",
            {"text": "A greeting.", "thought": True},
            {"text": "Hello."},
            **answer,
        ),
        line(3, 2, "system", "system", subtype="ui_telemetry"),
        line(4, 3, "user", "real_user", {"text": "please use-tool"}),
        line(5, 4, "assistant", "assistant_output", call, **answer),
        line(6, 5, "tool_result", "tool_result", result),
        line(7, 6, "assistant", "assistant_output", {"text": "Tool said tool-ran."}, **answer),
        line(8, 7, "system", "system", subtype="chat_compression", systemPayload=history),
        line(9, 8, "user", "real_user", {"text": "and now?"}),
        line(10, 9, "assistant", "assistant_output", {"text": "Now we go on."}, **answer),
    ]


def write_qwen(folder: Path) -> Path:
    write_lines(folder / "-home-ada/chats/s1.jsonl", qwen_lines())
    return folder


def write_librechat(folder: Path) -> Path:
    call: Json = {
        "type": "tool_call",
        "tool_call": {"id": "t1", "name": "shell", "args": "{}", "output": "tool-ran"},
    }
    last: Json = {"messageId": "m4", "isCreatedByUser": False, "model": "fake", "tokenCount": 12, "text": "", "content": [{"type": "think", "think": "A tool."}, call, {"type": "text", "text": "Tool said tool-ran."}]}  # fmt: skip
    third: Json = {
        "messageId": "m3",
        "isCreatedByUser": True,
        "text": "please use-tool",
        "createdAt": iso(3),
        "children": [last],
    }
    other: Json = {
        "messageId": "m5",
        "isCreatedByUser": True,
        "text": "another way",
        "createdAt": iso(2.5),
        "children": [],
    }
    second: Json = {"messageId": "m2", "isCreatedByUser": False, "text": "Hello.", "model": "fake", "createdAt": iso(2), "children": [other, third]}  # fmt: skip
    first: Json = {"messageId": "m1", "parentMessageId": "00000000-0000-0000-0000-000000000000", "isCreatedByUser": True, "text": "hello there", "createdAt": iso(1), "children": [second]}  # fmt: skip
    write_json(
        folder / "talk.json",
        {
            "conversationId": "c1",
            "title": "My talk",
            "exportAt": "08:00",
            "recursive": True,
            "messages": [first],
        },
    )
    return folder


TALK = [
    ("user", "hello there"),
    ("assistant", "Hello."),
    ("user", "please use-tool"),
    ("assistant", ""),
    ("tool", ""),
    ("assistant", "Tool said tool-ran."),
]
LONGER = [*TALK, ("user", "and now?"), ("assistant", "Now we go on.")]


def spoken(talk: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The talk with an answer that says what it will do."""
    return [*talk[:3], ("assistant", "I will run it."), *talk[4:]]


def greeting(talk: list[tuple[str, str]], words: str) -> list[tuple[str, str]]:
    return [talk[0], ("assistant", words), *talk[2:]]


SAMPLES = {
    "hermes": Sample(
        write_hermes,
        {"created": 3, "messages": 15, "tool_calls": 1, "compactions": 1, "forks": 1, "subagents": 1, "undone": 1, "usage": 1},
        ["Trip #2", "Fork", "do a part"],
        [*greeting(LONGER, "Hello Ada."), ("user", "forget this")],
    ),
    "claude-code": Sample(
        write_claude_code,
        {"created": 3, "messages": 20, "tool_calls": 2, "compactions": 1, "forks": 1, "subagents": 1, "undone": 2, "usage": 5},
        ["My talk", "A part", "hello there"],
        [*LONGER[:2], ("user", "use-tool, wrongly"), LONGER[2], ("assistant", "I will run it."), *LONGER[4:]],
    ),
    "codex": Sample(
        write_codex,
        {"created": 2, "messages": 12, "tool_calls": 1, "compactions": 1, "forks": 1, "usage": 1},
        ["My talk", "hello there"],
        LONGER,
    ),
    "opencode": Sample(
        write_opencode,
        {"created": 2, "messages": 9, "tool_calls": 1, "subagents": 1, "undone": 1, "usage": 4, "files": 1},
        ["My talk", "A part"],
        [*spoken(TALK), ("user", "forget this")],
    ),
    "openclaw": Sample(
        write_openclaw,
        {"created": 3, "messages": 19, "tool_calls": 2, "compactions": 2, "undone": 2, "usage": 8},
        ["Old talk", "Ada", "Ada #2"],
        [*LONGER[:2], ("user", "another way"), *LONGER[2:]],
    ),
    "chatgpt": Sample(
        write_chatgpt,
        {"created": 1, "messages": 7, "tool_calls": 1, "undone": 1, "files": 1},
        ["My talk"],
        [*TALK[:2], ("user", "another way"), *TALK[2:]],
    ),
    "claude-ai": Sample(
        write_claude_ai,
        {"created": 1, "messages": 7, "tool_calls": 1, "undone": 1, "files": 1},
        ["My talk"],
        [*TALK[:2], ("user", "another way"), TALK[2], ("assistant", "I will run it."), *TALK[4:]],
    ),
    "open-webui": Sample(
        write_open_webui,
        {"created": 1, "messages": 7, "tool_calls": 1, "undone": 1, "files": 1, "usage": 1},
        ["My talk"],
        [TALK[0], ("assistant", "Hello again."), ("user", "another way"), *TALK[2:]],
    ),
    "goose": Sample(
        write_goose,
        {"created": 1, "messages": 8, "tool_calls": 1, "compactions": 1, "usage": 5},
        ["My talk"],
        LONGER,
    ),
    "gemini": Sample(
        write_gemini,
        {"created": 1, "messages": 6, "tool_calls": 1, "usage": 3},
        ["hello there"],
        TALK,
    ),
    "qwen": Sample(
        write_qwen,
        {"created": 1, "messages": 8, "tool_calls": 1, "compactions": 1, "usage": 4},
        ["hello there"],
        LONGER,
    ),
    "pi": Sample(
        write_pi,
        {"created": 1, "messages": 9, "tool_calls": 1, "compactions": 1, "undone": 1, "usage": 4},
        ["hello there"],
        [*LONGER[:2], ("user", "another way"), *LONGER[2:]],
    ),
    "librechat": Sample(
        write_librechat,
        {"created": 1, "messages": 7, "tool_calls": 1, "undone": 1, "usage": 1},
        ["My talk"],
        [*TALK[:2], ("user", "another way"), *TALK[2:]],
    ),
    "hermes-webui": Sample(
        write_hermes_webui,
        {"created": 1, "messages": 7, "tool_calls": 1, "usage": 1},
        ["My talk"],
        [*TALK, ("user", "are you there?")],
    ),
}  # fmt: skip
