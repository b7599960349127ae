"""The writes of a running turn, each fenced by its lease: events, steering, the end, and recovery after a crash."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from keryx.core import clock, durations, sessions, turns
from keryx.core import compaction as core_compaction
from keryx.core import messages as core_messages
from keryx.core.access import NO_RULES, AccessRules
from keryx.core.errors import Forbidden, QuotaReached
from keryx.core.ids import SessionId, TurnId, WorkerId
from keryx.core.media import Media
from keryx.core.messages import Audio, Mark, Message, Notice, Parts, Reasoning, Role, Text, ToolCall
from keryx.core.ports.agent import (
    WARNING_KIND,
    BindingEvent,
    CompactionEvent,
    CompactionFailedEvent,
    NoticeEvent,
    ReasoningDelta,
    RequestOptions,
    TextDelta,
    ToolCallEvent,
    ToolCallUpdateEvent,
    ToolResultEvent,
    UsageEvent,
)
from keryx.core.sessions import API_SURFACE, Binding, Session, TakeoverRules, TitleBy, Viewer
from keryx.core.source import Source
from keryx.core.texts import Phrase
from keryx.core.turns import HOLD_KIND, STOP_REASONS, BusyMode, Turn, TurnHold, TurnLimits, TurnState
from keryx.core.usage import Budgets, Usage
from keryx.engine import takeover
from keryx.engine.units import access, answers, compaction, place, questions
from keryx.engine.units import usage as usage_units
from keryx.engine.units.place import PlaceFacts
from keryx.store import api_turns, downloads, epochs, lanes, messages, usage, viewer_state
from keryx.store import questions as questions_store
from keryx.store import sessions as sessions_store
from keryx.store import turns as turns_store
from keryx.store.db import Transaction, Work
from keryx.store.turns import TurnClaims

NO_TAKEOVERS = TakeoverRules()
NO_ANSWER = Phrase("turn.no_answer")


class StoredFile(msgspec.Struct, frozen=True):
    """A file that the agent attached, once it is stored."""

    part: Media


class SectionEnd(msgspec.Struct, frozen=True):
    """What the agent has said so far is a message of its own: a question to a person follows."""


RecordableEvent: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ToolCallEvent
    | ToolCallUpdateEvent
    | ToolResultEvent
    | UsageEvent
    | NoticeEvent
    | StoredFile
    | SectionEnd
    | CompactionEvent
    | CompactionFailedEvent
    | BindingEvent
)


class TurnProgress(msgspec.Struct, frozen=True):
    """How much of a turn is stored."""

    messages: int = 0
    # The length of the draft; a file counts one.
    draft: int = 0

    def advance(self, events: Sequence[RecordableEvent]) -> "TurnProgress":
        """Return the progress after a batch of events is stored."""
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
                case SectionEnd():
                    count, draft = count + bool(draft), 0
                case NoticeEvent(_, kind) if kind in STOP_REASONS:
                    count, draft = count + bool(draft), 0
                case (
                    UsageEvent()
                    | ToolCallUpdateEvent()
                    | NoticeEvent()
                    | CompactionEvent()
                    | CompactionFailedEvent()
                    | BindingEvent()
                ):
                    pass
        return TurnProgress(count, draft)


class TurnInput(msgspec.Struct, frozen=True):
    """What a turn needs to begin."""

    session: Session
    # The messages of the turn, as the model sees them.
    messages: list[Message]
    # Of the compacted part of the session.
    summary: str
    place_facts: PlaceFacts
    cancelling: bool
    # Of an interrupted attempt: what is stored, and the keys of its questions whose outcome the agent has received.
    progress: TurnProgress = TurnProgress()
    answered: frozenset[str] = frozenset()
    # What a requested compaction should keep, perhaps nothing; `None` for an ordinary turn.
    compact: str | None = None
    may_compact: bool = True
    bindings: dict[str, Binding] = {}
    # The agent that continues the session of another program; empty for the one that the policy names.
    agent: str = ""
    # That the owner has set, empty if none.
    zone: str = ""
    # What the program asks for that began the turn.
    options: RequestOptions = RequestOptions()

    @property
    def shared(self) -> bool:
        """Whether several people talk here."""
        return self.place_facts.shared


TurnAuthors = Mapping[TurnId, Source]
"""The authors of turns, with their current roles."""
NO_AUTHORS: TurnAuthors = MappingProxyType({})


def load_authors(tx: Transaction, selected: Sequence[Turn]) -> TurnAuthors:
    """Return the authors of those turns that came from a platform."""
    authors = {turn.id: turns_store.get_author(tx, turn.id) for turn in selected}
    return {id_: source for id_, source in authors.items() if source is not None}


def load_queued_authors(tx: Transaction, *, session: SessionId) -> TurnAuthors:
    """Return the authors of the queued turns of a session that came from a platform."""
    return load_authors(tx, turns_store.list_queued(tx, session))


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
        # Whoever lets one person have all places wants just that.
        sparing=limits.per_principal < limits.at_once,
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
    authors: TurnAuthors = NO_AUTHORS,
    takeovers: TakeoverRules = NO_TAKEOVERS,
) -> TurnInput:
    """Load what a turn begins with. Raise `Forbidden` if its author has used up a budget, or has lost the right to talk
    while it was queued, or if another program works on the session."""
    usage_units.check_budget(tx, turn, budgets)
    status = turns_store.get_status(tx, turn.id)
    access.recheck(tx, authors.get(turn.id) or status.author, rules)
    session = sessions_store.get(tx, turn.session, deleted=True)
    bindings = sessions_store.list_bindings(tx, turn.session)
    taken = takeover.prepare(tx, session, takeovers)
    if taken:
        bindings[taken.agent] = taken.binding
    place_facts = place.load(tx, session, turn)
    epoch = epochs.find_current(tx, turn.session)
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    asked = api_turns.find(tx, turn.id) if turn.surface == API_SURFACE else None
    return TurnInput(
        session,
        core_messages.build_model_view(entries),
        epoch.summary if epoch else "",
        place_facts,
        status.cancelling,
        _measure_progress(tx, turn) if turn.interrupted_at else TurnProgress(),
        questions.list_taken_keys(tx, turn.id) if turn.interrupted_at else frozenset(),
        compaction.find_focus(entries[0]),
        epochs.can_begin(tx, turn.session),
        bindings,
        taken.agent if taken else "",
        viewer_state.get_zone(tx, Viewer(turn.profile, turn.owner)),
        asked.options if asked else RequestOptions(),
    )


def write_once(tx: Transaction, turn: Turn, *, before: TurnProgress, work: Work[None]) -> None:
    """Retry a unit of work that may have been committed: run it only if nothing was stored since `before`."""
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


def is_unanswered(tx: Transaction, turn: Turn) -> bool:
    """Whether a turn of a person's message has produced nothing and asked nothing."""
    first = messages.get(tx, turn.session, turn.input_seq)
    began = _measure_progress(tx, turn) != TurnProgress() or questions_store.list_for_turn(tx, turn.id)
    return not began and compaction.find_focus(first) is None


