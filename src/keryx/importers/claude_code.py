"""Reads the session files of Claude Code, with forks, sub-agents and compactions."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import msgspec

from keryx.core.errors import Invalid
from keryx.core.messages import Part, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.core.sessions import TitleBy
from keryx.importers import conversation
from keryx.importers.conversation import (
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
    MAX_RECORD_BYTES,
    decode_record,
    find_files,
    fingerprint_file,
    load_json,
    open_file,
    read_lines,
)

NAME = "claude-code"
_MAX_FIRST_RECORDS = 100_000
_MACHINE_TEXT = (
    "<local-command-caveat>",
    "<command-name>",
    "<command-message>",
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<task-notification>",
    "<system-reminder>",
    "<bash-input>",
    "<bash-stdout>",
)
# Lines that repeat the prompt or keep the state of the program.
_STATE_TYPES = frozenset(
    {
        "queue-operation",
        "last-prompt",
        "mode",
        "tools-used",
        "atis-latch",
        "agent-name",
        "worktree-state",
        "file-history-snapshot",
        "relocated",
        "derived-from",
        "continued-in",
        "api-request",
        "api-request-shape",
        "api-request-blob",
        "permission-mode",
        "cost-state",
        "progress",
    }
)
_CALLS = frozenset({"tool_use", "server_tool_use"})
_TITLE_TYPES = {"custom-title": TitleBy.PERSON, "ai-title": TitleBy.MODEL, "summary": TitleBy.MODEL}


_BOUNDARY = "compact_boundary"


class _FirstRecord(msgspec.Struct, frozen=True):
    """The first record of the tree in a file."""

    # Empty if there is none yet.
    uuid: str = ""
    # The file begins with a compaction, which another file has in the middle.
    compaction: bool = False


class _Outline(msgspec.Struct, kw_only=True):
    """What the first pass over a file finds."""

    file: Path
    id: str
    # The records of the tree in the order of the file, each with its parent.
    parents: dict[str, str]
    # When each record was written.
    times: list[datetime | None]
    # Those that people see.
    shown: set[str]
    leaf: str = ""
    title: str = ""
    title_by: TitleBy | None = None
    cwd: str = ""
    fork_of: str = ""
    # The last record that both have, and the last one of those that people see.
    shared: str = ""
    shared_message: str = ""
    # The cost by model, as the program counts it.
    costs: dict[str, int] = {}

    @property
    def created_at(self) -> datetime:
        """When the first record was written that is not from another session."""
        own = list(self.parents).index(self.shared) + 1 if self.shared else 0
        times = (*self.times[own:], *self.times)
        return next(filter(None, times), None) or TimeLine().read(None)


def find_places(home: Path, env: dict[str, str]) -> list[Path]:
    return [Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"]


def read(path: Path, log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the sessions of a folder of projects, of one project, or of one file. A session that another one was forked from
    comes before it, and a session before its sub-agents."""
    if path.is_dir():
        files = [file for file in find_files(path, "*.jsonl", log) if "subagents" not in file.parts]
    else:
        files = [path]
    if not files:
        raise Invalid(
            f"{path} has no session files: give the folder `projects` of Claude Code, or a .jsonl file"
        )
    for family in _find_families({file: _find_first_record(file) for file in files}):
        yield from _read_family(family, log)


