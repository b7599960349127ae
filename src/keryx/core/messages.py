"""Messages and their typed parts, the conversation as the model sees it, and plans as checklists."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NewType, TypeAlias

import msgspec

from keryx.core.clock import from_micros
from keryx.core.errors import Invalid
from keryx.core.ids import SessionId, TurnId
from keryx.core.text import to_single_line

INTERRUPTED_OUTPUT = "The tool was interrupted before it answered. Its effect is unknown."
PLAN_KIND = "plan"
_PLAN_LINE = re.compile(r"\s*[-*] \[(.)\] (!{1,2} )?(.*)\Z")

MessageId = NewType("MessageId", str)


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    NOTICE = "notice"


class Mark(StrEnum):
    """What a person must know about a message beyond its text."""

    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    FAILED = "failed"
    LATE = "late"
    EDITED = "edited"


# Texts and messages come in tens of thousands and can form no cycle, so the collector need not look at them.
class Text(msgspec.Struct, frozen=True, tag="text", tag_field="type", gc=False):
    text: str


class Image(msgspec.Struct, frozen=True, tag="image", tag_field="type", omit_defaults=True):
    media: str
    mime: str = ""
    name: str = ""


class File(msgspec.Struct, frozen=True, tag="file", tag_field="type", omit_defaults=True):
    media: str
    mime: str = ""
    name: str = ""


class Audio(msgspec.Struct, frozen=True, tag="audio", tag_field="type", omit_defaults=True):
    media: str
    mime: str = ""
    name: str = ""
    transcript: str = ""


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call", tag_field="type", omit_defaults=True):
    """`input` is the JSON text as the model wrote it, valid or not. `repeatable`: running it twice is safe. `asks`: it is
    not begun before a person was asked, under its id."""

    id: str
    name: str
    input: str
    repeatable: bool = False
    asks: bool = False


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result", tag_field="type", omit_defaults=True):
    id: str
    name: str
    output: str
    failed: bool = False


class Reasoning(msgspec.Struct, frozen=True, tag="reasoning", tag_field="type", omit_defaults=True):
    """`opaque` keeps a provider's own form (signed or encrypted blocks) as JSON text, untouched."""

    text: str = ""
    opaque: str = ""


class Notice(msgspec.Struct, frozen=True, tag="notice", tag_field="type", omit_defaults=True):
    text: str
    kind: str = ""