def append_events(tx: Transaction, turn: Turn, events: Sequence[RecordableEvent]) -> None:
    """Store a batch of events in order. Text grows the draft; a tool call turns the draft into a message."""
    turns_store.lock(tx, turn)
    fresh = _append_steps(tx, turn, events)
    if fresh:
        turns_store.append_draft(tx, turn, fresh)


def list_sounds(message: Message) -> list[int]:
    """Return the positions of the sounds in a message of a user that have no transcript."""
    return [
        n
        for n, part in enumerate(message.parts)
        if message.role is Role.USER and isinstance(part, Audio) and not part.transcript.strip()
    ]


def save_transcript(tx: Transaction, turn: Turn, *, seq: int, parts: Parts) -> None:
    """Store the parts of a message of a running turn, with what is said in its sounds."""
    turns_store.lock(tx, turn)
    texts = answers.speak(tx, turn)
    told = tuple(
        msgspec.structs.replace(p, transcript=texts.render(p.transcript)) if isinstance(p, Audio) else p
        for p in parts
    )
    messages.replace_parts(tx, messages.get(tx, turn.session, seq), told)


def withdraw_input(tx: Transaction, turn: Turn) -> None:
    """Hide the message of a running turn from the model, because it was not permitted. Idempotent."""
    turns_store.lock(tx, turn)
    messages.set_mark(tx, messages.get(tx, turn.session, turn.input_seq), Mark.WITHDRAWN)


