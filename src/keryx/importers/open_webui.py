"""Reads the database of Open WebUI, or an export of its chats."""

import html
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from keryx.core import codec
from keryx.core.errors import Invalid
from keryx.core.messages import Part, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.core.sessions import TitleBy
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
    TreeNode,
    as_count,
    as_dict,
    as_list,
    as_text,
)
from keryx.importers.source_files import (
    SourceArchive,
    find_files,
    open_database,
    read_attachment,
)

NAME = "open-webui"
_ATTRIBUTE = re.compile(r'\b(\w+)="([^"]*)"')


def find_places(home: Path, env: dict[str, str]) -> list[Path]:
    places = [Path(env["DATA_DIR"])] if env.get("DATA_DIR") else []
    return [*places, home / ".open-webui", home / "open-webui/data"]


def read(path: Path, log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the chats of a data folder, of one webui.db, or of an export as JSON."""
    if path.is_file() and path.suffix in (".json", ".jsonl"):
        archive = SourceArchive(path, log)
        for place, record in archive.iterate_objects(path.name):
            if session := _build_session(record, place, {}, [], _Uploads(None, log), log):
                yield session
        return
    file = path / "webui.db" if path.is_dir() else path
    if not file.is_file():
        raise Invalid(f"{path} has no webui.db: give the data folder of Open WebUI, a database or an export")
    with open_database(file, log) as database:
        if database is None or not database.check("Open WebUI", {"chat": ("id", "chat")}):
            return
        folders = {as_text(row["id"]): as_text(row.get("name")) for row in database.rows("folder")}
        people = {as_text(row.get("user_id")) for row in database.rows("chat", columns=("user_id",))}
        if len(people) > 1:
            log.lose(
                "owners of chats: all of them belong to the person who imports them", str(file), len(people)
            )
        for table, what in (
            ("message", "messages of rooms (channels)"),
            ("note", "notes"),
            ("memory", "memories"),
        ):
            if found := sum(1 for _ in database.rows(table, columns=("id",))):
                log.lose(what, f"{file}, table {table}", found)
        uploads = _Uploads(file.parent / "uploads", log)
        columns = ("id", "created_at")
        for row in list(database.rows("chat", columns=columns, order=("created_at", "id"))):
            for chat in database.rows("chat", where={"id": row["id"]}):
                place = f"{file}, chat {as_text(row['id'])}"
                try:
                    chat["chat"] = codec.loads(as_text(chat.get("chat")), object)
                except Invalid as exc:
                    log.damage(place, f"{exc}: it is left out")
                    continue
                stored = list(database.rows("chat_message", where={"chat_id": row["id"]}))
                if session := _build_session(chat, place, folders, stored, uploads, log):
                    yield session


class _Uploads:
    """The files of a folder of uploads, whose names begin with their ids. The folder is listed once."""

    def __init__(self, folder: Path | None, log: ImportLog) -> None:
        self._folder = folder
        found = find_files(folder, "*_*", log) if folder else []
        self._names = {name.partition("_")[0]: name for name in (file.name for file in reversed(found))}

    def find(self, id_: str, *, name: str, mime: str) -> ForeignFile | None:
        """Return an upload by its id."""
        stored, folder = self._names.get(id_), self._folder
        if stored is None or folder is None:
            return None
        return ForeignFile(name=name, mime=mime, load=lambda: read_attachment(folder, stored))


def _build_session(
    record: Json, place: str, folders: dict[str, str], stored: list[Json], uploads: _Uploads, log: ImportLog
) -> ForeignSession | None:
    id_ = as_text(record.get("id"))
    chat = as_dict(record.get("chat"))
    history = as_dict(chat.get("history"))
    messages = as_dict(history.get("messages"))
    if not id_ or not isinstance(history.get("messages"), dict):
        log.damage(place, "the chat has no id or no messages: it is left out")
        return None
    nodes: dict[str, TreeNode] = {}
    for key, value in messages.items():
        message = as_dict(value)
        at = conversation.parse_time(message.get("timestamp"))
        nodes[key] = TreeNode(key, as_text(message.get("parentId")), at, message)
    for row in stored:
        _add_row(nodes, row, id_)
    created = conversation.parse_time(record.get("created_at")) or TimeLine().read(None)
    leaf = as_text(record.get("current_message_id")) or as_text(history.get("currentId"))
    leaf = leaf if leaf in nodes else as_text(history.get("currentId"))
    meta = as_dict(conversation.parse_json(record.get("meta")))
    if tags := as_list(meta.get("tags")):
        log.lose("tags", place, len(tags))
    return ForeignSession(
        id=id_,
        place=place,
        created_at=created,
        fingerprint=conversation.digest(record.get("updated_at"), leaf, len(nodes), record.get("title")),
        entries=lambda: _read_entries(nodes, leaf, created, place, uploads, log),
        surface=NAME,
        title=as_text(record.get("title")),
        title_by=TitleBy.MODEL,
        pinned=record.get("pinned") in (True, 1),
        archived=record.get("archived") in (True, 1),
        project=conversation.clean_name(folders.get(as_text(record.get("folder_id")), "")),
    )


def _add_row(nodes: dict[str, TreeNode], row: Json, chat: str) -> None:
    """Prefer the row of a message to its copy in the chat."""
    id_ = as_text(row.get("id")).removeprefix(f"{chat}-")
    known = nodes.get(id_)
    fresh = {
        name: value
        for name in ("role", "content", "output", "files", "sources", "usage", "done", "error")
        if (value := conversation.parse_json(row.get(name))) not in (None, "", [])
    }
    content = {**(known.content if known else {}), **fresh}
    content.setdefault("model", row.get("model_id"))
    parent = known.parent if known else as_text(row.get("parent_id")).removeprefix(f"{chat}-")
    at = (known.at if known else None) or conversation.parse_time(row.get("created_at"))
    nodes[id_] = TreeNode(id_, parent, at, content)


def _read_entries(
    nodes: dict[str, TreeNode], leaf: str, created: datetime, place: str, uploads: _Uploads, log: ImportLog
) -> Iterator[ForeignEntry]:
    for node, at, undone in conversation.walk_tree(nodes, leaf, created):
        message = node.content
        role = as_text(message.get("role"))
        if role == "user":
            files = tuple(_list_files(message, place, uploads, log))
            parts = conversation.build_parts(conversation.text_of(message.get("content")))
            if parts or files:
                yield ForeignMessage(
                    id=node.id, role=Role.USER, parts=parts, at=at, undone=undone, files=files
                )
            else:
                log.fold("empty messages")
        elif role == "assistant":
            yield from _parse_answer(node, at, undone=undone, place=place, uploads=uploads, log=log)
        else:
            log.lose(f"messages of role {role!r}", place)


def _parse_answer(
    node: TreeNode, at: datetime, *, undone: bool, place: str, uploads: _Uploads, log: ImportLog
) -> Iterator[ForeignEntry]:
    """Yield the steps of an answer: what the model said and called, then the results, and so on."""
    message = node.content
    output = [as_dict(item) for item in as_list(message.get("output"))]
    parts = list(_parse_output(output, place, log)) if output else []
    parts = parts or list(_parse_markdown(conversation.text_of(message.get("content"))))
    files = tuple(_list_files(message, place, uploads, log))
    if sources := as_list(message.get("sources")):
        log.lose("citations", place, len(sources))
    steps = conversation.split_steps(parts, Role.ASSISTANT)
    if not steps and not files:
        if message.get("done") is False:
            log.lose("answers that were not finished", place)
        else:
            log.fold("empty messages")
        return
    usage = _parse_usage(message)
    for n, (role, said) in enumerate(steps or [(Role.ASSISTANT, [])]):
        yield ForeignMessage(
            id=f"{node.id}/{n}" if n else node.id,
            role=role,
            parts=tuple(said),
            at=at,
            undone=undone,
            files=files if n == 0 else (),
            usage=usage if n == 0 else (),
        )


def _parse_output(output: list[Json], place: str, log: ImportLog) -> Iterator[Part]:
    for item in output:
        match as_text(item.get("type")):
            case "message":
                if text := conversation.text_of(item.get("content")):
                    yield Text(text)
            case "reasoning":
                text = conversation.text_of(item.get("content") or item.get("summary"))
                if text:
                    yield Reasoning(text)
            case "function_call":
                id_ = as_text(item.get("call_id")) or as_text(item.get("id"))
                input_ = conversation.parse_arguments(item.get("arguments"))
                yield ToolCall(id_, as_text(item.get("name")), input_)
            case "function_call_output":
                text = conversation.text_of(item.get("output")) or conversation.as_json(
                    item.get("output") or ""
                )
                yield ToolResult(as_text(item.get("call_id")), "", text)
            case kind:
                log.lose(f"output of type {kind!r}", place)


def _parse_markdown(text: str) -> Iterator[Part]:
    """Yield the parts of an older answer, which has reasoning and tools as HTML within its text."""
    done = position = 0
    while (start := text.find("<details ", position)) >= 0:
        head, end = text.find(">", start), text.find("</details>", start)
        if not start < head < end:
            break
        position = end + len("</details>")
        marks = text[start:head]
        about = {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(marks)}
        if about.get("type") not in ("reasoning", "tool_calls"):
            continue
        yield from conversation.build_parts(text[done:start].lstrip() if done else text[:start])
        done = position
        if about["type"] == "reasoning":
            # The first lines say how long it took.
            title, _, body = text[head + 1 : end].partition("</summary>")
            told = html.unescape(body or title).strip()
            yield Reasoning("\n".join(line.removeprefix("> ") for line in told.splitlines()))
        else:
            id_ = about.get("id", "")
            yield ToolCall(id_, about.get("name", ""), about.get("arguments", "") or "{}")
            if about.get("done") != "false":
                yield ToolResult(id_, about.get("name", ""), about.get("result", ""))
    yield from conversation.build_parts(text[done:].lstrip() if done else text)


def _list_files(message: Json, place: str, uploads: _Uploads, log: ImportLog) -> Iterator[ForeignFile]:
    """Yield the files that are in the message or in the folder of uploads. Addresses elsewhere are not fetched."""
    for item in map(as_dict, as_list(message.get("files"))):
        about = as_dict(item.get("file"))
        name = as_text(item.get("name")) or as_text(about.get("filename")) or "image"
        id_ = as_text(item.get("id")) or as_text(about.get("id")) or as_text(item.get("url"))
        file = conversation.parse_data_url(item.get("url"), name=name)
        if file := file or uploads.find(id_, name=name, mime=as_text(item.get("content_type"))):
            yield file
        else:
            log.lose("files that are not in the source", f"{place}, {conversation.clean_name(name)}")


def _parse_usage(message: Json) -> tuple[ForeignUsage, ...]:
    used = as_dict(message.get("usage"))
    prompt = used.get("prompt_tokens") or used.get("input_tokens") or used.get("prompt_eval_count")
    completion = used.get("completion_tokens") or used.get("output_tokens") or used.get("eval_count")
    if not as_count(prompt) and not as_count(completion):
        return ()
    sent = as_dict(used.get("prompt_tokens_details") or used.get("input_tokens_details"))
    made = as_dict(used.get("completion_tokens_details") or used.get("output_tokens_details"))
    usage = conversation.split_tokens(
        prompt=prompt,
        completion=completion,
        cached=sent.get("cached_tokens"),
        reasoning=made.get("reasoning_tokens"),
        model=message.get("model"),
        cost=conversation.as_cost(used.get("cost")) or None,
    )
    return (usage,)
