"""Deliveries and previews on their way out: claim them, judge an attempt to send (pure rules), and record its outcome."""

from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from keryx.core.deliveries import (
    SUSPECT_ENDS,
    Delivery,
    DeliveryState,
    DoubtPolicy,
    Idempotency,
    Preview,
    PreviewState,
    Target,
    is_poisonous,
)
from keryx.core.durations import Backoff
from keryx.core.errors import (
    Held,
    MessageGone,
    NotSent,
    Refused,
    Retryable,
    SendError,
    TargetGone,
    Throttled,
)
from keryx.core.ids import LeaseToken, WorkerId
from keryx.core.ports.adapter import Capabilities, InboundFailure
from keryx.core.questions import Button
from keryx.core.texts import ENGLISH, Phrase, Texts, explain
from keryx.core.turns import Turn
from keryx.engine.policy import Policy
from keryx.engine.units import jobs, message_events, questions
from keryx.store import deliveries, lanes, people, platforms, sessions, turns
from keryx.store import questions as questions_store
from keryx.store.db import Transaction

_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(minutes=2))
# Between deliveries that may have ended a process, so that each is sent alone.
_SUSPECT_INTERVAL = timedelta(seconds=2)
GATE_TIMEOUT = timedelta(seconds=20)
_GATE_REASON = "preview"
_HELD_NOTE = str(Phrase("delivery.held"))


class SendOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The next state of a delivery after an attempt."""

    state: DeliveryState
    error: str | None = None
    not_before: datetime | None = None
    # The next attempt is marked as a possible repetition.
    again: bool = False
    # Closes the gate of the chat, or of the whole account.
    gate_until: datetime | None = None
    account: bool = False
    # How many processes in a row have ended while they were sending it.
    ends: int = 0
    # Why the chat takes no messages any more, for people.
    gone: Phrase | None = None


SENT = SendOutcome(state=DeliveryState.SENT)


class ClaimedDelivery(msgspec.Struct, frozen=True):
    delivery: Delivery
    lease: LeaseToken
    # The preview that the first part replaces, or that is removed before it is sent.
    preview: Preview | None
    # The message that the only part replaces.
    edits: str = ""
    # Shown under the last part.
    buttons: tuple[Button, ...] = ()
    # If the delivery goes below the preview: what that says in the end, where it cannot be deleted.
    closing: str = ""
    # The title of the session, on platforms whose messages have a subject.
    title: str = ""
    # In the language of the person who asked, for what is said about its files and its length.
    texts: Texts = ENGLISH


AbandonedDelivery: TypeAlias = tuple[Delivery, LeaseToken, bool]
"""A delivery of a dead worker, its lease, and whether it was an edit, which may be repeated."""


def claim(
    tx: Transaction,
    *,
    most: int,
    platform: str,
    account: str,
    worker: WorkerId,
    lease: timedelta,
    after: str,
    capabilities: Capabilities,
) -> tuple[list[ClaimedDelivery], bool, datetime | None]:
    """Lease what may be sent now. Return it, whether more waits, and when to look again for what waits for a time."""
    claims = deliveries.claim(
        tx, most=most, platform=platform, account=account, worker=worker, lease=lease, after=after
    )
    claimed: list[ClaimedDelivery] = []
    for delivery, token in claims.leased:
        if capabilities.reply_window is not None and _is_too_late(tx, delivery, capabilities.reply_window):
            deliveries.finish_attempt(
                tx, delivery, token, DeliveryState.HELD, error=_HELD_NOTE, again=delivery.again
            )
            continue
        preview = deliveries.find_replaced_preview(tx, delivery)
        closing = _find_closing(tx, preview) if preview else ""
        title = sessions.get_title(tx, delivery.session) if capabilities.titles and delivery.session else ""
        language = people.get_language(tx, delivery.turn) if delivery.turn else None
        texts = tx.texts.speak(language, delivery.target.platform)
        edits, shown = "", tuple[Button, ...]()
        if capabilities.buttons and delivery.turn:
            edits = questions_store.find_replaced_receipt(tx, delivery.id)
            shown = questions.list_buttons(tx, delivery, max_label=capabilities.button_label)
        claimed.append(ClaimedDelivery(delivery, token, preview, edits, shown, closing, title, texts))
    if not claims.waiting or len(claimed) == most:
        return claimed, claims.waiting, None
    times = [deliveries.get_next_ready_at(tx), platforms.get_next_gate_opening(tx)]
    return claimed, claims.waiting, min((at for at in times if at), default=None)


def _find_closing(tx: Transaction, preview: Preview) -> str:
    """Return the last text of a preview if the delivery is a new message below it, because people are not notified of
    edits, and read downwards. Empty if the delivery takes its place."""
    overtaken = tx.now >= preview.replace_until or deliveries.is_overtaken(tx, preview)
    if preview.state is not PreviewState.SHOWN or not overtaken:
        return ""
    return tx.texts.speak(people.get_language(tx, preview.turn)).say("turn.answer_below")


def _is_too_late(tx: Transaction, delivery: Delivery, window: timedelta) -> bool:
    """Whether the platform accepts no message to the person any more. Without a lane, only the platform knows."""
    around = lanes.list_for_session(tx, delivery.session) if delivery.session else []
    written = [lane.active_at for lane in around if lane.target.key == delivery.target.key]
    return bool(written) and tx.now - max(written) > window


def record_part(
    tx: Transaction, *, claimed: ClaimedDelivery, capabilities: Capabilities, receipt: str
) -> None:
    """Record a part that was sent, before others of the same delivery."""
    deliveries.record_part_sent(tx, claimed.delivery, claimed.lease, receipt=receipt)
    _record_arrival(tx, claimed, capabilities)


def record_sent(
    tx: Transaction,
    *,
    claimed: ClaimedDelivery,
    capabilities: Capabilities,
    receipt: str,
    policy: Policy,
    offered: tuple[Button, ...] = (),
) -> None:
    """Record the last part of a delivery, with the buttons under it."""
    delivery = claimed.delivery
    # Where messages cannot be edited, buttons stay when their question is closed.
    offered = offered if capabilities.edit else ()
    if offered:
        questions.lock_session(tx, delivery)
    deliveries.record_all_sent(tx, delivery, claimed.lease, receipt=receipt)
    _record_arrival(tx, claimed, capabilities)
    if offered:
        questions.record_buttons(tx, delivery, receipt)
    for early in message_events.take_early(tx, delivery.target, [*delivery.receipts, receipt]):
        if isinstance(early, InboundFailure):
            record_late_failure(tx, early, policy=policy)
        else:
            message_events.apply_early(tx, early, delivery)


def record_edit(
    tx: Transaction, *, claimed: ClaimedDelivery, capabilities: Capabilities, policy: Policy
) -> None:
    """Record that a delivery has replaced a message with buttons."""
    record_sent(tx, claimed=claimed, capabilities=capabilities, receipt=claimed.edits, policy=policy)
    questions_store.remove_buttons(tx, claimed.delivery.id)


def _record_arrival(tx: Transaction, claimed: ClaimedDelivery, capabilities: Capabilities) -> None:
    """Remove the preview that the first part replaced, and close the gates for as long as the platform's rate says."""
    delivery = claimed.delivery
    if claimed.preview is not None and not delivery.parts_sent:
        deliveries.remove_replaced_preview(tx, delivery)
    for key, interval in (
        (delivery.target.key, capabilities.chat_interval),
        (delivery.target.account_key, capabilities.account_interval),
    ):
        if interval > timedelta(0):
            platforms.close_gate(tx, key, until=tx.now + interval, reason="rate")


def record_late_failure(tx: Transaction, failure: InboundFailure, *, policy: Policy) -> None:
    """Record that the platform has not delivered a part that it had accepted. If the chat is gone, the job that sends there is
    paused. Raise `Retryable` while other parts of the
    delivery are being sent: platforms repeat such news. The news of a part whose receipt is not recorded yet waits for it."""
    if not _record_failure(tx, failure, policy):
        message_events.keep_failure(tx, failure)
        # It may have been recorded meanwhile.
        _record_failure(tx, failure, policy)


