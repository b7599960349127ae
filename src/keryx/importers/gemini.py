"""Reads the session files of Gemini CLI: a log of changes to a list of messages, or one object in older versions."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from keryx.core import codec
from keryx.core.errors import Invalid
from keryx.core.messages import Part, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.importers import conversation
from keryx.importers.conversation import (
    ForeignEntry,
    ForeignFile,
    ForeignMessage,
    ForeignSession,
    ForeignUsage,
    ImportLog,
    Json,
    TimeLine,
    as_dict,
    as_list,
    as_text,
)
from keryx.importers.source_files import find_files, fingerprint_file, load_json, open_file, read_lines

NAME = "gemini"
_CONTEXT = "<session_context>"
# Contents of more than this are in a temporary file.
_MEMORY_BYTES = 32 << 20
_NOTICE_TYPES = frozenset({"info", "error", "warning"})
_KNOWN_PARTS = frozenset({"text", "functionCall", "functionResponse"})


class _ReplayedMessage(msgspec.Struct, frozen=True):
    """A message after all changes, with the time of the first of them."""

    # Its content in the file of contents.
    start: int
    size: int
    digest: bytes
    at: datetime
    live: bool


def find_places(home: Path, env: dict[str, str]) -> list[Path]:
    return [Path(env.get("GEMINI_CLI_HOME") or home) / ".gemini/tmp"]


def read(path: Path, log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the sessions of a folder, or of one file."""
    if path.is_dir():
        files = [*find_files(path, "session-*.jsonl", log), *find_files(path, "session-*.json", log)]
        if others := find_files(path, "checkpoint*.json", log):
            log.lose("checkpoints that were saved by name", str(others[0]), len(others))
    else:
        files = [path]
    if not files:
        raise Invalid(f"{path} has no session files: give the folder `.gemini/tmp`, or a session-*.jsonl")
    for file in files:
        header = _read_header(file)
        id_ = as_text(header.get("sessionId")) or file.stem
        created = conversation.parse_time(header.get("startTime")) or TimeLine().read(None)
        spawned = header.get("kind") == "subagent"
        yield ForeignSession(
            id=id_,
            place=str(file),
            created_at=created,
            fingerprint=fingerprint_file(file),
            entries=lambda file=file, created=created: _read_entries(file, created, log),
            surface=NAME,
            title=as_text(header.get("summary")),
            cwd=_read_folder(file, log),
            archived=spawned,
            subagent=spawned,
        )


def _read_header(file: Path) -> Json:
    if file.suffix == ".json":
        return {k: v for k, v in as_dict(load_json(file, ImportLog())).items() if k != "messages"}
    none: Json = {}
    return next((record for _, record in read_lines(file) if "sessionId" in record), none)


def _read_folder(file: Path, log: ImportLog) -> str:
    """Return the folder of the project, which a file beside the chats names."""
    named = file.parent.parent / ".project_root"
    if not os.path.lexists(named):
        return ""
    try:
        with open_file(named) as root:
            return conversation.clean_path(root.read(4096).decode("utf-8", "replace").strip())
    except Invalid as exc:
        log.damage(str(named), str(exc))
        return ""


def _read_entries(file: Path, created: datetime, log: ImportLog) -> Iterator[ForeignEntry]:
    if file.suffix == ".json":
        stored = as_dict(load_json(file, log))
        lines: Iterator[tuple[str, Json]] = (
            (f"{file}, message {n}", as_dict(message))
            for n, message in enumerate(as_list(stored.get("messages")))
        )
    else:
        lines = read_lines(file, log)
    with tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES, prefix="keryx-import-") as spooled:
        contents = cast(IO[bytes], spooled)
        replayed = _replay(lines, contents, created, log)
        context = ""
        for id_, message in replayed.items():
            place = f"{file}, message {id_}"
            contents.seek(message.start)
            content = codec.loads(contents.read(message.size), dict[str, Any])
            text = conversation.text_of(content.get("content"))
            if content.get("type") == "user" and text.lstrip().startswith(_CONTEXT):
                log.fold("text for the model only")
                context = text if message.live else context
                continue
            for entry in _parse_message(id_, content, message, log, place):
                if (
                    context
                    and isinstance(entry, ForeignMessage)
                    and entry.role is Role.USER
                    and not entry.undone
                ):
                    # The model was given it with the question.
                    entry, context = msgspec.structs.replace(entry, exact=f"{context}\n\n{text}"), ""
                yield entry
        if context:
            log.lose("text for the model after the last question", str(file))


