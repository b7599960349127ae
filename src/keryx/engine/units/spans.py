"""The steps of a message as spans of a trace, from the times in the store: received, queued, turn, model calls, tool calls, questions, delivery."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeAlias

from keryx.core.deliveries import Delivery, DeliveryState
from keryx.core.ids import DeliveryId, TurnId, WorkerId
from keryx.core.messages import Message, ToolCall, ToolResult
from keryx.core.turns import Turn, TurnState
from keryx.store import deliveries, messages, questions, turns, usage, workers
from keryx.store.db import Transaction
from keryx.tracing import AttributeValue, Span, SpanRole

ListSpans: TypeAlias = Callable[[Transaction], list[Span]]

_ROOT = "message"
_TURN = "turn"
_FINAL = frozenset({DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.DEAD, DeliveryState.DISCARDED})
# Names of tools. ACP agents write whole sentences, which are not shown.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")


def list_for_turn(tx: Transaction, turn_id: TurnId) -> list[Span]:
    """Return the spans of a turn that has ended; none before. The span of the whole message follows with its last delivery."""
    turn = turns.find(tx, turn_id)
    if turn is None or turn.finished_at is None:
        return []
    sent = deliveries.list_for_turn(tx, turn.id)
    return [*_list_steps(tx, turn), *_build_root(turn, sent)]


def list_for_delivery(tx: Transaction, delivery_id: DeliveryId, *, worker: WorkerId) -> list[Span]:
    """Return the span of a delivery that has ended; none before. With it come the spans of its turn if the process that ran it
    no longer exists, which may have been killed before it exported them. They have the same ids then."""
    delivery = deliveries.get(tx, delivery_id)
    turn = turns.find(tx, delivery.turn) if delivery.turn else None
    if turn is None or delivery.state not in _FINAL:
        return []
    gone = turn.worker != worker and all(w.id != turn.worker for w in workers.list_all(tx))
    steps = _list_steps(tx, turn) if gone else []
    span = Span(
        trace=turn.id,
        name="delivery",
        key=f"delivery/{delivery.id}",
        parent=_ROOT,
        role=SpanRole.PRODUCER,
        start=delivery.created_at,
        end=delivery.sent_at or tx.now,
        attributes={
            "keryx.delivery": delivery.id,
            "keryx.platform": delivery.target.platform,
            "keryx.outcome": delivery.state.value,
            "keryx.attempts": delivery.attempts,
            "keryx.parts": delivery.parts_sent,
        },
        error="" if delivery.state is DeliveryState.SENT else delivery.state.value,
    )
    return [*steps, span, *_build_root(turn, deliveries.list_for_turn(tx, turn.id), tx.now)]


def _build_root(turn: Turn, sent: Sequence[Delivery], now: datetime | None = None) -> list[Span]:
    """Return the span of the whole message, once all its deliveries have ended."""
    if turn.finished_at is None or any(d.state not in _FINAL for d in sent):
        return []
    bad = next((d.state.value for d in sent if d.state is not DeliveryState.SENT), "")
    times = [turn.finished_at, *(d.sent_at or now or d.created_at for d in sent)]
    return [
        Span(
            trace=turn.id,
            name=_ROOT,
            key=_ROOT,
            start=turn.created_at,
            end=max(times),
            attributes=_describe(turn),
            error=_describe_failure(turn) or (f"delivery {bad}" if bad else ""),
        )
    ]


def _list_steps(tx: Transaction, turn: Turn) -> list[Span]:
    began, ended = turn.started_at or turn.created_at, turn.finished_at or tx.now
    entries = [
        m
        for m in messages.list_for_turn(tx, turn.session, turn.id, first=turn.input_seq)
        if began <= m.at <= ended
    ]
    receive = Span(
        trace=turn.id,
        name="receive",
        key="receive",
        parent=_ROOT,
        role=SpanRole.CONSUMER,
        start=turn.created_at,
        end=turn.created_at,
        attributes=_describe(turn),
    )
    queued = Span(trace=turn.id, name="queued", key="queued", parent=_ROOT, start=turn.created_at, end=began)
    whole = Span(
        trace=turn.id,
        name=_TURN,
        key=_TURN,
        parent=_ROOT,
        start=began,
        end=ended,
        attributes={**_describe(turn), "keryx.attempts": turn.attempts},
        error=_describe_failure(turn),
    )
    tools = _list_tool_calls(turn, entries)
    return [
        receive,
        queued,
        whole,
        *_list_model_calls(tx, turn, [began, *(t.end for t in tools)]),
        *tools,
        *_list_questions(tx, turn),
    ]


def _list_tool_calls(turn: Turn, entries: Sequence[Message]) -> list[Span]:
    """Return a span for each call that has a result: from the message that called to the message with the result."""
    called: dict[str, datetime] = {}
    found: list[Span] = []
    for message in entries:
        for part in message.parts:
            if isinstance(part, ToolCall):
                called[part.id] = message.at
            elif isinstance(part, ToolResult) and part.id in called:
                named = {"keryx.tool": part.name} if _TOOL_NAME.match(part.name) else {}
                found.append(
                    Span(
                        trace=turn.id,
                        name="tool call",
                        key=f"tool/{message.seq}/{part.id}",
                        parent=_TURN,
                        role=SpanRole.CLIENT,
                        start=called[part.id],
                        end=message.at,
                        attributes=named,
                        error="failed" if part.failed else "",
                    )
                )
    return found


def _list_model_calls(tx: Transaction, turn: Turn, pauses: list[datetime]) -> list[Span]:
    """Return a span for each call of a model. It begins when the turn began or when what came before it ended."""
    found: list[Span] = []
    for number, call in enumerate(usage.list_for_turn(tx, turn), 1):
        if turn.started_at and call.at < turn.started_at:
            continue
        attributes: dict[str, AttributeValue] = {
            "gen_ai.request.model": call.model,
            "gen_ai.usage.input_tokens": call.input,
            "gen_ai.usage.output_tokens": call.output,
            "keryx.task": call.task,
        }
        start = max((at for at in pauses if at <= call.at), default=call.at)
        found.append(
            Span(
                trace=turn.id,
                name="model call",
                key=f"model/{number}",
                parent=_TURN,
                role=SpanRole.CLIENT,
                start=start,
                end=call.at,
                attributes=attributes,
            )
        )
        pauses.append(call.at)
    return found


def _list_questions(tx: Transaction, turn: Turn) -> list[Span]:
    return [
        Span(
            trace=turn.id,
            name="question",
            key=f"question/{asked.id}",
            parent=_TURN,
            start=asked.created_at,
            end=asked.closed_at,
            attributes={"keryx.outcome": asked.state.value},
        )
        for asked in questions.list_for_turn(tx, turn.id)
        if asked.closed_at
    ]


def _describe(turn: Turn) -> dict[str, AttributeValue]:
    return {
        "keryx.session": turn.session,
        "keryx.turn": turn.id,
        "keryx.platform": turn.reply.platform if turn.reply else turn.surface,
        "keryx.outcome": turn.state.value,
    }


def _describe_failure(turn: Turn) -> str:
    return "" if turn.state in (TurnState.DONE, TurnState.CANCELLED, TurnState.MERGED) else turn.state.value