def steer(
    tx: Transaction,
    turn: Turn,
    *,
    rules: AccessRules = NO_RULES,
    authors: TurnAuthors = NO_AUTHORS,
) -> list[Message]:
    """Merge the queued turns that steer into the running turn, and return their messages."""
    turns_store.lock(tx, turn)
    steering: list[Message] = []
    for other in turns_store.list_queued(tx, turn.session):
        if other.mode is not BusyMode.STEER or downloads.has_any(tx, other.id):
            break
        try:
            access.recheck(tx, authors.get(other.id) or turns_store.get_author(tx, other.id), rules)
        except Forbidden as exc:
            _close_with_notice(tx, other, TurnState.CANCELLED, exc.text)
            continue
        turns_store.merge(tx, other, into=turn)
        steering.append(messages.get(tx, turn.session, other.input_seq))
    return steering


def steer_idempotent(
    tx: Transaction,
    turn: Turn,
    *,
    known: frozenset[int],
    rules: AccessRules = NO_RULES,
    authors: TurnAuthors = NO_AUTHORS,
) -> list[Message]:
    """Idempotent variant of `steer`, for retries. Return every message of the turn that is not among `known`."""
    steer(tx, turn, rules=rules, authors=authors)
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    return [m for m in entries if m.role is Role.USER and m.seq not in known]


def finish(tx: Transaction, turn: Turn, *, events: Sequence[RecordableEvent] = ()) -> None:
    """Store the last events and the answer, enqueue its delivery, end the turn and set a default title."""
    turns_store.lock(tx, turn)
    _append_draft(tx, turn, None, _append_steps(tx, turn, events))
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    asked = compaction.find_focus(entries[0]) is not None
    compacted = asked and any(core_compaction.is_epoch_notice(m.parts) for m in entries)
    sent_seq = turns_store.get_sent_seq(tx, turn.id)
    if compacted:
        answer = answers.TurnAnswer(compaction.render_result(tx, turn))
    else:
        answer = answers.collect(entries, after=sent_seq)
    if not answers.is_silent(turn, answer):
        if answer.text or answer.media:
            answers.deliver(tx, turn, answer)
        elif sent_seq:
            answers.end_preview(tx, turn)
        elif turn.surface != API_SURFACE or not entries[-1].calls:
            # The answer to a program may consist of calls that it has to make.
            _notify(tx, turn, NO_ANSWER)
    # Followers of the feed take this change for the end of the turn, so all its other changes come first.
    turns_store.finish(tx, turn, TurnState.DONE)
    _set_default_title(tx, turn, entries[0])


def fail(
    tx: Transaction,
    turn: Turn,
    error: str,
    *,
    events: Sequence[RecordableEvent] = (),
    refused: bool = False,
    may_retry: bool = True,
) -> None:
    """End the turn with an error. Its text so far is kept with a mark, and the user gets a notice.

    A question that was refused or has no answer at all is set aside: the model does not see it again."""
    turns_store.lock(tx, turn)
    error = answers.speak(tx, turn).render(error)
    _append_draft(tx, turn, Mark.FAILED, _append_steps(tx, turn, events))
    hint = _set_aside(tx, turn, error, refused=refused, may_retry=may_retry)
    turns_store.finish(tx, turn, TurnState.FAILED, error=error)
    _notify(tx, turn, error + hint)
    _set_default_title(tx, turn)


