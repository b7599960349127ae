"""Messages and their typed parts, the conversation as the model sees it, and plans as checklists."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import NewType, TypeAlias

import msgspec

from keryx.core.clock import from_micros
from keryx.core.errors import Invalid
from keryx.core.ids import SessionId, TurnId
from keryx.core.text import to_single_line
from keryx.core.texts import Phrase, StoredPhrase, Texts

INTERRUPTED_OUTPUT = "The tool was interrupted before it answered. Its effect is unknown."
PLAN_KIND = "plan"
# Instead of the number of an undo: a person deleted this one message. No redo brings it back.
REMOVED = -1
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
    # Of an answer: it ended with an error. Of a question: its turn failed, and the model does not see the turn again.
    FAILED = "failed"
    LATE = "late"
    EDITED = "edited"
    # Taken from the queue or deleted by a person before it was answered. The model does not see it.
    WITHDRAWN = "withdrawn"
    # Deleted by a person after it was answered.
    DELETED = "deleted"


# There may be tens of thousands of texts and messages, and they cannot form cycles, so the collector skips them.
class Text(
    msgspec.Struct,
    frozen=True,
    tag="text",
    tag_field="type",
    omit_defaults=True,
    repr_omit_defaults=True,
    gc=False,
):
    text: str
    # Set if the words are those of Keryx, such as `[sticker]`: people read them in their language, the model `text`.
    phrase: StoredPhrase | None = None


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
    id: str
    name: str
    # The JSON text as the model wrote it, valid or not.
    input: str
    # Running it twice is safe.
    repeatable: bool = False
    # It does not start before the user has been asked. The key of the question is the id of the call.
    asks: bool = False


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result", tag_field="type", omit_defaults=True):
    id: str
    name: str
    output: str
    failed: bool = False


class Reasoning(msgspec.Struct, frozen=True, tag="reasoning", tag_field="type", omit_defaults=True):
    text: str = ""
    # The provider's own format (signed or encrypted blocks) as JSON text, unchanged.
    opaque: str = ""


class Notice(msgspec.Struct, frozen=True, tag="notice", tag_field="type", omit_defaults=True):
    text: str
    kind: str = ""


Part: TypeAlias = Text | Image | File | Audio | ToolCall | ToolResult | Reasoning | Notice
Parts: TypeAlias = tuple[Part, ...]


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One entry of a session."""

    session: SessionId
    # Rises by one within the session and is never reused.
    seq: int
    role: Role
    parts: Parts
    # The time as it is stored. Converted on demand, because few of the messages that are read are shown with it.
    micros: int
    turn: TurnId | None = None
    epoch: int = 0
    author: str = ""
    surface: str = ""
    # The platform's id of the message.
    platform_id: str = ""
    mark: Mark | None = None
    # Said in a group, but not to the agent.
    observed: bool = False
    # The number of the undo that removed it, 0 for none, `REMOVED` if it was deleted alone.
    undone: int = 0
    # The text for the model, where it differs from the parts.
    exact: str | None = None

    @property
    def id(self) -> MessageId:
        return MessageId(f"{self.session}.{self.seq}")

    @property
    def at(self) -> datetime:
        return from_micros(self.micros)

    @property
    def text(self) -> str:
        """The text that a person reads, without tools and reasoning."""
        return "\n\n".join(p.text for p in self.parts if isinstance(p, Text | Notice))

    @property
    def calls(self) -> list[ToolCall]:
        return [p for p in self.parts if isinstance(p, ToolCall)]

    @property
    def size(self) -> int:
        """How many characters the texts in it have, those of tools and reasoning too."""
        return len(self.exact or "") + sum(map(_measure_part, self.parts))


def _measure_part(part: Part) -> int:
    match part:
        case Text(text) | Notice(text):
            return len(text)
        case Reasoning(text, opaque):
            return len(text) + len(opaque)
        case ToolCall():
            return len(part.input)
        case ToolResult():
            return len(part.output)
        case Audio():
            return len(part.transcript)
        case Image() | File():
            return 0


