"""Counts, logs and traces the steps of a message: received, answered, delivered. No message text and no raw id of a chat gets into them."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from keryx import logs, metrics, tracing
from keryx.core.deliveries import Delivery, DeliveryState
from keryx.core.errors import KeryxError, QuotaReached
from keryx.core.ids import TurnId, WorkerId
from keryx.core.ports.adapter import InboundEvent, Receipt
from keryx.core.ports.agent import ReasoningDelta, TextDelta, ToolCallEvent, UsageEvent
from keryx.core.turns import Turn, TurnState
from keryx.core.usage import MILLION, Tokens, Usage
from keryx.engine.loops.mailbox import AgentExit, CancelRequest, HandBack, TurnEnd, TurnTimeout
from keryx.engine.units import spans, turn_writes
from keryx.engine.units.deliveries import SendOutcome
from keryx.engine.units.turn_writes import RecordableEvent, TurnProgress
from keryx.store.db import Database

log = logging.getLogger(__name__)
_NOTHING = TurnProgress()
_OUTPUT_EVENTS = (TextDelta, ReasoningDelta, ToolCallEvent)


def report_received(inbound: InboundEvent, receipt: Receipt, seconds: float) -> None:
    source = inbound.source
    report_asked(source.platform, source.chat or source.user, receipt, seconds)


def report_asked(platform: str, chat: str | None, receipt: Receipt, seconds: float) -> None:
    if receipt.duplicate:
        outcome = "duplicate"
    elif receipt.turn:
        outcome = "queued"
    elif receipt.reply:
        outcome = "replied"
    else:
        outcome = "stored" if receipt.session else "ignored"
    metrics.RECEIVED.add(platform, outcome)
    log.info(
        "received",
        extra=logs.fields(
            session=receipt.session,
            turn=receipt.turn,
            platform=platform,
            chat=logs.hash_chat(chat),
            outcome=outcome,
            seconds=round(seconds, 4),
        ),
    )


def begin_turn(turn: Turn, now: datetime) -> None:
    """Bind the fields of all lines of a turn to its task."""
    metrics.TURN_WAIT.observe((now - turn.created_at).total_seconds())
    chat = logs.hash_chat(turn.reply.chat) if turn.reply else None
    platform = turn.reply.platform if turn.reply else turn.surface
    logs.bind(
        session=turn.session,
        turn=turn.id,
        platform=platform or None,
        chat=chat,
        attempt=turn.attempts,
        wait=_measure_age(turn, now),
    )


def report_turn(
    turn: Turn,
    events: Sequence[RecordableEvent],
    end: TurnEnd | None,
    before: TurnProgress,
    now: datetime,
    *,
    longest_hold: timedelta,
) -> None:
    """Report what was stored of a turn: its first output, its usage, and its end."""
    seconds = _measure_age(turn, now)
    if before == _NOTHING and any(isinstance(e, _OUTPUT_EVENTS) for e in events):
        metrics.FIRST_TOKEN.observe(seconds)
        logs.update(first_token=seconds)
    for event in events:
        if isinstance(event, UsageEvent):
            report_usage(event.usage)
    if end is not None:
        outcome = _describe_end(turn, end, longest_hold)
        metrics.TURNS.add(outcome)
        metrics.TURN_TIME.observe(seconds, outcome)
        log.info("answered", extra=logs.fields(outcome=outcome, seconds=seconds))


def report_usage(usage: Usage) -> None:
    logs.update(model=usage.model or None)
    counts = msgspec.structs.asdict(usage)
    for kind in Tokens.__struct_fields__:
        if counts[kind]:
            metrics.TOKENS.add(usage.model, kind, by=counts[kind])
    if usage.cost:
        metrics.COST.add(usage.model, by=usage.cost / MILLION)


def report_recovered(turn: Turn, state: TurnState, now: datetime) -> None:
    """Report a turn whose process died."""
    outcome = "interrupted" if state is TurnState.QUEUED else state.value
    metrics.TURNS.add(outcome)
    log.info(
        "recovered",
        extra=logs.fields(
            session=turn.session,
            turn=turn.id,
            attempt=turn.attempts,
            outcome=outcome,
            seconds=_measure_age(turn, now),
        ),
    )


def begin_delivery(delivery: Delivery) -> None:
    """Bind the fields of all lines of a delivery to its task."""
    logs.bind(
        session=delivery.session,
        turn=delivery.turn,
        delivery=delivery.id,
        platform=delivery.target.platform,
        chat=logs.hash_chat(delivery.target.chat),
        attempt=delivery.attempts,
    )


def report_delivery(delivery: Delivery, step: SendOutcome, now: datetime) -> None:
    """Report the end of an attempt to send."""
    outcome = step.state.value
    if step.state is DeliveryState.READY:
        outcome = "throttled" if step.gate_until else "retry"
    seconds = round((now - delivery.created_at).total_seconds(), 3)
    metrics.DELIVERIES.add(delivery.target.platform, outcome)
    if step.state is DeliveryState.SENT:
        metrics.DELIVERY_TIME.observe(seconds, delivery.target.platform)
    log.info(
        "delivered" if step.state is DeliveryState.SENT else "not delivered",
        extra=logs.fields(outcome=outcome, seconds=seconds),
    )


async def trace_turn(database: Database, turn: TurnId) -> None:
    """Export the steps of a turn that has ended. A failure is logged only: traces never stop the work."""
    if tracing.is_enabled():
        await _export(database, lambda tx: spans.list_for_turn(tx, turn))


async def trace_delivery(database: Database, delivery: Delivery, *, worker: WorkerId) -> None:
    """Export a delivery that has ended, with the steps of its turn if the process that ran it is gone."""
    if tracing.is_enabled() and delivery.turn:
        await _export(database, lambda tx: spans.list_for_delivery(tx, delivery.id, worker=worker))


async def _export(database: Database, work: spans.ListSpans) -> None:
    try:
        tracing.export(await database.read("trace", work))
    except KeryxError as exc:
        log.warning("cannot trace now: %s", exc)


def _describe_end(turn: Turn, end: TurnEnd, longest_hold: timedelta) -> str:
    match end:
        case AgentExit(QuotaReached() as error) if turn_writes.may_hold(turn, error, longest=longest_hold):
            return "held"
        case AgentExit(error):
            return "failed" if error else "done"
        case TurnTimeout():
            return "timeout"
        case CancelRequest():
            return "cancelled"
        case HandBack():
            return "requeued"


def _measure_age(turn: Turn, now: datetime) -> float:
    """Return the seconds since the message was received."""
    return round((now - turn.created_at).total_seconds(), 3)
