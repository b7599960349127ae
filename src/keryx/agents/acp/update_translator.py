"""Translates the session updates of an agent into agent events: text, plans, usage and tool calls. Updates that repeat earlier turns are dropped."""

import base64
import difflib
import mimetypes
from collections.abc import Callable, Iterable, Sequence

import msgspec

from keryx.agents.acp.agent_sessions import MODEL, AgentSession
from keryx.core import codec, messages
from keryx.core.ids import TurnId
from keryx.core.messages import Message, PlanPriority, PlanStep, PlanStepState, Role, ToolCall, ToolResult
from keryx.core.ports.agent import (
    AgentEvent,
    FileEvent,
    NoticeEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
)
from keryx.core.text import to_single_line, truncate
from keryx.core.usage import Usage, UsageTotals
from keryx.jsonrpc.values import Json, as_count, as_object, as_objects, as_text

NO_RESULT = "The agent did not tell how this ended."
_MAX_TITLE_LENGTH = 120
_MAX_OUTPUT_LENGTH = 100_000
_FINISHED = ("completed", "failed")
_STEP_STATES = {s.value: s for s in PlanStepState}
_PRIORITIES = {p.value: p for p in PlanPriority}


class ReplayFilter:
    """Old messages are known by their ids; where an agent gives none, by a question of an earlier turn, after which
    the words of its answer are expected."""

    def __init__(self, known: set[str], history: Sequence[Message], turn: TurnId) -> None:
        self._known_ids = frozenset(known)
        self._answers = _map_answers([m for m in history if m.turn != turn])
        self._user_text = ""
        self._expected_text = ""

    def matches(self, update: Json) -> bool:
        """Whether an update belongs to the past."""
        if any(
            as_text(update.get(key)) in self._known_ids
            for key in ("messageId", "toolCallId")
            if update.get(key)
        ):
            return True
        chunk = as_text(as_object(update.get("content")).get("text"))
        match update.get("sessionUpdate"):
            case "user_message_chunk":
                self._user_text += chunk
                # What it was asked began with what Keryx told it besides, such as its place.
                fitting = (a for q, a in self._answers.items() if self._user_text.strip().endswith(q))
                self._expected_text = next(fitting, self._expected_text)
                return True
            case "agent_message_chunk" if chunk and self._expected_text:
                self._user_text = ""
                if self._expected_text.startswith(chunk):
                    self._expected_text = self._expected_text[len(chunk) :]
                    return True
                self._expected_text = ""
                return False
            case _:
                return False


def _map_answers(history: Sequence[Message]) -> dict[str, str]:
    """Each question of the past with the words that followed it."""
    found: dict[str, str] = {}
    asked = ""
    for message in history:
        if message.role is Role.USER:
            asked = message.text.strip()
            found[asked] = ""
        elif message.role is Role.ASSISTANT and asked:
            found[asked] += message.text
    return {question: answer for question, answer in found.items() if question and answer}


class _TrackedCall:
    def __init__(self, id_: str) -> None:
        self.id = id_
        self.fields: Json = {}
        self.ready = False
        self.name = ""

    def merge(self, told: Json) -> None:
        self.fields.update({k: v for k, v in told.items() if v is not None})
        self.ready = self.ready or self._status != "pending" or bool(self.fields.get("rawInput"))

    @property
    def _status(self) -> str:
        return as_text(self.fields.get("status")) or "pending"

    @property
    def finished(self) -> bool:
        return self._status in _FINISHED

    def build_call(self) -> ToolCall:
        self.name = format_title(self.fields)
        return ToolCall(self.id, self.name, format_input(self.fields))

    def build_result(self, terminal: Callable[[str], str]) -> ToolResult:
        output = truncate(_format_output(self.fields, terminal), _MAX_OUTPUT_LENGTH)
        if not self.finished:
            return ToolResult(self.id, self.name, output or NO_RESULT, failed=True)
        return ToolResult(self.id, self.name, output, failed=self._status == "failed")