def _record_failure(tx: Transaction, failure: InboundFailure, policy: Policy) -> bool:
    """Record the failure of a part, by the number of the part or the platform's id of its message. Return false if the part
    is not known to be sent."""
    source, message = failure.source, failure.message
    found = (
        deliveries.get_many(tx, [failure.delivery])
        if failure.delivery
        else deliveries.list_by_message(tx, message)
    )
    for delivery in found:
        target = delivery.target
        if (target.platform, target.account) != (source.platform, source.account):
            continue
        number = failure.number
        if not failure.delivery:
            # A part that failed and was sent again has another message.
            sent = delivery.receipts
            number = sent.index(message) if message in sent else len(sent)
        if delivery.receipts[number : number + 1] != (message,):
            continue
        if delivery.state in (DeliveryState.READY, DeliveryState.SENDING):
            raise Retryable(f"delivery {delivery.id} is being sent: its failure is recorded afterwards")
        if delivery.state is not DeliveryState.DISCARDED:
            state = DeliveryState.HELD if failure.held else DeliveryState.FAILED
            deliveries.record_failed_part(tx, delivery, number=number, state=state, error=failure.reason)
            if failure.gone:
                jobs.pause_for_gone_target(tx, delivery, failure.reason, policy=policy)
        return True
    return False


def list_abandoned(tx: Transaction, *, workers: list[WorkerId]) -> list[AbandonedDelivery]:
    """Return the deliveries of dead workers."""
    abandoned: list[AbandonedDelivery] = []
    for delivery, lease in deliveries.list_abandoned(tx, workers=workers):
        preview = deliveries.find_replaced_preview(tx, delivery)
        abandoned.append((delivery, lease, preview is not None and preview.state is PreviewState.SHOWN))
    return abandoned


def begin_preview(
    tx: Transaction,
    *,
    turn: Turn,
    target: Target,
    worker: WorkerId,
    idempotent: bool,
    interval: timedelta,
    revisable: bool,
    replace_for: timedelta,
) -> Preview | datetime | None:
    """Reserve a chat for one send of a preview. Return the preview, a time to try again, or `None` for never. A preview
    that another process has sent is left as it is unless it is `revisable`."""
    turns.lock(tx, turn)
    opens_at = platforms.get_gates_open_at(tx, target)
    if opens_at is not None or deliveries.has_waiting(tx, target):
        return opens_at or tx.now + interval
    earlier = deliveries.find_preview(tx, turn.id)
    if earlier is not None and earlier.delivery is not None:
        # What was to take its place could not be sent; from here on the turn shows something new.
        deliveries.remove_preview(tx, earlier)
        earlier = None
    if earlier is not None and earlier.state is PreviewState.SHOWN:
        if not revisable:
            return None
        preview = deliveries.revise_preview(tx, turn)
    elif earlier is None or idempotent:
        preview = deliveries.begin_preview(tx, turn, target, worker=worker, replace_for=replace_for)
    else:
        deliveries.record_preview(tx, earlier, PreviewState.LOST)
        return None
    platforms.close_gate(tx, target.key, until=tx.now + GATE_TIMEOUT, reason=_GATE_REASON)
    return preview


def end_preview(
    tx: Transaction, *, preview: Preview, capabilities: Capabilities, receipt: str, error: SendError | None
) -> None:
    """Record the outcome of sending a preview, and release its chat."""
    target, first = preview.target, preview.state is PreviewState.SENDING
    match error:
        case None:
            deliveries.record_preview(tx, preview, PreviewState.SHOWN, receipt=receipt)
        case MessageGone():
            deliveries.remove_preview(tx, preview)
        case NotSent() | Held() | Refused() | Throttled():
            if first:
                deliveries.remove_preview(tx, preview)
        case _:
            if first:
                deliveries.record_preview(tx, preview, PreviewState.LOST)
    platforms.reopen_gate(tx, target.key, reason=_GATE_REASON, at=tx.now + capabilities.chat_interval)
    if capabilities.account_interval > timedelta(0):
        until = tx.now + capabilities.account_interval
        platforms.close_gate(tx, target.account_key, until=until, reason="rate")
    if isinstance(error, Throttled):
        key = target.account_key if error.account else target.key
        platforms.close_gate(tx, key, until=tx.now + error.after, reason=str(error))


