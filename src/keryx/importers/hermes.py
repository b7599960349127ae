"""Reads the state.db of Hermes Agent, and those of its profiles."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from keryx.core.errors import Invalid
from keryx.core.messages import Part, Parts, Role, Text, ToolResult, join_text
from keryx.core.sessions import JOB_SURFACE
from keryx.core.source import ChatType, Source
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
from keryx.importers.source_files import ForeignDatabase, find_files, open_database

NAME = "hermes"
_JSON_PREFIX = "\0json:"
_SUMMARY_PREFIXES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]")
_SUMMARY_END = "--- END OF CONTEXT SUMMARY"
# Around a message that a summary was appended to.
_PRIOR = "[PRIOR CONTEXT — for reference only; not a new message]"
_MERGED = "[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]"
_LOCAL_SOURCES = frozenset({"", "cli", "tui", "acp", "webui", "api", "tool", "local"})
_SESSION_COLUMNS = (
    "id",
    "source",
    "user_id",
    "session_key",
    "chat_id",
    "chat_type",
    "thread_id",
    "display_name",
    "origin_json",
    "model",
    "model_config",
    "parent_session_id",
    "started_at",
    "ended_at",
    "end_reason",
    "message_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cwd",
    "git_branch",
    "estimated_cost_usd",
    "actual_cost_usd",
    "title",
    "archived",
    "rewind_count",
)


class _Node(msgspec.Struct, frozen=True):
    """A row of the table of sessions, as far as lineage needs it."""

    id: str
    parent: str
    end_reason: str
    started_at: float
    branch: bool
    delegate: bool


def find_places(home: Path, env: dict[str, str]) -> list[Path]:
    return [Path(env["HERMES_HOME"])] if env.get("HERMES_HOME") else [home / ".hermes"]


def read(path: Path, log: ImportLog) -> Iterator[ForeignSession]:
    """Yield the conversations of a Hermes home folder, or of one state.db. A session that continues another one after a
    compression is part of that conversation."""
    if path.is_dir():
        # Copies of the file in other folders are not read.
        profiles = path / "profiles"
        files = [f for f in find_files(profiles, "state.db", log) if f.parent.parent == profiles]
        files = [file for file in (path / "state.db", *files) if os.path.lexists(file)]
        if not files:
            raise Invalid(f"{path} has no state.db: give the home folder of Hermes, or a state.db")
    else:
        files = [path]
    for file in files:
        profile = file.parent.name if file.parent.parent.name == "profiles" else ""
        with open_database(file, log) as database:
            needed = {"sessions": {"id", "started_at"}, "messages": {"id", "session_id", "role", "content"}}
            if database is not None and database.check("Hermes", needed):
                yield from _StateReader(database, file, profile, log).read()


class _StateReader:
    """Reads one state.db."""

    def __init__(self, database: ForeignDatabase, file: Path, profile: str, log: ImportLog) -> None:
        self._database = database
        self._file = file
        self._profile = profile
        self._log = log
        self._nodes: dict[str, _Node] = {}
        # The session that continues another one.
        self._next: dict[str, str] = {}
        self._previous: dict[str, str] = {}

    def read(self) -> Iterator[ForeignSession]:
        columns = ("id", "parent_session_id", "end_reason", "started_at", "model_config", "source")
        for row in self._database.rows("sessions", columns=columns, order=("started_at", "id")):
            id_, started = as_text(row["id"]), row.get("started_at")
            config = as_dict(conversation.parse_json(row.get("model_config")))
            self._nodes[id_] = _Node(
                id=id_,
                parent=as_text(row.get("parent_session_id")),
                end_reason=as_text(row.get("end_reason")),
                started_at=float(started) if isinstance(started, int | float) else 0.0,
                branch=bool(config.get("_branched_from")),
                delegate=bool(config.get("_delegate_from")) or row.get("source") == "tool",
            )
        for node in self._nodes.values():
            parent = self._nodes.get(node.parent)
            continues = (
                parent and parent.end_reason == "compression" and not node.branch and not node.delegate
            )
            if parent and continues and parent.id != node.id:
                best = self._nodes.get(self._next.get(parent.id, ""))
                if best is None or (node.end_reason == "compression", node.started_at) > (
                    best.end_reason == "compression",
                    best.started_at,
                ):
                    self._next[parent.id] = node.id
        self._previous = {after: before for before, after in self._next.items()}
        for node in self._nodes.values():
            if node.id not in self._previous:
                yield self._read_chain(node)

    def _read_chain(self, root: _Node) -> ForeignSession:
        chain = [root.id]
        while (following := self._next.get(chain[-1])) and following not in chain:
            chain.append(following)
        rows = [
            row
            for id_ in chain
            for row in self._database.rows("sessions", where={"id": id_}, columns=_SESSION_COLUMNS)
        ]
        first, last = rows[0], rows[-1]
        sizes = [self._database.count("messages", where={"session_id": id_}, largest="id") for id_ in chain]
        active = [
            self._database.count("messages", where={"session_id": id_, "active": 0}, largest="id")
            for id_ in chain
        ]
        created = conversation.parse_time(first.get("started_at")) or TimeLine().read(None)
        source = as_text(first.get("source"))
        parent = self._find_root(root.parent)
        forked = bool(parent) and root.branch
        origin = _parse_origin(last)
        surface = JOB_SURFACE if source == "cron" else NAME
        title = next((t for row in reversed(rows) if (t := as_text(row.get("title")))), "")
        return ForeignSession(
            id=root.id,
            place=f"{self._file}, session {root.id}",
            created_at=created,
            fingerprint=conversation.digest(rows, sizes, active),
            entries=lambda: self._read_entries(chain, created.timestamp()),
            surface=origin.platform if origin else surface,
            title=title,
            cwd=conversation.clean_path(last.get("cwd")),
            archived=bool(as_count(last.get("archived"))) or (bool(parent) and not forked),
            project=conversation.clean_name(self._profile),
            origin=origin,
            parent=parent,
            parent_record=self._find_shared(root.parent, root.id) if forked else "",
            subagent=bool(parent) and not forked,
            rewritten=True,
            aliases=tuple(chain[1:]),
            totals=tuple(_merge_totals(used for row in rows for used in self._read_totals(row))),
        )

    def _find_root(self, id_: str) -> str:
        """Return the session that a conversation with this session begins with."""
        seen: set[str] = set()
        while id_ in self._previous and id_ not in seen:
            seen.add(id_)
            id_ = self._previous[id_]
        return id_ if id_ in self._nodes else ""

    def _find_shared(self, parent: str, child: str) -> str:
        """Return the last record of a parent that a fork copied."""
        shared = ""
        columns = ("id", "role", "content")
        pairs = zip(
            self._database.rows("messages", where={"session_id": parent}, order=("id",), columns=columns),
            self._database.rows("messages", where={"session_id": child}, order=("id",), columns=columns),
            strict=False,
        )
        for ours, copy in pairs:
            if (ours["role"], ours["content"]) != (copy["role"], copy["content"]):
                break
            if _read_summary(ours) is None:
                shared = as_text(ours["id"])
        return shared

    def _read_totals(self, row: Json) -> Iterator[ForeignUsage]:
        """Yield the usage by model where it is recorded, else that of the session."""
        by_model = list(self._database.rows("session_model_usage", where={"session_id": row["id"]}))
        for used in by_model or [row]:
            actual = conversation.as_cost(used.get("actual_cost_usd"))
            estimated = conversation.as_cost(used.get("estimated_cost_usd"))
            total = ForeignUsage(
                input=as_count(used.get("input_tokens")),
                output=as_count(used.get("output_tokens")),
                reasoning=as_count(used.get("reasoning_tokens")),
                cache_read=as_count(used.get("cache_read_tokens")),
                cache_write=as_count(used.get("cache_write_tokens")),
                model=conversation.clean_name(used.get("model")),
                cost=actual or estimated or None,
                estimated=not actual,
                task=conversation.clean_name(used.get("task")) or "answer",
            )
            if total.input or total.output:
                yield total

    def _read_entries(self, chain: list[str], start: float) -> Iterator[ForeignEntry]:
        """Yield the messages of a chain. After a compaction Hermes writes what the model sees from then on: copies of
        messages, and among them the summary."""
        times = TimeLine(start)
        # The records so far by what they say.
        said: dict[int, str] = {}
        summary: ForeignCompaction | None = None
        # The summary stands before the messages that the model keeps, which were written before it.
        in_place = False
        for n, id_ in enumerate(chain):
            in_copies, was_compacted = n > 0, False
            for row in self._database.rows("messages", where={"session_id": id_}, order=("id",)):
                row, merged = _split_merged(row)
                compacted = bool(as_count(row.get("compacted")))
                in_copies = in_copies or (was_compacted and not compacted)
                was_compacted = compacted
                key = hash(tuple(row.get(name) for name in ("role", "content", "tool_calls", "tool_call_id")))
                if row.get("role") == "session_meta":
                    self._log.fold("session records")
                elif row.get("role") == "system":
                    self._log.lose("instructions of the program", f"{self._file}, message {row['id']}")
                elif (in_copies or _may_be_summary(row)) and (text := _read_summary(row)) is not None:
                    at = times.read(row.get("timestamp"))
                    if summary:
                        yield summary
                    # Its row gets another id whenever the conversation is written anew.
                    name = f"{id_}:summary:{conversation.digest(text)}"
                    summary = ForeignCompaction(id=name, summary=text, at=at)
                    in_place = not in_copies
                elif in_copies and key in said:
                    self._log.fold("copies after a compaction")
                    if summary and not summary.first_kept:
                        summary = msgspec.structs.replace(summary, first_kept=said[key])
                else:
                    in_copies = False
                    at = conversation.parse_time(row.get("timestamp"))
                    if summary and in_place and at and at < summary.at:
                        summary = msgspec.structs.replace(
                            summary, first_kept=summary.first_kept or as_text(row["id"])
                        )
                    elif summary:
                        yield summary
                        summary = None
                    said.setdefault(key, as_text(row["id"]))
                    yield from self._parse_message(row, times)
                if merged:
                    name = f"{id_}:summary:{conversation.digest(merged)}"
                    kept = said.get(key, as_text(row["id"]))
                    if summary:
                        yield summary
                        summary = None
                    yield ForeignCompaction(id=name, summary=merged, at=times.read(None), first_kept=kept)
        if summary:
            yield summary

    def _parse_message(self, row: Json, times: TimeLine) -> Iterator[ForeignEntry]:
        role = as_text(row.get("role"))
        content = _decode(row.get("content"))
        at = times.read(row.get("timestamp"))
        compacted = bool(as_count(row.get("compacted")))
        undone = row.get("active") == 0 and not compacted
        calls = conversation.parse_chat_calls(row.get("tool_calls"))
        thought = as_text(row.get("reasoning")) or as_text(row.get("reasoning_content"))
        blocks, files = self._parse_content(content, f"{self._file}, message {row['id']}")
        if role == "tool":
            call, name = as_text(row.get("tool_call_id")), as_text(row.get("tool_name"))
            parts: Parts = (ToolResult(call, name, join_text(blocks)),)
        elif role in ("user", "assistant"):
            parts = (*conversation.build_parts("", reasoning=thought), *blocks, *calls)
        else:
            self._log.lose(f"messages of role {role!r}", f"{self._file}, message {row['id']}")
            return
        if not parts and not files:
            self._log.fold("empty messages")
            return
        shown = conversation.text_of(content)
        given = as_text(row.get("api_content"))
        yield ForeignMessage(
            id=as_text(row["id"]),
            role={"tool": Role.TOOL, "user": Role.USER}.get(role, Role.ASSISTANT),
            parts=parts,
            at=at,
            undone=undone,
            exact=given if given and given != shown and role == "user" else None,
            platform_id=as_text(row.get("platform_message_id")),
            observed=bool(as_count(row.get("observed"))),
            files=files,
        )

    def _parse_content(self, content: object, place: str) -> tuple[Parts, tuple[ForeignFile, ...]]:
        """Return the text parts and the pictures of a content. Of pictures that are elsewhere the address is kept."""
        blocks = [as_dict(block) for block in as_list(content)]
        if not blocks:
            return conversation.build_parts(conversation.text_of(content)), ()
        parts: list[Part] = []
        files: list[ForeignFile] = []
        for block in blocks:
            image = block.get("image_url")
            url = as_dict(image).get("url") or image
            if file := conversation.parse_data_url(url):
                files.append(file)
            elif url:
                parts.append(Text(f"[picture: {conversation.clean_name(url)}]"))
                self._log.lose("files that are not in the database: their names are kept", place)
            elif text := conversation.text_of(block):
                parts.append(Text(text))
            else:
                self._log.lose(f"parts of type {as_text(block.get('type'))!r}", place)
        return tuple(parts), tuple(files)


def _may_be_summary(row: Json) -> bool:
    """Whether a row may be a summary although no copies follow it: answers of a model have a reason of their end."""
    return row.get("role") in ("user", "assistant") and not row.get("finish_reason")


def _read_summary(row: Json) -> str | None:
    """Return a summary without the instructions of Hermes before it, `None` for any other message."""
    return _clean_summary(conversation.text_of(_decode(row.get("content"))))


def _clean_summary(text: str) -> str | None:
    if not text.lstrip().startswith(_SUMMARY_PREFIXES):
        return None
    text = text.partition(_SUMMARY_END)[0].strip()
    _, _, body = text.partition("\n")
    return body.strip() or text


def _split_merged(row: Json) -> tuple[Json, str]:
    """Return a message as it was before a summary was appended to it, and that summary; empty if there is none."""
    content = row.get("content")
    if not isinstance(content, str) or not content.startswith(_PRIOR):
        return row, ""
    prior, _, rest = content.removeprefix(_PRIOR).partition(_MERGED)
    summary = _clean_summary(rest)
    return ({**row, "content": prior.strip("\n")}, summary) if summary else (row, "")


def _decode(content: object) -> object:
    """Return the content of a message, which may be JSON behind a prefix."""
    if isinstance(content, str) and content.startswith(_JSON_PREFIX):
        return conversation.parse_json(content.removeprefix(_JSON_PREFIX))
    return content


def _parse_origin(row: Json) -> Source | None:
    """Return the chat of a session, `None` if it was not in one."""
    platform = as_text(row.get("source"))
    if platform in _LOCAL_SOURCES or platform == "cron" or not row.get("chat_id"):
        return None
    told = as_dict(conversation.parse_json(row.get("origin_json")))
    kind = as_text(row.get("chat_type")) or as_text(told.get("chat_type"))
    thread = as_text(row.get("thread_id")) or as_text(told.get("thread_id"))
    return Source(
        platform=conversation.clean_name(platform),
        chat=as_text(row.get("chat_id"))[:1000],
        chat_name=conversation.clean_name(told.get("chat_name") or row.get("display_name")) or None,
        chat_type=ChatType(kind) if kind in set(ChatType) else ChatType.DM,
        user=(as_text(row.get("user_id")) or as_text(told.get("user_id")))[:1000] or None,
        user_name=conversation.clean_name(told.get("user_name")) or None,
        thread=thread[:1000] or None,
    )


def _merge_totals(totals: Iterator[ForeignUsage]) -> list[ForeignUsage]:
    """Add up the totals of a chain by model and task."""
    merged: dict[tuple[str, str], ForeignUsage] = {}
    for total in totals:
        before = merged.get((total.model, total.task))
        if before is not None:
            total = msgspec.structs.replace(
                total,
                input=total.input + before.input,
                output=total.output + before.output,
                reasoning=total.reasoning + before.reasoning,
                cache_read=total.cache_read + before.cache_read,
                cache_write=total.cache_write + before.cache_write,
                cost=None
                if total.cost is None and before.cost is None
                else (total.cost or 0) + (before.cost or 0),
                estimated=total.estimated or before.estimated,
            )
        merged[total.model, total.task] = total
    return list(merged.values())
