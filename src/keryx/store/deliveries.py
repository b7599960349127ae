"""Deliveries: the outbox. Written before the network is touched, sent in order per target, fenced by a lease."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from keryx.core import ids, wire
from keryx.core.changes import Kind
from keryx.core.deliveries import MOVES, Delivery, DeliveryState, Target, noted
from keryx.core.errors import Conflict, LeaseLost, NotFound
from keryx.core.ids import DeliveryId, LeaseToken, SessionId, TurnId, WorkerId
from keryx.core.media import Media
from keryx.core.sessions import Viewer
from keryx.store import changes
from keryx.store.database import AMONG_NAMES, Row, Transaction, maybe_moment, micros, moment

_COLUMNS = """
  d.id, d.profile, d.owner, d.session, d.turn, d.target, d.body, d.state, d.attempts, d.created_at, d.not_before,
  d.parts_sent, d.again, d.receipts, d.error, d.sent_at, d.media, d.lease
"""
# SQLite knows no alias in a returning clause.
RETURNED = _COLUMNS.replace("d.", "")
_SELECT = f"select {_COLUMNS} from deliveries d"


def enqueue(
    tx: Transaction,
    target: Target,
    text: str,
    *,
    profile: str,
    owner: str,
    now: datetime,
    id: DeliveryId | None = None,
    session: SessionId | None = None,
    turn: TurnId | None = None,
    media: Sequence[Media] = (),
    secret: bool = False,
) -> DeliveryId:
    """Write a delivery, behind everything that waits for the same target. The text of a `secret` one is
    forgotten as soon as it has arrived or is given up."""
    delivery = id or DeliveryId(ids.new(now))
    tx.run(
        """
        insert into deliveries
          (id, profile, owner, session, turn, target, target_key, platform, account, body, media, secret, state,
           created_at)
        values
          (:id, :profile, :owner, :session, :turn, :target, :target_key, :platform, :account, :body, :media, :secret, 'ready',
           :now)
        """,
        {
            "id": delivery,
            "profile": profile,
            "owner": owner,
            "session": session,
            "turn": turn,
            "target": wire.dumps(target),
            "target_key": target.key,
            "platform": ids.plain(target.platform),
            "account": ids.plain(target.account),
            "body": wire.dumps(text),
            "media": wire.dumps(media),
            "secret": int(secret),
            "now": micros(now),
        },
    )
    changes.note(
        tx,
        Kind.DELIVERY,
        delivery,
        profile=profile,
        owner=owner,
        at=now,
        session=session,
        turn=turn,
        note=noted(DeliveryState.READY, target),
    )
    return delivery


def get(tx: Transaction, delivery: DeliveryId, *, viewer: Viewer | None = None) -> Delivery:
    row = tx.row(f"{_SELECT} where d.id = :id", {"id": delivery})
    if row is None or (viewer and not viewer.sees(row[1], row[2])):
        raise NotFound(f"there is no delivery {delivery!r}: `keryx deliveries list` shows them")
    return from_row(row)


def page(
    tx: Transaction, viewer: Viewer, *, states: Iterable[DeliveryState] | None = None, limit: int = 100
) -> list[Delivery]:
    """Deliveries that a viewer may see, newest first."""
    wanted = [s.value for s in states] if states is not None else [s.value for s in DeliveryState]
    rows = tx.rows(
        f"""
        {_SELECT}
        where d.profile = :profile and d.owner = coalesce(cast(:owner as text), d.owner)
          and :states like '%,' || d.state || ',%'
        order by d.position desc
        limit :limit
        """,
        {"profile": viewer.profile, "owner": viewer.owner, "states": f",{','.join(wanted)},", "limit": limit},
    )
    return [from_row(row) for row in rows]


def of_session(tx: Transaction, session: SessionId, *, unfinished: bool = False) -> list[Delivery]:
    clause = "and d.state not in ('sent', 'discarded')" if unfinished else ""
    rows = tx.rows(f"{_SELECT} where d.session = :session {clause} order by d.position", {"session": session})
    return [from_row(row) for row in rows]


def among(tx: Transaction, deliveries: Iterable[str]) -> list[Delivery]:
    """Those of these deliveries that exist, in no order."""
    rows = tx.rows(f"{_SELECT} where d.id {AMONG_NAMES[tx.engine]}", {"names": json.dumps(list(deliveries))})
    return [from_row(row) for row in rows]


def of_turn(tx: Transaction, turn: TurnId) -> list[Delivery]:
    rows = tx.rows(f"{_SELECT} where d.turn = :turn order by d.position", {"turn": turn})
    return [from_row(row) for row in rows]


def part_sent(tx: Transaction, delivery: Delivery, lease: LeaseToken, *, receipt: str) -> None:
    """Record that one more part has arrived."""
    _fenced(
        tx,
        delivery,
        lease,
        "parts_sent = :parts, receipts = :receipts, again = 0",
        _arrived(delivery, receipt),
    )


def all_sent(tx: Transaction, delivery: Delivery, lease: LeaseToken, *, receipt: str, now: datetime) -> None:
    """Record that the last part has arrived, and with it the delivery."""
    _fenced(
        tx,
        delivery,
        lease,
        """
        parts_sent = :parts, receipts = :receipts, again = 0, state = 'sent', lease = null, lease_until = null,
        error = null, not_before = 0, sent_at = :now, body = case when secret = 1 then '""' else body end
        """,
        {**_arrived(delivery, receipt), "now": micros(now)},
    )
    _note(tx, delivery, DeliveryState.SENT, now)


def settle(
    tx: Transaction,
    delivery: Delivery,
    lease: LeaseToken,
    state: DeliveryState,
    *,
    now: datetime,
    error: str | None = None,
    not_before: datetime | None = None,
    again: bool = False,
) -> None:
    """Say how an attempt ended. `again`: the next part may have arrived already, so a repetition is marked."""
    _fenced(
        tx,
        delivery,
        lease,
        """
        state = :state, lease = null, lease_until = null, error = :error, not_before = :not_before, again = :again,
        sent_at = :sent_at,
        body = case when secret = 1 and :state in ('sent', 'failed', 'dead') then '""' else body end
        """,
        {
            "state": state.value,
            "error": error and wire.dumps(error),
            "not_before": micros(not_before) if not_before else 0,
            "again": int(again),
            "sent_at": micros(now) if state is DeliveryState.SENT else None,
        },
    )
    _note(tx, delivery, state, now)


def abandoned(
    tx: Transaction, *, now: datetime, workers: list[WorkerId], limit: int = 50
) -> list[tuple[Delivery, LeaseToken]]:
    """Deliveries whose sender is gone: nobody knows whether their next part arrived."""
    rows = tx.rows(
        f"select {_COLUMNS}, d.worker, d.lease_until from deliveries d where d.state = 'sending' order by d.position",
    )
    gone = [row for row in rows if row[-1] < micros(now) or row[-2] in workers]
    return [(from_row(row[:-2]), LeaseToken(row[-3])) for row in gone[:limit]]


def renew(tx: Transaction, worker: WorkerId, deliveries: Iterable[DeliveryId], *, until: datetime) -> None:
    """Prolong the leases of deliveries that a worker is sending."""
    for delivery in deliveries:
        tx.run(
            "update deliveries set lease_until = :until where id = :id and worker = :worker and state = 'sending'",
            {"id": delivery, "worker": worker, "until": micros(until)},
        )


def decide(tx: Transaction, delivery: Delivery, state: DeliveryState, *, now: datetime) -> None:
    """A person retries or discards a delivery."""
    if state not in MOVES[delivery.state]:
        raise Conflict(f"delivery {delivery.id} is {delivery.state}: it cannot become {state}")
    changed = tx.count(
        """
        update deliveries
        set state = :state, attempts = 0, not_before = 0, again = case when state = 'unknown' then 1 else again end,
          body = case when secret = 1 and :state = 'discarded' then '""' else body end
        where id = :id and state = :old
        """,
        {"id": delivery.id, "state": state.value, "old": delivery.state.value},
    )
    if not changed:
        raise Conflict(f"delivery {delivery.id} has moved on: look again")
    _note(tx, delivery, state, now)


def cap_waits(tx: Transaction, *, until: datetime) -> None:
    """Let nothing wait longer than until a moment: for a clock that was set back."""
    tx.run(
        "update deliveries set not_before = :until where state = 'ready' and not_before > :until",
        {"until": micros(until)},
    )


def _arrived(delivery: Delivery, receipt: str) -> dict[str, Any]:
    return {"parts": delivery.parts_sent + 1, "receipts": wire.dumps([*delivery.receipts, receipt])}


def _fenced(
    tx: Transaction, delivery: Delivery, lease: LeaseToken, assignment: str, params: dict[str, Any]
) -> None:
    changed = tx.count(
        f"update deliveries set {assignment} where id = :id and lease = :held and state = 'sending'",
        {**params, "id": delivery.id, "held": lease},
    )
    if not changed:
        raise LeaseLost(f"delivery {delivery.id} belongs to another worker now")


def _note(tx: Transaction, delivery: Delivery, state: DeliveryState, now: datetime) -> None:
    changes.note(
        tx,
        Kind.DELIVERY,
        delivery.id,
        profile=delivery.profile,
        owner=delivery.owner,
        at=now,
        session=delivery.session,
        turn=delivery.turn,
        note=noted(state, delivery.target),
    )


def from_row(row: Row) -> Delivery:
    (
        id_, profile, owner, session, turn, target, body, state, attempts, created_at, not_before,
        parts_sent, again, receipts, error, sent_at, media, _lease,
    ) = row  # fmt: skip
    return Delivery(
        id=id_,
        profile=profile,
        owner=owner,
        session=session,
        turn=turn,
        target=wire.loads(target, Target),
        text=wire.loads(body, str),
        state=DeliveryState(state),
        attempts=attempts,
        created_at=moment(created_at),
        not_before=moment(not_before),
        parts_sent=parts_sent,
        again=bool(again),
        receipts=wire.loads(receipts, tuple[str, ...]),
        error=wire.loads(error, str) if error else None,
        sent_at=maybe_moment(sent_at),
        media=wire.loads(media, tuple[Media, ...]),
    )
