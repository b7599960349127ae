"""Reads the session files of pi: a tree of entries, one on each line. OpenClaw writes the same entries."""

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from keryx.core.errors import Invalid
from keryx.core.messages import Mark, Part, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.core.sessions import TitleBy
from keryx.importers import conversation
from keryx.importers.conversation import (
    ForeignCompaction,
    ForeignEntry,
    ForeignMessage,
    ForeignSession,
    ForeignUsage,
    ImportLog,
    Json,
    TimeLine,
    as_count,
    as_dict,
    as_list,
    as_text,
)
from keryx.importers.source_files import find_files, fingerprint_file, read_lines

NAME = "pi"
_MIRROR = ("openclaw", "delivery-mirror")
_STATE_TYPES = frozenset({"model_change", "thinking_level_change", "custom", "label"})
# What the model is given instead of what was before.
_RESET_SUMMARY = "The conversation was reset here: nothing of what was said before is known."


class EntryOutline(msgspec.Struct, kw_only=True):
    """What the first pass over the entries finds."""

    parents: dict[str, str]
    leaf: str = ""
    id: str = ""
    created_at: datetime | None = None
    cwd: str = ""
    title: str = ""
    # The file of the session that this one was forked from.
    parent_file: str = ""


def find_places(home: Path, env: dict[str, str]) -> list[Path]:
    return [Path(env.get("PI_CODING_AGENT_DIR") or home / ".pi/agent") / "sessions"]