def cancel(tx: Transaction, turn: Turn, *, events: Sequence[RecordableEvent] = ()) -> None:
    """End a turn that was stopped by a user. Its text so far is kept with a mark; without any, the question is marked."""
    turns_store.lock(tx, turn)
    _append_draft(tx, turn, Mark.CANCELLED, _append_steps(tx, turn, events))
    _mark_unanswered(tx, turn)
    turns_store.finish(tx, turn, TurnState.CANCELLED)
    answers.mark_stopped(tx, turn)
    _set_default_title(tx, turn)


def may_hold(turn: Turn, error: QuotaReached, *, longest: timedelta) -> bool:
    """Whether a turn waits until the limit of its model resets. A program that asked is told of the limit at once."""
    return turn.surface != API_SURFACE and error.until - turn.created_at <= longest


def hold(
    tx: Transaction,
    turn: Turn,
    error: QuotaReached,
    *,
    longest: timedelta,
    zone: str,
    events: Sequence[RecordableEvent] = (),
) -> None:
    """Put the turn back into the queue until the limit of its model resets, and tell the person once. If that is too
    late, or a program waits for the answer, end the turn with an error. One that is being stopped ends."""
    if turns_store.get_status(tx, turn.id).cancelling:
        cancel(tx, turn, events=events)
        return
    zone = viewer_state.get_zone(tx, Viewer(turn.profile, turn.asker)) or zone
    fields = {"name": error.model, "time": clock.describe_moment(error.until, zone, now=tx.now)}
    if not may_hold(turn, error, longest=longest):
        span = durations.describe(longest)
        fail(tx, turn, Phrase("turn.hold_too_long", **fields, span=span), events=events)
        return
    turns_store.lock(tx, turn)
    _append_draft(tx, turn, Mark.INTERRUPTED, _append_steps(tx, turn, events))
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    notices = [p for m in entries if m.role is Role.NOTICE for p in m.parts]
    if not any(isinstance(p, Notice) and p.kind == HOLD_KIND for p in notices):
        text = answers.speak(tx, turn).render(Phrase("turn.held", **fields))
        messages.append(tx, turn.session, Role.NOTICE, (Notice(text, HOLD_KIND),), turn=turn.id)
        answers.send_aside(tx, turn, text)
    turns_store.hold(tx, turn, TurnHold(model=error.model, until=error.until))


def hand_back(tx: Transaction, turn: Turn, *, events: Sequence[RecordableEvent] = ()) -> None:
    """Put the turn back into the queue when the process stops. The attempt does not count."""
    turns_store.lock(tx, turn)
    _append_draft(tx, turn, Mark.INTERRUPTED, _append_steps(tx, turn, events))
    if turn.pin:
        turns_store.finish(tx, turn, TurnState.CANCELLED, left=True)
    else:
        turns_store.requeue(tx, turn, attempts=turn.attempts - 1)


def append_late(tx: Transaction, turn: Turn, events: Sequence[RecordableEvent]) -> None:
    """Store what an agent produced after its turn was lost to another worker. It is shown with the turn, never sent.
    What it said to a part of the messages of a turn that began again with all of them is not stored."""
    if turns_store.was_restarted(tx, turn):
        return
    late = [
        Text(e.text) if isinstance(e, TextDelta) else e.part
        for e in events
        if isinstance(e, TextDelta | StoredFile)
    ]
    if late:
        parts = core_messages.merge_parts(late)
        messages.append(tx, turn.session, Role.ASSISTANT, parts, turn=turn.id, mark=Mark.LATE)


def recover(
    tx: Transaction,
    abandoned: Sequence[Turn],
    *,
    fresh: timedelta,
    lease: timedelta,
    spare: bool = False,
) -> list[tuple[Turn, TurnState]]:
    """Recover all turns that a dead worker was running: requeue those that are fresh and not to blame for its death,
    and close the others with a notice. With `spare` none is to blame: a delivery is suspected. Return the turns with
    their new states.

    One unit of work, because the blame for one turn depends on which others ran."""
    leased: list[Turn] = []
    for turn in sorted(abandoned, key=lambda t: t.session):
        sessions_store.lock(tx, turn.session)
        current = turns_store.get(tx, turn.id)
        if current.state is TurnState.RUNNING and current.lease == turn.lease:
            leased.append(turn)
    blamed = None if spare else turns.find_blamed(leased)
    return [(t, _recover_turn(tx, t, blamed=blamed, fresh=fresh, lease=lease)) for t in leased]


