"""Deliveries: the outbox. Written before the network is touched, sent in order per target, fenced by a lease."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from keryx.core import ids, wire
from keryx.core.changes import Kind
from keryx.core.deliveries import MOVES, Delivery, DeliveryState, Target
from keryx.core.errors import Conflict, LeaseLost, NotFound
from keryx.core.ids import DeliveryId, LeaseToken, SessionId, TurnId, WorkerId
from keryx.core.media import Media
from keryx.core.sessions import Viewer
from keryx.store import changes
from keryx.store.database import Params, Row, Transaction, maybe_moment, micros, moment
from keryx.store.indexing import AMONG_NAMES

_COLUMNS = """
  d.id, d.profile, d.owner, d.session, d.turn, d.target, d.body, d.state, d.attempts, d.created_at, d.not_before,
  d.parts_sent, d.again, d.receipts, d.error, d.sent_at, d.media, d.lease
"""
# SQLite knows no alias in a returning clause.
_RETURNED = _COLUMNS.replace("d.", "")
_SELECT = f"select {_COLUMNS} from deliveries d"
_OLDEST = 64
_TARGETS = 16


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
        note=DeliveryState.READY.value,
    )
    return delivery


def get(tx: Transaction, delivery: DeliveryId, *, viewer: Viewer | None = None) -> Delivery:
    row = tx.row(f"{_SELECT} where d.id = :id", {"id": delivery})
    if row is None or (viewer and not viewer.sees(row[1], row[2])):
        raise NotFound(f"there is no delivery {delivery!r}: `keryx deliveries list` shows them")
    return _delivery(row)


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
    return [_delivery(row) for row in rows]


def of_session(tx: Transaction, session: SessionId, *, unfinished: bool = False) -> list[Delivery]:
    clause = "and d.state not in ('sent', 'discarded')" if unfinished else ""
    rows = tx.rows(f"{_SELECT} where d.session = :session {clause} order by d.position", {"session": session})
    return [_delivery(row) for row in rows]


def among(tx: Transaction, deliveries: Iterable[str]) -> list[Delivery]:
    """Those of these deliveries that exist, in no order."""
    rows = tx.rows(f"{_SELECT} where d.id {AMONG_NAMES[tx.engine]}", {"names": json.dumps(list(deliveries))})
    return [_delivery(row) for row in rows]


def of_turn(tx: Transaction, turn: TurnId) -> list[Delivery]:
    rows = tx.rows(f"{_SELECT} where d.turn = :turn order by d.position", {"turn": turn})
    return [_delivery(row) for row in rows]


def claim(
    tx: Transaction,
    *,
    platform: str,
    account: str,
    worker: WorkerId,
    now: datetime,
    lease: timedelta,
    after: str = "",
) -> tuple[Delivery, LeaseToken] | None:
    """Lease the next delivery of an account: the first of its target, with both gates open. When very much is held
    up, targets take turns: the one behind the target `after` comes next."""
    params = {
        "platform": ids.plain(platform),
        "account": ids.plain(account),
        "gate": Target(platform, account).account_key,
        "now": micros(now),
        "oldest": _OLDEST,
        "targets": _TARGETS,
        "after": after,
    }
    if tx.row("select 1 from gates where key = :gate and not_before > :now", params):
        return None
    for candidates in (_among_oldest, _among_targets):
        for candidate in candidates(tx, params):
            taken = _take(tx, candidate, worker, now, lease)
            if taken:
                return taken
    return None


def part_sent(tx: Transaction, delivery: Delivery, lease: LeaseToken, *, receipt: str) -> None:
    """Record that one more part has arrived."""
    _fenced(
        tx,
        delivery,
        lease,
        "parts_sent = :parts, receipts = :receipts, again = 0",
        {"parts": delivery.parts_sent + 1, "receipts": wire.dumps([*delivery.receipts, receipt])},
    )


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
    _note(tx, delivery, state.value, now)


def abandoned(
    tx: Transaction, *, now: datetime, workers: list[WorkerId], limit: int = 50
) -> list[tuple[Delivery, LeaseToken]]:
    """Deliveries whose sender is gone: nobody knows whether their next part arrived."""
    rows = tx.rows(
        f"select {_COLUMNS}, d.worker, d.lease_until from deliveries d where d.state = 'sending' order by d.position",
    )
    gone = [row for row in rows if row[-1] < micros(now) or row[-2] in workers]
    return [(_delivery(row[:-2]), LeaseToken(row[-3])) for row in gone[:limit]]


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
    changed = tx.run(
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
    _note(tx, delivery, state.value, now)


def cap_waits(tx: Transaction, *, until: datetime) -> None:
    """Let nothing wait longer than until a moment: for a clock that was set back."""
    tx.run(
        "update deliveries set not_before = :until where state = 'ready' and not_before > :until",
        {"until": micros(until)},
    )


def next_at(tx: Transaction, *, now: datetime) -> datetime | None:
    """When the next delivery that is held back may go."""
    row = tx.row(
        "select min(not_before) from deliveries where state = 'ready' and not_before > 0 and not_before > :now",
        {"now": micros(now)},
    )
    return maybe_moment(row[0]) if row else None


def _among_oldest(tx: Transaction, params: Params) -> list[str]:
    """What may go, among the oldest: enough, unless very much waits for a place that is held up."""
    rows = tx.rows(
        """
        select oldest.id
        from (
          select id, target_key, position, not_before from deliveries
          where state = 'ready' and platform = :platform and account = :account
          order by position
          limit :oldest
        ) oldest
        where oldest.not_before <= :now
          and not exists (
            select 1 from deliveries e
            where e.target_key = oldest.target_key and e.state in ('ready', 'sending') and e.position < oldest.position
          )
          and coalesce((select g.not_before from gates g where g.key = oldest.target_key), 0) <= :now
        order by oldest.position
        limit 8
        """,
        params,
    )
    return [row[0] for row in rows]


def _among_targets(tx: Transaction, params: Params) -> list[str]:
    """What may go among the next targets, when more waits than the oldest: each costs one step, whatever waits behind."""
    if not tx.row(
        """
        select 1 from deliveries
        where state = 'ready' and platform = :platform and account = :account
        order by position limit 1 offset :oldest
        """,
        params,
    ):
        return []
    for after in dict.fromkeys((params["after"], "")):
        while walked := _walk(tx, {**params, "after": after}):
            if found := sorted(row[1] for row in walked if row[1]):
                return found
            after = walked[-1][0]
    return []


def _walk(tx: Transaction, params: Params) -> list[Row]:
    """The next targets in order of their keys, each with its first delivery if that may go. What a subquery gives
    cannot be joined in another order, so the plan is the same whatever the engine believes about the table."""
    return tx.rows(
        """
        with recursive targets (key, n) as (
          select min(target_key), 1 from deliveries where state in ('ready', 'sending') and target_key > :after
          union all
          select (
            select min(e.target_key) from deliveries e
            where e.state in ('ready', 'sending') and e.target_key > targets.key
          ), n + 1
          from targets where targets.key is not null and n < :targets
        )
        select targets.key, (
          select d.id from deliveries d
          where d.position = (
              select min(e.position) from deliveries e
              where e.target_key = targets.key and e.state in ('ready', 'sending')
            )
            and d.state = 'ready' and d.platform = :platform and d.account = :account and d.not_before <= :now
            and coalesce((select g.not_before from gates g where g.key = d.target_key), 0) <= :now
        )
        from targets where targets.key is not null
        """,
        params,
    )


def _take(
    tx: Transaction, delivery: str, worker: WorkerId, now: datetime, lease: timedelta
) -> tuple[Delivery, LeaseToken] | None:
    # The state is an expression, so that an index of all that waits is never taken for shorter than one id.
    if not tx.row(
        f"select 1 from deliveries where id = :id and state || '' = 'ready'{tx.skip_locked}", {"id": delivery}
    ):
        return None
    row = tx.row(
        f"""
        update deliveries as d
        set state = 'sending', attempts = d.attempts + 1, worker = :worker, lease = :lease, lease_until = :until
        where d.id = :id and d.state || '' = 'ready' and not exists (
          select 1 from deliveries e
          where e.target_key = d.target_key and e.state in ('ready', 'sending') and e.position < d.position
        )
        returning {_RETURNED}
        """,
        {"id": delivery, "worker": worker, "lease": ids.token(), "until": micros(now + lease)},
    )
    return None if row is None else (_delivery(row), LeaseToken(row[-1]))


def _fenced(
    tx: Transaction, delivery: Delivery, lease: LeaseToken, assignment: str, params: dict[str, Any]
) -> None:
    changed = tx.run(
        f"update deliveries set {assignment} where id = :id and lease = :held and state = 'sending'",
        {**params, "id": delivery.id, "held": lease},
    )
    if not changed:
        raise LeaseLost(f"delivery {delivery.id} belongs to another worker now")


def _note(tx: Transaction, delivery: Delivery, note: str, now: datetime) -> None:
    changes.note(
        tx,
        Kind.DELIVERY,
        delivery.id,
        profile=delivery.profile,
        owner=delivery.owner,
        at=now,
        session=delivery.session,
        turn=delivery.turn,
        note=note,
    )


def _delivery(row: Row) -> Delivery:
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