def read_family(file: Path, log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the session of one file, with those beside it that it was forked from, and those that repeat its first record."""
    try:
        beside = sorted(
            path for path in file.parent.glob("*.jsonl") if path.is_file() and not path.is_symlink()
        )
        firsts = {path: _recall_first_record(str(path), path.stat().st_ino) for path in beside}
    except OSError as exc:
        log.damage(str(file), f"it cannot be read: {exc}")
        return
    first = firsts.get(file, _FirstRecord())
    if not first.compaction:
        # A fork that begins with a compaction is read together with this file when the fork changes.
        firsts = {path: other for path, other in firsts.items() if other == first and first.uuid}
    family = next((files for files in _find_families(firsts) if file in files), [file])
    yield from _read_family(family, log)


def _find_families(firsts: Mapping[Path, _FirstRecord]) -> list[list[Path]]:
    """Return the files in groups. Those with the same first record are forks of one session; the others need no comparison.
    A fork of a session that was compacted begins with the last compaction, so it belongs to the file that has it, too."""
    families: dict[str, list[Path]] = {}
    for file, first in firsts.items():
        families.setdefault(first.uuid or str(file), []).append(file)
    compactions = {first.uuid for first in firsts.values() if first.compaction}
    parents: dict[str, str] = {}
    for file, first in firsts.items() if compactions else ():
        for uuid in compactions.intersection(_find_compactions(file)):
            if uuid != first.uuid:
                parents.setdefault(uuid, first.uuid)
    for uuid in parents:
        root, seen = uuid, {uuid}
        while (parent := parents.get(root, "")) and parent not in seen:
            seen.add(parent)
            root = parent
        if root != uuid and root in families:
            families[root] += families.pop(uuid)
    return list(families.values())


def _read_family(files: list[Path], log: ImportLog) -> Iterator[ForeignSession]:
    for outline in _find_forks([_read_outline(file) for file in files]):
        yield _build_session(outline, log)
        # Sub-agents are archived, so that they do not fill the list.
        agents = find_files(outline.file.with_suffix("") / "subagents", "agent-*.jsonl", log)
        calls = _find_calls(outline.file) if agents else {}
        for file in agents:
            agent = _read_outline(file)
            about = as_dict(load_json(file.with_suffix(".meta.json"), log))
            call = as_text(about.get("toolUseId"))
            title = as_text(about.get("description")) or as_text(about.get("agentType"))
            session = _build_session(agent, log)
            yield msgspec.structs.replace(
                session,
                id=f"{outline.id}/{file.stem}",
                title=title,
                title_by=TitleBy.MODEL if title else None,
                archived=True,
                parent=outline.id,
                parent_record=calls.get(call, ""),
                subagent=True,
                aliases=(file.stem,),
            )


def _find_first_record(file: Path) -> _FirstRecord:
    """Return the first record of the tree, which a fork repeats."""
    for _, record in read_lines(file):
        if uuid := as_text(record.get("uuid")):
            return _FirstRecord(uuid, record.get("subtype") == _BOUNDARY)
    return _FirstRecord()


_first_records: dict[tuple[str, int], _FirstRecord] = {}


def _recall_first_record(name: str, inode: int) -> _FirstRecord:
    """Like `_find_first_record`, from memory if the file was read before: its first record does not change."""
    key = name, inode
    if key not in _first_records and (first := _find_first_record(Path(name))).uuid:
        if len(_first_records) >= _MAX_FIRST_RECORDS:
            _first_records.clear()
        _first_records[key] = first
    return _first_records.get(key, _FirstRecord())


def _find_compactions(file: Path) -> frozenset[str]:
    """Return the records of a file that say where it was compacted."""
    try:
        info = file.stat()
    except OSError:
        # Whoever reads the session reports it.
        return frozenset()
    return _recall_compactions(str(file), info.st_ino, info.st_size)


@lru_cache(maxsize=_MAX_FIRST_RECORDS)
def _recall_compactions(name: str, _inode: int, _size: int) -> frozenset[str]:
    found: set[str] = set()
    try:
        with open_file(Path(name)) as file:
            while line := file.readline(MAX_RECORD_BYTES):
                if _BOUNDARY.encode() in line:
                    with suppress(Invalid):
                        found.add(as_text(decode_record(line.strip()).get("uuid")))
    except Invalid:
        return frozenset()
    return frozenset(found)


def _read_outline(file: Path) -> _Outline:
    outline = _Outline(file=file, id=file.stem, parents={}, times=[], shown=set())
    for _, record in read_lines(file):
        kind = as_text(record.get("type"))
        if kind in _TITLE_TYPES and outline.title_by is not TitleBy.PERSON:
            names = ("customTitle", "aiTitle", "title", "summary")
            outline.title = next((t for n in names if (t := as_text(record.get(n)))), outline.title)
            outline.title_by = _TITLE_TYPES[kind]
        if kind == "cost-state":
            models = {
                m: as_dict(used).get("costUSD") for m, used in as_dict(record.get("modelUsage")).items()
            }
            found = {model: conversation.as_cost(cost) for model, cost in models.items()}
            found = found or {"": conversation.as_cost(record.get("totalCostUSD"))}
            outline.costs = {model: cost for model, cost in found.items() if cost}
        uuid = as_text(record.get("uuid"))
        if not uuid:
            continue
        outline.parents[uuid] = as_text(record.get("parentUuid")) or as_text(record.get("logicalParentUuid"))
        outline.times.append(conversation.parse_time(record.get("timestamp")))
        outline.cwd = outline.cwd or as_text(record.get("cwd"))
        if kind in ("user", "assistant", "system"):
            outline.leaf = uuid
        if kind == "assistant" or (kind == "user" and not _is_machine_text(record)):
            outline.shown.add(uuid)
    return outline


def _find_forks(outlines: list[_Outline]) -> list[_Outline]:
    """Return a family so that a session comes before its forks, and note which session each was forked from. A fork repeats
    the records of its parent, from the first one or from a compaction on; what it has beyond them is younger."""
    if len(outlines) < 2:
        return outlines
    groups: dict[str, list[_Outline]] = {}
    for outline in outlines:
        groups.setdefault(next(iter(outline.parents), ""), []).append(outline)
    ordered: list[_Outline] = []
    for group in sorted(groups.values(), key=lambda group: _find_start(group[0].times)):
        ordered += _order_group(group)
    # The first session that has each record.
    owners: dict[str, str] = {}
    for outline in ordered:
        for uuid in outline.parents:
            owner = owners.setdefault(uuid, outline.id)
            if owner == outline.id:
                break
            outline.fork_of, outline.shared = owner, uuid
            if uuid in outline.shown:
                outline.shared_message = uuid
        for uuid in outline.parents:
            owners.setdefault(uuid, outline.id)
    return ordered


def _order_group(outlines: list[_Outline]) -> list[_Outline]:
    """Order sessions with the same first record by their first records that are not in all of them."""
    common = min(len(outline.parents) for outline in outlines)
    rows = zip(*(outline.parents for outline in outlines), strict=False)
    shared = next((n for n, ids in enumerate(rows) if len(set(ids)) > 1), common)

    def find_own_start(outline: _Outline) -> tuple[bool, datetime, str]:
        own = next(filter(None, outline.times[shared:]), None)
        return own is not None, own or outline.created_at, outline.id

    return sorted(outlines, key=find_own_start)


def _find_start(times: Iterable[datetime | None]) -> datetime:
    return next(filter(None, times), datetime.max.replace(tzinfo=UTC))


def _build_session(outline: _Outline, log: ImportLog) -> ForeignSession:
    return ForeignSession(
        id=outline.id,
        place=str(outline.file),
        created_at=outline.created_at,
        fingerprint=fingerprint_file(outline.file),
        entries=lambda: _RecordParser(outline, log).read(),
        surface=NAME,
        title=outline.title,
        title_by=outline.title_by,
        cwd=conversation.clean_path(outline.cwd),
        parent=outline.fork_of,
        parent_record=outline.shared_message,
        # Tokens are counted with the answers.
        totals=tuple(
            ForeignUsage(model=conversation.clean_name(model), cost=cost)
            for model, cost in outline.costs.items()
        ),
    )


def _find_calls(file: Path) -> dict[str, str]:
    """Return the ids of the records with tool calls, by call."""
    return {
        as_text(block.get("id")): as_text(record.get("uuid"))
        for _, record in read_lines(file)
        for block in map(as_dict, as_list(as_dict(record.get("message")).get("content")))
        if block.get("type") in _CALLS
    }


class _RecordParser:
    """Turns the records of one file into messages."""

    def __init__(self, outline: _Outline, log: ImportLog) -> None:
        self._file = outline.file
        self._live = conversation.find_live(outline.parents, outline.leaf)
        self._log = log
        self._times = TimeLine()
        self._seen: set[str] = set()
        # The answer that the last record is a part of, and the answers whose usage was counted.
        self._answer = ""
        self._counted: set[str] = set()
        # What the model was told besides the words of a person, until the next question.
        self._context: list[str] = []
        self._boundary: Json | None = None
        # The names of the tools by call: results do not name them.
        self._tools: dict[str, str] = {}

    def read(self) -> Iterator[ForeignEntry]:
        for place, record in read_lines(self._file, self._log):
            yield from self._parse(record, place)
        if self._boundary is not None:
            self._log.lose("compactions without a summary", str(self._file))
        if self._context:
            text = "text for the model after the last question"
            self._log.lose(text, str(self._file), len(self._context))

    def _parse(self, record: Json, place: str) -> Iterator[ForeignEntry]:
        kind = as_text(record.get("type"))
        uuid = as_text(record.get("uuid"))
        if not uuid:
            self._count_line(kind, place)
            return
        if uuid in self._seen:
            self._log.fold("repeated records")
            return
        self._seen.add(uuid)
        at = self._times.read(record.get("timestamp"))
        answer, self._answer = self._answer, ""
        if kind == "assistant":
            yield from self._parse_answer(record, at, answer, place)
        elif kind == "user":
            yield from self._parse_user(record, at, place)
        elif kind == "system" and record.get("subtype") == _BOUNDARY:
            self._boundary = record
            self._log.fold("compaction boundaries")
        elif kind == "system":
            self._log.lose(f"system records ({as_text(record.get('subtype')) or 'no subtype'})", place)
        elif kind == "attachment":
            self._answer = answer
            self._log.lose("context records (environment, skills, reminders)", place)
        else:
            self._log.lose(f"records of type {kind!r}", place)

    def _count_line(self, kind: str, place: str) -> None:
        if kind in _TITLE_TYPES:
            self._log.fold("titles")
        elif kind in _STATE_TYPES:
            self._log.lose("state of the program", place)
        else:
            self._log.lose(f"records of type {kind!r}", place)

    def _parse_answer(self, record: Json, at: datetime, answer: str, place: str) -> Iterator[ForeignEntry]:
        message = as_dict(record.get("message"))
        parts: list[Part] = []
        for block in _list_blocks(message.get("content")):
            match as_text(block.get("type")):
                case "text":
                    parts += conversation.build_parts(as_text(block.get("text")))
                case "thinking":
                    parts.append(Reasoning(as_text(block.get("thinking"))))
                case "redacted_thinking":
                    self._log.lose("encrypted reasoning", place)
                case kind if kind in _CALLS:
                    input_ = conversation.parse_arguments(block.get("input"))
                    call, name = as_text(block.get("id")), as_text(block.get("name"))
                    self._tools[call] = name
                    parts.append(ToolCall(call, name, input_))
                case other:
                    self._log.lose(f"parts of type {other!r}", place)
        self._answer = as_text(message.get("id"))
        if not parts:
            self._log.fold("empty messages")
            return
        usage: tuple[ForeignUsage, ...] = ()
        if self._answer not in self._counted:
            self._counted.add(self._answer)
            usage = _parse_usage(message)
        yield ForeignMessage(
            id=as_text(record["uuid"]),
            role=Role.ASSISTANT,
            parts=tuple(parts),
            at=at,
            undone=record["uuid"] not in self._live,
            joins=bool(answer) and answer == self._answer,
            usage=usage,
        )

    def _parse_user(self, record: Json, at: datetime, place: str) -> Iterator[ForeignEntry]:
        uuid = as_text(record["uuid"])
        content = as_dict(record.get("message")).get("content")
        text = conversation.text_of(content)
        if record.get("isCompactSummary"):
            about = as_dict(as_dict(self._boundary).get("compactMetadata"))
            kept = as_list(as_dict(about.get("preservedMessages")).get("uuids"))
            self._boundary = None
            self._context.clear()
            yield ForeignCompaction(id=uuid, summary=text, at=at, first_kept=as_text(kept[0]) if kept else "")
            return
        blocks = _list_blocks(content)
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if results:
            yield ForeignMessage(
                id=uuid,
                role=Role.TOOL,
                parts=tuple(self._parse_result(block) for block in results),
                at=at,
                undone=uuid not in self._live,
                files=tuple(f for block in results for f in self._list_files(block.get("content"), place)),
            )
            return
        if _is_machine_text(record):
            if uuid in self._live:
                self._log.fold("text for the model only")
                self._context.append(text)
            else:
                self._log.lose("text for the model on other branches", place)
            return
        files = self._list_files(content, place)
        if not text.strip() and not files:
            self._log.fold("empty messages")
            return
        exact = "\n\n".join((*self._context, text)) if self._context else None
        self._context.clear()
        yield ForeignMessage(
            id=uuid,
            role=Role.USER,
            parts=(Text(text),) if text.strip() else (),
            at=at,
            undone=uuid not in self._live,
            exact=exact,
            files=files,
        )

    def _list_files(self, content: object, place: str) -> tuple[ForeignFile, ...]:
        """Return the pictures and documents that a content has; other parts that are not text are named."""
        found: list[ForeignFile | None] = []
        for block in _list_blocks(content):
            kind = as_text(block.get("type"))
            if kind in ("image", "document"):
                source = as_dict(block.get("source"))
                name = block.get("title") or kind
                found.append(conversation.build_file(source.get("data"), source.get("media_type"), name=name))
            elif kind not in ("text", "tool_result"):
                self._log.lose(f"parts of type {kind!r}", place)
        return conversation.keep_files(found, self._log, place)

    def _parse_result(self, block: Json) -> ToolResult:
        call = as_text(block.get("tool_use_id"))
        text = conversation.text_of(block.get("content"))
        return ToolResult(call, self._tools.get(call, ""), text, failed=block.get("is_error") is True)


def _is_machine_text(record: Json) -> bool:
    """Whether a record of the type `user` was written by the program."""
    if record.get("isMeta") or record.get("isCompactSummary"):
        return True
    content = as_dict(record.get("message")).get("content")
    return conversation.text_of(content).lstrip().startswith(_MACHINE_TEXT)


def _list_blocks(content: object) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [as_dict(block) for block in as_list(content)]


def _parse_usage(message: Json) -> tuple[ForeignUsage, ...]:
    used = as_dict(message.get("usage"))
    model = conversation.clean_name(message.get("model"))
    if not used or model == "<synthetic>":
        return ()
    return (
        ForeignUsage(
            input=as_count(used.get("input_tokens")),
            output=as_count(used.get("output_tokens")),
            cache_read=as_count(used.get("cache_read_input_tokens")),
            cache_write=as_count(used.get("cache_creation_input_tokens")),
            model=model,
        ),
    )
