"""Shown: what an editor has been shown of one session, and the updates that show the rest, each thing once.

A message has the same id live and replayed: a person's and a notice by its number; a piece of an answer by its turn,
by which answer of the turn it is, and by which stretch of text or reasoning within."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from keryx.core import compaction, plans
from keryx.core.changes import Piece
from keryx.core.ids import TurnId
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
from keryx.surfaces.acp import toolcalls
from keryx.surfaces.acp.client import Client
from keryx.surfaces.acp.peer import Json

COMPACTED = (
    "What was said before was compacted here. You still see all of it; the model goes on from this summary:"
)
_OUTCOMES = {compaction.DONE: "completed", compaction.FAILED: "failed"}
_CHUNKS = {True: "agent_thought_chunk", False: "agent_message_chunk"}


class Shown:
    """Notices and compactions appear among the agent's thoughts where the editor has no place for them."""

    def __init__(self, client: Client = Client()) -> None:
        self._client = client
        self._answers: Counter[TurnId] = Counter()
        self._drafts: dict[TurnId, _Draft] = {}
        self._calls: dict[str, str] = {}
        self._ids: set[str] = set()

    def replay(self, messages: Sequence[Message], running: TurnId | None) -> Iterator[Json]:
        """The updates of a whole conversation, tool calls with their final state. What was undone is left out."""
        standing = [m for m in messages if not m.undone]
        results = _results(standing)
        plan = next((m for m in reversed(standing) if _is_plan(m)), None)
        for message in standing:
            if message.role is Role.TOOL or (_is_plan(message) and message is not plan):
                continue
            if message.role is Role.ASSISTANT:
                yield from self._answer(message, results, running)
            else:
                yield from self._said(message, live=False)

    def draft(self, turn: TurnId, pieces: Iterable[Piece]) -> Iterator[Json]:
        """More text of a running turn."""
        draft = self._drafts.setdefault(turn, _Draft())
        for piece in pieces:
            if piece.media:
                draft.files += 1
                yield from self._piece(turn, draft, _words(piece.media), False, {}, count=False)
            else:
                yield from self._piece(turn, draft, piece.text, piece.thought, {})

    def message(self, message: Message) -> Iterator[Json]:
        """A message that was added. Of an answer, only what its draft has not shown."""
        match message.role:
            case Role.ASSISTANT:
                yield from self._answer(message, None, message.turn)
            case Role.TOOL:
                for part in message.parts:
                    if isinstance(part, ToolResult):
                        yield toolcalls.ended(part, self.call_id(part.id))
            case Role.USER | Role.NOTICE:
                yield from self._said(message, live=True)

    def call_id(self, id_: str) -> str:
        """The id under which the newest call of this id was shown."""
        return self._calls.get(id_, id_)

    def _said(self, message: Message, *, live: bool) -> Iterator[Json]:
        for part in message.parts:
            if isinstance(part, Notice):
                yield self._notice(part, message, live=live)
            elif text := _words(part):
                kind = "user_message_chunk" if message.role is Role.USER else "agent_thought_chunk"
                yield _chunk(kind, text, str(message.id), _about(message))

    def _notice(self, notice: Notice, message: Message, *, live: bool) -> Json:
        if notice.kind == plans.KIND:
            return plan(notice.text)
        if notice.kind == compaction.ASKED:
            asked = f"/{compaction.ASKED} {notice.text}".strip()
            return _chunk("user_message_chunk", asked, str(message.id), _about(message))
        if notice.kind in _OUTCOMES and self._client.compaction:
            return _marker(notice, message)
        if notice.kind == compaction.DONE:
            return _chunk(
                "agent_thought_chunk",
                f"{COMPACTED}\n\n{notice.text}",
                str(message.id),
                {**_about(message), "compacted": True},
            )
        if live and self._client.notices:
            return {"sessionUpdate": "notice", "severity": "info", "title": notice.text}
        return _chunk("agent_thought_chunk", notice.text, str(message.id), _about(message))

    def _answer(
        self, message: Message, results: dict[tuple[int, str], ToolResult] | None, running: TurnId | None
    ) -> Iterator[Json]:
        """Text, reasoning and calls of one answer. `results` are known in a replay only."""
        turn = message.turn or TurnId(message.id)
        late = message.mark is Mark.LATE
        draft = _Draft(id=str(message.id)) if late else self._drafts.pop(turn, _Draft())
        skip, files = draft.length, draft.files
        for part in message.parts:
            if isinstance(part, Text | Reasoning):
                fresh = part.text[skip:]
                skip = max(0, skip - len(part.text))
                yield from self._piece(turn, draft, fresh, isinstance(part, Reasoning), _about(message))
            elif isinstance(part, ToolCall):
                yield self._call(part, message, results, running)
            elif files:
                files -= 1
            elif text := _words(part):
                yield from self._piece(turn, draft, text, False, _about(message))
        if not late:
            self._answers[turn] += 1

    def _call(
        self,
        call: ToolCall,
        message: Message,
        results: dict[tuple[int, str], ToolResult] | None,
        running: TurnId | None,
    ) -> Json:
        id_ = call.id if call.id not in self._ids else f"{call.id}.{message.seq}"
        self._ids.add(id_)
        self._calls[call.id] = id_
        if results is None:
            return toolcalls.begun(call, id_)
        result = results.get((message.seq, call.id))
        at_work = running is not None and message.turn == running
        return toolcalls.whole(call, result, id_, running=at_work)

    def _piece(
        self, turn: TurnId, draft: "_Draft", text: str, thought: bool, about: Json, *, count: bool = True
    ) -> Iterator[Json]:
        draft.length += len(text) if count else 0
        if not text:
            return
        if draft.thought is not thought:
            draft.thought = thought
            draft.stretch += 1
        name = draft.id or f"{turn}.{self._answers[turn] + 1}"
        yield _chunk(_CHUNKS[thought], text, f"{name}.{draft.stretch}", about)


