"""Reads the session files of hermes-webui. Its conversations are in the database of Hermes as well, with the same ids."""

from collections.abc import Iterator
from pathlib import Path

from keryx.core.errors import Invalid
from keryx.core.messages import Mark, Part, Role, Text, ToolResult
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
    as_count,
    as_dict,
    as_list,
    as_text,
)
from keryx.importers.source_files import find_files, fingerprint_file, load_json

NAME = "hermes-webui"


def find_places(home: Path, env: dict[str, str]) -> list[Path]:
    return [Path(env.get("HERMES_WEBUI_STATE_DIR") or home / ".hermes/webui")]


def read(path: Path, log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the sessions of a state folder, or of one file."""
    if path.is_dir():
        folder = path / "sessions" if (path / "sessions").is_dir() else path
        files = [file for file in find_files(folder, "*.json", log) if not file.name.startswith("_")]
        if journals := find_files(folder, "_*_journal/*", log):
            log.lose("journals of the program", str(journals[0]), len(journals))
    else:
        folder, files = path.parent, [path]
    if not files:
        raise Invalid(
            f"{path} has no session files: give the state folder of hermes-webui, or a session as JSON"
        )
    projects = {
        as_text(project.get("project_id")) or as_text(project.get("id")): as_text(project.get("name"))
        for project in map(as_dict, as_list(load_json(folder.parent / "projects.json", log)))
    }
    sessions = [_build_session(file, projects, log) for file in files if file.name != "projects.json"]
    known = {session.id for session in sessions if session}
    done: set[str] = set()
    waiting = sorted(filter(None, sessions), key=lambda session: (session.created_at, session.id))
    for session in sorted(waiting, key=lambda session: session.parent in known):
        if session.id not in done:
            done.add(session.id)
            yield session


def _build_session(file: Path, projects: dict[str, str], log: ImportLog) -> ForeignSession | None:
    stored = load_json(file, log)
    if stored is None:
        return None
    record = as_dict(stored)
    id_ = as_text(record.get("session_id"))
    if not id_ or not isinstance(record.get("messages"), list):
        log.damage(str(file), "it is not a session of hermes-webui: it is left out")
        return None
    backup = as_dict(load_json(file.with_name(f"{file.name}.bak"), log))
    lost = len(as_list(backup.get("messages"))) - len(as_list(record["messages"]))
    if lost > 0:
        log.lose("messages that only a backup file has", f"{file}.bak", lost)
    manual = record.get("manual_title") is True
    used = ForeignUsage(
        input=as_count(record.get("input_tokens")),
        output=as_count(record.get("output_tokens")),
        cache_read=as_count(record.get("cache_read_tokens")),
        cache_write=as_count(record.get("cache_write_tokens")),
        model=conversation.clean_name(record.get("model")),
        cost=conversation.as_cost(record.get("estimated_cost")) or None,
    )
    return ForeignSession(
        id=id_,
        place=str(file),
        created_at=conversation.parse_time(record.get("created_at")) or TimeLine().read(None),
        fingerprint=fingerprint_file(file),
        entries=lambda: _read_entries(file, log),
        surface=NAME,
        title=as_text(record.get("title")),
        title_by=TitleBy.PERSON if manual else None,
        cwd=conversation.clean_path(record.get("workspace")),
        pinned=record.get("pinned") is True,
        archived=record.get("archived") is True,
        project=conversation.clean_name(projects.get(as_text(record.get("project_id")), "")),
        parent=as_text(record.get("parent_session_id")),
        supplement=True,
        totals=(used,) if used.input or used.output else (),
    )


def _read_entries(file: Path, log: ImportLog) -> Iterator[ForeignEntry]:
    record = as_dict(load_json(file, ImportLog()))
    times = TimeLine(record.get("created_at"))
    for n, message in enumerate(map(as_dict, as_list(record.get("messages")))):
        # The ids are those of the rows in the database of Hermes.
        id_ = as_text(message.get("id")) or f"webui-{n}"
        yield from _parse_message(id_, message, times, log, f"{file}, message {n}")
    if text := as_text(record.get("pending_user_message")):
        started = record.get("pending_started_at")
        yield ForeignMessage(
            id=f"pending-{as_text(started)}",
            role=Role.USER,
            parts=(Text(text),),
            at=times.read(started),
            mark=Mark.INTERRUPTED,
        )
    if as_text(record.get("composer_draft")):
        log.lose("unsent text", str(file))


def _parse_message(
    id_: str, message: Json, times: TimeLine, log: ImportLog, place: str
) -> Iterator[ForeignEntry]:
    role = as_text(message.get("role"))
    text = conversation.text_of(message.get("content"))
    given = as_text(message.get("api_content"))
    at = times.read(message.get("timestamp"))
    parts: list[Part] = []
    match role:
        case "user":
            parts += conversation.build_parts(text)
        case "assistant":
            parts += conversation.build_parts(text, reasoning=as_text(message.get("reasoning")))
            parts += conversation.parse_chat_calls(message.get("tool_calls"))
        case "tool":
            name = as_text(message.get("tool_name")) or as_text(message.get("name"))
            parts.append(ToolResult(as_text(message.get("tool_call_id")), name, text))
        case "session_meta":
            log.fold("session records")
            return
        case _:
            log.lose(f"messages of role {role!r}", place)
            return
    files: list[ForeignFile | None] = []
    for block in map(as_dict, as_list(message.get("content"))):
        if image := block.get("image_url"):
            files.append(conversation.parse_data_url(as_dict(image).get("url") or image))
        elif not isinstance(block.get("text"), str):
            log.lose(f"parts of type {as_text(block.get('type'))!r}", place)
    kept = conversation.keep_files(files, log, place)
    if message.get("attachments"):
        log.lose("files that are not in the source", place, len(as_list(message["attachments"])))
    if not parts and not kept:
        log.fold("empty messages")
        return
    yield ForeignMessage(
        id=id_,
        role={"user": Role.USER, "tool": Role.TOOL}.get(role, Role.ASSISTANT),
        parts=tuple(parts),
        at=at,
        exact=given if given and given != text and role == "user" else None,
        files=kept,
    )