def _recover_turn(
    tx: Transaction,
    turn: Turn,
    *,
    blamed: frozenset[TurnId] | None,
    fresh: timedelta,
    lease: timedelta,
) -> TurnState:
    """Recover one turn. `blamed` may be empty, if several turns are equally likely, or `None`, if none is to blame."""
    _append_draft(tx, turn, Mark.INTERRUPTED)
    seen = (turn.lease_until or tx.now) - lease
    if turn.cancelling:
        _mark_unanswered(tx, turn)
        turns_store.close(tx, turn, TurnState.CANCELLED)
        answers.mark_stopped(tx, turn)
        return TurnState.CANCELLED
    if turn.pin:
        return _close_with_notice(tx, turn, TurnState.FAILED, Phrase("turn.worker_died"), left=True)
    # A tool result in the interrupted attempt is progress, which clears the turn of blame.
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    began = turn.started_at or turn.created_at
    progressed = any(m.role is Role.TOOL and m.at >= began for m in entries)
    guilty = blamed is not None and turn.id in blamed
    blames = 0 if progressed else turn.blame + guilty
    if blamed is not None and turns.is_poisonous(turn.attempts, blames):
        for lane in lanes.list_for_session(tx, turn.session):
            lanes.set_suspended(tx, lane, True)
        text = Phrase("turn.parked", count=turn.attempts)
        return _close_with_notice(tx, turn, TurnState.PARKED, text)
    if tx.now - seen > fresh:
        return _close_with_notice(tx, turn, TurnState.EXPIRED, Phrase("turn.expired"))
    counted = guilty or (blamed is not None and not blamed)
    turns_store.requeue(tx, turn, attempts=turn.attempts if counted else turn.attempts - 1, blame=blames)
    return TurnState.QUEUED


def close_orphan(tx: Transaction, turn: Turn) -> None:
    """Close a queued turn that only a dead worker could run."""
    sessions_store.lock(tx, turn.session)
    _close_with_notice(tx, turn, TurnState.CANCELLED, Phrase("turn.worker_gone"))


def _close_with_notice(
    tx: Transaction,
    turn: Turn,
    state: TurnState,
    text: str,
    *,
    left: bool = False,
) -> TurnState:
    text = answers.speak(tx, turn).render(text)
    hint = _set_aside(tx, turn, text) if state is not TurnState.PARKED else ""
    turns_store.close(tx, turn, state, error=text, left=left)
    _notify(tx, turn, text + hint)
    return state


def _set_aside(
    tx: Transaction, turn: Turn, error: str, *, refused: bool = False, may_retry: bool = True
) -> str:
    """Mark the questions of a turn that has no answer, or whose question was refused, so that they are not joined to the
    next one. Return what to tell the user, empty if nothing was set aside."""
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    if not refused and any(m.role is Role.ASSISTANT and (m.text.strip() or m.calls) for m in entries):
        return ""
    asked = [m for m in entries if m.role is Role.USER and m.mark in (None, Mark.EDITED)]
    for message in asked:
        messages.set_mark(tx, message, Mark.FAILED)
    if not asked or not may_retry or turn.surface == sessions.JOB_SURFACE:
        return ""
    texts = answers.speak(tx, turn)
    hint = Phrase("turn.set_aside_until" if f"{texts.sign}retry" in error else "turn.set_aside")
    return f" {texts.render(hint)}"


def _mark_unanswered(tx: Transaction, turn: Turn) -> None:
    """Mark the questions of a turn that was stopped before its first word, so that every surface shows the stop."""
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    if any(m.role in (Role.ASSISTANT, Role.TOOL) and m.mark is not Mark.LATE for m in entries):
        return
    for message in entries:
        if message.role is Role.USER and message.mark in (None, Mark.EDITED):
            messages.set_mark(tx, message, Mark.CANCELLED)


