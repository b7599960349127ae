"""Reads the session files of Qwen Code."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from keryx.core.errors import Invalid
from keryx.core.messages import Part, Reasoning, Role, Text, ToolCall, ToolResult, join_text
from keryx.importers import conversation, gemini
from keryx.importers.conversation import (
    ForeignCompaction,
    ForeignEntry,
    ForeignMessage,
    ForeignSession,
    ImportLog,
    Json,
    TimeLine,
    as_dict,
    as_list,
    as_text,
)
from keryx.importers.source_files import find_files, fingerprint_file, read_lines

NAME = "qwen"
_COMPACTIONS = frozenset({"compression", "chat_compression"})
_STATE_SUBTYPES = frozenset(
    {
        "ui_telemetry",
        "attribution_snapshot",
        "rewind",
        "slash_command",
        "at_command",
        "session_start",
    }
)


def find_places(home: Path, env: dict[str, str]) -> list[Path]:
    return [Path(env.get("QWEN_HOME") or home / ".qwen") / "projects"]


def read(path: Path, log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the sessions of a folder of projects, or of one file."""
    files = (
        find_files(path, "chats/*.jsonl", log) or find_files(path, "*.jsonl", log)
        if path.is_dir()
        else [path]
    )
    if not files:
        raise Invalid(f"{path} has no session files: give the folder `.qwen/projects`, or a .jsonl file")
    for file in files:
        parents: dict[str, str] = {}
        first: Json = {}
        title = leaf = ""
        for _, record in read_lines(file):
            if id_ := as_text(record.get("uuid")):
                first = first or record
                leaf = id_
                parents[id_] = as_text(record.get("parentUuid"))
            if record.get("subtype") == "custom_title":
                title = conversation.text_of(record.get("systemPayload"), keys=("customTitle", "title"))
        live = conversation.find_live(parents, leaf)
        created = conversation.parse_time(first.get("timestamp")) or TimeLine().read(None)
        yield ForeignSession(
            id=as_text(first.get("sessionId")) or file.stem,
            place=str(file),
            created_at=created,
            fingerprint=fingerprint_file(file),
            entries=lambda file=file, live=live: _read_entries(file, live, log),
            surface=NAME,
            title=title,
            cwd=conversation.clean_path(first.get("cwd")),
        )


def _read_entries(file: Path, live: set[str], log: ImportLog) -> Iterator[ForeignEntry]:
    times = TimeLine()
    seen: set[str] = set()
    # What the model was given besides the words of a person, until the next question.
    context: list[str] = []
    for place, record in read_lines(file, log):
        id_ = as_text(record.get("uuid"))
        kind = as_text(record.get("type"))
        at = times.read(record.get("timestamp"))
        subtype = as_text(record.get("subtype"))
        if not id_:
            log.lose(f"records of type {kind!r} without an id", place)
        elif id_ in seen:
            log.fold("repeated records")
        elif kind == "system" and subtype in _COMPACTIONS:
            payload = as_dict(record.get("systemPayload"))
            history = as_list(payload.get("compressedHistory") or payload.get("history"))
            texts = (conversation.text_of(as_dict(entry).get("parts")) for entry in history[:1])
            context.clear()
            yield ForeignCompaction(id=id_, summary="\n\n".join(filter(None, texts)), at=at)
        elif kind == "system":
            if subtype == "custom_title":
                log.fold("titles")
            elif subtype in _STATE_SUBTYPES:
                log.lose("state of the program", place)
            else:
                log.lose(f"system records ({subtype or 'no subtype'})", place)
        elif record.get("provenance") == "system":
            if id_ in live:
                log.fold("text for the model only")
                context.append(conversation.text_of(as_dict(record.get("message")).get("parts")))
            else:
                log.lose("text for the model on other branches", place)
        elif kind in ("user", "assistant", "tool_result"):
            for message in _parse_message(record, kind, at, undone=id_ not in live, log=log, place=place):
                if context and message.role is Role.USER and not message.undone:
                    exact = "\n\n".join((*context, join_text(message.parts)))
                    message = msgspec.structs.replace(message, exact=exact)
                    context.clear()
                yield message
        else:
            log.lose(f"records of type {kind!r}", place)
        seen.add(id_)
    if context:
        log.lose("text for the model after the last question", str(file), len(context))


def _parse_message(
    record: Json, kind: str, at: datetime, *, undone: bool, log: ImportLog, place: str
) -> Iterator[ForeignMessage]:
    blocks = [as_dict(block) for block in as_list(as_dict(record.get("message")).get("parts"))]
    parts: list[Part] = []
    for block in blocks:
        if "functionCall" in block:
            call = as_dict(block["functionCall"])
            input_ = conversation.parse_arguments(call.get("args"))
            parts.append(ToolCall(as_text(call.get("id")), as_text(call.get("name")), input_))
        elif "functionResponse" in block:
            parts.append(_parse_result(as_dict(block["functionResponse"]), record))
        elif text := as_text(block.get("text")):
            parts.append(Reasoning(text) if block.get("thought") else Text(text))
    files = gemini.list_inline_files(blocks, log, place)
    if not parts and not files:
        log.fold("empty messages")
        return
    used = as_dict(record.get("usageMetadata"))
    counts = {
        "input": used.get("promptTokenCount"),
        "output": used.get("candidatesTokenCount"),
        "cached": used.get("cachedContentTokenCount"),
        "thoughts": used.get("thoughtsTokenCount"),
    }
    yield ForeignMessage(
        id=as_text(record["uuid"]),
        role={"user": Role.USER, "tool_result": Role.TOOL}.get(kind, Role.ASSISTANT),
        parts=tuple(parts),
        at=at,
        undone=undone,
        files=files,
        usage=gemini.parse_usage(counts, record.get("model")) if used else (),
    )


def _parse_result(response: Json, record: Json) -> ToolResult:
    body = as_dict(response.get("response"))
    text = as_text(body.get("output")) or as_text(body.get("error"))
    text = text or conversation.as_json(
        body or as_dict(record.get("toolCallResult")).get("resultDisplay") or ""
    )
    return ToolResult(
        as_text(response.get("id")), as_text(response.get("name")), text, failed="error" in body
    )
