"""The writes of a running turn, each fenced by its lease: events, steering, the end, and recovery after a crash."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from keryx.core import messages as core_messages
from keryx.core import sessions, turns
from keryx.core.access import NO_RULES, AccessRules
from keryx.core.errors import Forbidden
from keryx.core.ids import SessionId, TurnId, WorkerId
from keryx.core.media import Media
from keryx.core.messages import Mark, Message, Notice, Parts, Reasoning, Role, Text
from keryx.core.ports.agent import (
    WARNING_KIND,
    BindingEvent,
    CompactionEvent,
    CompactionFailedEvent,
    NoticeEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
)
from keryx.core.sessions import Binding, Session, TitleBy
from keryx.core.source import Source
from keryx.core.turns import STOP_REASONS, BusyMode, Turn, TurnLimits, TurnState
from keryx.core.usage import Budgets, Usage
from keryx.engine.units import access, answers, compaction, place, questions
from keryx.engine.units import usage as usage_units
from keryx.engine.units.place import PlaceFacts
from keryx.store import epochs, lanes, messages, usage
from keryx.store import sessions as sessions_store
from keryx.store import turns as turns_store
from keryx.store.db.database import Transaction, Work
from keryx.store.turns import TurnClaims

NO_ANSWER = "The agent gave no answer."
WORKER_GONE = "The program that was to run this turn is gone. /retry asks again."


class StoredFile(msgspec.Struct, frozen=True):
    """A file that the agent attached, once it is stored."""

    part: Media


RecordableEvent: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ToolCallEvent
    | ToolResultEvent
    | UsageEvent
    | NoticeEvent
    | StoredFile
    | CompactionEvent
    | CompactionFailedEvent
    | BindingEvent
)


class TurnProgress(msgspec.Struct, frozen=True):
    """How far the record of a turn goes: its messages, and the length of its draft, in which a file counts one."""

    messages: int = 0
    draft: int = 0

    def advance(self, events: Sequence[RecordableEvent]) -> "TurnProgress":
        """How far it goes once a batch of events has been stored."""
        count, draft = self.messages, self.draft
        for event in events:
            match event:
                case TextDelta(text) | ReasoningDelta(text):
                    draft += len(text)
                case ToolCallEvent():
                    count, draft = count + 1, 0
                case ToolResultEvent():
                    count += 1
                case StoredFile():
                    draft += 1
                case NoticeEvent(_, kind) if kind in STOP_REASONS:
                    count, draft = count + bool(draft), 0
                case (
                    UsageEvent()
                    | NoticeEvent()
                    | CompactionEvent()
                    | CompactionFailedEvent()
                    | BindingEvent()
                ):
                    pass
        return TurnProgress(count, draft)


class TurnInput(msgspec.Struct, frozen=True):
    """What a turn needs to begin: its session, what it is asked, and the summary of what was compacted."""

    session: Session
    asked: list[Message]
    summary: str
    place_facts: PlaceFacts
    cancelling: bool
    progress: TurnProgress = TurnProgress()
    answered: frozenset[str] = frozenset()
    compact: str | None = None
    may_compact: bool = True
    bindings: dict[str, Binding] = {}

    @property
    def shared(self) -> bool:
        """Whether several people talk here."""
        return self.place_facts.shared


TurnAuthors = Mapping[TurnId, Source]
"""Who asked for which turn, with the roles that they have now."""
NO_AUTHORS: TurnAuthors = MappingProxyType({})


def load_authors(tx: Transaction, asked: Sequence[Turn]) -> TurnAuthors:
    """Who asked for these turns, as far as they came in through a platform."""
    found = {turn.id: turns_store.get_author(tx, turn.id) for turn in asked}
    return {id_: source for id_, source in found.items() if source is not None}


def claim(
    tx: Transaction,
    *,
    most: int,
    worker: WorkerId,
    limits: TurnLimits,
    scoped: bool,
    session: SessionId | None,
    settled_at: datetime,
) -> tuple[TurnClaims, datetime | None]:
    """Lease what may run now, and return when to look again for what waits for a time rather than for an event."""
    claims = turns_store.claim(
        tx,
        most=most,
        worker=worker,
        lease=limits.lease,
        per_principal=limits.per_principal,
        scoped=scoped,
        session=session,
        settled=settled_at <= tx.now,
    )
    if not claims.waiting or len(claims.turns) == most:
        return claims, None
    times = [at for at in (turns_store.get_next_ready_at(tx), settled_at) if at and at > tx.now]
    return claims, min(times, default=None)


def load(
    tx: Transaction,
    turn: Turn,
    *,
    budgets: Budgets,
    rules: AccessRules = NO_RULES,
    asked: TurnAuthors = NO_AUTHORS,
) -> TurnInput:
    """Load what a turn begins with. Raise `Forbidden` if its author has used up a budget, or has lost the right to talk
    while it was queued."""
    usage_units.check_budget(tx, turn, budgets)
    standing = turns_store.get_status(tx, turn.id)
    access.recheck(tx, asked.get(turn.id) or standing.author, rules)
    session = sessions_store.get(tx, turn.session, deleted=True)
    around = place.load(tx, session, turn)
    epoch = epochs.find_current(tx, turn.session)
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    return TurnInput(
        session,
        core_messages.build_model_view(entries),
        epoch.summary if epoch else "",
        around,
        standing.cancelling,
        _measure_progress(tx, turn) if turn.interrupted_at else TurnProgress(),
        questions.list_taken_keys(tx, turn.id) if turn.interrupted_at else frozenset(),
        compaction.find_focus(entries[0]),
        epochs.can_begin(tx, turn.session),
        sessions_store.list_bindings(tx, turn.session),
    )


def write_once(tx: Transaction, turn: Turn, *, before: TurnProgress, work: Work[None]) -> None:
    """Do a unit of work of which nobody knows whether it was committed; `before` is how far the record went then."""
    current = turns_store.get(tx, turn.id)
    ended_here = current.state.finished and (current.worker, current.attempts) == (turn.worker, turn.attempts)
    if not ended_here and (current.lease != turn.lease or _measure_progress(tx, turn) == before):
        work(tx)


def _measure_progress(tx: Transaction, turn: Turn) -> TurnProgress:
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    own = [m for m in entries if m.role in (Role.ASSISTANT, Role.TOOL) and m.mark is not Mark.LATE]
    return TurnProgress(
        len(own), sum(len(p.text) + bool(p.media) for p in turns_store.list_draft_pieces(tx, turn.id))
    )


def append_events(tx: Transaction, turn: Turn, events: Sequence[RecordableEvent]) -> None:
    """Store a batch of events in order. Text grows the draft; a tool call turns the draft into a message."""
    turns_store.lock(tx, turn)
    fresh = _append_steps(tx, turn, events)
    if fresh:
        turns_store.append_draft(tx, turn, fresh)


def steer(
    tx: Transaction,
    turn: Turn,
    *,
    rules: AccessRules = NO_RULES,
    asked: TurnAuthors = NO_AUTHORS,
) -> list[Message]:
    """Give the running turn the waiting messages that are meant for it; their own turns are merged into it."""
    turns_store.lock(tx, turn)
    given: list[Message] = []
    for other in turns_store.list_queued(tx, turn.session):
        if other.mode is not BusyMode.STEER:
            break
        try:
            access.recheck(tx, asked.get(other.id) or turns_store.get_author(tx, other.id), rules)
        except Forbidden as exc:
            _close_with_notice(tx, other, TurnState.CANCELLED, str(exc))
            continue
        turns_store.merge(tx, other, into=turn)
        given.append(messages.get(tx, turn.session, other.input_seq))
    return given


def steer_idempotent(
    tx: Transaction,
    turn: Turn,
    *,
    known: frozenset[int],
    rules: AccessRules = NO_RULES,
    asked: TurnAuthors = NO_AUTHORS,
) -> list[Message]:
    """Steer when nobody knows whether it was done before: gives everything that the turn was not given yet."""
    steer(tx, turn, rules=rules, asked=asked)
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    return [m for m in entries if m.role is Role.USER and m.seq not in known]


def finish(tx: Transaction, turn: Turn, *, events: Sequence[RecordableEvent] = ()) -> None:
    """The last events, the answer, the end of the turn, the delivery and the title: all or nothing."""
    turns_store.lock(tx, turn)
    _append_draft(tx, turn, None, _append_steps(tx, turn, events))
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    compacted = compaction.find_focus(entries[0]) is not None
    answer = answers.TurnAnswer(compaction.render_result(tx, turn)) if compacted else answers.collect(entries)
    if not answers.is_silent(turn, answer):
        _deliver_answer(tx, turn, answer)
    # Whoever follows the feed takes this entry for the end of the turn: all that belongs to it comes before.
    turns_store.finish(tx, turn, TurnState.DONE)
    _set_default_title(tx, turn, entries[0])


def _deliver_answer(tx: Transaction, turn: Turn, answer: answers.TurnAnswer) -> None:
    if answer.text or answer.media:
        answers.deliver(tx, turn, answer)
    else:
        _notify(tx, turn, NO_ANSWER)


def fail(tx: Transaction, turn: Turn, error: str, *, events: Sequence[RecordableEvent] = ()) -> None:
    """The turn ends with an error: what was said stays, marked, and the person is told."""
    turns_store.lock(tx, turn)
    _append_draft(tx, turn, Mark.FAILED, _append_steps(tx, turn, events))
    turns_store.finish(tx, turn, TurnState.FAILED, error=error)
    _notify(tx, turn, error)
    _set_default_title(tx, turn)


def cancel(tx: Transaction, turn: Turn, *, events: Sequence[RecordableEvent] = ()) -> None:
    """The turn was stopped by a person: what was said stays, marked."""
    turns_store.lock(tx, turn)
    _append_draft(tx, turn, Mark.CANCELLED, _append_steps(tx, turn, events))
    turns_store.finish(tx, turn, TurnState.CANCELLED)
    answers.mark_stopped(tx, turn)
    _set_default_title(tx, turn)


def hand_back(tx: Transaction, turn: Turn, *, events: Sequence[RecordableEvent] = ()) -> None:
    """The process ends in good order: the turn goes back to the queue and the attempt does not count."""
    turns_store.lock(tx, turn)
    _append_draft(tx, turn, Mark.INTERRUPTED, _append_steps(tx, turn, events))
    if turn.pin:
        turns_store.finish(tx, turn, TurnState.CANCELLED, left=True)
    else:
        turns_store.requeue(tx, turn, attempts=turn.attempts - 1)


def append_late(tx: Transaction, turn: Turn, events: Sequence[RecordableEvent]) -> None:
    """Keep what came after the turn was lost to somebody else. It is shown with its turn and never sent."""
    said = [_build_late_part(e) for e in events if isinstance(e, TextDelta | StoredFile)]
    if said:
        parts = core_messages.merge_parts(said)
        messages.append(tx, turn.session, Role.ASSISTANT, parts, turn=turn.id, mark=Mark.LATE)


def _build_late_part(event: TextDelta | StoredFile) -> Text | Media:
    return Text(event.text) if isinstance(event, TextDelta) else event.part


def recover(tx: Transaction, ran: Sequence[Turn], *, fresh: timedelta, lease: timedelta) -> list[TurnState]:
    """All that a worker which is gone was running: each back to the queue while it is fresh and not to blame, else
    closed with a mark. In one unit of work, for who is to blame depends on who else ran."""
    still = [t for t in sorted(ran, key=lambda t: t.session) if _lock_if_leased(tx, t)]
    guilty = turns.find_blamed(still)
    return [_recover_turn(tx, t, guilty=guilty, fresh=fresh, lease=lease) for t in still]


def _lock_if_leased(tx: Transaction, turn: Turn) -> bool:
    sessions_store.lock(tx, turn.session)
    current = turns_store.get(tx, turn.id)
    return current.state is TurnState.RUNNING and current.lease == turn.lease


def _recover_turn(
    tx: Transaction,
    turn: Turn,
    *,
    guilty: frozenset[TurnId],
    fresh: timedelta,
    lease: timedelta,
) -> TurnState:
    _append_draft(tx, turn, Mark.INTERRUPTED)
    seen = (turn.lease_until or tx.now) - lease
    if turn.cancelling:
        turns_store.close(tx, turn, TurnState.CANCELLED)
        answers.mark_stopped(tx, turn)
        return TurnState.CANCELLED
    if turn.pin:
        text = "The program that ran this turn is gone. /retry asks again."
        return _close_with_notice(tx, turn, TurnState.FAILED, text, left=True)
    blames = 0 if _has_tool_result(tx, turn) else turn.blame + (turn.id in guilty)
    if turns.is_poisonous(turn.attempts, blames):
        for lane in lanes.list_for_session(tx, turn.session):
            lanes.set_suspended(tx, lane, True)
        text = f"This message was tried {turn.attempts} times and the process died each time. It is set aside; the next message starts afresh."
        return _close_with_notice(tx, turn, TurnState.PARKED, text)
    if tx.now - seen > fresh:
        return _close_with_notice(
            tx, turn, TurnState.EXPIRED, "This turn was interrupted long ago. /retry asks again."
        )
    counted = turn.id in guilty or not guilty
    turns_store.requeue(tx, turn, attempts=turn.attempts if counted else turn.attempts - 1, blame=blames)
    return TurnState.QUEUED


def _has_tool_result(tx: Transaction, turn: Turn) -> bool:
    """Whether a tool had answered in the try that was interrupted."""
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    began = turn.started_at or turn.created_at
    return any(m.role is Role.TOOL and m.at >= began for m in entries)


def close_orphan(tx: Transaction, turn: Turn) -> None:
    """A waiting turn that only a worker which is gone could run."""
    sessions_store.lock(tx, turn.session)
    _close_with_notice(tx, turn, TurnState.CANCELLED, WORKER_GONE)


def _close_with_notice(
    tx: Transaction,
    turn: Turn,
    state: TurnState,
    text: str,
    *,
    left: bool = False,
) -> TurnState:
    turns_store.close(tx, turn, state, error=text, left=left)
    _notify(tx, turn, text)
    return state


def _append_steps(
    tx: Transaction, turn: Turn, events: Sequence[RecordableEvent]
) -> list[Text | Reasoning | Media]:
    """Store tool steps and usage; gives the text after the last step, which is to become draft or answer."""
    fresh: list[Text | Reasoning | Media] = []
    for event in events:
        match event:
            case TextDelta(text):
                fresh.append(Text(text))
            case ReasoningDelta(text, opaque):
                fresh.append(Reasoning(text, opaque))
            case StoredFile(part):
                fresh.append(part)
            case ToolCallEvent(calls):
                parts = (*_take_draft(tx, turn, fresh), *calls)
                messages.append(tx, turn.session, Role.ASSISTANT, parts, turn=turn.id)
                fresh.clear()
            case ToolResultEvent(result):
                messages.append(tx, turn.session, Role.TOOL, (result,), turn=turn.id)
            case UsageEvent(used, task):
                usage.add(tx, turn, used, task=task)
            case NoticeEvent(text, kind):
                if kind in STOP_REASONS:
                    # It stands below what it is about.
                    _append_draft(tx, turn, None, fresh)
                    fresh.clear()
                _append_notice(tx, turn, text, kind)
            case BindingEvent(binding):
                sessions_store.save_binding(tx, turn.session, binding)
            case CompactionEvent():
                compaction.begin(tx, turn, event)
            case CompactionFailedEvent():
                compaction.fail(tx, turn, event)
    return [p for p in core_messages.merge_parts(fresh) if isinstance(p, Text | Reasoning | Media)]


def _append_notice(tx: Transaction, turn: Turn, text: str, kind: str) -> None:
    """A notice in the conversation; a warning goes to the place that asked as well."""
    messages.append(tx, turn.session, Role.NOTICE, (Notice(text, kind),), turn=turn.id)
    if kind == WARNING_KIND:
        answers.send_aside(tx, turn, text)


def _take_draft(tx: Transaction, turn: Turn, fresh: Sequence[Text | Reasoning | Media]) -> Parts:
    """The draft with the text after it; the draft is empty from here on."""
    return core_messages.merge_parts((*turns_store.take_draft(tx, turn.id), *fresh))


def _append_draft(
    tx: Transaction,
    turn: Turn,
    mark: Mark | None,
    fresh: Sequence[Text | Reasoning | Media] = (),
) -> None:
    parts = _take_draft(tx, turn, fresh)
    if parts:
        messages.append(tx, turn.session, Role.ASSISTANT, parts, turn=turn.id, mark=mark)


def _notify(tx: Transaction, turn: Turn, text: str) -> None:
    """A notice in the conversation, and to the place that asked."""
    messages.append(tx, turn.session, Role.NOTICE, (Notice(text),), turn=turn.id)
    answers.send_notice(tx, turn, text)


def set_title(tx: Transaction, turn: Turn, title: str, used: Usage) -> None:
    """Give a conversation the title that a model found for it, unless a person was faster."""
    usage.add(tx, turn, used, task="title")
    session = sessions_store.get(tx, turn.session, deleted=True)
    if session.title_by is TitleBy.RULE:
        sessions_store.rename(tx, session, title, by=TitleBy.MODEL)


def _set_default_title(tx: Transaction, turn: Turn, asked: Message | None = None) -> None:
    session = sessions_store.get(tx, turn.session, deleted=True)
    if session.title_by is None:
        question = asked or messages.get(tx, turn.session, turn.input_seq)
        sessions_store.rename(tx, session, sessions.derive_title(question.text), by=TitleBy.RULE)
