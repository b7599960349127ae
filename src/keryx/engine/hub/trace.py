"""Everything that happened to one message, in order, with times and errors."""

from contextlib import suppress
from datetime import datetime

import msgspec

from keryx.core import lanes as lane_keys
from keryx.core.errors import Ambiguous, Invalid, NotFound
from keryx.core.ids import TurnId
from keryx.core.messages import Message, Notice, Role, parse_id
from keryx.core.sessions import Session, Viewer
from keryx.core.texts import ERROR_AREAS, Phrase, find_phrase
from keryx.core.turns import HOLD_KIND, Turn, TurnState
from keryx.engine.policy import Policy
from keryx.engine.units import access
from keryx.store import deliveries, inbox, lanes, messages, questions, sessions, turns
from keryx.store.db import Transaction


class TraceEvent(msgspec.Struct, frozen=True):
    at: datetime
    # A phrase, so that it can be rendered in another language.
    what: str


class MessageTrace(msgspec.Struct, frozen=True, kw_only=True):
    message: Message
    # What the message led to, in a few words, as a phrase.
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
        raise Ambiguous(Phrase("trace.several", name=repr(text[:80]), choices=choice))
    if visible:
        return visible[0]
    if events and viewer.owner is None:
        event = events[0]
        why = find_phrase(event.receipt.reason, "receipt") or Phrase("receipt.unknown")
        raise NotFound(
            Phrase(
                "trace.led_to_nothing",
                name=repr(text[:80]),
                platform=event.platform,
                time=f"{event.received_at:%Y-%m-%d %H:%M:%S}",
                reason=why,
            )
        )
    raise unknown


def build(tx: Transaction, session: Session, seq: int, *, policy: Policy) -> MessageTrace:
    message = messages.get(tx, session.id, seq)
    turn = turns.find(tx, message.turn) if message.turn else None
    begun = Phrase(
        "trace.received" if message.role is Role.USER else "trace.written",
        role=_describe_role(message),
        via=Phrase("trace.via", surface=message.surface) if message.surface else "",
        author=Phrase("trace.from", author=message.author) if message.author else "",
        seq=message.seq,
    )
    events = [TraceEvent(message.at, begun)]
    for lane in lanes.list_for_session(tx, session.id):
        move = next((m for m in lanes.list_moves(tx, lane.key) if m.at <= message.at), None)
        if move:
            why = find_phrase(move.why, "move")
            events.append(TraceEvent(move.at, Phrase("trace.lane_move", lane=lane.key, reason=why)))
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
        TraceEvent(turn.created_at, Phrase("trace.lane", lane=address.key)),
        TraceEvent(turn.created_at, Phrase("trace.author", rule=access.explain(tx, source, policy.access))),
        *([TraceEvent(turn.created_at, Phrase("trace.agent", agent=agent))] if agent else []),
    ]


def _list_turn_events(tx: Transaction, turn: Turn) -> list[TraceEvent]:
    events = [TraceEvent(turn.created_at, Phrase("trace.queued", turn=turn.id, mode=turn.mode.value))]
    if turn.started_at:
        began = Phrase("trace.attempt", number=turn.attempts, worker=turn.worker or "")
        events.append(TraceEvent(turn.started_at, began))
    entries = messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
    if turn.interrupted_at:
        held = any(isinstance(p, Notice) and p.kind == HOLD_KIND for m in entries for p in m.parts)
        why = Phrase("trace.limit" if held else "trace.process_gone")
        events.append(TraceEvent(turn.interrupted_at, Phrase("trace.interrupted", reason=why)))
    if turn.hold:
        events.append(TraceEvent(turn.hold.until, Phrase("trace.limit_resets", model=turn.hold.model)))
    events += [
        TraceEvent(
            m.at,
            Phrase(
                "trace.message",
                role=_describe_role(m),
                seq=m.seq,
                mark=Phrase("trace.mark", mark=Phrase(f"mark.{m.mark}")) if m.mark else "",
            ),
        )
        for m in entries
        if m.role is not Role.USER
    ]
    for asked in questions.list_for_turn(tx, turn.id):
        title = asked.question.display_title
        events.append(TraceEvent(asked.created_at, Phrase("trace.asked", title=title)))
        if asked.closed_at:
            chosen = next((o for o in asked.question.options if o.id == asked.answer), None)
            label = chosen.display_label if chosen else asked.answer
            answer = Phrase("trace.because", reason=label) if label else ""
            state = Phrase(f"trace.question_{asked.state}")
            events.append(TraceEvent(asked.closed_at, Phrase("trace.question", state=state, answer=answer)))
    if turn.finished_at:
        error = find_phrase(turn.error, *ERROR_AREAS) if turn.error else ""
        reason = Phrase("trace.because", reason=error) if error else ""
        state = Phrase(f"state.{turn.state}")
        events.append(TraceEvent(turn.finished_at, Phrase("trace.finished", state=state, reason=reason)))
    return events


def _list_delivery_events(tx: Transaction, turn: TurnId) -> list[TraceEvent]:
    events: list[TraceEvent] = []
    for d in deliveries.list_for_turn(tx, turn):
        written = Phrase("trace.delivery_written", delivery=d.id, target=str(d.target))
        events.append(TraceEvent(d.created_at, written))
        error = find_phrase(d.error, *ERROR_AREAS) if d.error else ""
        state = Phrase(
            "trace.delivery",
            delivery=d.id,
            state=Phrase(f"state.{d.state}"),
            attempts=d.attempts,
            parts=d.parts_sent,
            receipts=Phrase("trace.receipts", ids=", ".join(d.receipts)) if d.receipts else "",
            error=Phrase("trace.with_error", reason=error) if error else "",
        )
        events.append(TraceEvent(d.sent_at or max(d.not_before, d.created_at), state))
    return events


def _describe_role(message: Message) -> str:
    return Phrase(f"trace.role_{message.role.value}")


def _describe_outcome(message: Message, turn: Turn | None) -> str:
    if message.undone:
        return Phrase("mark.undone")
    if message.observed:
        return Phrase("trace.observed")
    if turn is None:
        return Phrase("trace.kept")
    if turn.state is TurnState.DONE:
        return Phrase("trace.answered", turn=turn.id)
    return Phrase("trace.ended", state=Phrase(f"state.{turn.state}"), turn=turn.id)