def is_active(message: Message) -> bool:
    """Whether a message belongs to the conversation with the model: not undone, overheard or withdrawn."""
    return not (message.undone or message.observed or message.mark is Mark.WITHDRAWN)


def edit_exact(message: Message, parts: Parts) -> str | None:
    """Return the text for the model of a message whose parts were edited. What was put before it stays; a text that was
    shorter than the parts gives way to them."""
    shown = join_text(message.parts)
    if message.exact is None or not message.exact.endswith(shown):
        return None
    return message.exact.removesuffix(shown) + join_text(parts)


def parse_id(text: str) -> tuple[SessionId, int]:
    """Parse a message id, `<session>.<number>`."""
    session, dot, seq = text.rpartition(".")
    if not dot or not session or not seq.isascii() or not seq.isdigit() or len(seq) > 15:
        raise Invalid(f"{text[:80]!r} is not a message id: it looks like 01jd0abcdefghjkmnp.12")
    return SessionId(session), int(seq)


def join_text(parts: Iterable[Part]) -> str:
    """Join the text parts, as the prompt contains them."""
    return "\n\n".join(p.text for p in parts if isinstance(p, Text))


def text_parts(*texts: str) -> Parts:
    """Return a part for each text. A phrase is stored with its key."""
    return tuple(Text(str(t), t.store()) if isinstance(t, Phrase) else Text(t) for t in texts)


def read_text(message: Message, texts: Texts) -> str:
    """Return the text that a person reads, without tools and reasoning, in their language."""
    return "\n\n".join(read_part(p, texts) for p in message.parts if isinstance(p, Text | Notice))


def read_part(part: Text | Notice, texts: Texts) -> str:
    """Return the text of a part as a person reads it in their language."""
    phrase = part.phrase if isinstance(part, Text) else None
    return texts.render_content(phrase, part.text) if phrase else part.text


def localize_parts(parts: Iterable[Part], texts: Texts) -> Parts:
    """Return parts with the texts that a person reads in their language."""
    return tuple(Text(read_part(p, texts)) if isinstance(p, Text) and p.phrase else p for p in parts)


def merge_parts(parts: Iterable[Part]) -> Parts:
    """Merge adjacent text parts, and adjacent reasoning without opaque data."""
    out: list[Part] = []
    for kind, group in groupby(parts, key=_choose_merge_key):
        if kind is Text:
            out.append(Text("".join(p.text for p in group if isinstance(p, Text))))
        elif kind is Reasoning:
            out.append(Reasoning("".join(p.text for p in group if isinstance(p, Reasoning))))
        else:
            out += group
    return tuple(out)


def _choose_merge_key(part: Part) -> object:
    """Return the type of a part that is merged with others of it, or something unique."""
    if isinstance(part, Text) or (isinstance(part, Reasoning) and not part.opaque):
        return type(part)
    return object()


def build_model_view(messages: Sequence[Message], *, aside: frozenset[TurnId] = frozenset()) -> list[Message]:
    """Return the conversation as the model sees it, from the messages of one epoch in order of arrival.

    - Turns follow one another, even if the second message arrived before the first answer.
    - Turns in `aside` (queued or parked) are left out, and so are failed turns that were set aside, and undone, withdrawn,
      observed and notice entries.
    - The partial text of an attempt is left out if a later attempt of the turn produced more.
    - Each tool call is followed by its result; a call without one gets a result that says it was interrupted.
    """
    asked = {m.turn for m in messages if m.role is Role.USER and m.mark is not Mark.WITHDRAWN}
    # Of a turn whose questions were all withdrawn, a crash may have left a part of the answer.
    withdrawn = {m.turn for m in messages if m.mark is Mark.WITHDRAWN and m.turn} - asked
    failed = {m.turn for m in messages if m.role is Role.USER and m.mark is Mark.FAILED and m.turn}
    aside |= withdrawn | failed
    seen = [m for m in messages if is_active(m) and m.role is not Role.NOTICE and m.turn not in aside]
    first: dict[TurnId, int] = {}
    for m in seen:
        if m.turn is not None:
            first.setdefault(m.turn, m.seq)
    seen.sort(key=lambda m: (first[m.turn] if m.turn is not None else m.seq, m.seq))
    answered = {m.turn: m.seq for m in seen if m.role is Role.ASSISTANT}
    return _pair_results(
        m
        for m in seen
        if not (m.mark is Mark.INTERRUPTED and not m.calls and m.turn and answered.get(m.turn, 0) > m.seq)
        and m.mark is not Mark.LATE
    )


