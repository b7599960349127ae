"""Reads the database of goose."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from keryx.core import codec
from keryx.core.errors import Invalid
from keryx.core.messages import Part, Reasoning, Role, ToolCall, ToolResult
from keryx.core.sessions import JOB_SURFACE, TitleBy
from keryx.importers import conversation
from keryx.importers.conversation import (
    ForeignCall,
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
from keryx.importers.source_files import ForeignDatabase, find_files, open_database

NAME = "goose"
_SUBAGENTS = frozenset({"sub_agent", "subagent"})
_SCREEN_PARTS = frozenset(
    {"toolConfirmationRequest", "frontendToolRequest", "systemNotification", "contextLengthExceeded"}
)


def find_places(home: Path, env: dict[str, str]) -> list[Path]:
    return [Path(env.get("XDG_DATA_HOME") or home / ".local/share") / "goose/sessions"]


def read(path: Path, log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the sessions of a data folder of goose, or of one sessions.db, each after its parent."""
    files = find_files(path, "sessions.db", log) if path.is_dir() else [path]
    if path.is_dir() and (old := find_files(path, "*.jsonl", log)):
        log.lose(
            "session files of goose before version 1.10: start goose once, it takes them over",
            str(old[0]),
            len(old),
        )
    if not files:
        raise Invalid(f"{path} has no sessions.db: give the folder `sessions` of goose, or the database")
    for file in files:
        with open_database(file, log) as database:
            needed = {"sessions": ("id", "working_dir"), "messages": ("id", "session_id", "content_json")}
            if database is None or not database.check("goose", needed):
                continue
            for row in database.rows("sessions", order=("created_at", "id")):
                if row.get("session_type") == "hidden":
                    log.lose("hidden sessions", f"{file}, session {as_text(row['id'])}")
                else:
                    yield _build_session(database, row, file, log)


def _build_session(database: ForeignDatabase, row: Json, file: Path, log: ImportLog) -> ForeignSession:
    id_ = as_text(row["id"])
    kind = as_text(row.get("session_type"))
    size = database.count("messages", where={"session_id": id_}, largest="id")
    cost = conversation.as_cost(row.get("accumulated_cost"))
    model = as_dict(_decode(row.get("model_config_json"), f"{file}, session {id_}", log)).get("model_name")
    chosen = bool(as_count(row.get("user_set_name")))
    return ForeignSession(
        id=id_,
        place=f"{file}, session {id_}",
        created_at=conversation.parse_time(row.get("created_at")) or TimeLine().read(None),
        active_at=conversation.parse_time(row.get("updated_at")),
        fingerprint=conversation.digest(row, size),
        entries=lambda: _SessionReader(database, row, file, conversation.clean_name(model), log).read(),
        surface=JOB_SURFACE if kind == "scheduled" else NAME,
        title=as_text(row.get("name")) or as_text(row.get("description")),
        title_by=TitleBy.PERSON if chosen else None,
        cwd=conversation.clean_path(row.get("working_dir")),
        archived=bool(row.get("archived_at")) or kind in _SUBAGENTS,
        parent=as_text(row.get("parent_session_id")),
        subagent=kind in _SUBAGENTS,
        # Tokens are counted with the answers.
        totals=(ForeignUsage(model=conversation.clean_name(model), cost=cost),) if cost else (),
    )


def _decode(value: object, place: str, log: ImportLog) -> object:
    """Return the value of a column that holds JSON."""
    if not isinstance(value, str) or not value:
        return value
    try:
        return codec.loads(value, object)
    except Invalid as exc:
        log.damage(place, f"{exc}: it is left out")
        return None