def _append_steps(
    tx: Transaction, turn: Turn, events: Sequence[RecordableEvent]
) -> list[Text | Reasoning | Media]:
    """Store tool steps, notices and usage. Return the parts after the last step, for the draft or the answer."""
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
                seq = messages.append(tx, turn.session, Role.ASSISTANT, parts, turn=turn.id)
                answers.send_step(tx, turn, seq)
                fresh.clear()
            case SectionEnd():
                seq = _append_draft(tx, turn, None, fresh)
                if seq is not None:
                    answers.send_step(tx, turn, seq)
                fresh.clear()
            case ToolCallUpdateEvent(call):
                _update_call(tx, turn, call)
            case ToolResultEvent(result):
                messages.append(tx, turn.session, Role.TOOL, (result,), turn=turn.id)
            case UsageEvent(used, task):
                usage.add(tx, turn, used, task=task)
            case NoticeEvent(text, kind):
                if kind in STOP_REASONS:
                    # The notice comes after the text that it explains.
                    _append_draft(tx, turn, None, fresh)
                    fresh.clear()
                text = answers.speak(tx, turn).render(text)
                messages.append(tx, turn.session, Role.NOTICE, (Notice(text, kind),), turn=turn.id)
                if kind == WARNING_KIND:
                    answers.send_aside(tx, turn, text)
            case BindingEvent(binding):
                sessions_store.save_binding(tx, turn.session, binding)
            case CompactionEvent():
                compaction.begin(tx, turn, event)
            case CompactionFailedEvent():
                compaction.fail(tx, turn, event)
    return [p for p in core_messages.merge_parts(fresh) if isinstance(p, Text | Reasoning | Media)]


def _update_call(tx: Transaction, turn: Turn, call: ToolCall) -> None:
    """Replace the name and input of the newest stored call of a turn with the same id."""
    for message in reversed(messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)):
        parts = tuple(call if isinstance(p, ToolCall) and p.id == call.id else p for p in message.parts)
        if parts != message.parts:
            messages.replace_parts(tx, message, parts)
            return


def _take_draft(tx: Transaction, turn: Turn, fresh: Sequence[Text | Reasoning | Media]) -> Parts:
    """Empty the draft, and return it with the parts that follow it."""
    return core_messages.merge_parts((*turns_store.take_draft(tx, turn.id), *fresh))


def _append_draft(
    tx: Transaction,
    turn: Turn,
    mark: Mark | None,
    fresh: Sequence[Text | Reasoning | Media] = (),
) -> int | None:
    """Turn the draft into a message, and return its number; `None` without a draft."""
    parts = _take_draft(tx, turn, fresh)
    if not parts:
        return None
    return messages.append(tx, turn.session, Role.ASSISTANT, parts, turn=turn.id, mark=mark)


def _notify(tx: Transaction, turn: Turn, text: str) -> None:
    """Append a notice to the session and send it to the chat that asked."""
    text = answers.speak(tx, turn).render(text)
    messages.append(tx, turn.session, Role.NOTICE, (Notice(text),), turn=turn.id)
    answers.send_notice(tx, turn, text)


def set_title(tx: Transaction, turn: Turn, title: str, used: Usage) -> None:
    """Set the title that a model proposed, unless a person has set one meanwhile."""
    usage.add(tx, turn, used, task="title")
    session = sessions_store.get(tx, turn.session, deleted=True)
    if session.title_by is TitleBy.RULE:
        sessions_store.rename(tx, session, title, by=TitleBy.MODEL)


def _set_default_title(tx: Transaction, turn: Turn, message: Message | None = None) -> None:
    if not sessions_store.has_title(tx, turn.session):
        session = sessions_store.get(tx, turn.session, deleted=True)
        message = message or messages.get(tx, turn.session, turn.input_seq)
        sessions_store.rename(
            tx,
            session,
            sessions.derive_title(core_messages.read_text(message, answers.speak(tx, turn))),
            by=TitleBy.RULE,
        )