Part: TypeAlias = Text | Image | File | Audio | ToolCall | ToolResult | Reasoning | Notice
Parts: TypeAlias = tuple[Part, ...]


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One entry of a session. `seq` rises by one within it and is never reused. `micros` is when it was said, as it is
    stored: of thousands that are read, few are shown with their time."""

    session: SessionId
    seq: int
    role: Role
    parts: Parts
    micros: int
    turn: TurnId | None = None
    epoch: int = 0
    author: str = ""
    surface: str = ""
    platform_id: str = ""
    mark: Mark | None = None
    observed: bool = False
    undone: int = 0
    exact: str | None = None

    @property
    def id(self) -> MessageId:
        return MessageId(f"{self.session}.{self.seq}")

    @property
    def at(self) -> datetime:
        return from_micros(self.micros)

    @property
    def text(self) -> str:
        """What a person reads as the words of this message, without tools and reasoning."""
        return "\n\n".join(p.text for p in self.parts if isinstance(p, Text | Notice))

    @property
    def calls(self) -> list[ToolCall]:
        return [p for p in self.parts if isinstance(p, ToolCall)]


def parse_id(text: str) -> tuple[SessionId, int]:
    """Parse a message id, `<session>.<number>`."""
    session, dot, seq = text.rpartition(".")
    if not dot or not session or not seq.isascii() or not seq.isdigit() or len(seq) > 15:
        raise Invalid(f"{text[:80]!r} is not a message id: it looks like 01jd0abcdefghjkmnp.12")
    return SessionId(session), int(seq)


def join_text(parts: Iterable[Part]) -> str:
    """The words among the parts, as the model is given them."""
    return "\n\n".join(p.text for p in parts if isinstance(p, Text))


def text_parts(text: str) -> Parts:
    return (Text(text),)


def merge_parts(parts: Iterable[Part]) -> Parts:
    """Neighbouring text parts, and neighbouring reasoning without opaque data, become one."""
    out: list[Part] = []
    for part in parts:
        last = out[-1] if out else None
        if isinstance(part, Text) and isinstance(last, Text):
            out[-1] = Text(last.text + part.text)
        elif isinstance(part, Reasoning) and isinstance(last, Reasoning) and not (part.opaque or last.opaque):
            out[-1] = Reasoning(last.text + part.text)
        else:
            out.append(part)
    return tuple(out)


def build_model_view(messages: Sequence[Message], *, aside: frozenset[TurnId] = frozenset()) -> list[Message]:
    """The conversation as the model sees it, made from the messages of one epoch in order of arrival.

    Turns stand one after the other even when the second question arrived before the first answer;
    what belongs to turns that are set `aside` (still waiting, or parked) is left out; undone, observed and notice entries are left out;
    the partial text of an attempt is left out when a later attempt of the turn got further; and every
    tool call is followed by its result, an open call by one that says it was interrupted.
    """
    seen = [
        m
        for m in messages
        if not m.undone and not m.observed and m.role is not Role.NOTICE and m.turn not in aside
    ]
    return _pair_results(_drop_superseded(_sort_by_turn(seen)))


def drop_summarized(messages: Sequence[Message]) -> list[Message]:
    """Of the messages above the cut of a compaction, those that its summary does not hold: an answer whose question
    is below the cut was summed up with it."""
    asked = {m.turn for m in messages if m.role is Role.USER}
    return [m for m in messages if m.turn is None or m.turn in asked]


def _sort_by_turn(messages: list[Message]) -> list[Message]:
    first: dict[TurnId, int] = {}
    for m in messages:
        if m.turn is not None:
            first.setdefault(m.turn, m.seq)
    return sorted(messages, key=lambda m: (first[m.turn] if m.turn is not None else m.seq, m.seq))


def _drop_superseded(messages: list[Message]) -> list[Message]:
    answered = {m.turn: m.seq for m in messages if m.role is Role.ASSISTANT}
    return [
        m
        for m in messages
        if not (m.mark is Mark.INTERRUPTED and not m.calls and m.turn and answered.get(m.turn, 0) > m.seq)
        and m.mark is not Mark.LATE
    ]


def _pair_results(messages: list[Message]) -> list[Message]:
    """Results follow their calls at once: what a person said in between comes after them."""
    out: list[Message] = []
    open_calls: dict[str, ToolCall] = {}
    held: list[Message] = []
    for m in messages:
        if m.role is Role.TOOL:
            results = tuple(p for p in m.parts if isinstance(p, ToolResult) and open_calls.pop(p.id, None))
            if results:
                out.append(msgspec.structs.replace(m, parts=results))
        elif m.role is Role.USER and open_calls:
            held.append(m)
        else:
            _close_calls(out, open_calls, held)
            out.append(m)
            open_calls = {c.id: c for c in m.calls}
        if not open_calls:
            _close_calls(out, open_calls, held)
    _close_calls(out, open_calls, held)
    return out


def _close_calls(out: list[Message], open_calls: dict[str, ToolCall], held: list[Message]) -> None:
    """Answer the calls that nobody answered, then let what was held back follow."""
    if open_calls:
        results = tuple(
            ToolResult(c.id, c.name, INTERRUPTED_OUTPUT, failed=True) for c in open_calls.values()
        )
        out.append(msgspec.structs.replace(out[-1], role=Role.TOOL, parts=results, mark=Mark.INTERRUPTED))
    out.extend(held)
    open_calls.clear()
    held.clear()


class PlanStepState(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class PlanPriority(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class PlanStep(msgspec.Struct, frozen=True):
    content: str
    state: PlanStepState = PlanStepState.PENDING
    priority: PlanPriority = PlanPriority.MEDIUM


_STATE_BOXES = {PlanStepState.PENDING: " ", PlanStepState.IN_PROGRESS: "~", PlanStepState.COMPLETED: "x"}
_BOX_STATES = {
    " ": PlanStepState.PENDING,
    "~": PlanStepState.IN_PROGRESS,
    "x": PlanStepState.COMPLETED,
    "X": PlanStepState.COMPLETED,
}
_PRIORITY_FLAGS = {PlanPriority.HIGH: "! ", PlanPriority.MEDIUM: "", PlanPriority.LOW: "!! "}
_FLAG_PRIORITIES = {"! ": PlanPriority.HIGH, "!! ": PlanPriority.LOW}


def format_plan(steps: Iterable[PlanStep]) -> str:
    """A checklist, a line per step: `- [x] done`, `- [~] at work`, `- [ ] to do`; `!` before high, `!!` before low priority."""
    return "\n".join(
        f"- [{_STATE_BOXES[s.state]}] {_PRIORITY_FLAGS[s.priority]}{to_single_line(s.content).lstrip('! ')}"
        for s in steps
    )


def parse_plan(checklist: str) -> list[PlanStep]:
    """The steps of a checklist. A line that is none is a step still to do."""
    return [_parse_step(found) for found in checklist.splitlines() if found.strip()]


def _parse_step(written: str) -> PlanStep:
    match = _PLAN_LINE.match(written)
    if match is None:
        return PlanStep(written.strip())
    return PlanStep(
        match[3].strip(),
        _BOX_STATES.get(match[1], PlanStepState.PENDING),
        _FLAG_PRIORITIES.get(match[2] or "", PlanPriority.MEDIUM),
    )