def _replay(
    lines: Iterator[tuple[str, Json]], contents: IO[bytes], created: datetime, log: ImportLog
) -> dict[str, _ReplayedMessage]:
    """Return the messages after all changes, in the order in which they came. One that a change removed is not live. What they
    contain is written to a file: all of it may not fit into the memory."""
    messages: dict[str, _ReplayedMessage] = {}
    times = TimeLine(str(created))

    def put(content: Json) -> str:
        id_ = as_text(content.get("id")) or conversation.digest(content)
        known = messages.get(id_)
        # After a resume everything is repeated with new times.
        at = known.at if known else times.read(content.get("timestamp"))
        body = codec.dumps(content).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(body, digest_size=16).digest()
        if known and known.digest == digest:
            messages[id_] = msgspec.structs.replace(known, live=True)
        else:
            start = contents.tell()
            contents.write(body)
            messages[id_] = _ReplayedMessage(start, len(body), digest, at, live=True)
        if known:
            log.fold("changes of messages")
        return id_

    for place, record in lines:
        changes = as_dict(record.get("$set"))
        if changes:
            log.fold("changes of the session")
            if isinstance(changes.get("messages"), list):
                kept = {put(as_dict(content)) for content in as_list(changes["messages"])}
                for id_, message in messages.items():
                    if id_ not in kept:
                        messages[id_] = msgspec.structs.replace(message, live=False)
        elif "$rewindTo" in record:
            log.fold("changes of the session")
            ids = list(messages)
            target = as_text(record["$rewindTo"])
            for id_ in ids[ids.index(target) :] if target in messages else []:
                messages[id_] = msgspec.structs.replace(messages[id_], live=False)
        elif "sessionId" in record and "type" not in record:
            log.fold("session records")
        elif "type" in record:
            put(record)
        else:
            log.lose("records without a type", place)
    return messages


def _parse_message(
    id_: str, content: Json, message: _ReplayedMessage, log: ImportLog, place: str
) -> Iterator[ForeignEntry]:
    undone = not message.live
    kind = as_text(content.get("type"))
    blocks = [as_dict(block) for block in as_list(content.get("content"))]
    text = conversation.text_of(content.get("content"))
    if kind == "user":
        if any("functionResponse" in block for block in blocks):
            log.fold("results, which are with their calls")
        else:
            parts = conversation.build_parts(text)
            files = list_inline_files(blocks, log, place)
            if parts or files:
                yield ForeignMessage(
                    id=id_, role=Role.USER, parts=parts, at=message.at, undone=undone, files=files
                )
            else:
                log.fold("empty messages")
    elif kind == "gemini":
        list_inline_files(blocks, log, place)
        yield from _parse_answer(id_, content, message, text, log)
    elif kind in _NOTICE_TYPES:
        log.lose("notices of the program", place)
    else:
        log.lose(f"records of type {kind!r}", place)


def _parse_answer(
    id_: str, content: Json, message: _ReplayedMessage, text: str, log: ImportLog
) -> Iterator[ForeignEntry]:
    undone = not message.live
    thoughts = [as_dict(thought) for thought in as_list(content.get("thoughts"))]
    told = "\n\n".join(
        f"{as_text(t.get('subject'))}\n{as_text(t.get('description'))}".strip() for t in thoughts
    )
    calls = [as_dict(call) for call in as_list(content.get("toolCalls"))]
    parts: list[Part] = [Reasoning(told)] if told.strip() else []
    parts += [Text(text)] if text.strip() else []
    usage = parse_usage(as_dict(content.get("tokens")), content.get("model"))
    if parts:
        yield ForeignMessage(
            id=id_, role=Role.ASSISTANT, parts=tuple(parts), at=message.at, undone=undone, usage=usage
        )
    # The calls may come in a later change than the text.
    for n, call in enumerate(calls):
        input_ = conversation.parse_arguments(call.get("args"))
        yield ForeignMessage(
            id=f"{id_}/{as_text(call.get('id'))}",
            role=Role.ASSISTANT,
            parts=(ToolCall(as_text(call.get("id")), as_text(call.get("name")), input_),),
            at=message.at,
            undone=undone,
            joins=bool(parts) or n > 0,
            usage=() if parts or n else usage,
        )
    for call in calls:
        if call.get("status") in ("success", "error", "cancelled"):
            yield ForeignMessage(
                id=f"{id_}/{as_text(call.get('id'))}/result",
                role=Role.TOOL,
                parts=(_parse_result(call),),
                at=conversation.parse_time(call.get("timestamp")) or message.at,
                undone=undone,
            )
    if not parts and not calls:
        log.fold("empty messages")


def _parse_result(call: Json) -> ToolResult:
    texts: list[str] = []
    for item in map(as_dict, as_list(call.get("result"))):
        response = as_dict(as_dict(item.get("functionResponse")).get("response"))
        texts.append(
            as_text(response.get("output")) or as_text(response.get("error")) or conversation.text_of(item)
        )
    text = "\n\n".join(filter(None, texts)) or as_text(call.get("resultDisplay"))
    failed = call.get("status") != "success"
    return ToolResult(as_text(call.get("id")), as_text(call.get("name")), text, failed=failed)


def parse_usage(used: Json, model: object) -> tuple[ForeignUsage, ...]:
    """Return the usage of a call. The thoughts are not part of the output here."""
    if not used:
        return ()
    thoughts = conversation.as_count(used.get("thoughts"))
    usage = conversation.split_tokens(
        prompt=used.get("input"),
        completion=conversation.as_count(used.get("output")) + thoughts,
        cached=used.get("cached"),
        reasoning=thoughts,
        model=model,
    )
    return (usage,)


def list_inline_files(blocks: list[Json], log: ImportLog, place: str) -> tuple[ForeignFile, ...]:
    """Return the files that parts contain, and name parts that are neither files nor known."""
    found: list[ForeignFile | None] = []
    for block in blocks:
        data = as_dict(block.get("inlineData"))
        if data or "fileData" in block:
            found.append(
                conversation.build_file(data.get("data"), data.get("mimeType"), name=data.get("displayName"))
            )
        elif not _KNOWN_PARTS & set(block):
            log.lose("parts of a type that is not known", place)
    return conversation.keep_files(found, log, place)
