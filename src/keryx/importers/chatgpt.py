"""Reads the data export of ChatGPT: a ZIP archive, its folder, or one conversations.json."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from keryx.core.errors import Invalid
from keryx.core.messages import Part, Reasoning, Role, ToolCall, ToolResult
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

NAME = "chatgpt"
_FILE_ID = re.compile(r"file[-_][A-Za-z0-9]+")
# Marks in the text, of characters that no font has, say which citation belongs there.
_CITATION = re.compile("\ue200[^\ue200\ue201]{0,2000}\ue201")
_HIDDEN_TYPES = frozenset({"user_editable_context", "model_editable_context"})


def find_places(home: Path, env: dict[str, str]) -> list[Path]:
    """An export is wherever a person put it."""
    return []


def read(path: Path, log: ImportLog) -> Iterator[ForeignSession]:
    archive = SourceArchive(path, log)
    names = archive.find(r"conversations(-\d+)?\.json") or (archive.names if path.is_file() else [])
    if not names:
        raise Invalid(f"{path} has no conversations.json: give the ZIP archive of the export, or its folder")
    files = {found[0]: name for name in archive.names if (found := _FILE_ID.search(name.rpartition("/")[2]))}
    for name in archive.find(r"(user|user_settings|message_feedback|shared_conversations)\.json"):
        log.lose("account, feedback and lists of shared conversations", name)
    for name in names:
        for place, record in archive.iterate_objects(name):
            if session := _build_session(record, place, archive, files, log):
                yield session


def _build_session(
    record: Json, place: str, archive: SourceArchive, files: dict[str, str], log: ImportLog
) -> ForeignSession | None:
    id_ = as_text(record.get("conversation_id")) or as_text(record.get("id"))
    mapping = as_dict(record.get("mapping"))
    if not id_ or not mapping:
        log.damage(place, "the conversation has no id or no messages: it is left out")
        return None
    created = conversation.parse_time(record.get("create_time")) or TimeLine().read(None)
    if as_text(record.get("gizmo_id")):
        log.lose("projects and GPTs, which the export names by id only", place)
    nodes: dict[str, TreeNode] = {}
    for key, value in mapping.items():
        node = as_dict(value)
        message = as_dict(node.get("message"))
        at = conversation.parse_time(message.get("create_time"))
        nodes[key] = TreeNode(key, as_text(node.get("parent")), at, message)
    return ForeignSession(
        id=id_,
        place=place,
        created_at=created,
        fingerprint=conversation.digest(
            record.get("update_time"), record.get("current_node"), len(nodes), record.get("title")
        ),
        entries=lambda: _ConversationParser(record, nodes, created, place, archive, files, log).read(),
        surface=NAME,
        title=as_text(record.get("title")),
        pinned=record.get("is_starred") is True,
        archived=record.get("is_archived") is True,
    )


class _ConversationParser:
    def __init__(
        self,
        record: Json,
        nodes: dict[str, TreeNode],
        created: datetime,
        place: str,
        archive: SourceArchive,
        files: dict[str, str],
        log: ImportLog,
    ) -> None:
        self._nodes = nodes
        self._created = created
        self._place = place
        self._archive = archive
        self._files = files
        self._log = log
        self._leaf = as_text(record.get("current_node"))

    def read(self) -> Iterator[ForeignEntry]:
        for node, at, undone in conversation.walk_tree(self._nodes, self._leaf, self._created):
            if node.content:
                yield from self._parse(node, at, undone=undone)
            else:
                self._log.fold("nodes without a message")

    def _parse(self, node: TreeNode, at: datetime, *, undone: bool) -> Iterator[ForeignEntry]:
        message = node.content
        role = as_text(as_dict(message.get("author")).get("role"))
        about = as_dict(message.get("metadata"))
        content = as_dict(message.get("content"))
        kind = as_text(content.get("content_type"))
        if role == "system" or kind in _HIDDEN_TYPES or about.get("is_visually_hidden_from_conversation"):
            self._log.lose("hidden messages and instructions", self._place)
            return
        if references := as_list(about.get("content_references") or about.get("citations")):
            self._log.lose("citations", self._place, len(references))
        if role == "assistant" and about.get("model_slug"):
            self._log.lose("names of models: answers in the export have no token counts", self._place)
        text, files = self._parse_content(content)
        files += self._list_attachments(about)
        parts: list[Part] = []
        if role == "user":
            parts += conversation.build_parts(text)
        elif role == "tool":
            name = as_text(as_dict(message.get("author")).get("name"))
            parts.append(ToolResult(self._find_call(node), name, text, failed=kind == "system_error"))
        elif role == "assistant" and as_text(message.get("recipient") or "all") != "all":
            parts.append(ToolCall(node.id, as_text(message["recipient"]), text))
        elif role == "assistant" and kind == "thoughts":
            thoughts = map(as_dict, as_list(content.get("thoughts")))
            told = "\n\n".join(as_text(t.get("content")) or as_text(t.get("summary")) for t in thoughts)
            parts += [Reasoning(told)] if told.strip() else []
        elif role == "assistant" and kind == "reasoning_recap":
            self._log.lose("recaps of reasoning", self._place)
            return
        elif role == "assistant":
            parts += conversation.build_parts(text)
        else:
            self._log.lose(f"messages of role {role!r}", self._place)
            return
        if not parts and not files:
            self._log.fold("empty messages")
            return
        yield ForeignMessage(
            id=node.id,
            role={"user": Role.USER, "tool": Role.TOOL}.get(role, Role.ASSISTANT),
            parts=tuple(parts),
            at=at,
            undone=undone,
            files=tuple(files),
        )

    def _parse_content(self, content: Json) -> tuple[str, list[ForeignFile]]:
        """Return the text and the files of a content. Content of a type that is not known is kept as its text."""
        kind = as_text(content.get("content_type"))
        files: list[ForeignFile] = []
        texts: list[str] = []
        for part in as_list(content.get("parts")):
            block = as_dict(part)
            pointer = as_text(block.get("asset_pointer")) or as_text(
                as_dict(block.get("audio_asset_pointer")).get("asset_pointer")
            )
            if isinstance(part, str):
                texts.append(part)
            elif pointer:
                files += self._find_file(pointer, "")
            elif text := conversation.text_of(block):
                texts.append(text)
            else:
                self._log.lose(f"parts of type {as_text(block.get('content_type'))!r}", self._place)
        for name in ("text", "result"):
            texts.append(as_text(content.get(name)))
        text = _CITATION.sub("", "\n\n".join(filter(str.strip, texts)))
        if kind == "code" and text and content.get("language") not in (None, "unknown", "json"):
            text = f"```{as_text(content['language'])}\n{text}\n```"
        return text, files

    def _list_attachments(self, about: Json) -> list[ForeignFile]:
        attached = map(as_dict, as_list(about.get("attachments")))
        return [
            file
            for item in attached
            # Pictures are in the content as well.
            if not as_text(item.get("mime_type") or item.get("mimeType")).startswith("image/")
            for file in self._find_file(as_text(item.get("id")), as_text(item.get("name")))
        ]

    def _find_file(self, pointer: str, name: str) -> list[ForeignFile]:
        """Return the file of the archive that a pointer means. Names are compared, never opened as paths."""
        found = _FILE_ID.search(pointer.rpartition("/")[2])
        member = self._files.get(found[0]) if found else None
        if member is None:
            self._log.lose("files that are not in the export", f"{self._place}, {pointer[:100]}")
            return []
        shown = name or member.rpartition("/")[2]
        return [ForeignFile(name=shown, load=lambda: self._archive.read(member))]

    def _find_call(self, node: TreeNode) -> str:
        """Return the tool call that a result answers: the nearest one above it."""
        seen: set[str] = set()
        above = self._nodes.get(node.parent)
        while above is not None and above.id not in seen:
            seen.add(above.id)
            role = as_text(as_dict(above.content.get("author")).get("role"))
            if role == "assistant" and as_text(above.content.get("recipient") or "all") != "all":
                return above.id
            if role == "user":
                break
            above = self._nodes.get(above.parent)
        return node.id
