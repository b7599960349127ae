"""Record: what a running turn writes, each as one unit of work under its lease."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType

import msgspec

from keryx.core import blame, titles
from keryx.core import messages as core_messages
from keryx.core.access import NO_RULES, Rules
from keryx.core.bindings import Binding
from keryx.core.errors import Forbidden
from keryx.core.ids import TurnId
from keryx.core.media import Media
from keryx.core.messages import Mark, Message, Notice, Parts, Reasoning, Role, Text
from keryx.core.ports import (
    WARNING,
    Bound,
    Called,
    Compacted,
    NotCompacted,
    Noted,
    Returned,
    Said,
    Thought,
    Used,
)
from keryx.core.sessions import Session, TitleBy
from keryx.core.source import Source
from keryx.core.turns import ENDINGS, BusyMode, Turn, TurnState, Usage
from keryx.engine import access, answers, compaction, place, questions
from keryx.engine.mailbox import Kept, Recordable
from keryx.engine.place import Surroundings
from keryx.store import bindings, drafts, epochs, lanes, messages, sessions, turns, usage
from keryx.store.database import Transaction, Work

NO_ANSWER = "The agent gave no answer."
GONE = "The program that was to run this turn is gone. /retry asks again."


class Written(msgspec.Struct, frozen=True):
    """How far the record of a turn goes: its messages, and the length of its draft, in which a file counts one."""

    messages: int = 0
    draft: int = 0

    def grown(self, events: Sequence[Recordable]) -> "Written":
        """How far it goes once a batch of events has been stored."""
        count, draft = self.messages, self.draft
        for event in events:
            match event:
                case Said(text) | Thought(text):
                    draft += len(text)
                case Called():
                    count, draft = count + 1, 0
                case Returned():
                    count += 1
                case Kept():
                    draft += 1
                case Noted(_, kind) if kind in ENDINGS:
                    count, draft = count + bool(draft), 0
                case Used() | Noted() | Compacted() | NotCompacted() | Bound():
                    pass
        return Written(count, draft)


class Reading(msgspec.Struct, frozen=True):
    """What a turn needs to begin: its session, what it is asked, and the summary of what was compacted."""

    session: Session
    asked: list[Message]
    summary: str
    around: Surroundings
    cancelling: bool
    written: Written = Written()
    answered: frozenset[str] = frozenset()
    compact: str | None = None
    may_compact: bool = True
    bindings: dict[str, Binding] = {}

    @property
    def shared(self) -> bool:
        """Whether several people talk here."""
        return self.around.shared


Authors = Mapping[TurnId, Source]
"""Who asked for which turn, with the roles that they have now."""
NO_AUTHORS: Authors = MappingProxyType({})


def authors(tx: Transaction, asked: Sequence[Turn]) -> Authors:
    """Who asked for these turns, as far as they came in through a platform."""
    found = {turn.id: turns.author(tx, turn.id) for turn in asked}
    return {id_: source for id_, source in found.items() if source is not None}


def read(
    tx: Transaction, turn: Turn, *, now: datetime, rules: Rules = NO_RULES, asked: Authors = NO_AUTHORS
) -> Reading:
    """What a turn begins with. `Forbidden` if its author has lost the right to talk while it waited."""
    standing = turns.standing(tx, turn.id)
    access.recheck(tx, asked.get(turn.id) or standing.author, rules)
    session = sessions.get(tx, turn.session, deleted=True)
    around = place.look(tx, session, turn)
    epoch = epochs.current(tx, turn.session)
    entries = messages.of_turn(tx, turn.session, turn.id, first=turn.input_seq)
    return Reading(
        session,
        core_messages.view(entries),
        epoch.summary if epoch else "",
        around,
        standing.cancelling,
        _written(tx, turn) if turn.interrupted_at else Written(),
        questions.taken(tx, turn.id) if turn.interrupted_at else frozenset(),
        compaction.focus(entries[0]),
        epochs.may_begin(tx, turn.session, now=now),
        bindings.of_session(tx, turn.session),
    )


def unless_recorded(tx: Transaction, turn: Turn, *, before: Written, work: Work[None]) -> None:
    """Do a unit of work of which nobody knows whether it was committed; `before` is how far the record went then."""
    current = turns.get(tx, turn.id)
    ended_here = current.state.finished and (current.worker, current.attempts) == (turn.worker, turn.attempts)
    if not ended_here and (current.lease != turn.lease or _written(tx, turn) == before):
        work(tx)


def _written(tx: Transaction, turn: Turn) -> Written:
    entries = messages.of_turn(tx, turn.session, turn.id, first=turn.input_seq)
    own = [m for m in entries if m.role in (Role.ASSISTANT, Role.TOOL) and m.mark is not Mark.LATE]
    return Written(len(own), sum(len(p.text) + bool(p.media) for p in drafts.pieces(tx, turn.id)))


def progress(tx: Transaction, turn: Turn, events: Sequence[Recordable], *, now: datetime) -> None:
    """Store a batch of events in order. Text grows the draft; a tool call turns the draft into a message."""
    turns.hold(tx, turn)
    fresh = _steps(tx, turn, events, now)
    if fresh:
        drafts.grow(tx, turn, fresh, now=now)


def steer(
    tx: Transaction, turn: Turn, *, now: datetime, rules: Rules = NO_RULES, asked: Authors = NO_AUTHORS
) -> list[Message]:
    """Give the running turn the waiting messages that are meant for it; their own turns are merged into it."""
    turns.hold(tx, turn)
    given: list[Message] = []
    for other in turns.queued(tx, turn.session):
        if other.mode is not BusyMode.STEER:
            break
        try:
            access.recheck(tx, asked.get(other.id) or turns.author(tx, other.id), rules)
        except Forbidden as exc:
            _close(tx, other, TurnState.CANCELLED, str(exc), now)
            continue
        turns.merge(tx, other, into=turn, now=now)
        given.append(messages.get(tx, turn.session, other.input_seq))
    return given


def steer_again(
    tx: Transaction,
    turn: Turn,
    *,
    known: frozenset[int],
    now: datetime,
    rules: Rules = NO_RULES,
    asked: Authors = NO_AUTHORS,
) -> list[Message]:
    """Steer when nobody knows whether it was done before: gives everything that the turn was not given yet."""
    steer(tx, turn, now=now, rules=rules, asked=asked)
    entries = messages.of_turn(tx, turn.session, turn.id, first=turn.input_seq)
    return [m for m in entries if m.role is Role.USER and m.seq not in known]


def finish(tx: Transaction, turn: Turn, *, now: datetime, events: Sequence[Recordable] = ()) -> None:
    """The last events, the answer, the end of the turn, the delivery and the title: all or nothing."""
    turns.hold(tx, turn)
    _keep_draft(tx, turn, None, now, _steps(tx, turn, events, now))
    entries = messages.of_turn(tx, turn.session, turn.id, first=turn.input_seq)
    compacted = compaction.focus(entries[0]) is not None
    answer = answers.Answer(compaction.told(tx, turn)) if compacted else answers.given(entries)
    if not answers.silent(turn, answer):
        _answer(tx, turn, answer, now=now)
    # Whoever follows the feed takes this entry for the end of the turn: all that belongs to it comes before.
    turns.finish(tx, turn, TurnState.DONE, now=now)
    _give_title(tx, turn, now, entries[0])


def _answer(tx: Transaction, turn: Turn, answer: answers.Answer, *, now: datetime) -> None:
    if answer.text or answer.media:
        answers.deliver(tx, turn, answer, now=now)
    else:
        _tell(tx, turn, NO_ANSWER, now=now)


def fail(
    tx: Transaction, turn: Turn, error: str, *, now: datetime, events: Sequence[Recordable] = ()
) -> None:
    """The turn ends with an error: what was said stays, marked, and the person is told."""
    turns.hold(tx, turn)
    _keep_draft(tx, turn, Mark.FAILED, now, _steps(tx, turn, events, now))
    turns.finish(tx, turn, TurnState.FAILED, now=now, error=error)
    _tell(tx, turn, error, now=now)
    _give_title(tx, turn, now)


def cancel(tx: Transaction, turn: Turn, *, now: datetime, events: Sequence[Recordable] = ()) -> None:
    """The turn was stopped by a person: what was said stays, marked."""
    turns.hold(tx, turn)
    _keep_draft(tx, turn, Mark.CANCELLED, now, _steps(tx, turn, events, now))
    turns.finish(tx, turn, TurnState.CANCELLED, now=now)
    answers.stopped(tx, turn, now=now)
    _give_title(tx, turn, now)


def hand_back(tx: Transaction, turn: Turn, *, now: datetime, events: Sequence[Recordable] = ()) -> None:
    """The process ends in good order: the turn goes back to the queue and the attempt does not count."""
    turns.hold(tx, turn)
    _keep_draft(tx, turn, Mark.INTERRUPTED, now, _steps(tx, turn, events, now))
    if turn.pin:
        turns.finish(tx, turn, TurnState.CANCELLED, now=now, left=True)
    else:
        turns.requeue(tx, turn, now=now, attempts=turn.attempts - 1)


def keep_late(tx: Transaction, turn: Turn, events: Sequence[Recordable], *, now: datetime) -> None:
    """Keep what came after the turn was lost to somebody else. It is shown with its turn and never sent."""
    said = [_late(e) for e in events if isinstance(e, Said | Kept)]
    if said:
        parts = core_messages.join(said)
        messages.append(tx, turn.session, Role.ASSISTANT, parts, now=now, turn=turn.id, mark=Mark.LATE)


def _late(event: Said | Kept) -> Text | Media:
    return Text(event.text) if isinstance(event, Said) else event.part


def recover(
    tx: Transaction, ran: Sequence[Turn], *, now: datetime, fresh: timedelta, lease: timedelta
) -> list[TurnState]:
    """All that a worker which is gone was running: each back to the queue while it is fresh and not to blame, else
    closed with a mark. In one unit of work, for who is to blame depends on who else ran."""
    still = [t for t in sorted(ran, key=lambda t: t.session) if _still_held(tx, t)]
    guilty = blame.blamed(still)
    return [_recover(tx, t, guilty=guilty, now=now, fresh=fresh, lease=lease) for t in still]


def _still_held(tx: Transaction, turn: Turn) -> bool:
    sessions.lock(tx, turn.session)
    current = turns.get(tx, turn.id)
    return current.state is TurnState.RUNNING and current.lease == turn.lease


def _recover(
    tx: Transaction,
    turn: Turn,
    *,
    guilty: frozenset[TurnId],
    now: datetime,
    fresh: timedelta,
    lease: timedelta,
) -> TurnState:
    _keep_draft(tx, turn, Mark.INTERRUPTED, now)
    seen = (turn.lease_until or now) - lease
    if turn.cancelling:
        turns.close(tx, turn, TurnState.CANCELLED, now=now)
        answers.stopped(tx, turn, now=now)
        return TurnState.CANCELLED
    if turn.pin:
        text = "The program that ran this turn is gone. /retry asks again."
        return _close(tx, turn, TurnState.FAILED, text, now, left=True)
    blames = 0 if _advanced(tx, turn) else turn.blame + (turn.id in guilty)
    if blame.poisonous(turn.attempts, blames):
        for lane in lanes.of_session(tx, turn.session):
            lanes.suspend(tx, lane, True, now=now)
        text = f"This message was tried {turn.attempts} times and the process died each time. It is set aside; the next message starts afresh."
        return _close(tx, turn, TurnState.PARKED, text, now)
    if now - seen > fresh:
        return _close(
            tx, turn, TurnState.EXPIRED, "This turn was interrupted long ago. /retry asks again.", now
        )
    counted = turn.id in guilty or not guilty
    turns.requeue(tx, turn, now=now, attempts=turn.attempts if counted else turn.attempts - 1, blame=blames)
    return TurnState.QUEUED


def _advanced(tx: Transaction, turn: Turn) -> bool:
    """Whether a tool had answered in the try that was interrupted."""
    entries = messages.of_turn(tx, turn.session, turn.id, first=turn.input_seq)
    began = turn.started_at or turn.created_at
    return any(m.role is Role.TOOL and m.at >= began for m in entries)


def close_orphan(tx: Transaction, turn: Turn, *, now: datetime) -> None:
    """A waiting turn that only a worker which is gone could run."""
    sessions.lock(tx, turn.session)
    _close(tx, turn, TurnState.CANCELLED, GONE, now)


def _close(
    tx: Transaction,
    turn: Turn,
    state: TurnState,
    text: str,
    now: datetime,
    *,
    left: bool = False,
) -> TurnState:
    turns.close(tx, turn, state, now=now, error=text, left=left)
    _tell(tx, turn, text, now=now)
    return state


def _steps(
    tx: Transaction, turn: Turn, events: Sequence[Recordable], now: datetime
) -> list[Text | Reasoning | Media]:
    """Store tool steps and usage; gives the text after the last step, which is to become draft or answer."""
    fresh: list[Text | Reasoning | Media] = []
    for event in events:
        match event:
            case Said(text):
                fresh.append(Text(text))
            case Thought(text, opaque):
                fresh.append(Reasoning(text, opaque))
            case Kept(part):
                fresh.append(part)
            case Called(calls):
                parts = (*_said_so_far(tx, turn, fresh), *calls)
                messages.append(tx, turn.session, Role.ASSISTANT, parts, now=now, turn=turn.id)
                fresh.clear()
            case Returned(result):
                messages.append(tx, turn.session, Role.TOOL, (result,), now=now, turn=turn.id)
            case Used(used, task):
                usage.add(tx, turn, used, now=now, task=task)
            case Noted(text, kind):
                if kind in ENDINGS:
                    # It stands below what it is about.
                    _keep_draft(tx, turn, None, now, fresh)
                    fresh.clear()
                _note(tx, turn, text, kind, now=now)
            case Bound(binding):
                bindings.put(tx, turn.session, binding, now=now)
            case Compacted():
                compaction.begin(tx, turn, event, now=now)
            case NotCompacted():
                compaction.fail(tx, turn, event, now=now)
    return [p for p in core_messages.join(fresh) if isinstance(p, Text | Reasoning | Media)]


def _note(tx: Transaction, turn: Turn, text: str, kind: str, *, now: datetime) -> None:
    """A notice in the conversation; a warning goes to the place that asked as well."""
    messages.append(tx, turn.session, Role.NOTICE, (Notice(text, kind),), now=now, turn=turn.id)
    if kind == WARNING:
        answers.aside(tx, turn, text, now=now)


def _said_so_far(tx: Transaction, turn: Turn, fresh: Sequence[Text | Reasoning | Media]) -> Parts:
    """The draft with the text after it; the draft is empty from here on."""
    return core_messages.join((*drafts.take(tx, turn.id), *fresh))


def _keep_draft(
    tx: Transaction,
    turn: Turn,
    mark: Mark | None,
    now: datetime,
    fresh: Sequence[Text | Reasoning | Media] = (),
) -> None:
    parts = _said_so_far(tx, turn, fresh)
    if parts:
        messages.append(tx, turn.session, Role.ASSISTANT, parts, now=now, turn=turn.id, mark=mark)


def _tell(tx: Transaction, turn: Turn, text: str, *, now: datetime) -> None:
    """A notice in the conversation, and to the place that asked."""
    messages.append(tx, turn.session, Role.NOTICE, (Notice(text),), now=now, turn=turn.id)
    answers.tell(tx, turn, text, now=now)


def entitle(tx: Transaction, turn: Turn, title: str, used: Usage, *, now: datetime) -> None:
    """Give a conversation the title that a model found for it, unless a person was faster."""
    usage.add(tx, turn, used, now=now, task="title")
    session = sessions.get(tx, turn.session, deleted=True)
    if session.title_by is TitleBy.RULE:
        sessions.rename(tx, session, title, by=TitleBy.MODEL, now=now)


def _give_title(tx: Transaction, turn: Turn, now: datetime, asked: Message | None = None) -> None:
    session = sessions.get(tx, turn.session, deleted=True)
    if session.title_by is None:
        question = asked or messages.get(tx, turn.session, turn.input_seq)
        sessions.rename(tx, session, titles.automatic(question.text), by=TitleBy.RULE, now=now)
