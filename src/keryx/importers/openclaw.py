"""Reads the conversations of OpenClaw: the databases of its agents, or the session files of older versions."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keryx.core import codec
from keryx.core.errors import Invalid, format_install_command
from keryx.core.sessions import TitleBy
from keryx.core.source import ChatType, Source
from keryx.importers import conversation, pi
from keryx.importers.conversation import ForeignSession, ImportLog, Json, TimeLine, as_dict, as_text
from keryx.importers.source_files import (
    MAX_RECORD_BYTES,
    ForeignDatabase,
    find_files,
    fingerprint_file,
    load_json,
    open_database,
    read_lines,
)

NAME = "openclaw"
_ARCHIVES = ("session_transcript_archives", "session_transcript_cold_archives")
_NODE_COLUMNS = (
    "session_key",
    "current_session_id",
    "parent_session_key",
    "spawned_by",
    "fork_source_session_id",
    "fork_source_entry_id",
    "label",
    "display_name",
    "pinned_at",
    "archived_at",
)
_CHAT_TYPES = {"direct": ChatType.DM, "dm": ChatType.DM, "group": ChatType.GROUP, "channel": ChatType.CHANNEL}


def find_places(home: Path, env: dict[str, str]) -> list[Path]:
    return [Path(env.get("OPENCLAW_STATE_DIR") or home / ".openclaw")]


def read(path: Path, log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the conversations of a state folder, or of one database or session file. Each reset began a new one."""
    if path.is_dir():
        databases = find_files(path, "openclaw-agent.sqlite", log)
        files = [
            file
            for file in find_files(path, "*.jsonl*", log)
            if file.parent.name == "sessions" and not file.name.endswith((".lock", ".bak"))
        ]
    else:
        databases = [] if ".jsonl" in path.name else [path]
        files = [path] if ".jsonl" in path.name else []
    if not databases and not files:
        raise Invalid(
            f"{path} has no sessions of OpenClaw: give its state folder, a database or a session file"
        )
    known: set[str] = set()
    for file in databases:
        agent = file.parent.parent.name
        with open_database(file, log) as database:
            needed = {
                "session_windows": ("session_id", "session_key"),
                "transcript_events": ("session_id", "seq"),
            }
            if database is not None and database.check("OpenClaw", needed):
                for session in _AgentReader(database, file, agent, log).read():
                    known.add(session.id)
                    yield session
    yield from _read_files(files, known, log)