def drop_summarized(messages: Sequence[Message]) -> list[Message]:
    """Return the messages after the cut of a compaction that its summary does not cover. An answer whose question is
    before the cut is covered."""
    complete = {m.turn for m in messages if m.role is Role.USER}
    return [m for m in messages if m.turn is None or m.turn in complete]


def _pair_results(messages: Iterable[Message]) -> list[Message]:
    """Put results directly after their calls, and messages of people that arrived in between after the results."""
    out: list[Message] = []
    open_calls: dict[str, ToolCall] = {}
    deferred: list[Message] = []
    for m in messages:
        if m.role is Role.TOOL:
            results = tuple(p for p in m.parts if isinstance(p, ToolResult) and open_calls.pop(p.id, None))
            if results:
                out.append(msgspec.structs.replace(m, parts=results))
        elif m.role is Role.USER and open_calls:
            deferred.append(m)
        else:
            _close_calls(out, open_calls, deferred)
            out.append(m)
            open_calls = {c.id: c for c in m.calls}
        if not open_calls:
            _close_calls(out, open_calls, deferred)
    _close_calls(out, open_calls, deferred)
    return out


def _close_calls(out: list[Message], open_calls: dict[str, ToolCall], deferred: list[Message]) -> None:
    """Add results for open calls, then the deferred messages."""
    if open_calls:
        results = tuple(
            ToolResult(c.id, c.name, INTERRUPTED_OUTPUT, failed=True) for c in open_calls.values()
        )
        out.append(msgspec.structs.replace(out[-1], role=Role.TOOL, parts=results, mark=Mark.INTERRUPTED))
    out.extend(deferred)
    open_calls.clear()
    deferred.clear()


class TurnVersion(msgspec.Struct, frozen=True):
    """One version of a question and of what followed it. Versions of the same question share `first`, the turn of the
    first version."""

    turn: TurnId
    first: TurnId
    # The number of the first question.
    seq: int
    # The undo that took this version back, 0 for the one in use.
    undone: int = 0


def group_versions(versions: Iterable[TurnVersion]) -> list[list[TurnVersion]]:
    """Return the versions of each question, oldest first."""
    groups: dict[TurnId, list[TurnVersion]] = {}
    for version in sorted(versions, key=lambda v: v.seq):
        groups.setdefault(version.first, []).append(version)
    return list(groups.values())


def find_hidden_undos(versions: Iterable[TurnVersion]) -> set[int]:
    """Return the undos that hold versions which are not in use: people choose among these, and do not see them as undone.
    Versions of a question within a version that is not in use are among them."""
    groups = group_versions(versions)
    hidden: set[int] = set()
    while True:
        known = [group for group in groups if any(v.undone == 0 or v.undone in hidden for v in group)]
        found = {v.undone for group in known for v in group if v.undone}
        if found <= hidden:
            return hidden
        hidden |= found


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
    """Return a checklist: `- [x] done`, `- [~] in progress`, `- [ ] pending`; `!` marks high, `!!` low priority."""
    return "\n".join(
        f"- [{_STATE_BOXES[s.state]}] {_PRIORITY_FLAGS[s.priority]}{to_single_line(s.content).lstrip('! ')}"
        for s in steps
    )


def parse_plan(checklist: str) -> list[PlanStep]:
    """Parse the steps of a checklist. A line without a box is a pending step."""
    steps: list[PlanStep] = []
    for line in filter(str.strip, checklist.splitlines()):
        if match := _PLAN_LINE.match(line):
            state = _BOX_STATES.get(match[1], PlanStepState.PENDING)
            priority = _FLAG_PRIORITIES.get(match[2] or "", PlanPriority.MEDIUM)
            steps.append(PlanStep(match[3].strip(), state, priority))
        else:
            steps.append(PlanStep(line.strip()))
    return steps