class ToolCallTracker:
    """`terminal` gives the output of a terminal that a tool refers to. A call waits to be announced until its input is
    known or it has begun, and until the calls before it are answered."""

    def __init__(self, terminal: Callable[[str], str]) -> None:
        self._read_terminal = terminal
        self._calls: dict[str, _TrackedCall] = {}
        self._waiting: list[_TrackedCall] = []
        self._open: list[_TrackedCall] = []

    def update(self, told: Json, *, asks: bool = False) -> list[AgentEvent]:
        """What a tool call or an update of one brings. `asks`: a person is asked about it, so it is ready."""
        id_ = as_text(told.get("toolCallId"))[:200]
        if not id_:
            return []
        tool = self._calls.get(id_)
        if tool is None:
            tool = self._calls[id_] = _TrackedCall(id_)
            self._waiting.append(tool)
        tool.merge(told)
        tool.ready = tool.ready or asks
        return self._advance()

    def find(self, id_: str) -> Json:
        """What was told of a tool call so far."""
        tool = self._calls.get(id_)
        return tool.fields if tool else {}

    def finish_all(self) -> list[AgentEvent]:
        """The turn is over: every call is announced and answered."""
        for tool in self._calls.values():
            tool.ready = True
        return self._advance(over=True)

    def _advance(self, *, over: bool = False) -> list[AgentEvent]:
        events = self._collect_results(over)
        while not self._open and (ready := [t for t in self._waiting if t.ready]):
            self._waiting = [t for t in self._waiting if not t.ready]
            self._open = ready
            events += [ToolCallEvent(tuple(t.build_call() for t in ready)), *self._collect_results(over)]
        return events

    def _collect_results(self, over: bool) -> list[AgentEvent]:
        done = [t for t in self._open if t.finished or over]
        self._open = [t for t in self._open if t not in done]
        return [ToolResultEvent(t.build_result(self._read_terminal)) for t in done]


def format_title(told: Json) -> str:
    """A tool call in a few words, as a person reads it."""
    words = (
        to_single_line(as_text(told.get("title")))
        or to_single_line(as_text(told.get("name")))
        or to_single_line(as_text(told.get("kind")))
    )
    return truncate(words, _MAX_TITLE_LENGTH) or "tool"


def format_input(told: Json) -> str:
    """The input of a tool call as JSON; where it has none, the files it names."""
    if told.get("rawInput") is not None:
        return codec.dumps(told["rawInput"])
    paths = [as_text(place.get("path")) for place in as_objects(told.get("locations"))]
    return codec.dumps({"paths": paths} if paths else {})


def format_action(told: Json) -> str:
    """Exactly what a tool is about to do, for a person who is asked: the command, else the input, and the changes."""
    raw = told.get("rawInput")
    command = as_object(raw).get("command")
    if isinstance(command, list):
        command = " ".join(map(str, command))  # pyright: ignore[reportUnknownArgumentType]
    shown = command if isinstance(command, str) else "" if not raw else codec.dumps(raw)
    return "\n".join(part for part in (shown, _format_output(told, lambda _: "")) if part)


def _format_output(told: Json, terminal: Callable[[str], str]) -> str:
    parts = [part for entry in as_objects(told.get("content")) if (part := _format_content(entry, terminal))]
    if not parts and told.get("rawOutput") is not None:
        raw = told["rawOutput"]
        return raw if isinstance(raw, str) else codec.dumps(raw)
    return "\n".join(parts)


def _format_content(entry: Json, terminal: Callable[[str], str]) -> str:
    match entry.get("type"):
        case "content":
            block = as_object(entry.get("content"))
            return (
                as_text(block.get("text"))
                or as_text(as_object(block.get("resource")).get("text"))
                or as_text(block.get("uri"))
            )
        case "diff":
            return "\n".join(_format_diff(entry))
        case "terminal":
            return terminal(as_text(entry.get("terminalId")))
        case _:
            return ""


def _format_diff(entry: Json) -> Iterable[str]:
    path = as_text(entry.get("path"))
    old, new = as_text(entry.get("oldText")), as_text(entry.get("newText"))
    return difflib.unified_diff(old.splitlines(), new.splitlines(), path, path, lineterm="", n=2)