def read(path: Path, log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the sessions of a folder, or of one file, each after the one that it was forked from."""
    files = find_files(path, "*.jsonl", log) if path.is_dir() else [path]
    if not files:
        raise Invalid(f"{path} has no session files: give the folder `sessions` of pi, or a .jsonl file")
    # The trees are read again, one at a time: all of them together may not fit into the memory.
    outlines = {
        file: msgspec.structs.replace(read_outline(record for _, record in read_lines(file)), parents={})
        for file in files
    }
    names = {file.name: file for file in outlines}
    for file, outline in sorted(outlines.items(), key=lambda item: (str(item[1].created_at), item[1].id)):
        parent = names.get(Path(outline.parent_file).name) if outline.parent_file else None
        if outline.parent_file and not parent:
            log.lose("links to sessions that are not in the source", str(file))
        yield ForeignSession(
            id=outline.id or file.stem,
            place=str(file),
            created_at=outline.created_at or TimeLine().read(None),
            fingerprint=fingerprint_file(file),
            entries=lambda file=file: read_file(file, log),
            surface=NAME,
            title=outline.title,
            title_by=TitleBy.PERSON if outline.title else None,
            cwd=conversation.clean_path(outline.cwd),
            parent=outlines[parent].id if parent else "",
            parent_record=_find_shared(file, parent) if parent else "",
        )


def _find_shared(fork: Path, parent: Path) -> str:
    """Return the last message of a fork that its parent has, too."""
    known = set(_list_messages(parent))
    shared = ""
    for id_ in _list_messages(fork):
        shared = id_ if id_ in known else shared
    return shared


def _list_messages(file: Path) -> Iterator[str]:
    for _, record in read_lines(file):
        if record.get("type") == "message" and (id_ := as_text(record.get("id"))):
            yield id_


def read_file(file: Path, log: ImportLog) -> Iterator[ForeignEntry]:
    """Yield the messages of a file of entries."""
    outline = read_outline(record for _, record in read_lines(file))
    return read_entries(lambda: read_lines(file, log), outline, log)


def read_outline(records: Iterator[Json]) -> EntryOutline:
    """Return the tree of the entries. The last one is the live leaf."""
    outline = EntryOutline(parents={})
    for record in records:
        kind = as_text(record.get("type"))
        if kind == "session" and not outline.id:
            outline.id = as_text(record.get("id"))
            outline.created_at = conversation.parse_time(record.get("timestamp"))
            outline.cwd = as_text(record.get("cwd"))
            outline.parent_file = as_text(record.get("parentSession"))
        elif kind == "session_info":
            outline.title = as_text(record.get("name")) or outline.title
        if kind != "session" and (id_ := as_text(record.get("id"))):
            outline.parents[id_] = as_text(record.get("parentId"))
            outline.leaf = id_
    return outline


def read_entries(
    load: Callable[[], Iterator[tuple[str, Json]]], outline: EntryOutline, log: ImportLog
) -> Iterator[ForeignEntry]:
    """Yield the messages of entries, which `load` reads a second time."""
    live = conversation.find_live(outline.parents, outline.leaf)
    times = TimeLine(str(outline.created_at or ""))
    seen: set[str] = set()
    for place, record in load():
        kind = as_text(record.get("type"))
        id_ = as_text(record.get("id"))
        if id_ and id_ in seen:
            log.fold("repeated records")
            continue
        seen.add(id_)
        at = times.read(record.get("timestamp"))
        # The files of the first version have no tree.
        undone = bool(outline.parents) and id_ not in live
        if kind == "message":
            yield from _parse_message(record, id_ or place, at, undone=undone, log=log, place=place)
        elif kind == "compaction":
            yield ForeignCompaction(
                id=id_ or place,
                summary=as_text(record.get("summary")),
                at=at,
                first_kept=as_text(record.get("firstKeptEntryId")),
            )
        elif kind == "reset":
            yield ForeignCompaction(id=id_ or place, summary=_RESET_SUMMARY, at=at)
        elif kind == "branch_summary":
            log.lose("summaries of branches that were left", place)
        elif kind == "custom_message":
            log.lose("messages of extensions for the model", place)
        elif kind in _STATE_TYPES:
            log.lose("state of the program", place)
        elif kind in ("session", "session_info"):
            log.fold("session records")
        else:
            log.lose(f"records of type {kind!r}", place)


def _parse_message(
    record: Json, id_: str, at: datetime, *, undone: bool, log: ImportLog, place: str
) -> Iterator[ForeignEntry]:
    message = as_dict(record.get("message"))
    role = as_text(message.get("role"))
    if (message.get("provider"), message.get("model")) == _MIRROR:
        log.fold("copies of what was sent elsewhere")
        return
    content = message.get("content")
    blocks = [as_dict(block) for block in as_list(content)] or [{"type": "text", "text": as_text(content)}]
    pictures = (block for block in blocks if block.get("type") == "image")
    found = (conversation.build_file(b.get("data"), b.get("mimeType"), name="image") for b in pictures)
    files = conversation.keep_files(found, log, place)
    parts: list[Part] = []
    for block in blocks:
        match as_text(block.get("type")):
            case "text":
                parts += conversation.build_parts(as_text(block.get("text")))
            case "thinking":
                parts.append(Reasoning(as_text(block.get("thinking"))))
            case "toolCall":
                input_ = conversation.parse_arguments(block.get("arguments"))
                parts.append(ToolCall(as_text(block.get("id")), as_text(block.get("name")), input_))
            case "image":
                pass
            case kind:
                log.lose(f"parts of type {kind!r}", place)
    match role:
        case "user" | "assistant":
            sender = as_dict(message.get("__openclaw"))
            transport = as_dict(sender.get("transport"))
            failed = message.get("stopReason") == "error"
            aborted = Mark.CANCELLED if message.get("stopReason") == "aborted" else None
            if not parts and not files:
                log.fold("empty messages")
                return
            yield ForeignMessage(
                id=id_,
                role=Role.USER if role == "user" else Role.ASSISTANT,
                parts=tuple(parts),
                at=conversation.parse_time(message.get("timestamp")) or at,
                undone=undone,
                author=conversation.clean_name(sender.get("senderName")),
                platform_id=as_text(transport.get("messageId")),
                mark=Mark.FAILED if failed else aborted,
                files=files,
                usage=_parse_usage(message) if role == "assistant" else (),
            )
        case "toolResult":
            result = ToolResult(
                as_text(message.get("toolCallId")),
                as_text(message.get("toolName")),
                "\n\n".join(part.text for part in parts if isinstance(part, Text)),
                failed=message.get("isError") is True,
            )
            yield ForeignMessage(id=id_, role=Role.TOOL, parts=(result,), at=at, undone=undone, files=files)
        case "bashExecution":
            text = f"$ {as_text(message.get('command'))}\n{as_text(message.get('output'))}"
            yield ForeignMessage(id=id_, role=Role.USER, parts=(Text(text),), at=at, undone=undone)
        case _:
            log.lose(f"messages of role {role!r}", place)


def _parse_usage(message: Json) -> tuple[ForeignUsage, ...]:
    used = as_dict(message.get("usage"))
    usage = ForeignUsage(
        input=as_count(used.get("input")),
        output=as_count(used.get("output")),
        cache_read=as_count(used.get("cacheRead")),
        cache_write=as_count(used.get("cacheWrite")),
        model=conversation.clean_name(message.get("model")),
        cost=conversation.as_cost(as_dict(used.get("cost")).get("total")) or None,
    )
    return (usage,) if used else ()
