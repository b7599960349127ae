"""Reads the data export of Claude.ai: a ZIP archive, its folder, or one conversations.json."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from keryx.core.errors import Invalid
from keryx.core.messages import Part, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.importers import conversation
from keryx.importers.conversation import (
    ForeignEntry,
    ForeignFile,
    ForeignMessage,
    ForeignSession,
    ImportLog,
    Json,
    TimeLine,
    TreeNode,
    as_dict,
    as_list,
    as_text,
)
from keryx.importers.source_files import SourceArchive

NAME = "claude-ai"


def find_places(home: Path, env: dict[str, str]) -> list[Path]:
    """An export is wherever a person put it."""
    return []


def read(path: Path, log: ImportLog) -> Iterator[ForeignSession]:
    archive = SourceArchive(path, log)
    names = archive.find(r"conversations(-\d+)?\.json") or (archive.names if path.is_file() else [])
    if not names:
        raise Invalid(f"{path} has no conversations.json: give the ZIP archive of the export, or its folder")
    projects = {
        as_text(project.get("uuid")): as_text(project.get("name"))
        for name in archive.find(r"projects\.json")
        for _, project in archive.iterate_objects(name)
    }
    for name in archive.find(r"(memories|users)\.json"):
        log.lose("memories and the account of Claude.ai", name)
    for name in names:
        for place, record in archive.iterate_objects(name):
            if session := _build_session(record, place, projects, log):
                yield session


def _build_session(
    record: Json, place: str, projects: dict[str, str], log: ImportLog
) -> ForeignSession | None:
    id_ = as_text(record.get("uuid"))
    if not id_ or not isinstance(record.get("chat_messages"), list):
        log.damage(place, "the conversation has no id or no messages: it is left out")
        return None
    messages = [as_dict(message) for message in as_list(record["chat_messages"])]
    created = conversation.parse_time(record.get("created_at")) or TimeLine().read(None)
    project = as_dict(record.get("project"))
    project_id = as_text(project.get("uuid")) or as_text(record.get("project_uuid"))
    return ForeignSession(
        id=id_,
        place=place,
        created_at=created,
        fingerprint=conversation.digest(record.get("updated_at"), len(messages), record.get("name")),
        entries=lambda: _read_entries(messages, created, place, log),
        surface=NAME,
        title=as_text(record.get("name")),
        pinned=record.get("is_starred") is True,
        project=conversation.clean_name(project.get("name") or projects.get(project_id, "")),
    )


def _read_entries(
    messages: list[Json], created: datetime, place: str, log: ImportLog
) -> Iterator[ForeignEntry]:
    """Yield the messages of a tree. The export does not say which branch is current: it is the one with the newest message."""
    nodes: dict[str, TreeNode] = {}
    before = ""
    # Without parents the conversation is a line.
    linear = not any("parent_message_uuid" in message for message in messages)
    for n, message in enumerate(messages):
        id_ = as_text(message.get("uuid")) or f"message-{n}"
        parent = before if linear else as_text(message.get("parent_message_uuid"))
        nodes[id_] = TreeNode(id_, parent, conversation.parse_time(message.get("created_at")), message)
        before = id_
    if len(nodes) < len(messages):
        log.fold("repeated records", len(messages) - len(nodes))
    for node, at, undone in conversation.walk_tree(nodes, "", created):
        message = node.content
        role = Role.USER if message.get("sender") == "human" else Role.ASSISTANT
        blocks = [as_dict(block) for block in as_list(message.get("content"))]
        blocks = blocks or [{"type": "text", "text": as_text(message.get("text"))}]
        said = filter(None, (_parse_block(block, place, log) for block in blocks))
        files = tuple(_list_files(message, place, log))
        written = conversation.split_steps(said, role)
        if files and not written:
            nothing: list[Part] = []
            written = [(role, nothing)]
        if not written:
            log.fold("empty messages")
        for n, (kind, parts) in enumerate(written):
            yield ForeignMessage(
                id=f"{node.id}/{n}" if n else node.id,
                role=kind,
                parts=tuple(parts),
                at=at,
                undone=undone,
                files=files if n == 0 else (),
            )


def _parse_block(block: Json, place: str, log: ImportLog) -> Part | None:
    match as_text(block.get("type")):
        case "text":
            if block.get("citations"):
                log.lose("citations", place)
            text = as_text(block.get("text"))
            return Text(text) if text.strip() else None
        case "thinking":
            return Reasoning(as_text(block.get("thinking")))
        case "tool_use":
            input_ = conversation.parse_arguments(block.get("input"))
            return ToolCall(as_text(block.get("id")), as_text(block.get("name")), input_)
        case "tool_result":
            output = conversation.text_of(block.get("content")) or conversation.as_json(
                block.get("content") or ""
            )
            failed = block.get("is_error") is True
            return ToolResult(
                as_text(block.get("tool_use_id")), as_text(block.get("name")), output, failed=failed
            )
        case "token_budget":
            log.lose("token budgets", place)
        case kind:
            log.lose(f"parts of type {kind!r}", place)
    return None


def _list_files(message: Json, place: str, log: ImportLog) -> Iterator[ForeignFile]:
    """Yield the attachments, whose text is in the export. Other files are there by name only."""
    for item in map(as_dict, as_list(message.get("attachments"))):
        name = as_text(item.get("file_name")) or "attachment.txt"
        if text := as_text(item.get("extracted_content")):
            yield ForeignFile(
                name=name, mime="text/plain", load=lambda text=text: text.encode("utf-8", "replace")
            )
        else:
            log.lose("files that are not in the export", f"{place}, {conversation.clean_name(name)}")
    for item in map(as_dict, as_list(message.get("files"))):
        log.lose(
            "files that are not in the export", f"{place}, {conversation.clean_name(item.get('file_name'))}"
        )
