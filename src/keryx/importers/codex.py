"""Reads the rollout files of Codex, and the titles, pins and archive marks of its state database."""

import re
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path

import msgspec

from keryx.core.errors import Invalid
from keryx.core.messages import Part, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.core.sessions import TitleBy
from keryx.importers import conversation
from keryx.importers.conversation import (
    ForeignCall,
    ForeignCompaction,
    ForeignEntry,
    ForeignFile,
    ForeignMessage,
    ForeignSession,
    ImportLog,
    Json,
    TimeLine,
    as_count,
    as_dict,
    as_list,
    as_text,
)
from keryx.importers.source_files import find_files, fingerprint_file, open_database, read_lines

NAME = "codex"
_INJECTED = (
    "<environment_context>",
    "<skills_instructions>",
    "<user_instructions>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<subagent_notification>",
    "# AGENTS.md",
)
_ID = re.compile(r"[0-9a-fA-F-]{36}")
_STATE_NUMBER = re.compile(r"state_(\d+)\.sqlite")
_CALLS = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call"}
)
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_STATE_EVENTS = frozenset(
    {
        "task_started",
        "task_complete",
        "turn_started",
        "turn_complete",
        "thread_settings_applied",
        "thread_name_updated",
        "item_started",
        "item_updated",
        "agent_message_delta",
        "exec_command_begin",
        "exec_command_end",
        "exec_command_output_delta",
        "patch_apply_begin",
        "patch_apply_end",
        "mcp_tool_call_begin",
        "mcp_tool_call_end",
        "web_search_begin",
        "web_search_end",
        "context_compacted",
        "turn_diff",
        "plan_update",
        "background_event",
        "agent_reasoning_section_break",
    }
)
_STATE_TYPES = frozenset({"world_state", "inter_agent_communication_metadata"})


class _View(StrEnum):
    """Which lines of a file are what people saw; it depends on the version that wrote it."""

    ITEMS = "item_completed"
    EVENTS = "user_message"
    RESPONSES = "response_item"


class _Rollout(msgspec.Struct, kw_only=True):
    """What the first pass over a file finds."""

    file: Path
    id: str
    view: _View = _View.RESPONSES
    created_at: datetime | None = None
    cwd: str = ""
    model: str = ""
    fork_of: str = ""
    # The first line of the parent that the fork does not have.
    fork_at: int = 0
    spawned_by: str = ""


def find_places(home: Path, env: dict[str, str]) -> list[Path]:
    return [Path(env.get("CODEX_HOME") or home / ".codex")]


