"""Story: all that happened to one message, in order, with times and errors."""

from datetime import datetime

import msgspec

from keryx.core.ids import TurnId
from keryx.core.messages import Message, Role
from keryx.core.sessions import Session
from keryx.core.turns import Turn, TurnState
from keryx.store import deliveries, lanes, messages, questions, turns
from keryx.store.database import Transaction


class Event(msgspec.Struct, frozen=True):
    at: datetime
    what: str


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """`outcome` says in a few words how the message ended: every input ends in a visible state."""

    message: Message
    outcome: str
    events: list[Event]


def tell(tx: Transaction, session: Session, seq: int) -> Story:
    message = messages.get(tx, session.id, seq)
    turn = turns.find(tx, message.turn) if message.turn else None
    events = [Event(message.at, _received(message)), *_routes(tx, session, message)]
    if turn:
        events += _turn_events(tx, turn)
    return Story(message=message, outcome=_outcome(message, turn), events=sorted(events, key=lambda e: e.at))


def _received(message: Message) -> str:
    verb = "received" if message.role is Role.USER else f"written as {message.role.value}"
    via = f" via {message.surface}" if message.surface else ""
    who = f" from {message.author}" if message.author else ""
    return f"{verb}{via}{who} as message {message.seq}"


def _routes(tx: Transaction, session: Session, message: Message) -> list[Event]:
    """The last move of each lane that led here before the message came."""
    found: list[Event] = []
    for lane in lanes.of_session(tx, session.id):
        move = next((m for m in lanes.history(tx, lane.key) if m.at <= message.at), None)
        if move:
            found.append(Event(move.at, f"lane {lane.key} led here: {move.why}"))
    return found


def _turn_events(tx: Transaction, turn: Turn) -> list[Event]:
    events = [Event(turn.created_at, f"queued as turn {turn.id} ({turn.mode})")]
    if turn.started_at:
        events.append(Event(turn.started_at, f"attempt {turn.attempts} began on {turn.worker}"))
    if turn.interrupted_at:
        events.append(
            Event(turn.interrupted_at, "interrupted: the process was gone; put back into the queue")
        )
    events += [
        Event(m.at, f"{m.role.value} message {m.seq}{f' ({m.mark})' if m.mark else ''}")
        for m in messages.of_turn(tx, turn.session, turn.id, first=turn.input_seq)
        if m.role is not Role.USER
    ]
    for asked in questions.of_turn(tx, turn.id):
        events.append(Event(asked.created_at, f"asked: {asked.question.title}"))
        if asked.closed_at:
            answer = f": {asked.answer}" if asked.answer else ""
            events.append(Event(asked.closed_at, f"question {asked.state}{answer}"))
    if turn.finished_at:
        events.append(Event(turn.finished_at, f"{turn.state}{f': {turn.error}' if turn.error else ''}"))
    return events + _delivery_events(tx, turn.id)


def _delivery_events(tx: Transaction, turn: TurnId) -> list[Event]:
    events: list[Event] = []
    for d in deliveries.of_turn(tx, turn):
        events.append(Event(d.created_at, f"delivery {d.id} written for {d.target}"))
        error = f", {d.error}" if d.error else ""
        ids = f" as {', '.join(d.receipts)}" if d.receipts else ""
        at = d.sent_at or max(d.not_before, d.created_at)
        events.append(
            Event(
                at, f"delivery {d.id} {d.state} after {d.attempts} attempts, {d.parts_sent} parts{ids}{error}"
            )
        )
    return events


def _outcome(message: Message, turn: Turn | None) -> str:
    if message.undone:
        return "undone"
    if message.observed:
        return "observed only: nobody asked for an answer"
    if turn is None:
        return "kept"
    if turn.state is TurnState.DONE:
        return f"answered in turn {turn.id}"
    return f"{turn.state} (turn {turn.id})"