class _SessionReader:
    def __init__(self, database: ForeignDatabase, row: Json, file: Path, model: str, log: ImportLog) -> None:
        self._database = database
        self._row = row
        self._file = file
        self._model = model
        self._log = log
        # What the model was told besides the words of a person, until the next question.
        self._context: list[str] = []
        # Messages before were taken out of the model's view.
        self._compacted = False
        self._names: Counter[str] = Counter()

    def read(self) -> Iterator[ForeignEntry]:
        times = TimeLine(self._row.get("created_at"))
        rows = self._database.rows("messages", where={"session_id": self._row["id"]}, order=("id",))
        for row in rows:
            place = f"{self._file}, message {row['id']}"
            id_ = self._identify(row)
            content = _decode(row.get("content_json"), place, self._log)
            about = as_dict(_decode(row.get("metadata_json"), place, self._log))
            at = times.read(row.get("created_timestamp"))
            shown, given = about.get("userVisible") is not False, about.get("agentVisible") is not False
            blocks = [as_dict(block) for block in as_list(content)]
            text = conversation.text_of(content)
            if not shown and given and self._compacted and not about.get("turnContext"):
                self._compacted = False
                self._context.clear()
                yield ForeignCompaction(id=id_, summary=text, at=at)
                continue
            self._compacted = self._compacted or not given
            if not shown:
                if given and row.get("role") == "user":
                    self._log.fold("text for the model only")
                    self._context.append(text)
                else:
                    self._log.lose("hidden messages", place)
                continue
            parts = list(self._parse_blocks(blocks, place))
            results = [part for part in parts if isinstance(part, ToolResult)]
            pictures = (block for block in blocks if block.get("type") == "image")
            found = (
                conversation.build_file(b.get("data"), b.get("mimeType"), name="image") for b in pictures
            )
            files = conversation.keep_files(found, self._log, place)
            if not parts and not files:
                self._log.fold("empty messages")
                continue
            question = row.get("role") == "user" and not results
            exact = "\n\n".join((*self._context, text)) if question and self._context else None
            if question:
                self._context.clear()
            yield ForeignMessage(
                id=id_,
                role=Role.TOOL if results else Role.USER if question else Role.ASSISTANT,
                parts=tuple(results or parts),
                at=at,
                exact=exact,
                files=files,
                usage=self._parse_usage(about) if row.get("role") == "assistant" else (),
            )
        if self._context:
            what = "text for the model after the last question"
            self._log.lose(what, f"{self._file}, session {as_text(self._row['id'])}", len(self._context))
        yield from self._read_ledger(times)

    def _read_ledger(self, times: TimeLine) -> Iterator[ForeignEntry]:
        """Yield the calls for summaries. Those of answers are with the answers, and the cost is a total of the session."""
        chosen = {"session_id": self._row["id"], "is_compaction": 1}
        for row in self._database.rows("usage_ledger", where=chosen, order=("id",)):
            usage = conversation.split_tokens(
                prompt=row.get("input_tokens"),
                completion=row.get("output_tokens"),
                cached=row.get("cache_read_tokens"),
                written=row.get("cache_write_tokens"),
                model=row.get("model") or self._model,
            )
            at = times.read(row.get("created_timestamp"))
            yield ForeignCall(id=f"usage {as_text(row['id'])}", at=at, usage=usage)

    def _identify(self, row: Json) -> str:
        """Return an id of a message that stays when goose writes its rows anew, as it does at each compaction. The ids of answers
        come from the provider and may be repeated."""
        if not (id_ := as_text(row.get("message_id"))):
            return as_text(row["id"])
        name = f"{id_}:{as_text(row.get('role'))}:{as_text(row.get('created_timestamp'))}"
        self._names[name] += 1
        return f"{name}:{self._names[name]}"

    def _parse_blocks(self, blocks: list[Json], place: str) -> Iterator[Part]:
        for block in blocks:
            kind = as_text(block.get("type"))
            match kind:
                case "text":
                    yield from conversation.build_parts(as_text(block.get("text")))
                case "thinking":
                    yield Reasoning(as_text(block.get("thinking")))
                case "toolRequest":
                    call = as_dict(as_dict(block.get("toolCall")).get("value"))
                    input_ = conversation.parse_arguments(call.get("arguments"))
                    yield ToolCall(as_text(block.get("id")), as_text(call.get("name")), input_)
                case "toolResponse":
                    result = as_dict(block.get("toolResult"))
                    value = as_dict(result.get("value"))
                    content = value.get("content") if "content" in value else result.get("value")
                    text = conversation.text_of(content) or as_text(result.get("error"))
                    failed = result.get("status") == "error" or value.get("isError") is True
                    yield ToolResult(as_text(block.get("id")), "", text, failed=failed)
                case "image":
                    pass
                case "redactedThinking":
                    self._log.lose("encrypted reasoning", place)
                case _ if kind in _SCREEN_PARTS:
                    self._log.lose("parts of the screen", place)
                case _:
                    self._log.lose(f"parts of type {kind!r}", place)

    def _parse_usage(self, about: Json) -> tuple[ForeignUsage, ...]:
        used = as_dict(about.get("usage"))
        if not used:
            return ()
        usage = conversation.split_tokens(
            prompt=used.get("inputTokens"),
            completion=used.get("outputTokens"),
            cached=used.get("cacheReadTokens"),
            written=used.get("cacheWriteTokens"),
            model=self._model,
        )
        return (usage,)
