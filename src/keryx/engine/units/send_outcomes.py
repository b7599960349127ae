"""What an attempt to send means for its delivery and its gates. The rules are pure; `settle` writes them."""

from datetime import datetime, timedelta

import msgspec

from keryx.core.clock import Backoff
from keryx.core.deliveries import Delivery, DeliveryState, DoubtPolicy, Idempotency
from keryx.core.errors import NotSent, Refused, SendError, Throttled
from keryx.core.ids import LeaseToken
from keryx.store import deliveries, platforms
from keryx.store.db.database import Transaction

_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(minutes=2))
_MAX_QUICK_TRIES = 50


class SendOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The next state of a delivery. `gate_until` closes the gate of its chat, or of its `account`."""

    state: DeliveryState
    error: str | None = None
    not_before: datetime | None = None
    again: bool = False
    gate_until: datetime | None = None
    account: bool = False


SENT = SendOutcome(state=DeliveryState.SENT)


def judge_failure(
    delivery: Delivery,
    error: SendError,
    idempotency: Idempotency,
    doubt: DoubtPolicy,
    *,
    now: datetime,
    give_up: timedelta,
) -> SendOutcome:
    """What follows a failed attempt: wait, try again, ask a person, or give up; never silently twice, never dropped."""
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
        case Refused():
            return SendOutcome(state=DeliveryState.FAILED, error=text, again=delivery.again)
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
            return SendOutcome(state=DeliveryState.DEAD, error=text, again=idempotency is Idempotency.NONE)
        case _:
            return judge_unknown(delivery, idempotency, doubt, now=now, error=text)


def judge_unknown(
    delivery: Delivery, idempotency: Idempotency, doubt: DoubtPolicy, *, now: datetime, error: str
) -> SendOutcome:
    """Nobody knows whether the part arrived: repeat under the platform's own key, or with a mark, or ask."""
    later = now + _BACKOFF.delay(delivery.attempts)
    if idempotency is Idempotency.NATIVE:
        return SendOutcome(state=DeliveryState.READY, error=error, not_before=later)
    if doubt is DoubtPolicy.HOLD:
        return SendOutcome(state=DeliveryState.UNKNOWN, error=error)
    return SendOutcome(state=DeliveryState.READY, error=error, not_before=later, again=True)


def judge_orphan(
    delivery: Delivery, idempotency: Idempotency, doubt: DoubtPolicy, *, now: datetime
) -> SendOutcome:
    """The sender died: in doubt like any other, but nothing to wait for unless it happens again and again."""
    step = judge_unknown(delivery, idempotency, doubt, now=now, error="the sender died")
    return step if delivery.attempts > _MAX_QUICK_TRIES else msgspec.structs.replace(step, not_before=None)


def settle(tx: Transaction, *, delivery: Delivery, lease: LeaseToken, step: SendOutcome) -> None:
    deliveries.finish_attempt(
        tx,
        delivery,
        lease,
        step.state,
        error=step.error,
        not_before=step.not_before,
        again=step.again,
    )
    if step.gate_until is not None:
        key = delivery.target.account_key if step.account else delivery.target.key
        platforms.close_gate(tx, key, until=step.gate_until, reason=step.error or "")