def judge_failure(
    delivery: Delivery,
    error: SendError,
    idempotency: Idempotency,
    doubt: DoubtPolicy,
    *,
    now: datetime,
    give_up: timedelta,
) -> SendOutcome:
    """Return what follows a failed attempt: wait, retry, ask a person, or give up. Nothing is repeated or dropped silently."""
    text = str(error)
    match error:
        case Throttled(after=after, account=account):
            return SendOutcome(
                state=DeliveryState.READY,
                error=text,
                gate_until=now + after,
                account=account,
                again=delivery.again,
            )
        case Held():
            return SendOutcome(state=DeliveryState.HELD, error=text, again=delivery.again)
        case Refused():
            platform = delivery.target.platform
            gone = (
                explain(error, "target.refused", platform=platform) if isinstance(error, TargetGone) else None
            )
            return SendOutcome(state=DeliveryState.FAILED, error=text, again=delivery.again, gone=gone)
        case NotSent():
            if now - delivery.created_at > give_up:
                return SendOutcome(state=DeliveryState.DEAD, error=text, again=delivery.again)
            return SendOutcome(
                state=DeliveryState.READY,
                error=text,
                not_before=now + _BACKOFF.delay(delivery.attempts),
                again=delivery.again,
            )
        case _ if now - delivery.created_at > give_up and doubt is DoubtPolicy.REPEAT:
            return SendOutcome(
                state=DeliveryState.DEAD, error=text, again=idempotency is not Idempotency.NATIVE
            )
        case _:
            return judge_unknown(delivery, idempotency, doubt, now=now, error=text)


def judge_unknown(
    delivery: Delivery, idempotency: Idempotency, doubt: DoubtPolicy, *, now: datetime, error: str
) -> SendOutcome:
    """Return what follows an attempt with an unknown outcome: repeat it under the platform's idempotency key, after a
    search, or with a mark, or ask a person."""
    later = now + _BACKOFF.delay(delivery.attempts)
    if idempotency is Idempotency.NATIVE:
        return SendOutcome(state=DeliveryState.READY, error=error, not_before=later)
    if idempotency is Idempotency.NONE and doubt is DoubtPolicy.HOLD:
        return SendOutcome(state=DeliveryState.UNKNOWN, error=error)
    return SendOutcome(state=DeliveryState.READY, error=error, not_before=later, again=True)


def judge_orphan(
    delivery: Delivery,
    idempotency: Idempotency,
    doubt: DoubtPolicy,
    *,
    now: datetime,
    place: int = 0,
    alone: bool = True,
) -> SendOutcome:
    """Return what follows an attempt whose sender died: retry without a delay, or alone if that happened before, or set
    the delivery aside. `place` is its place among those that are retried, `alone` whether it was the only suspect."""
    ends = delivery.ends + 1
    step = judge_unknown(delivery, idempotency, doubt, now=now, error=str(Phrase("delivery.sender_died")))
    if step.state is DeliveryState.READY and is_poisonous(ends, alone=alone):
        return msgspec.structs.replace(
            step,
            state=DeliveryState.DEAD,
            not_before=None,
            error=str(Phrase("delivery.deadly", count=ends)),
            ends=ends,
        )
    later = now + _SUSPECT_INTERVAL * (place + 1) if ends >= SUSPECT_ENDS else None
    return msgspec.structs.replace(step, not_before=later, ends=ends)


def settle(
    tx: Transaction, *, delivery: Delivery, lease: LeaseToken, step: SendOutcome, policy: Policy
) -> None:
    """Record the end of an attempt. If the chat is gone, the job that sends there is paused."""
    deliveries.finish_attempt(
        tx,
        delivery,
        lease,
        step.state,
        error=step.error,
        not_before=step.not_before,
        again=step.again,
        ends=step.ends,
    )
    if step.gate_until is not None:
        key = delivery.target.account_key if step.account else delivery.target.key
        platforms.close_gate(tx, key, until=step.gate_until, reason=step.error or "")
    if step.gone is not None:
        jobs.pause_for_gone_target(tx, delivery, step.gone, policy=policy)
