"""Everything that happened to one message, in order, with times and errors."""

from contextlib import suppress
from datetime import datetime

import msgspec

from keryx.core import lanes as lane_keys
from keryx.core.errors import Ambiguous, Invalid, NotFound
from keryx.core.ids import TurnId
from keryx.core.messages import Message, Notice, Role, parse_id
from keryx.core.sessions import Session, Viewer
from keryx.core.text import format_count
from keryx.core.turns import HOLD_KIND, Turn, TurnState
from keryx.engine.policy import Policy
from keryx.engine.units import access
from keryx.store import deliveries, inbox, lanes, messages, questions, sessions, turns
from keryx.store.db import Transaction


class TraceEvent(msgspec.Struct, frozen=True):
    at: datetime
    what: str


class MessageTrace(msgspec.Struct, frozen=True, kw_only=True):
    message: Message
    # What the message led to, in a few words.
    outcome: str
    events: list[TraceEvent]


def find_message(tx: Transaction, viewer: Viewer, text: str) -> tuple[Session, int]:
    """Return the session and number of a message, by its id or by the id that its platform gave to it or to an answer.

    Raise `NotFound` for a message that the viewer may not see or that led to nothing, `Ambiguous` if there are several."""
    try:
        id_, seq = parse_id(text)
        return sessions.get(tx, id_, viewer=viewer), seq
    except (Invalid, NotFound) as exc:
        unknown = exc
    events = inbox.list_by_event(tx, text) or inbox.list_by_event(tx, text, partial=True)
    found = {(e.receipt.session, e.receipt.seq) for e in events if e.receipt.session and e.receipt.seq}
    for delivery in deliveries.list_by_message(tx, text):
        turn = turns.find(tx, delivery.turn) if delivery.turn else None
        if turn is not None:
            found.add((turn.session, turn.input_seq))
    visible: list[tuple[Session, int]] = []
    for id_, seq in sorted(found):
        with suppress(NotFound):
            visible.append((sessions.get(tx, id_, viewer=viewer), seq))
    if len(visible) > 1:
        choice = ", ".join(f"{session.id}.{seq}" for session, seq in visible)
        raise Ambiguous(f"{text[:80]!r} is several messages: choose one of {choice}")
    if visible:
        return visible[0]
    if events and viewer.owner is None:
        event = events[0]
        why = event.receipt.reason or "it changed an earlier message, or it came before reasons were kept"
        raise NotFound(
            f"{text[:80]!r} of {event.platform} came at {event.received_at:%Y-%m-%d %H:%M:%S} UTC and led to no message: {why}"
        )
    raise unknown


def build(tx: Transaction, session: Session, seq: int, *, policy: Policy) -> MessageTrace:
    message = messages.get(tx, session.id, seq)
    turn = turns.find(tx, message.turn) if message.turn else None
    verb = "received" if message.role is Role.USER else f"written as {message.role.value}"
    via = f" via {message.surface}" if message.surface else ""
    author = f" from {message.author}" if message.author else ""
    events = [TraceEvent(message.at, f"{verb}{via}{author} as message {message.seq}")]
    for lane in lanes.list_for_session(tx, session.id):
        move = next((m for m in lanes.list_moves(tx, lane.key) if m.at <= message.at), None)
        if move:
            events.append(TraceEvent(move.at, f"lane {lane.key} led here: {move.why}"))
    if turn:
        events += _list_routing_events(tx, session, turn, policy)
        events += [*_list_turn_events(tx, turn), *_list_delivery_events(tx, turn.id)]
    return MessageTrace(
        message=message, outcome=_describe_outcome(message, turn), events=sorted(events, key=lambda e: e.at)
    )


def _list_routing_events(tx: Transaction, session: Session, turn: Turn, policy: Policy) -> list[TraceEvent]:
    """Return by which lane a message of a platform came, which rule let its author talk, and which agent it was given to."""
    source = turns.get_author(tx, turn.id)
    if source is None:
        return []
    address = lane_keys.build_address(source, sharing=policy.sharing, aliases=access.find_aliases(tx, source))
    agent = policy.choose_agent(session.settings, source, profile=session.profile)
    return [
        TraceEvent(turn.created_at, f"came by lane {address.key}"),
        TraceEvent(turn.created_at, f"its author is {access.explain(tx, source, policy.access)}"),
        *([TraceEvent(turn.created_at, f"its agent is {agent}")] if agent else []),
    ]


def _list_turn_events(tx: Transaction, turn: Turn) -> list[TraceEvent]:
    events = [TraceEvent(turn.created_at, f"queued as turn {turn.id} ({turn.mode})")]
    if turn.started_at:
        events.append(TraceEvent(turn.started_at, f"attempt {turn.attempts} began on {turn.worker}"))
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    if turn.interrupted_at:
        held = any(isinstance(p, Notice) and p.kind == HOLD_KIND for m in entries for p in m.parts)
        why = "its model had reached a limit" if held else "the process was gone"
        events.append(TraceEvent(turn.interrupted_at, f"interrupted: {why}; put back into the queue"))
    if turn.hold:
        events.append(TraceEvent(turn.hold.until, f"the limit of {turn.hold.model} resets"))
    events += [
        TraceEvent(m.at, f"{m.role.value} message {m.seq}{f' ({m.mark})' if m.mark else ''}")
        for m in entries
        if m.role is not Role.USER
    ]
    for question in questions.list_for_turn(tx, turn.id):
        events.append(TraceEvent(question.created_at, f"asked: {question.question.title}"))
        if question.closed_at:
            answer = f": {question.answer}" if question.answer else ""
            events.append(TraceEvent(question.closed_at, f"question {question.state}{answer}"))
    if turn.finished_at:
        events.append(TraceEvent(turn.finished_at, f"{turn.state}{f': {turn.error}' if turn.error else ''}"))
    return events


def _list_delivery_events(tx: Transaction, turn: TurnId) -> list[TraceEvent]:
    events: list[TraceEvent] = []
    for d in deliveries.list_for_turn(tx, turn):
        events.append(TraceEvent(d.created_at, f"delivery {d.id} written for {d.target}"))
        error = f", {d.error}" if d.error else ""
        ids = f" as {', '.join(d.receipts)}" if d.receipts else ""
        at = d.sent_at or max(d.not_before, d.created_at)
        events.append(
            TraceEvent(
                at,
                f"delivery {d.id} {d.state} after {format_count(d.attempts, 'attempt')},"
                f" {format_count(d.parts_sent, 'part')}{ids}{error}",
            )
        )
    return events


def _describe_outcome(message: Message, turn: Turn | None) -> str:
    if message.undone:
        return "undone"
    if message.observed:
        return "observed only: nobody asked for an answer"
    if turn is None:
        return "kept"
    if turn.state is TurnState.DONE:
        return f"answered in turn {turn.id}"
    return f"{turn.state} (turn {turn.id})"