class _AgentReader:
    """Reads the database of one agent."""

    def __init__(self, database: ForeignDatabase, file: Path, agent: str, log: ImportLog) -> None:
        self._database = database
        self._file = file
        self._agent = agent
        self._log = log
        self._nodes: dict[str, Json] = {}
        self._current: dict[str, str] = {}

    def read(self) -> Iterator[ForeignSession]:
        for table in _ARCHIVES:
            for row in self._database.rows(table, columns=("session_id",)):
                place = f"{self._file}, table {table}, session {as_text(row.get('session_id'))}"
                self._log.lose("windows in the archive of OpenClaw", place)
        # Its other columns are long: a prompt of skills is a part of them.
        for row in self._database.rows("session_nodes", columns=_NODE_COLUMNS):
            key = as_text(row.get("session_key"))
            self._nodes[key] = row
            self._current[key] = as_text(row.get("current_session_id"))
        for window in self._database.rows(
            "session_windows", order=("created_at", "started_at", "session_id")
        ):
            yield self._build_session(window)

    def _build_session(self, window: Json) -> ForeignSession:
        id_ = as_text(window["session_id"])
        node = self._nodes.get(as_text(window.get("session_key")), {})
        place = f"{self._file}, session {id_}"
        spawned_by = as_text(node.get("spawned_by")) or as_text(node.get("parent_session_key"))
        forked_from = as_text(node.get("fork_source_session_id"))
        first = not as_text(window.get("previous_session_id"))
        parent = (forked_from or self._current.get(spawned_by, "")) if first else ""
        size = self._database.count("transcript_events", where={"session_id": id_}, largest="seq")
        origin = self._find_origin(window)
        label = as_text(node.get("label"))
        # Where both are there, the second one is of the last run.
        times = map(conversation.parse_time, (window.get("created_at"), window.get("started_at")))
        created = next(filter(None, times), None) or TimeLine().read(None)
        current = self._current.get(as_text(window.get("session_key"))) == id_
        return ForeignSession(
            id=id_,
            place=place,
            created_at=created,
            fingerprint=conversation.digest(window, size),
            entries=lambda: self._read_entries(id_),
            surface=origin.platform if origin else NAME,
            title=label or as_text(node.get("display_name")),
            title_by=TitleBy.PERSON if label else None,
            pinned=current and bool(node.get("pinned_at")),
            archived=bool(node.get("archived_at")) or bool(spawned_by and not forked_from),
            project="" if self._agent in ("", "main") else conversation.clean_name(self._agent),
            origin=origin,
            parent=parent,
            parent_record=as_text(node.get("fork_source_entry_id")) if first else "",
            subagent=first and bool(spawned_by) and not forked_from,
        )

    def _find_origin(self, window: Json) -> Source | None:
        """Return the chat of a window, `None` if it was not in one."""
        id_ = as_text(window.get("primary_conversation_id"))
        for row in self._database.rows("conversations", where={"conversation_id": id_}) if id_ else ():
            peer = as_text(row.get("peer_id"))
            if not peer:
                return None
            kind = as_text(row.get("kind")) or as_text(window.get("chat_type"))
            direct = _CHAT_TYPES.get(kind, ChatType.DM) is ChatType.DM
            return Source(
                platform=conversation.clean_name(row.get("channel")) or NAME,
                account="" if row.get("account_id") == "default" else as_text(row.get("account_id"))[:1000],
                chat=peer[:1000],
                chat_name=conversation.clean_name(row.get("label")) or None,
                chat_type=_CHAT_TYPES.get(kind, ChatType.DM),
                user=peer[:1000] if direct else None,
                thread=as_text(row.get("thread_id"))[:1000] or None,
            )
        return None

    def _read_entries(self, id_: str) -> Iterator[conversation.ForeignEntry]:
        outline = pi.read_outline(record for _, record in self._read_events(id_, ImportLog()))
        yield from pi.read_entries(lambda: self._read_events(id_, self._log), outline, self._log)

    def _read_events(self, id_: str, log: ImportLog) -> Iterator[tuple[str, Json]]:
        for row in self._database.rows("transcript_events", where={"session_id": id_}, order=("seq",)):
            place = f"{self._file}, session {id_}, event {row['seq']}"
            try:
                text = row.get("event_json") or _decompress(row.get("event_zstd"))
                yield place, codec.loads(text, dict[str, Any])
            except Invalid as exc:
                log.damage(place, f"{exc}: it is left out")


def _decompress(body: object) -> bytes:
    if not isinstance(body, bytes):
        raise Invalid("the event is empty")
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError as exc:
        command = format_install_command("openclaw")
        raise Invalid(f"the event is compressed: run `{command}` to read it") from exc
    try:
        with zstandard.ZstdDecompressor(max_window_size=MAX_RECORD_BYTES).stream_reader(body) as reader:
            event: bytes = reader.read(MAX_RECORD_BYTES + 1)
    except zstandard.ZstdError as exc:
        raise Invalid(f"the event cannot be decompressed: {exc}") from exc
    if len(event) > MAX_RECORD_BYTES:
        raise Invalid(f"the event has more than {MAX_RECORD_BYTES >> 20} MB")
    return event


def _read_files(files: list[Path], known: set[str], log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the sessions of older versions, one file each. Files of windows that were reset or deleted are among them."""
    indexes: dict[Path, Json] = {}
    for file in files:
        if file.parent not in indexes:
            entries = as_dict(load_json(file.parent / "sessions.json", log))
            indexes[file.parent] = {
                as_text(as_dict(entry).get("sessionId")): {"key": key, **as_dict(entry)}
                for key, entry in entries.items()
            }
        outline = pi.read_outline(record for _, record in read_lines(file))
        id_ = outline.id or file.name.partition(".jsonl")[0]
        if id_ in known:
            log.fold("session files that are in the database as well")
            continue
        window = ".jsonl." in file.name
        entry = as_dict(indexes[file.parent].get(id_))
        parts = as_text(entry.get("key")).split(":")
        surface = conversation.clean_name(parts[2]) if len(parts) > 4 else NAME
        session = ForeignSession(
            # A window that was reset has the id of its session, and its own file.
            id=file.name if window else id_,
            place=str(file),
            created_at=outline.created_at or TimeLine().read(None),
            fingerprint=fingerprint_file(file),
            entries=lambda file=file: pi.read_file(file, log),
            surface=surface,
            title=as_text(entry.get("label")) or as_text(entry.get("displayName")),
            cwd=conversation.clean_path(outline.cwd),
            archived=".deleted." in file.name,
        )
        yield session
