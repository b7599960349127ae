"""Translates the session updates of an agent into agent events: text, plans, usage and tool calls. Updates that repeat earlier turns are dropped."""

import base64
import difflib
import mimetypes
import re
from collections import Counter
from collections.abc import Callable, Sequence

from keryx import metrics
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
    ToolCallUpdateEvent,
    ToolResultEvent,
    UsageEvent,
)
from keryx.core.text import to_short_line, to_single_line, truncate
from keryx.core.texts import Phrase
from keryx.core.usage import MILLION, CostMeter, Usage
from keryx.jsonrpc import Json, as_count, as_object, as_objects, as_text

_TOKEN_KINDS = ("inputTokens", "outputTokens", "thoughtTokens", "cachedReadTokens", "cachedWriteTokens")
NO_RESULT = "The agent did not tell how this ended."
_MAX_TITLE_LENGTH = 120
_MAX_OUTPUT_LENGTH = 100_000
# Tool calls of one turn. Further ones are ignored: a turn ends long before.
_MAX_CALLS = 2_000
# The lines of a change that are compared with each other: the time grows with their square and more.
_MAX_COMPARED_LINES = 100
_MAX_COMPARED_DIFFS = 8
_CONTEXT_LINES = 2
_HUNK = re.compile(r"@@ -(\d+)(,\d+)? \+(\d+)")
_FINISHED = ("completed", "failed")
_TOOL_KINDS = frozenset(
    {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"}
)
_STEP_STATES = {s.value: s for s in PlanStepState}
_PRIORITIES = {p.value: p for p in PlanPriority}


class ReplayFilter:
    """Recognises replayed messages: by their ids, or, without ids, as the answer that the history has for the replayed
    question."""

    def __init__(self, known: set[str], history: Sequence[Message], turn: TurnId) -> None:
        self._known_ids = frozenset(known)
        # The text of each user message, and the text of the answers that follow it.
        self._answers: dict[str, str] = {}
        prompt = ""
        for message in history:
            if message.turn != turn and message.role is Role.USER:
                prompt = message.text.strip()
                self._answers[prompt] = ""
            elif message.turn != turn and message.role is Role.ASSISTANT and prompt:
                self._answers[prompt] += message.text
        self._longest_prompt = max(map(len, self._answers), default=0)
        self._user_text = ""
        self._expected_text = ""

    def matches(self, update: Json) -> bool:
        """Return whether an update is a replay."""
        if any(
            as_text(update.get(key)) in self._known_ids
            for key in ("messageId", "toolCallId")
            if update.get(key)
        ):
            return True
        chunk = as_text(as_object(update.get("content")).get("text"))
        match update.get("sessionUpdate"):
            case "user_message_chunk":
                # The prompt may have begun with other texts of Keryx, such as the place.
                user_text = (self._user_text + chunk).rstrip()
                self._user_text = (self._user_text + chunk)[-2 * self._longest_prompt - _MAX_TITLE_LENGTH :]
                answers = (a for q, a in self._answers.items() if q and a and user_text.endswith(q))
                self._expected_text = next(answers, self._expected_text)
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


class _TrackedCall:
    def __init__(self, id_: str) -> None:
        self.id = id_
        self.fields: Json = {}
        self.ready = False
        # As it was announced.
        self.call: ToolCall | None = None

    def merge(self, fields: Json) -> None:
        self.fields = merge_fields(self.fields, fields)
        self.ready = self.ready or self._status != "pending" or bool(self.fields.get("rawInput"))

    @property
    def _status(self) -> str:
        return as_text(self.fields.get("status")) or "pending"

    @property
    def finished(self) -> bool:
        return self._status in _FINISHED

    def announce(self) -> ToolCall:
        self.call = self._build_call()
        return self.call

    def finish(self, read_terminal: Callable[[str], str]) -> list[AgentEvent]:
        """Return the result, after an update if more is known of the call than was announced."""
        announced, call = self.call, self._build_call()
        result = ToolResultEvent(self._build_result(call.name, read_terminal))
        kind = as_text(self.fields.get("kind"))
        outcome = "failed" if result.result.failed else "ok"
        metrics.TOOL_CALLS.add(kind if kind in _TOOL_KINDS else metrics.OTHER, outcome)
        # The contents of many calls would fill the memory until the end of the turn.
        self.fields = {"status": self._status}
        return [result] if announced == call else [ToolCallUpdateEvent(call), result]

    def _build_call(self) -> ToolCall:
        return ToolCall(self.id, format_title(self.fields), format_input(self.fields))

    def _build_result(self, name: str, read_terminal: Callable[[str], str]) -> ToolResult:
        output = truncate(_format_output(self.fields, read_terminal), _MAX_OUTPUT_LENGTH)
        if not self.finished:
            return ToolResult(self.id, name, output or NO_RESULT, failed=True)
        return ToolResult(self.id, name, output, failed=self._status == "failed")


class ToolCallTracker:
    """Turns updates of tool calls into events. A call is announced when its input is known or it has started, and when
    the calls before it have results. `read_terminal` returns the output of a terminal by its id."""

    def __init__(self, read_terminal: Callable[[str], str]) -> None:
        self._read_terminal = read_terminal
        self._calls: dict[str, _TrackedCall] = {}
        self._waiting: list[_TrackedCall] = []
        self._open: list[_TrackedCall] = []

    def update(self, fields: Json, *, asks: bool = False) -> list[AgentEvent]:
        """Merge an update and return the new events. With `asks`, the user is asked about the call, so it is announced."""
        id_ = as_text(fields.get("toolCallId"))[:200]
        if not id_:
            return []
        tool = self._calls.get(id_)
        if tool is None and len(self._calls) >= _MAX_CALLS:
            return []
        if tool is None:
            tool = self._calls[id_] = _TrackedCall(id_)
            self._waiting.append(tool)
        tool.merge(fields)
        tool.ready = tool.ready or asks
        return self._advance()

    def find(self, id_: str) -> Json:
        """Return the merged fields of a tool call; empty if it is unknown."""
        tool = self._calls.get(id_)
        return tool.fields if tool else {}

    def finish_all(self) -> list[AgentEvent]:
        """End the turn: announce every call and give each a result."""
        for tool in self._calls.values():
            tool.ready = True
        return self._advance(ended=True)

    def _advance(self, *, ended: bool = False) -> list[AgentEvent]:
        events = self._collect_results(ended)
        while not self._open and (ready := [t for t in self._waiting if t.ready]):
            self._waiting = [t for t in self._waiting if not t.ready]
            self._open = ready
            events += [ToolCallEvent(tuple(t.announce() for t in ready)), *self._collect_results(ended)]
        return events

    def _collect_results(self, ended: bool) -> list[AgentEvent]:
        done = [t for t in self._open if t.finished or ended]
        self._open = [t for t in self._open if not (t.finished or ended)]
        return [event for t in done for event in t.finish(self._read_terminal)]


def merge_fields(known: Json, update: Json) -> Json:
    """Return the fields of a tool call after an update. Agents repeat fields that they do not know at the time, such as the
    input, as empty ones: these count as missing."""
    empty: tuple[object, ...] = (None, "", [], {})
    return {**known, **{k: v for k, v in update.items() if v not in empty}}


def format_title(fields: Json) -> str:
    """Return a short title of a tool call for the user."""
    words = (
        to_short_line(as_text(fields.get(name)), _MAX_TITLE_LENGTH) for name in ("title", "name", "kind")
    )
    return next(filter(None, words), "tool")


def format_input(fields: Json) -> str:
    """Return the input of a tool call as JSON; without one, the files it names."""
    if fields.get("rawInput") is not None:
        return codec.dumps(fields["rawInput"])
    paths = [as_text(place.get("path")) for place in as_objects(fields.get("locations"))]
    return codec.dumps({"paths": paths} if paths else {})


def format_action(fields: Json) -> str:
    """Return exactly what a tool is about to do, for a permission: the command, else the input, and the changes."""
    raw = fields.get("rawInput")
    command = as_object(raw).get("command")
    if isinstance(command, list):
        command = " ".join(map(str, command))  # pyright: ignore[reportUnknownArgumentType]
    action = command if isinstance(command, str) else "" if not raw else codec.dumps(raw)
    return "\n".join(part for part in (action, _format_output(fields, lambda _: "")) if part)


def format_diff(old: str, new: str, path: str, *, compare: bool = True) -> str:
    """Return the change of a file as a unified diff. If it is too long to `compare` line by line, all its old lines precede
    all its new ones."""
    before, after = old.splitlines(), new.splitlines()
    if before == after:
        return ""
    start = _count_equal(before, after)
    end = _count_equal(before[start:][::-1], after[start:][::-1])
    first, rest = max(0, start - _CONTEXT_LINES), max(0, end - _CONTEXT_LINES)
    shown, shown_after = before[first : len(before) - rest], after[first : len(after) - rest]
    if compare and max(len(shown), len(shown_after)) <= _MAX_COMPARED_LINES:
        lines = difflib.unified_diff(shown, shown_after, path, path, lineterm="", n=_CONTEXT_LINES)
        return "\n".join(_shift_hunk(line, first) for line in lines)
    removed = [f"-{line}" for line in before[start : len(before) - end]]
    added = [f"+{line}" for line in after[start : len(after) - end]]
    # An empty side of a hunk has the number of the line before it.
    heading = f"@@ -{start + bool(removed)},{len(removed)} +{start + bool(added)},{len(added)} @@"
    return "\n".join([f"--- {path}", f"+++ {path}", heading, *removed, *added])


def _shift_hunk(line: str, count: int) -> str:
    """Return a line of a diff; the heading of a hunk, whose lines were counted from another one, with its true numbers."""
    found = _HUNK.match(line)
    if found is None:
        return line
    old, length, new = int(found[1]), found[2] or "", int(found[3])
    return f"@@ -{old + count}{length} +{new + count}{line[found.end() :]}"


def _count_equal(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines are equal at the beginning of both."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _format_output(fields: Json, read_terminal: Callable[[str], str]) -> str:
    parts: list[str] = []
    for number, entry in enumerate(as_objects(fields.get("content"))):
        match entry.get("type"):
            case "content":
                block = as_object(entry.get("content"))
                resource = as_object(block.get("resource"))
                part = (
                    as_text(block.get("text")) or as_text(resource.get("text")) or as_text(block.get("uri"))
                )
            case "diff":
                path = as_text(entry.get("path"))
                old, new = as_text(entry.get("oldText")), as_text(entry.get("newText"))
                part = format_diff(old, new, path, compare=number < _MAX_COMPARED_DIFFS)
            case "terminal":
                part = read_terminal(as_text(entry.get("terminalId")))
            case _:
                part = ""
        if part:
            parts.append(part)
    if not parts and fields.get("rawOutput") is not None:
        raw = fields["rawOutput"]
        return raw if isinstance(raw, str) else codec.dumps(raw)
    return "\n".join(parts)


class UpdateTranslator:
    """Turns session updates into agent events. Unknown kinds of updates and contents are ignored."""

    def __init__(
        self, agent: str, session: AgentSession, *, replay: ReplayFilter, read_terminal: Callable[[str], str]
    ) -> None:
        self._agent = agent
        self._session = session
        self._replay = replay
        self.tool_calls = ToolCallTracker(read_terminal)
        self._message_id = ""
        self._has_text = False
        self._plan = ""
        self._file_count = 0
        # The last `usage_update` of the prompt.
        self._usage_update: Json = {}

    def translate(self, update: Json) -> list[AgentEvent]:
        """Return the events of an update, in order."""
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
                self._usage_update.update({k: v for k, v in update.items() if v is not None})
                return []
            case "notice":
                notice = as_text(update.get("message")) or as_text(
                    as_object(update.get("content")).get("text")
                )
                return [NoticeEvent(notice)] if notice.strip() else []
            case "current_mode_update" | "config_option_update" | "session_info_update":
                self._session.update(update)
                return []
            case _:
                return []

    def keep_usage(self, reported: Json) -> None:
        """Keep the tokens of a cancelled prompt, from the `usage` of its response, for the next prompt of the session: the
        turn is over before the agent tells them."""
        self._session.uncounted += _count_tokens(reported)

    def finish_usage(self, reported: Json) -> list[AgentEvent]:
        """Return the usage of one prompt, from the `usage` of its response and the last `usage_update`, with the tokens of
        cancelled prompts before it: one event, so that it counts as one call."""
        tokens = self._session.uncounted + _count_tokens(reported)
        if not tokens and not reported and not self._usage_update:
            return []
        self._session.uncounted = Counter()
        context = self._usage_update
        usage = Usage(
            model=self._model,
            input=tokens["inputTokens"],
            output=tokens["outputTokens"],
            reasoning=tokens["thoughtTokens"],
            cache_read=tokens["cachedReadTokens"],
            cache_write=tokens["cachedWriteTokens"],
            cost=self._measure_cost(as_object(context.get("cost")).get("amount")),
            context_used=as_count(context.get("used")) or None,
            context_limit=as_count(context.get("size")) or None,
        )
        return [UsageEvent(usage)]

    def _measure_cost(self, amount: object) -> int | None:
        """Return what was spent since the last measurement. The amount counts from the start of the session; some agents
        count from zero again after a restart. Its currency is not converted: it is taken for that of the prices."""
        if not isinstance(amount, int | float) or not 0 <= amount < 1e9:
            return None
        total, before = round(amount * MILLION), self._session.meter.cost or 0
        self._session.meter = CostMeter(cost=total)
        return total - before if total >= before else total

    @property
    def _model(self) -> str:
        return self._session.get_current(MODEL) or self._agent

    def _translate_chunk(self, update: Json) -> list[AgentEvent]:
        message = as_text(update.get("messageId"))
        new_message = self._has_text and message != self._message_id and bool(message and self._message_id)
        self._message_id = message
        event = self._translate_content(as_object(update.get("content")))
        if event is None:
            return []
        self._has_text = True
        return [TextDelta("\n\n"), event] if new_message else [event]

    def _translate_content(self, block: Json) -> AgentEvent | None:
        match block.get("type"):
            case "text":
                text = as_text(block.get("text"))
                return TextDelta(text) if text else None
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
                content = as_text(as_object(block.get("resource")).get("text"))
                return TextDelta(content) if content else None
            case _:
                return None

    def _translate_attachment(self, block: Json) -> AgentEvent:
        mime = as_text(block.get("mimeType")) or "application/octet-stream"
        self._file_count += 1
        try:
            body = base64.b64decode(as_text(block.get("data")), validate=True)
        except ValueError:
            return NoticeEvent(Phrase("agent.file_damaged"))
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
        plan = messages.format_plan(steps)
        if plan == self._plan or not plan:
            return []
        self._plan = plan
        return [NoticeEvent(plan, messages.PLAN_KIND)]


def _count_tokens(reported: Json) -> Counter[str]:
    return Counter({kind: as_count(reported.get(kind)) for kind in _TOKEN_KINDS})