def read(path: Path, log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the sessions of a Codex home folder or of one rollout file, each after the one that it was forked from."""
    files = find_files(path, "rollout-*.jsonl", log) if path.is_dir() else [path]
    if not files:
        raise Invalid(f"{path} has no rollout files: give the home folder of Codex, or a rollout-*.jsonl")
    rollouts: dict[str, _Rollout] = {}
    for rollout in map(_read_outline, files):
        if rollout.id in rollouts:
            log.lose("further rollout files of a session", str(rollout.file))
        else:
            rollouts[rollout.id] = rollout
    threads = _read_threads(path, log) if path.is_dir() else {}
    reader = _RolloutReader(rollouts, threads, log)
    done: set[str] = set()
    for rollout in sorted(rollouts.values(), key=lambda r: (str(r.created_at or ""), r.id)):
        yield from reader.read_with_parents(rollout, done)


def read_rollout(file: Path, log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the session of one rollout file, after those that it comes from."""
    home = next((p.parent for p in file.parents if p.name in ("sessions", "archived_sessions")), file.parent)
    rollout = _read_outline(file)
    rollouts = {rollout.id: rollout}
    while parent := rollout.fork_of or rollout.spawned_by:
        found = None if parent in rollouts or not _ID.fullmatch(parent) else _find_rollout(home, parent, log)
        if found is None:
            break
        rollout = _read_outline(found)
        rollouts[parent] = rollout
    reader = _RolloutReader(rollouts, {}, log)
    yield from reader.read_with_parents(next(iter(rollouts.values())), set())


def _find_rollout(home: Path, id_: str, log: ImportLog) -> Path | None:
    """Return the rollout file of a session, whose name ends with its id."""
    folders = (home / "sessions", home / "archived_sessions")
    return next((path for f in folders for path in find_files(f, f"rollout-*-{id_}.jsonl", log)), None)


def _read_outline(file: Path) -> _Rollout:
    rollout = _Rollout(file=file, id=file.stem[-36:])
    for n, (_, line) in enumerate(read_lines(file)):
        payload = as_dict(line.get("payload"))
        kind = as_text(line.get("type"))
        # The oldest files begin with the metadata itself.
        meta = payload if kind == "session_meta" else line if n == 0 and "id" in line else {}
        if meta and rollout.created_at is None:
            rollout.id = as_text(meta.get("id")) or rollout.id
            times = (meta.get("timestamp"), line.get("timestamp"))
            rollout.created_at = next(filter(None, map(conversation.parse_time, times)), None)
            rollout.cwd = as_text(meta.get("cwd"))
            rollout.fork_of = as_text(meta.get("forked_from_id"))
            rollout.fork_at = as_count(meta.get("forked_from_ordinal_exclusive"))
            rollout.spawned_by = _find_spawner(meta)
        if kind == "turn_context":
            rollout.model = as_text(payload.get("model"))
        event = as_text(payload.get("type")) if kind == "event_msg" else ""
        if event == _View.ITEMS:
            rollout.view = _View.ITEMS
            break
        if event in (_View.EVENTS, "agent_message"):
            rollout.view = _View.EVENTS
            break
    return rollout


def _find_spawner(meta: Json) -> str:
    """Return the session that started this one as a sub-agent."""
    source = as_dict(as_dict(meta.get("source")).get("subagent"))
    for about in (meta, source, as_dict(source.get("thread_spawn"))):
        if parent := as_text(about.get("parent_thread_id")):
            return parent
    return ""


def _read_threads(path: Path, log: ImportLog) -> dict[str, Json]:
    """Return the rows of the newest state database by session."""
    numbers = {
        int(found[1]): file
        for file in find_files(path, "state_*.sqlite", log)
        if (found := _STATE_NUMBER.fullmatch(file.name))
    }
    if not numbers:
        return {}
    columns = (
        "id",
        "title",
        "name",
        "archived",
        "is_pinned",
        "cwd",
        "model",
        "first_user_message",
        "preview",
    )
    with open_database(numbers[max(numbers)], log) as database:
        if database is None:
            return {}
        return {as_text(row["id"]): row for row in database.rows("threads", columns=columns) if "id" in row}


class _Items:
    """The items of a conversation so far. The provider names those of answers, and some providers repeat their names."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._seen: set[str] = set()

    def is_repeated(self, *about: str) -> bool:
        """Whether the same was said of an item before."""
        before = len(self._seen)
        self._seen.add(conversation.digest(*about))
        return len(self._seen) == before

    def choose_id(self, id_: str, other: str) -> str:
        """Return the id of an item, or another one if an earlier item has it."""
        if not id_ or id_ in self._ids:
            return other
        self._ids.add(id_)
        return id_


class _RolloutReader:
    def __init__(self, rollouts: dict[str, _Rollout], threads: dict[str, Json], log: ImportLog) -> None:
        self._rollouts = rollouts
        self._threads = threads
        self._log = log

    def read_with_parents(self, rollout: _Rollout, done: set[str]) -> Iterator[ForeignSession]:
        """Yield a session, after those that it comes from and that were not read yet."""
        line = [rollout]
        while parent := self._rollouts.get(line[-1].fork_of or line[-1].spawned_by):
            if parent in line or parent.id in done:
                break
            line.append(parent)
        for member in reversed(line):
            if member.id not in done:
                done.add(member.id)
                yield self._build_session(member)

    def _build_session(self, rollout: _Rollout) -> ForeignSession:
        thread = self._threads.get(rollout.id, {})
        named = as_text(thread.get("name"))
        title = as_text(thread.get("title"))
        first = (as_text(thread.get("first_user_message")), as_text(thread.get("preview")))
        forked = rollout.fork_of in self._rollouts
        marks = [thread.get(name) for name in ("title", "name", "archived", "is_pinned")]
        archived = bool(as_count(thread.get("archived"))) or "archived_sessions" in rollout.file.parts
        shared = ""
        for entry in self._read_prefix(rollout, {rollout.id}, _Items()):
            shared = entry.id if isinstance(entry, ForeignMessage) else shared
        if rollout.fork_of and not forked:
            self._log.lose("the beginnings of forks whose parent is missing", str(rollout.file))
        return ForeignSession(
            id=rollout.id,
            place=str(rollout.file),
            created_at=rollout.created_at or TimeLine().read(None),
            fingerprint=conversation.digest(fingerprint_file(rollout.file), marks),
            entries=lambda: self._read_entries(rollout),
            surface=NAME,
            # Without a name, the title is the first message.
            title=named or ("" if title in first else title),
            title_by=TitleBy.PERSON if named else None,
            cwd=conversation.clean_path(thread.get("cwd") or rollout.cwd),
            pinned=bool(as_count(thread.get("is_pinned"))),
            archived=archived or bool(rollout.spawned_by),
            parent=rollout.fork_of or rollout.spawned_by,
            parent_record=shared,
            subagent=bool(rollout.spawned_by),
        )

    def _read_entries(self, rollout: _Rollout) -> Iterator[ForeignEntry]:
        items = _Items()
        yield from self._read_prefix(rollout, {rollout.id}, items)
        yield from _RolloutParser(rollout, self._log, items).read()

    def _read_prefix(self, rollout: _Rollout, seen: set[str], items: _Items) -> Iterator[ForeignEntry]:
        """Yield what a fork has from its parent. It is counted there."""
        parent = self._rollouts.get(rollout.fork_of)
        if parent is None or parent.id in seen:
            return
        yield from self._read_prefix(parent, seen | {parent.id}, items)
        yield from _RolloutParser(parent, ImportLog(), items).read(end=rollout.fork_at)


class _RolloutParser:
    """Turns the lines of one file into messages."""

    def __init__(self, rollout: _Rollout, log: ImportLog, items: _Items) -> None:
        self._rollout = rollout
        self._log = log
        self._items = items
        self._times = TimeLine(str(rollout.created_at or ""))
        self._context: list[str] = []
        self._model = rollout.model
        # The names of tools by call: results do not name them, and items repeat them.
        self._calls: dict[str, str] = {}
        self._line = 0
        self._last_total = 0
        # Of the last message, `None` at the end of a response.
        self._role: Role | None = None

    def read(self, *, end: int = 0) -> Iterator[ForeignEntry]:
        """Yield the messages, with `end` those before this line only."""
        for n, (place, line) in enumerate(read_lines(self._rollout.file, self._log)):
            ordinal = line.get("ordinal")
            self._line = ordinal if isinstance(ordinal, int) else n
            if end and self._line >= end:
                return
            yield from self._parse(line, place)
        if self._context:
            self._log.lose(
                "text for the model after the last question", str(self._rollout.file), len(self._context)
            )

    def _parse(self, line: Json, place: str) -> Iterator[ForeignEntry]:
        kind = as_text(line.get("type"))
        payload = as_dict(line.get("payload"))
        at = self._times.read(line.get("timestamp"))
        if kind == "turn_context":
            self._model = as_text(payload.get("model")) or self._model
        if kind in ("session_meta", "turn_context") or (not kind and "id" in line):
            self._log.fold("session records")
        elif kind in _STATE_TYPES or line.get("record_type") == "state":
            self._log.lose("state of the program", place)
        elif kind == "response_item":
            yield from self._parse_response(payload, at, place)
        elif kind == "event_msg":
            yield from self._parse_event(payload, at, place)
        elif kind == "compacted":
            self._context.clear()
            yield ForeignCompaction(id=self._make_id(), summary=as_text(payload.get("message")), at=at)
        elif kind == "token_usage_record":
            yield from self._parse_usage(as_dict(payload.get("usage")), at)
        elif kind in ("message", "reasoning", *_CALLS, *_OUTPUTS):
            # The oldest files have items without an envelope.
            yield from self._parse_response(line, at, place)
        else:
            self._log.lose(f"records of type {kind!r}", place)

    def _make_id(self) -> str:
        return f"{self._rollout.id}:{self._line}"

    def _parse_response(self, item: Json, at: datetime, place: str) -> Iterator[ForeignEntry]:
        """Yield tools, and where nothing else tells what people saw, messages."""
        kind = as_text(item.get("type"))
        if kind in _CALLS:
            yield self._build_message(Role.ASSISTANT, (self._parse_call(item),), at)
        elif kind in _OUTPUTS:
            message = self._build_message(Role.TOOL, (self._parse_output(item),), at)
            output = item.get("output")
            shown = as_dict(output).get("content") or output
            yield msgspec.structs.replace(message, files=self._list_images(shown, place))
        elif kind == "message":
            yield from self._parse_response_message(item, at, place)
        elif kind == "reasoning":
            text = conversation.text_of(item.get("summary"))
            if self._rollout.view is _View.ITEMS:
                self._log.fold("copies for the model of what people saw")
            elif not text:
                self._log.lose("encrypted reasoning", place)
            else:
                yield self._build_message(Role.ASSISTANT, (Reasoning(text),), at)
        elif kind in ("compaction", "compaction_summary", "ghost_snapshot"):
            self._log.lose("state of the program", place)
        else:
            self._log.lose(f"response items of type {kind!r}", place)

    def _parse_response_message(self, item: Json, at: datetime, place: str) -> Iterator[ForeignEntry]:
        text = conversation.text_of(item.get("content"))
        role = as_text(item.get("role"))
        if role in ("developer", "system"):
            self._log.lose("instructions of the program", place)
        elif role == "user" and text.lstrip().startswith(_INJECTED):
            self._context.append(text)
            self._log.fold("text for the model only")
        elif self._rollout.view is not _View.RESPONSES:
            self._log.fold("copies for the model of what people saw")
        elif role == "user":
            yield self._build_question(text, self._list_images(item.get("content"), place), at)
        elif text.strip():
            yield self._build_message(Role.ASSISTANT, (Text(text),), at)
        else:
            self._log.fold("empty messages")

    def _parse_event(self, event: Json, at: datetime, place: str) -> Iterator[ForeignEntry]:
        kind = as_text(event.get("type"))
        if kind == _View.ITEMS:
            yield from self._parse_item(as_dict(event.get("item")), at, place, as_text(event.get("turn_id")))
        elif (
            kind in ("user_message", "agent_message", "agent_reasoning") and self._rollout.view is _View.ITEMS
        ):
            self._log.fold("copies of items")
        elif kind == "user_message":
            addresses = [*as_list(event.get("images")), *as_list(event.get("local_images"))]
            images = [{"type": "image", "image_url": address} for address in addresses]
            yield self._build_question(as_text(event.get("message")), self._list_images(images, place), at)
        elif kind == "agent_message":
            yield self._build_message(Role.ASSISTANT, (Text(as_text(event.get("message"))),), at)
        elif kind in ("agent_reasoning", "agent_reasoning_raw_content"):
            # The response items have the same text.
            self._log.fold("reasoning without a text, or repeated")
        elif kind == "token_count":
            yield from self._parse_token_count(event, at)
        elif kind == "turn_aborted":
            self._log.lose("interruptions", place)
        elif kind in _STATE_EVENTS:
            self._log.lose("state of the program", place)
        else:
            self._log.lose(f"events of type {kind!r}", place)

    def _parse_item(self, item: Json, at: datetime, place: str, turn: str) -> Iterator[ForeignEntry]:
        kind = as_text(item.get("type"))
        id_ = as_text(item.get("id"))
        text = conversation.text_of(item.get("content"))
        if id_ and self._items.is_repeated(turn, kind, id_, text):
            self._log.fold("repeated records")
            return
        match kind:
            case "UserMessage":
                files = self._list_images(item.get("content"), place)
                yield self._build_question(text, files, at, id_=id_)
            case "AgentMessage" if text.strip():
                yield self._build_message(Role.ASSISTANT, (Text(text),), at, id_=id_)
            case "Reasoning":
                thought = conversation.text_of(item.get("summary_text") or item.get("summary"))
                if thought:
                    yield self._build_message(Role.ASSISTANT, (Reasoning(thought),), at, id_=id_)
                else:
                    self._log.fold("reasoning without a text, or repeated")
            case "AgentMessage":
                self._log.fold("empty messages")
            case "ContextCompaction":
                self._log.fold("compaction boundaries")
            case "Plan" if text.strip():
                yield self._build_message(Role.ASSISTANT, (Text(text),), at, id_=id_)
            case _ if id_ in self._calls:
                self._log.fold("displays of tool calls")
            case _:
                self._log.lose(f"items of type {kind!r}", place)

    def _parse_call(self, item: Json) -> ToolCall:
        id_ = as_text(item.get("call_id")) or as_text(item.get("id")) or self._make_id()
        input_ = item.get("arguments", item.get("input", item.get("action")))
        self._calls[id_] = as_text(item.get("name")) or as_text(item.get("type")).removesuffix("_call")
        return ToolCall(id_, self._calls[id_], conversation.parse_arguments(input_))

    def _parse_output(self, item: Json) -> ToolResult:
        output, call = item.get("output"), as_text(item.get("call_id"))
        about = as_dict(output)
        text = conversation.text_of(about.get("content") if about else output)
        text = text or conversation.as_json(output or "")
        return ToolResult(call, self._calls.get(call, ""), text, failed=about.get("success") is False)

    def _parse_token_count(self, event: Json, at: datetime) -> Iterator[ForeignEntry]:
        """Yield the usage of a call. The same count may be reported again."""
        info = as_dict(event.get("info"))
        total = as_count(as_dict(info.get("total_token_usage")).get("total_tokens"))
        if self._rollout.view is _View.ITEMS or not info or total == self._last_total:
            self._log.fold("repeated token counts")
            return
        self._last_total = total
        yield from self._parse_usage(as_dict(info.get("last_token_usage")), at)

    def _parse_usage(self, used: Json, at: datetime) -> Iterator[ForeignEntry]:
        usage = conversation.split_tokens(
            prompt=used.get("input_tokens"),
            completion=used.get("output_tokens"),
            cached=used.get("cached_input_tokens"),
            written=used.get("cache_write_input_tokens"),
            reasoning=used.get("reasoning_output_tokens"),
            model=self._model,
        )
        self._role = None
        yield ForeignCall(id=self._make_id(), at=at, usage=usage)

    def _build_question(
        self, text: str, files: tuple[ForeignFile, ...], at: datetime, *, id_: str = ""
    ) -> ForeignMessage:
        exact = "\n\n".join((*self._context, text)) if self._context else None
        self._context.clear()
        parts: tuple[Part, ...] = (Text(text),) if text.strip() or not files else ()
        message = self._build_message(Role.USER, parts, at, id_=id_)
        return msgspec.structs.replace(message, exact=exact, files=files)

    def _build_message(
        self, role: Role, parts: tuple[Part, ...], at: datetime, *, id_: str = ""
    ) -> ForeignMessage:
        """Return a message. The texts and calls of one response of the model are one answer."""
        joins = role is Role.ASSISTANT and self._role is role
        self._role = role
        id_ = self._items.choose_id(id_, self._make_id())
        return ForeignMessage(id=id_, role=role, parts=parts, at=at, joins=joins)

    def _list_images(self, content: object, place: str) -> tuple[ForeignFile, ...]:
        """Return the pictures that a content has. Those at other places are not fetched; other parts are named."""
        found: list[ForeignFile | None] = []
        for block in map(as_dict, as_list(content)):
            kind = as_text(block.get("type"))
            if "image" in kind:
                found.append(conversation.parse_data_url(block.get("image_url")))
            elif not isinstance(block.get("text"), str):
                self._log.lose(f"parts of type {kind!r}", place)
        return conversation.keep_files(found, self._log, place)
