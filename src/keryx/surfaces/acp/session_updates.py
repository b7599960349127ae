"""Builds the session/update notifications of a session: messages, drafts, tool calls and plans, each shown once, and its title, settings, usage and commands."""

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from keryx.core import compaction, messages, sessions
from keryx.core.changes import DraftChunk
from keryx.core.ids import TurnId
from keryx.core.media import Attachment, Media
from keryx.core.messages import (
    Audio,
    File,
    Image,
    Mark,
    Message,
    Notice,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from keryx.core.sessions import Session, SessionSettings
from keryx.core.texts import ENGLISH, Texts
from keryx.core.usage import MILLION
from keryx.engine import commands
from keryx.jsonrpc import Json, as_object, build_text_block
from keryx.surfaces.acp import session_options, tool_calls
from keryx.surfaces.acp.protocol import EditorCapabilities
from keryx.surfaces.acp.session_options import ModelChoices

_COMPACTION_STATUSES = {compaction.DONE_KIND: "completed", compaction.FAILED_KIND: "failed"}
MAX_EMBEDDED_BYTES = 5_000_000
_MEDIA_FIELD = "media"
# Of questions, in words below them.
_SHOWN_MARKS = frozenset({Mark.WITHDRAWN, Mark.FAILED, Mark.CANCELLED, Mark.DELETED, Mark.EDITED})
_CHUNK_KINDS = {True: "agent_thought_chunk", False: "agent_message_chunk"}
# Commands that switch a lane to another session: an editor opens sessions itself.


class UpdateBuilder:
    """Notices and compactions are sent as thoughts if the editor has no update for them."""

    def __init__(
        self, capabilities: EditorCapabilities = EditorCapabilities(), texts: Texts = ENGLISH
    ) -> None:
        self._capabilities = capabilities
        self._texts = texts
        self._answer_counts: Counter[TurnId] = Counter()
        self._drafts: dict[TurnId, _DraftProgress] = {}
        self._call_ids: dict[str, str] = {}
        self._used_ids: set[str] = set()
        # Live calls by their command, and terminals that run a command whose call was not sent yet.
        self._command_calls: dict[str, str] = {}
        self._early_terminals: dict[str, str] = {}
        self._terminals: dict[str, str] = {}

    def replay(self, messages: Sequence[Message], running: TurnId | None) -> Iterator[Json]:
        """Yield the updates of a whole conversation, with the final state of tool calls. Undone messages are skipped."""
        active = [m for m in messages if not m.undone]
        # The result of each call, by the number of its message and its id.
        results: dict[tuple[int, str], ToolResult] = {}
        last: dict[str, int] = {}
        for message, part in ((m, p) for m in active for p in m.parts):
            if isinstance(part, ToolCall):
                last[part.id] = message.seq
            elif isinstance(part, ToolResult) and part.id in last:
                results.setdefault((last[part.id], part.id), part)
        plan = next((m for m in reversed(active) if _has_plan(m)), None)
        for message in active:
            if message.role is Role.TOOL or (_has_plan(message) and message is not plan):
                continue
            if message.role is Role.ASSISTANT:
                yield from self._build_answer(message, results, running)
            else:
                yield from self._build_message_chunks(message, live=False)

    def build_draft(self, turn: TurnId, chunks: Iterable[DraftChunk]) -> Iterator[Json]:
        """Yield the updates of new draft chunks of a running turn."""
        draft = self._drafts.setdefault(turn, _DraftProgress())
        for chunk in chunks:
            if chunk.media:
                draft.file_count += 1
                yield from self._build_part_chunk(turn, draft, chunk.media, {})
            else:
                yield from self._build_text_chunk(turn, draft, chunk.text, chunk.thought, {})

    def build_message(self, message: Message) -> Iterator[Json]:
        """Yield the updates of a new message; of an answer, only what its draft has not sent."""
        match message.role:
            case Role.ASSISTANT:
                yield from self._build_answer(message, None, message.turn)
            case Role.TOOL:
                for part in message.parts:
                    if isinstance(part, ToolResult):
                        id_ = self.find_call_id(part.id)
                        yield {**tool_calls.build_result(part, id_), **self._build_terminal(id_)}
            case Role.USER | Role.NOTICE:
                yield from self._build_message_chunks(message, live=True)

    def build_call_updates(self, message: Message) -> Iterator[Json]:
        """Yield the updates of an edited message: the titles and inputs of its calls."""
        for part in message.parts:
            if isinstance(part, ToolCall) and part.id in self._call_ids:
                yield tool_calls.build_call_update(part, self.find_call_id(part.id))

    def show_terminal(self, command: str, terminal: str) -> Iterator[Json]:
        """Yield the update that shows a terminal of the editor in the call whose command it runs. If the call was not sent
        yet, it will contain the terminal."""
        id_ = self._command_calls.get(command)
        if id_ is None:
            self._early_terminals[command] = terminal
            return
        self._terminals[id_] = terminal
        yield {"sessionUpdate": "tool_call_update", "toolCallId": id_, **self._build_terminal(id_)}

    def _build_terminal(self, id_: str) -> Json:
        terminal = self._terminals.get(id_)
        return {"content": [{"type": "terminal", "terminalId": terminal}]} if terminal else {}

    def find_call_id(self, id_: str) -> str:
        """Return the id under which the newest call with this id was sent."""
        return self._call_ids.get(id_, id_)

    def _build_message_chunks(self, message: Message, *, live: bool) -> Iterator[Json]:
        for part in message.parts:
            if isinstance(part, Notice):
                yield self._build_notice(part, message, live=live)
            elif content := _build_content(part, self._texts):
                kind = "user_message_chunk" if message.role is Role.USER else "agent_thought_chunk"
                yield build_chunk(kind, content, str(message.id), _build_meta(message))
        # In words, because editors show no marks.
        mark = message.mark
        if message.role is Role.USER and mark and mark in _SHOWN_MARKS:
            text = f"\n\n({self._texts.say(f'mark.{mark.value}')})"
            yield build_chunk("user_message_chunk", text, str(message.id), _build_meta(message))

    def _build_notice(self, notice: Notice, message: Message, *, live: bool) -> Json:
        if notice.kind == messages.PLAN_KIND:
            return build_plan(notice.text)
        if notice.kind == compaction.REQUEST_KIND:
            command = f"/{compaction.REQUEST_KIND} {notice.text}".strip()
            return build_chunk("user_message_chunk", command, str(message.id), _build_meta(message))
        if notice.kind in _COMPACTION_STATUSES and self._capabilities.compaction:
            status = _COMPACTION_STATUSES[notice.kind]
            summary = {"summary": [build_text_block(notice.text)]}
            return {
                "sessionUpdate": "compaction_update",
                "compactionId": str(message.id),
                "status": status,
                **(summary if status == "completed" else {"error": notice.text}),
            }
        if notice.kind == compaction.DONE_KIND:
            return build_chunk(
                "agent_thought_chunk",
                compaction.describe_notice(notice, self._texts),
                str(message.id),
                {**_build_meta(message), "compacted": True},
            )
        if live and self._capabilities.notices:
            return {"sessionUpdate": "notice", "severity": "info", "title": notice.text}
        return build_chunk("agent_thought_chunk", notice.text, str(message.id), _build_meta(message))

    def _build_answer(
        self, message: Message, results: dict[tuple[int, str], ToolResult] | None, running: TurnId | None
    ) -> Iterator[Json]:
        """Yield the text, reasoning and calls of one answer. `results` are known in a replay only."""
        turn = message.turn or TurnId(message.id)
        late = message.mark is Mark.LATE
        draft = _DraftProgress(id=str(message.id)) if late else self._drafts.pop(turn, _DraftProgress())
        skip, files = draft.length, draft.file_count
        for part in message.parts:
            if isinstance(part, Text | Reasoning):
                unsent = part.text[skip:]
                skip = max(0, skip - len(part.text))
                yield from self._build_text_chunk(
                    turn, draft, unsent, isinstance(part, Reasoning), _build_meta(message)
                )
            elif isinstance(part, ToolCall):
                yield self._build_tool_call(part, message, results, running)
            elif files:
                files -= 1
            else:
                yield from self._build_part_chunk(turn, draft, part, _build_meta(message))
        if message.mark:
            words = f"({self._texts.say(f'mark.{message.mark.value}')})"
            yield build_chunk("agent_thought_chunk", words, f"{message.id}.mark", _build_meta(message))
        if not late:
            self._answer_counts[turn] += 1

    def _build_tool_call(
        self,
        call: ToolCall,
        message: Message,
        results: dict[tuple[int, str], ToolResult] | None,
        running: TurnId | None,
    ) -> Json:
        id_ = call.id if call.id not in self._used_ids else f"{call.id}.{message.seq}"
        self._used_ids.add(id_)
        self._call_ids[call.id] = id_
        if results is None:
            command = str(tool_calls.parse_arguments(call.input).get("command", ""))
            self._command_calls[command] = id_
            if terminal := self._early_terminals.pop(command, None):
                self._terminals[id_] = terminal
            return {**tool_calls.build_call(call, id_), **self._build_terminal(id_)}
        result = results.get((message.seq, call.id))
        is_running = running is not None and message.turn == running
        interrupted = self._texts.say("editor.tool_interrupted")
        return tool_calls.build_finished_call(call, result, id_, running=is_running, interrupted=interrupted)

    def _build_part_chunk(
        self, turn: TurnId, draft: "_DraftProgress", part: Part, meta: Json
    ) -> Iterator[Json]:
        if content := _build_content(part, self._texts):
            yield self._build_content_chunk(turn, draft, content, False, meta)

    def _build_text_chunk(
        self, turn: TurnId, draft: "_DraftProgress", text: str, thought: bool, meta: Json
    ) -> Iterator[Json]:
        draft.length += len(text)
        if text:
            yield self._build_content_chunk(turn, draft, text, thought, meta)

    def _build_content_chunk(
        self, turn: TurnId, draft: "_DraftProgress", content: str | Json, thought: bool, meta: Json
    ) -> Json:
        if draft.thought is not thought:
            draft.thought = thought
            draft.section += 1
        name = draft.id or f"{turn}.{self._answer_counts[turn] + 1}"
        return build_chunk(_CHUNK_KINDS[thought], content, f"{name}.{draft.section}", meta)


class _DraftProgress:
    """How much of an unfinished answer has been sent."""

    def __init__(self, *, id: str = "") -> None:
        self.id = id
        self.length = 0
        self.file_count = 0
        self.section = 0
        self.thought: bool | None = None


def build_plan(checklist: str) -> Json:
    entries = [
        {"content": s.content, "priority": s.priority.value, "status": s.state.value}
        for s in messages.parse_plan(checklist)
    ]
    return {"sessionUpdate": "plan", "entries": entries}


def _has_plan(message: Message) -> bool:
    return any(isinstance(p, Notice) and p.kind == messages.PLAN_KIND for p in message.parts)


def build_chunk(kind: str, content: str | Json, id_: str, meta: Json) -> Json:
    """Build a chunk of a message: a text, or another content block."""
    block = build_text_block(content) if isinstance(content, str) else content
    chunk: Json = {"sessionUpdate": kind, "content": block, "messageId": id_}
    return {**chunk, "_meta": {"keryx": meta}} if meta else chunk


def _build_meta(message: Message) -> Json:
    """Return what the user needs to know beyond the text, for the `_meta` of an update."""
    mark = message.mark.value if message.mark else ""
    fields = {"mark": mark, "author": message.author, "surface": message.surface}
    meta: Json = {key: value for key, value in fields.items() if value}
    return {**meta, "observed": True} if message.observed else meta


def _build_content(part: Part, texts: Texts) -> str | Json:
    """Return a part as text, or as a block for `embed`; empty if it is not shown."""
    match part:
        case Text():
            return messages.read_part(part, texts)
        case Image() | Audio():
            kind = "image" if isinstance(part, Image) else "audio"
            return {
                "type": kind,
                "mimeType": part.mime,
                "data": "",
                _MEDIA_FIELD: part.media,
                "name": _name(part),
            }
        case File():
            return _name(part)
        case _:
            return ""


def _name(part: Media) -> str:
    return f"[{type(part).__name__.lower()} {part.name or part.mime or 'unnamed'}]"


def find_media(update: Json) -> str | None:
    """Return the file whose bytes an update lacks."""
    return as_object(update.get("content")).get(_MEDIA_FIELD)


def embed(update: Json, attachment: Attachment | None) -> Json:
    """Return an update with the bytes of its file; with the name of the file if it is gone or too large."""
    content: Json = update["content"]
    if attachment is None or len(attachment.body) > MAX_EMBEDDED_BYTES:
        return {**update, "content": build_text_block(content["name"])}
    block = {
        "type": content["type"],
        "mimeType": content["mimeType"] or attachment.mime,
        "data": base64.b64encode(attachment.body).decode(),
    }
    return {**update, "content": block}


class EditorSessionInfo(msgspec.Struct, frozen=True):
    title: str = ""
    settings: SessionSettings = SessionSettings()
    context_used: int | None = None
    context_limit: int | None = None
    cost: int | None = None


def read_info(session: Session) -> EditorSessionInfo:
    return EditorSessionInfo(
        session.title, session.settings, session.context_used, session.context_limit, session.cost
    )


def build_info_updates(
    before: EditorSessionInfo,
    after: EditorSessionInfo,
    session: Session,
    choices: ModelChoices,
    currency: str,
) -> list[Json]:
    """Return the updates for what has changed."""
    updates: list[Json] = []
    if after.title != before.title:
        updates.append(
            {
                "sessionUpdate": "session_info_update",
                "title": after.title or None,
                "updatedAt": session.active_at.isoformat(),
            }
        )
    if after.settings != before.settings:
        if _get_mode(after) != _get_mode(before):
            updates.append(build_mode_update(after.settings))
        updates.append(build_options_update(after.settings, choices))
    usage = _build_usage(after, currency)
    if usage != _build_usage(before, currency) and after.context_used is not None and after.context_limit:
        updates.append(usage)
    return updates


def _build_usage(info: EditorSessionInfo, currency: str) -> Json:
    cost = {} if info.cost is None else {"cost": {"amount": info.cost / MILLION, "currency": currency}}
    return {"sessionUpdate": "usage_update", "used": info.context_used, "size": info.context_limit, **cost}


def build_person_notice(text: str, key: str, *, notices: bool) -> Json:
    """Build a notice for the user of the editor that is not part of the conversation."""
    if notices:
        return {"sessionUpdate": "notice", "severity": "warning", "title": text}
    return build_chunk("agent_thought_chunk", text, key, {"notice": True})


def build_mode_update(settings: SessionSettings) -> Json:
    return {"sessionUpdate": "current_mode_update", "currentModeId": sessions.parse_mode(settings.mode).value}


def build_options_update(settings: SessionSettings, choices: ModelChoices) -> Json:
    return {
        "sessionUpdate": "config_option_update",
        "configOptions": session_options.list_options(settings, choices),
    }


def build_commands_update(texts: Texts) -> Json:
    """List the slash commands that are useful in an editor."""
    return {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [
            {
                "name": c.name,
                "description": c.describe(texts),
                **({"input": {"hint": usage}} if (usage := c.format_usage(texts)) else {}),
            }
            for c in commands.list_commands()
        ],
    }


def _get_mode(info: EditorSessionInfo) -> sessions.PermissionMode:
    return sessions.parse_mode(info.settings.mode)
