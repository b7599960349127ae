"""Reads conversations that LibreChat exported as JSON, one to a file."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from keryx.core.errors import Invalid
from keryx.core.messages import Mark, Part, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.importers import conversation
from keryx.importers.conversation import (
    ForeignEntry,
    ForeignMessage,
    ForeignSession,
    ForeignUsage,
    ImportLog,
    Json,
    TimeLine,
    TreeNode,
    as_count,
    as_dict,
    as_list,
    as_text,
)
from keryx.importers.source_files import find_files, load_json

NAME = "librechat"


def find_places(home: Path, env: dict[str, str]) -> list[Path]:
    """An export is wherever a person put it."""
    return []


def read(path: Path, log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the conversations of a folder of exports, or of one."""
    files = find_files(path, "*.json", log) if path.is_dir() else [path]
    if not files:
        raise Invalid(
            f"{path} has no exports: give a conversation that LibreChat exported as JSON, or a folder of them"
        )
    for file in files:
        stored = load_json(file, log)
        if stored is None:
            continue
        record = as_dict(stored)
        id_ = as_text(record.get("conversationId"))
        if not id_ or not isinstance(record.get("messages"), list):
            log.damage(str(file), "it is not a conversation of LibreChat: it is left out")
            continue
        nodes = _flatten(as_list(record["messages"]), log, str(file))
        times = [node.at for node in nodes.values() if node.at]
        created = (
            min(times) if times else conversation.parse_time(record.get("exportAt")) or TimeLine().read(None)
        )
        yield ForeignSession(
            id=id_,
            place=str(file),
            created_at=created,
            fingerprint=conversation.digest(record.get("title"), sorted(nodes)),
            entries=lambda nodes=nodes, created=created, file=file: _read_entries(
                nodes, created, str(file), log
            ),
            surface=NAME,
            title=as_text(record.get("title")),
            archived=record.get("isArchived") is True,
        )


def _flatten(messages: list[object], log: ImportLog, place: str) -> dict[str, TreeNode]:
    """Return the messages of an export, which are nested or have the ids of their parents."""
    nodes: dict[str, TreeNode] = {}
    waiting: list[tuple[object, str]] = [(message, "") for message in reversed(messages)]
    while waiting:
        value, above = waiting.pop()
        message = as_dict(value)
        id_ = as_text(message.get("messageId"))
        if not id_ or id_ in nodes:
            log.lose("messages without an id, or with one that was there before", place)
            continue
        parent = as_text(message.get("parentMessageId")) or above
        at = conversation.parse_time(message.get("createdAt"))
        children = as_list(message.pop("children", None))
        nodes[id_] = TreeNode(id_, parent, at, message)
        waiting += [(child, id_) for child in reversed(children)]
    return nodes


def _read_entries(
    nodes: dict[str, TreeNode], created: datetime, place: str, log: ImportLog
) -> Iterator[ForeignEntry]:
    """Yield the messages. The current branch is the one with the newest message."""
    for node, at, undone in conversation.walk_tree(nodes, "", created):
        message = node.content
        role = Role.USER if message.get("isCreatedByUser") else Role.ASSISTANT
        for item in map(as_dict, as_list(message.get("files"))):
            log.lose(
                "files that are not in the export",
                f"{place}, {conversation.clean_name(item.get('filename'))}",
            )
        used = ForeignUsage(
            output=as_count(message.get("tokenCount")), model=conversation.clean_name(message.get("model"))
        )
        steps = conversation.split_steps(_parse_content(message, place, log), role)
        if not steps:
            log.fold("empty messages")
        for n, (kind, parts) in enumerate(steps):
            yield ForeignMessage(
                id=f"{node.id}/{n}" if n else node.id,
                role=kind,
                parts=tuple(parts),
                at=at,
                undone=undone,
                mark=Mark.FAILED if message.get("error") else None,
                usage=(used,) if n == 0 and used.output and role is Role.ASSISTANT else (),
            )


def _parse_content(message: Json, place: str, log: ImportLog) -> Iterator[Part]:
    blocks = [as_dict(block) for block in as_list(message.get("content"))]
    if not blocks:
        yield from conversation.build_parts(as_text(message.get("text")))
    for block in blocks:
        match as_text(block.get("type")):
            case "text":
                text = block.get("text")
                yield from conversation.build_parts(as_text(as_dict(text).get("value")) or as_text(text))
            case "think":
                think = block.get("think")
                if told := as_text(as_dict(think).get("value")) or as_text(think):
                    yield Reasoning(told)
            case "tool_call":
                call = as_dict(block.get("tool_call"))
                id_, name = as_text(call.get("id")), as_text(call.get("name"))
                yield ToolCall(id_, name, conversation.parse_arguments(call.get("args")))
                if "output" in call:
                    yield ToolResult(id_, name, as_text(call.get("output")))
            case "error":
                yield Text(as_text(block.get("error")) or "error")
            case kind:
                log.lose(f"parts of type {kind!r}", place)