class UpdateTranslator:
    """Unknown kinds of updates and unknown values are counted and left out, never an error."""

    def __init__(
        self, agent: str, held: AgentSession, *, replay: ReplayFilter, terminal: Callable[[str], str]
    ) -> None:
        self._agent = agent
        self._session = held
        self._replay = replay
        self.tool_calls = ToolCallTracker(terminal)
        self._message_id = ""
        self._has_text = False
        self._plan = ""
        self._file_count = 0
        self.unknown_updates = 0

    def translate(self, update: Json) -> list[AgentEvent]:
        """The events that an update brings, in order."""
        if self._replay.matches(update):
            return []
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                return self._translate_chunk(update)
            case "agent_thought_chunk":
                thought = as_text(as_object(update.get("content")).get("text"))
                return [ReasoningDelta(thought)] if thought else []
            case "tool_call" | "tool_call_update":
                self._has_text = False
                return self.tool_calls.update(update)
            case "plan":
                return self._translate_plan(update)
            case "usage_update":
                return self._translate_cost(update)
            case "notice":
                told = as_text(update.get("message")) or as_text(as_object(update.get("content")).get("text"))
                return [NoticeEvent(told)] if told.strip() else []
            case "current_mode_update" | "config_option_update" | "session_info_update":
                self._session.update(update)
                return []
            case "user_message_chunk" | "available_commands_update":
                return []
            case _:
                self.unknown_updates += 1
                return []

    def translate_usage(self, told: Json) -> list[AgentEvent]:
        """What the answer to a prompt tells of its use: totals of the session, of which this turn has a part."""
        if not told:
            return []
        before = self._session.meter
        after = UsageTotals(
            input=as_count(told.get("inputTokens")),
            output=as_count(told.get("outputTokens")),
            reasoning=as_count(told.get("thoughtTokens")),
            cache_read=as_count(told.get("cachedReadTokens")),
            cache_write=as_count(told.get("cachedWriteTokens")),
            cost=before.cost,
        )
        self._session.meter = after
        return [
            UsageEvent(
                Usage(
                    model=self._model,
                    input=max(0, after.input - before.input),
                    output=max(0, after.output - before.output),
                    reasoning=max(0, after.reasoning - before.reasoning),
                    cache_read=max(0, after.cache_read - before.cache_read),
                    cache_write=max(0, after.cache_write - before.cache_write),
                )
            )
        ]

    @property
    def _model(self) -> str:
        return self._session.get_current(MODEL) or self._agent

    def _translate_chunk(self, update: Json) -> list[AgentEvent]:
        message = as_text(update.get("messageId"))
        apart = self._has_text and message != self._message_id and bool(message and self._message_id)
        self._message_id = message
        event = self._translate_content(as_object(update.get("content")))
        if event is None:
            return []
        self._has_text = True
        return [TextDelta("\n\n"), event] if apart else [event]

    def _translate_content(self, block: Json) -> AgentEvent | None:
        match block.get("type"):
            case "text":
                said = as_text(block.get("text"))
                return TextDelta(said) if said else None
            case "image" | "audio":
                return self._translate_attachment(block)
            case "resource_link":
                uri = as_text(block.get("uri"))
                return (
                    TextDelta(f"[{to_single_line(as_text(block.get('name'))) or uri}]({uri})")
                    if uri
                    else None
                )
            case "resource":
                found = as_text(as_object(block.get("resource")).get("text"))
                return TextDelta(found) if found else None
            case _:
                self.unknown_updates += 1
                return None

    def _translate_attachment(self, block: Json) -> AgentEvent:
        mime = as_text(block.get("mimeType")) or "application/octet-stream"
        self._file_count += 1
        try:
            body = base64.b64decode(as_text(block.get("data")), validate=True)
        except ValueError:
            return NoticeEvent("A file of the answer is left out: the agent sent it damaged.")
        return FileEvent(
            f"{self._agent}-{self._file_count}{mimetypes.guess_extension(mime) or ''}", mime, body
        )

    def _translate_plan(self, update: Json) -> list[AgentEvent]:
        entries = as_objects(update.get("entries"))
        steps = [
            PlanStep(
                as_text(e.get("content")),
                _STEP_STATES.get(as_text(e.get("status")), PlanStepState.PENDING),
                _PRIORITIES.get(as_text(e.get("priority")), PlanPriority.MEDIUM),
            )
            for e in entries
        ]
        told = messages.format_plan(steps)
        if told == self._plan or not told:
            return []
        self._plan = told
        return [NoticeEvent(told, messages.PLAN_KIND)]

    def _translate_cost(self, update: Json) -> list[AgentEvent]:
        cost = as_object(update.get("cost")).get("amount")
        before = self._session.meter.cost
        spent: int | None = None
        if isinstance(cost, int | float) and 0 <= cost < 1e9:
            total = round(cost * 1_000_000)
            spent = max(0, total - (before or 0))
            self._session.meter = msgspec.structs.replace(self._session.meter, cost=total)
        used, size = as_count(update.get("used")), as_count(update.get("size"))
        return [
            UsageEvent(
                Usage(model=self._model, cost=spent, context_used=used or None, context_limit=size or None)
            )
        ]
