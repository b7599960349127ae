"""Reads the database of opencode, or the JSON files of its older versions."""

import hashlib
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from keryx.core import codec
from keryx.core.errors import Invalid
from keryx.core.messages import Mark, Part, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.importers import conversation
from keryx.importers.conversation import (
    ForeignCall,
    ForeignCompaction,
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
from keryx.importers.source_files import (
    ForeignDatabase,
    find_files,
    fingerprint_file,
    load_json,
    open_database,
)

NAME = "opencode"
_FORK_TITLE = re.compile(r"(.+) \(fork #\d+\)", re.DOTALL)
_STEPS = frozenset({"step-start", "step-finish", "snapshot", "retry", "agent"})
_INFO_COLUMNS = (
    "id",
    "project_id",
    "parent_id",
    "directory",
    "title",
    "revert",
    "time_created",
    "time_updated",
    "time_archived",
)
# What differs between a part and its copy.
_OWN_FIELDS = frozenset({"id", "messageID", "sessionID"})


class _StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as either kind of storage has it."""

    id: str
    info: Json
    place: str
    fingerprint: str
    # Yields the messages in order, each with its parts; what is damaged is reported to the log.
    load: Callable[[ImportLog], Iterator[tuple[Json, list[Json]]]]


class _Fork(msgspec.Struct, frozen=True):
    """What a fork has from another session."""

    parent: str = ""
    # The number of messages that were copied, and the record of the parent that the last of them became.
    copied: int = 0
    record: str = ""


def find_places(home: Path, env: dict[str, str]) -> list[Path]:
    return [Path(env.get("XDG_DATA_HOME") or home / ".local/share") / "opencode"]


def read(path: Path, log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the sessions of a data folder of opencode or of one database, each before its sub-agents."""
    databases = find_files(path, "opencode*.db", log) if path.is_dir() else [path]
    files = find_files(path, "storage/session/*/*.json", log) if path.is_dir() else []
    if not databases and not files:
        raise Invalid(f"{path} has no opencode.db: give the data folder of opencode, or a database")
    for file in databases:
        with open_database(file, log) as database:
            if database is None or not database.check("opencode", {"session": ("id", "time_created")}):
                continue
            projects = {
                as_text(row["id"]): row
                for row in database.rows("project", columns=("id", "name", "worktree"))
            }
            stored = [
                _open_row(database, row, file)
                for row in database.rows("session", order=("time_created", "id"))
            ]
            yield from _build_sessions(stored, projects, log)
    if not databases:
        yield from _build_sessions([_open_file(path, file, log) for file in files], {}, log)


def _open_row(database: ForeignDatabase, row: Json, file: Path) -> _StoredSession:
    id_ = as_text(row["id"])

    def load(log: ImportLog) -> Iterator[tuple[Json, list[Json]]]:
        for message in database.rows("message", where={"session_id": id_}, order=("time_created", "id")):
            place = f"{file}, message {message['id']}"
            parts = [
                {**_decode(part.get("data"), f"{file}, part {part['id']}", log), "id": as_text(part["id"])}
                for part in database.rows("part", where={"message_id": message["id"]}, order=("id",))
            ]
            yield {**_decode(message.get("data"), place, log), "id": as_text(message["id"])}, parts

    # Parts are written in place while they grow.
    sizes = [
        database.count(table, where={"session_id": id_}, largest=column)
        for table in ("message", "part")
        for column in ("id", "time_updated")
    ]
    info = {name: row.get(name) for name in _INFO_COLUMNS}
    return _StoredSession(
        id=id_,
        info=info,
        place=f"{file}, session {id_}",
        fingerprint=conversation.digest(row, sizes),
        load=load,
    )


def _decode(data: object, place: str, log: ImportLog) -> Json:
    try:
        return as_dict(codec.loads(as_text(data), object))
    except Invalid as exc:
        log.damage(place, f"{exc}: it is left out")
        return {}


def _open_file(root: Path, file: Path, log: ImportLog) -> _StoredSession:
    info = as_dict(load_json(file, log))
    id_ = as_text(info.get("id")) or file.stem
    folder = root / "storage/message" / file.stem

    def load(log: ImportLog) -> Iterator[tuple[Json, list[Json]]]:
        for message in find_files(folder, "*.json", log):
            parts = [
                {**as_dict(load_json(part, log)), "id": part.stem}
                for part in find_files(root / "storage/part" / message.stem, "*.json", log)
            ]
            yield {**as_dict(load_json(message, log)), "id": message.stem}, parts

    times = as_dict(info.get("time"))
    flat = {
        **info,
        "time_created": times.get("created"),
        "time_updated": times.get("updated"),
        "parent_id": info.get("parentID"),
        "project_id": info.get("projectID"),
    }
    fingerprint = conversation.digest(fingerprint_file(file), times)
    return _StoredSession(id=id_, info=flat, place=str(file), fingerprint=fingerprint, load=load)


def _build_sessions(
    stored: list[_StoredSession], projects: dict[str, Json], log: ImportLog
) -> Iterator[ForeignSession]:
    by_id = {session.id: session for session in stored}
    forks = _find_forks(stored)
    done: set[str] = set()
    for session in stored:
        line = [session]
        while parent := by_id.get(
            as_text(line[-1].info.get("parent_id"))
            or (forks[line[-1].id].parent if line[-1].id in forks else "")
        ):
            if parent in line or parent.id in done:
                break
            line.append(parent)
        for member in reversed(line):
            if member.id not in done:
                done.add(member.id)
                yield _build_session(member, projects, forks.get(member.id, _Fork()), log)


def _find_forks(stored: list[_StoredSession]) -> dict[str, _Fork]:
    """Return what each fork has from an earlier session. A fork is known by its title alone; what it has from its parent are
    copies with the same content and times, under other ids."""
    families: dict[str, list[_StoredSession]] = {}
    forked: set[str] = set()
    for session in stored:
        title = as_text(session.info.get("title"))
        fork = _FORK_TITLE.fullmatch(title)
        base = fork[1] if fork else title
        families.setdefault(base, []).append(session)
        if fork and not session.info.get("parent_id"):
            forked.add(base)
    found: dict[str, _Fork] = {}
    for base in forked:
        # The first session with each beginning, by the digest of its messages.
        beginnings: dict[bytes, _Fork] = {}
        root = next((s.id for s in families[base] if as_text(s.info.get("title")) == base), "")
        for session in families[base]:
            is_fork = as_text(session.info.get("title")) != base
            best = _Fork(parent=root)
            digest = hashlib.blake2b(digest_size=16)
            for n, (message, parts) in enumerate(session.load(ImportLog()), 1):
                content = [{k: v for k, v in part.items() if k not in _OWN_FIELDS} for part in parts]
                about = [message.get("role"), as_dict(message.get("time")).get("created"), content]
                digest.update(codec.dumps(about).encode("utf-8", "replace"))
                mine = _Fork(parent=session.id, copied=n, record=_name_record(message, parts))
                earlier = beginnings.setdefault(digest.copy().digest(), mine)
                best = earlier if earlier.parent != session.id else best
            if is_fork and best.parent not in ("", session.id):
                found[session.id] = best
    return found


def _name_record(message: Json, parts: list[Json]) -> str:
    """Return the id of the last record that a message becomes."""
    quiet = _parse_message(message, parts, TimeLine(), undone=False, log=ImportLog(), place="")
    records = [entry.id for entry in quiet if isinstance(entry, ForeignMessage)]
    return records[-1] if records else ""


def _build_session(
    stored: _StoredSession, projects: dict[str, Json], fork: _Fork, log: ImportLog
) -> ForeignSession:
    info = stored.info
    title = as_text(info.get("title"))
    spawned_by = as_text(info.get("parent_id"))
    project = projects.get(as_text(info.get("project_id")), {})
    folder = as_text(project.get("name")) or Path(as_text(project.get("worktree")) or "/").name
    return ForeignSession(
        id=stored.id,
        place=stored.place,
        created_at=conversation.parse_time(info.get("time_created")) or TimeLine().read(None),
        active_at=conversation.parse_time(info.get("time_updated")),
        fingerprint=stored.fingerprint,
        entries=lambda: _read_entries(stored, fork.copied, log),
        surface=NAME,
        title=title,
        cwd=conversation.clean_path(info.get("directory")),
        archived=bool(as_count(info.get("time_archived"))) or bool(spawned_by),
        project=conversation.clean_name(folder),
        parent=spawned_by or fork.parent,
        parent_record=fork.record,
        subagent=bool(spawned_by),
    )


def _read_entries(stored: _StoredSession, copied: int, log: ImportLog) -> Iterator[ForeignEntry]:
    """Yield the messages. The usage of those that were copied from another session is counted there."""
    revert = as_text(as_dict(conversation.parse_json(stored.info.get("revert"))).get("messageID"))
    times = TimeLine(stored.info.get("time_created"))
    reverted = False
    held: tuple[Json, list[Json]] | None = None
    for n, (message, parts) in enumerate(stored.load(log)):
        if held:
            yield from _parse_message(*held, times, undone=reverted, log=log, place=stored.place)
        reverted = reverted or as_text(message["id"]) == revert
        held = {**message, "tokens": None, "cost": None} if n < copied else message, parts
    if held:
        done = as_dict(held[0].get("time")).get("completed") or held[0].get("error")
        if held[0].get("role") == "assistant" and not done:
            log.lose("last answers that are not finished: import again when they are", stored.place)
        else:
            yield from _parse_message(*held, times, undone=reverted, log=log, place=stored.place)


def _parse_message(
    message: Json, parts: list[Json], times: TimeLine, *, undone: bool, log: ImportLog, place: str
) -> Iterator[ForeignEntry]:
    at = times.read(as_dict(message.get("time")).get("created"))
    place = f"{place}, message {message['id']}"
    if message.get("role") == "user":
        yield from _parse_question(message, parts, at, undone=undone, log=log, place=place)
    elif message.get("role") == "assistant" and message.get("summary"):
        texts = [as_text(part.get("text")) for part in parts if part.get("type") == "text"]
        if len(texts) < len(parts):
            log.lose("steps of the program", place, len(parts) - len(texts))
        id_ = as_text(message["id"])
        yield ForeignCompaction(id=id_, summary="\n\n".join(filter(None, texts)), at=at)
        for usage in _parse_usage(message):
            yield ForeignCall(id=f"{id_}, usage", at=at, usage=usage)
    elif message.get("role") == "assistant":
        yield from _parse_answer(message, parts, at, undone=undone, log=log, place=place)
    elif "role" in message:
        log.lose(f"messages of role {as_text(message['role'])!r}", place)


def _parse_question(
    message: Json, parts: list[Json], at: datetime, *, undone: bool, log: ImportLog, place: str
) -> Iterator[ForeignEntry]:
    texts: list[str] = []
    given: list[str] = []
    files: list[ForeignFile] = []
    for part in parts:
        match part.get("type"):
            case "text":
                text = as_text(part.get("text"))
                given.append(text)
                if part.get("synthetic") or part.get("ignored"):
                    log.fold("text for the model only")
                else:
                    texts.append(text)
            case "file":
                name = as_text(part.get("filename")) or "file"
                if file := conversation.parse_data_url(part.get("url"), name=name):
                    files.append(file)
                else:
                    # The file is somewhere on the machine, and not part of the source.
                    texts.append(f"[file: {conversation.clean_name(name)}]")
                    log.lose("files that are not in the database: their names are kept", place)
            case "compaction":
                log.fold("compaction boundaries")
            case "subtask":
                texts.append(as_text(part.get("prompt")))
            case kind if kind in _STEPS:
                log.lose("steps of the program", place)
            case kind:
                log.lose(f"parts of type {as_text(kind)!r}", place)
    shown, exact = "\n\n".join(filter(None, texts)), "\n\n".join(filter(None, given))
    if shown.strip() or files:
        yield ForeignMessage(
            id=as_text(message["id"]),
            role=Role.USER,
            parts=(Text(shown),) if shown.strip() else (),
            at=at,
            undone=undone,
            exact=exact if exact and exact != shown else None,
            files=tuple(files),
        )
    else:
        log.fold("questions without a text")


def _parse_answer(
    message: Json, parts: list[Json], at: datetime, *, undone: bool, log: ImportLog, place: str
) -> Iterator[ForeignEntry]:
    """Yield one message for each part, joined to one answer, then the results of its tools."""
    results: list[ForeignMessage] = []
    usage = _parse_usage(message)
    mark = Mark.FAILED if message.get("error") else None
    if mark is None and not as_dict(message.get("time")).get("completed"):
        mark = Mark.INTERRUPTED
    joins = False
    for part in parts:
        found: Part | None = None
        match part.get("type"):
            case "text" if as_text(part.get("text")).strip():
                found = Text(as_text(part.get("text")))
            case "reasoning":
                found = Reasoning(as_text(part.get("text")))
            case "tool":
                state = as_dict(part.get("state"))
                call, tool = as_text(part.get("callID")) or as_text(part["id"]), as_text(part.get("tool"))
                found = ToolCall(call, tool, conversation.parse_arguments(state.get("input")))
                ended = as_dict(state.get("time")).get("end")
                if state.get("status") in ("completed", "error"):
                    failed = state["status"] == "error"
                    output = as_text(state.get("error" if failed else "output"))
                    results.append(
                        ForeignMessage(
                            id=f"{part['id']}/result",
                            role=Role.TOOL,
                            parts=(ToolResult(call, tool, output, failed=failed),),
                            at=conversation.parse_time(ended) or at,
                            undone=undone,
                            joins=bool(results),
                            files=_list_files(part, log, place),
                        )
                    )
            case "text":
                log.fold("empty messages")
            case kind if kind in _STEPS:
                log.lose("steps of the program", place)
            case kind:
                log.lose(f"parts of type {as_text(kind)!r}", place)
        if found is not None:
            yield ForeignMessage(
                id=as_text(part["id"]),
                role=Role.ASSISTANT,
                parts=(found,),
                at=at,
                undone=undone,
                joins=joins,
                mark=mark,
                usage=() if joins else usage,
            )
            joins = True
    yield from results


def _list_files(part: Json, log: ImportLog, place: str) -> tuple[ForeignFile, ...]:
    attached = map(as_dict, as_list(as_dict(part.get("state")).get("attachments")))
    found = (
        conversation.parse_data_url(file.get("url"), name=as_text(file.get("filename")) or "file")
        for file in attached
    )
    return conversation.keep_files(found, log, place)


def _parse_usage(message: Json) -> tuple[ForeignUsage, ...]:
    used = as_dict(message.get("tokens"))
    cache = as_dict(used.get("cache"))
    usage = ForeignUsage(
        input=as_count(used.get("input")),
        output=as_count(used.get("output")),
        reasoning=as_count(used.get("reasoning")),
        cache_read=as_count(cache.get("read")),
        cache_write=as_count(cache.get("write")),
        model=conversation.clean_name(message.get("modelID")),
        cost=conversation.as_cost(message.get("cost")) or None,
    )
    return (usage,) if usage.input or usage.output or usage.cost else ()