class _Draft:
    """How much of an answer that is not a message yet has been shown."""

    def __init__(self, *, id: str = "") -> None:
        self.id = id
        self.length = 0
        self.files = 0
        self.stretch = 0
        self.thought: bool | None = None


def _marker(notice: Notice, message: Message) -> Json:
    """A compaction, for editors that have a place for it."""
    status = _OUTCOMES[notice.kind]
    told = (
        {"summary": [toolcalls.text_block(notice.text)]} if status == "completed" else {"error": notice.text}
    )
    return {"sessionUpdate": "compaction_update", "compactionId": str(message.id), "status": status, **told}


def plan(checklist: str) -> Json:
    entries = [
        {"content": s.content, "priority": s.priority.value, "status": s.state.value}
        for s in plans.parse(checklist)
    ]
    return {"sessionUpdate": "plan", "entries": entries}


def _is_plan(message: Message) -> bool:
    return any(isinstance(p, Notice) and p.kind == plans.KIND for p in message.parts)


def _results(messages: Sequence[Message]) -> dict[tuple[int, str], ToolResult]:
    """The result of each call, by the number of the message that made it and its id."""
    found: dict[tuple[int, str], ToolResult] = {}
    last: dict[str, int] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                last[part.id] = message.seq
            elif isinstance(part, ToolResult) and part.id in last:
                found.setdefault((last[part.id], part.id), part)
    return found


def _chunk(kind: str, text: str, id_: str, about: Json) -> Json:
    chunk: Json = {"sessionUpdate": kind, "content": toolcalls.text_block(text), "messageId": id_}
    return {**chunk, "_meta": {"keryx": about}} if about else chunk


def _about(message: Message) -> Json:
    """What a person must know beyond the text, under a key of our own."""
    mark = message.mark.value if message.mark else ""
    given = {"mark": mark, "author": message.author, "surface": message.surface}
    found: Json = {key: value for key, value in given.items() if value}
    return {**found, "observed": True} if message.observed else found


def _words(part: Part) -> str:
    """What stands for a part that is shown as text."""
    match part:
        case Text(text):
            return text
        case Image() | File() | Audio():
            return f"[{type(part).__name__.lower()} {part.name or part.mime or 'unnamed'}]"
        case _:
            return ""
