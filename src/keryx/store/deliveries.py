"""The outbox: deliveries are written before the network is touched, claimed in order per target, and fenced by a lease; with the previews that answers replace."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from keryx.core import codec, ids
from keryx.core.changes import ChangeKind
from keryx.core.clock import from_micros, to_micros
from keryx.core.deliveries import (
    MOVES,
    Delivery,
    DeliveryState,
    Preview,
    PreviewState,
    Target,
    Wait,
    WaitReason,
    format_note,
)
from keryx.core.errors import Conflict, LeaseLost, NotFound
from keryx.core.ids import DeliveryId, LeaseToken, SessionId, TurnId, WorkerId
from keryx.core.media import Media
from keryx.core.sessions import Viewer
from keryx.core.texts import Phrase
from keryx.core.turns import Turn
from keryx.store import changes
from keryx.store.db import Params, Transaction, maybe_moment
from keryx.store.db.rows import RowMapper

_ROWS = RowMapper(Delivery, json={"text", "error"}, columns={"text": "body"})
_SELECT = f"select {_ROWS.columns} from deliveries d"
_MAX_OLDEST = 64
_TARGETS_PER_WALK = 16
# Others may be taking the same ones.
_SPARE_CANDIDATES = 7


def enqueue(
    tx: Transaction,
    target: Target,
    text: str,
    *,
    of: changes.Scoped,
    id: DeliveryId | None = None,
    media: Sequence[Media] = (),
    secret: bool = False,
) -> DeliveryId:
    """Write a delivery behind everything that waits for the same target; return its id. It belongs to the owner,
    session and turn of `of`. The text of a `secret` one is removed as soon as it is sent or given up."""
    delivery = id or DeliveryId(ids.new(tx.now))
    scope = changes.get_scope(of)
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
            **scope._asdict(),
            "target": codec.dumps(target),
            "target_key": target.key,
            "platform": ids.escape(target.platform),
            "account": ids.escape(target.account),
            "body": tx.keys.seal(scope.session, codec.dumps(text)),
            "media": tx.keys.seal(scope.session, codec.dumps(media)),
            "secret": int(secret),
            "now": to_micros(tx.now),
        },
    )
    changes.note(tx, ChangeKind.DELIVERY, delivery, scope, note=format_note(DeliveryState.READY, target))
    return delivery


def get(tx: Transaction, delivery: DeliveryId, *, viewer: Viewer | None = None) -> Delivery:
    row = tx.row(f"{_SELECT} where d.id = :id", {"id": delivery})
    if row is None or (viewer and not viewer.sees(row[1], row[2])):
        raise NotFound(
            f"there is no delivery {delivery!r}: `keryx deliveries list` shows them",
            Phrase("delivery.unknown"),
        )
    return _ROWS.decode(row)


def list_recent(
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
    return _ROWS.decode_all(rows)


def list_waits(tx: Transaction, listed: Sequence[Delivery]) -> dict[DeliveryId, Wait]:
    """Return why those of these deliveries wait that are ready and cannot be sent at once."""
    ready = {d.id: d for d in listed if d.state is DeliveryState.READY}
    rows = tx.rows(
        f"""
        select d.id,
          coalesce((select max(g.not_before) from gates g where g.key in (d.target_key, d.platform || ':' || d.account)), 0),
          exists (
            select 1 from deliveries e
            where e.target_key = d.target_key and e.state in ('ready', 'sending') and e.position < d.position
          )
        from deliveries d where d.id {tx.in_names}
        """,
        {"names": json.dumps(list(ready))},
    )
    found: dict[DeliveryId, Wait] = {}
    for id_, gate, behind in rows:
        own = ready[id_].not_before
        if behind:
            found[id_] = Wait(WaitReason.ORDER)
        elif gate > to_micros(max(tx.now, own)):
            found[id_] = Wait(WaitReason.LIMIT, from_micros(gate))
        elif own > tx.now:
            found[id_] = Wait(WaitReason.RETRY, own)
    return found


def list_for_session(tx: Transaction, session: SessionId, *, unfinished: bool = False) -> list[Delivery]:
    clause = "and d.state not in ('sent', 'discarded')" if unfinished else ""
    rows = tx.rows(f"{_SELECT} where d.session = :session {clause} order by d.position", {"session": session})
    return _ROWS.decode_all(rows)


def find_by_message(tx: Transaction, chat: Target, message: str) -> Delivery | None:
    """Return the delivery that sent a message to a chat, or to a thread of it, by the platform's id of the message. Of
    several that have edited it, the first."""
    row = tx.row(
        f"""
        {_SELECT} where d.id = (
          select delivery from receipts
          where message = :message and chat = :chat and account = :account and platform = :platform
        )
        """,
        _encode_message(chat, message),
    )
    return _ROWS.decode_optional(row)


def list_by_message(tx: Transaction, message: str, *, limit: int = 10) -> list[Delivery]:
    """Return the deliveries that sent a message with this id of a platform, in any chat."""
    rows = tx.rows(
        f"{_SELECT} where d.id in (select delivery from receipts where message = :message) limit :limit",
        {"message": ids.escape(message), "limit": limit},
    )
    return _ROWS.decode_all(rows)


def has_in_flight(tx: Transaction, chat: Target) -> bool:
    """Whether a part may be on its way to a chat, or by an account if no chat is named, whose receipt is not recorded yet. It
    is recorded after this transaction."""
    prefix = Target(chat.platform, chat.account, chat.chat).key if chat.chat else f"{chat.account_key}:"
    rows = tx.rows(
        f"""
        select d.id from deliveries d
        where d.state in ('ready', 'sending') and d.attempts > 0 and d.platform = :platform and d.account = :account
          and substr(d.target_key, 1, :length) = :prefix
        order by d.id{tx.for_update}
        """,
        {
            "platform": ids.escape(chat.platform),
            "account": ids.escape(chat.account),
            "length": len(prefix),
            "prefix": prefix,
        },
    )
    return bool(rows)


def _save_receipt(tx: Transaction, delivery: Delivery, receipt: str) -> None:
    if receipt:
        tx.run(
            """
            insert into receipts (message, chat, account, platform, delivery)
            values (:message, :chat, :account, :platform, :delivery)
            on conflict (message, chat, account, platform) do nothing
            """,
            {**_encode_message(delivery.target, receipt), "delivery": delivery.id},
        )


def _encode_message(chat: Target, message: str) -> dict[str, str]:
    return {
        "message": ids.escape(message),
        "chat": ids.escape(chat.chat),
        "account": ids.escape(chat.account),
        "platform": ids.escape(chat.platform),
    }


def get_many(tx: Transaction, deliveries: Iterable[str]) -> list[Delivery]:
    """Those of these deliveries that exist, in no order."""
    rows = tx.rows(f"{_SELECT} where d.id {tx.in_names}", {"names": json.dumps(list(deliveries))})
    return _ROWS.decode_all(rows)


def list_for_turn(tx: Transaction, turn: TurnId) -> list[Delivery]:
    rows = tx.rows(f"{_SELECT} where d.turn = :turn order by d.position", {"turn": turn})
    return _ROWS.decode_all(rows)


def record_part_sent(tx: Transaction, delivery: Delivery, lease: LeaseToken, *, receipt: str) -> None:
    """Record that one more part has arrived."""
    _update_leased(
        tx,
        delivery,
        lease,
        "parts_sent = :parts, receipts = :receipts, again = 0, send_key = '', ends = 0",
        _receipt_params(delivery, receipt),
    )
    _save_receipt(tx, delivery, receipt)


def save_send_key(tx: Transaction, delivery: Delivery, lease: LeaseToken, key: str) -> None:
    """Store the key of the next part before it is sent."""
    _update_leased(tx, delivery, lease, "send_key = :key", {"key": key})


def record_failed_part(
    tx: Transaction, delivery: Delivery, *, number: int, state: DeliveryState, error: str
) -> None:
    """Take back that a part has arrived, and those after it. The delivery goes on from there; if later parts may have
    arrived, with a mark. One whose text is not kept cannot."""
    later = number + 1 < delivery.parts_sent
    tx.run(
        """
        update deliveries
        set state = case when secret = 1 then 'failed' else :state end, parts_sent = :number, receipts = :receipts,
          again = :again, send_key = '', error = :error, sent_at = null, not_before = 0
        where id = :id and state = :old
        """,
        {
            "id": delivery.id,
            "old": delivery.state.value,
            "state": state.value,
            "number": number,
            "receipts": codec.dumps(list(delivery.receipts[:number])),
            "again": int(later),
            "error": codec.dumps(error),
        },
    )
    _note_change(tx, delivery, state)


def release_held(tx: Transaction, target: Target) -> None:
    """Make the deliveries to a target ready that were held until its person wrote."""
    held = tx.rows(
        f"{_SELECT} where d.state = 'held' and d.target_key = :key order by d.position", {"key": target.key}
    )
    for delivery in _ROWS.decode_all(held):
        override_state(tx, delivery, DeliveryState.READY)


def record_all_sent(tx: Transaction, delivery: Delivery, lease: LeaseToken, *, receipt: str) -> None:
    """Record that the last part has arrived, and with it the delivery."""
    _update_leased(
        tx,
        delivery,
        lease,
        """
        parts_sent = :parts, receipts = :receipts, again = 0, state = 'sent', lease = null, lease_until = null,
        error = null, not_before = 0, sent_at = :now, body = case when secret = 1 then '""' else body end
        """,
        {**_receipt_params(delivery, receipt), "now": to_micros(tx.now)},
    )
    _save_receipt(tx, delivery, receipt)
    _note_change(tx, delivery, DeliveryState.SENT)


def finish_attempt(
    tx: Transaction,
    delivery: Delivery,
    lease: LeaseToken,
    state: DeliveryState,
    *,
    error: str | None = None,
    not_before: datetime | None = None,
    again: bool = False,
    ends: int = 0,
) -> None:
    """Say how an attempt ended. `again`: the next part may have arrived already, so a repetition is marked. `ends` says
    how many processes in a row have ended while they were sending."""
    _update_leased(
        tx,
        delivery,
        lease,
        """
        state = :state, lease = null, lease_until = null, error = :error, not_before = :not_before, again = :again,
        sent_at = :sent_at, ends = :ends,
        body = case when secret = 1 and :state in ('sent', 'failed', 'dead') then '""' else body end
        """,
        {
            "state": state.value,
            "error": error and codec.dumps(error),
            "not_before": to_micros(not_before) if not_before else 0,
            "again": int(again),
            "ends": ends,
            "sent_at": to_micros(tx.now) if state is DeliveryState.SENT else None,
        },
    )
    _note_change(tx, delivery, state)


def list_abandoned(
    tx: Transaction, *, workers: list[WorkerId], limit: int = 50
) -> list[tuple[Delivery, LeaseToken]]:
    """Return deliveries whose sender is gone. Whether their next part arrived is unknown."""
    rows = tx.rows(
        f"select {_ROWS.columns}, lease, worker, lease_until from deliveries d where d.state = 'sending' order by d.position",
    )
    gone = [row for row in rows if row[-1] < to_micros(tx.now) or row[-2] in workers]
    return [(_ROWS.decode(row), LeaseToken(row[-3])) for row in gone[:limit]]


def renew_leases(
    tx: Transaction, worker: WorkerId, deliveries: Iterable[DeliveryId], *, until: datetime
) -> None:
    """Prolong the leases of deliveries that a worker is sending."""
    for delivery in deliveries:
        tx.run(
            "update deliveries set lease_until = :until where id = :id and worker = :worker and state = 'sending'",
            {"id": delivery, "worker": worker, "until": to_micros(until)},
        )


def override_state(tx: Transaction, delivery: Delivery, state: DeliveryState) -> None:
    """A person retries, stops or discards a delivery."""
    if state not in MOVES[delivery.state]:
        raise Conflict(
            f"delivery {delivery.id} is {delivery.state}: it cannot become {state}",
            Phrase("web.moved_on"),
        )
    changed = tx.count(
        """
        update deliveries
        set state = :state, attempts = 0, ends = 0, not_before = 0, again = case when state = 'unknown' then 1 else again end,
          body = case when secret = 1 and :state in ('discarded', 'dead') then '""' else body end
        where id = :id and state = :old
        """,
        {"id": delivery.id, "state": state.value, "old": delivery.state.value},
    )
    if not changed:
        raise Conflict(f"delivery {delivery.id} has moved on: look again", Phrase("web.moved_on"))
    _note_change(tx, delivery, state)


def cap_delays(tx: Transaction, *, until: datetime) -> None:
    """Shorten every delay that lasts beyond `until`. Used after the clock was set back."""
    tx.run(
        "update deliveries set not_before = :until where state = 'ready' and not_before > :until",
        {"until": to_micros(until)},
    )


def _receipt_params(delivery: Delivery, receipt: str) -> dict[str, Any]:
    return {"parts": delivery.parts_sent + 1, "receipts": codec.dumps([*delivery.receipts, receipt])}


def _update_leased(
    tx: Transaction, delivery: Delivery, lease: LeaseToken, assignment: str, params: dict[str, Any]
) -> None:
    changed = tx.count(
        f"update deliveries set {assignment} where id = :id and lease = :held and state = 'sending'",
        {**params, "id": delivery.id, "held": lease},
    )
    if not changed:
        raise LeaseLost(f"delivery {delivery.id} belongs to another worker now")


def _note_change(tx: Transaction, delivery: Delivery, state: DeliveryState) -> None:
    changes.note(tx, ChangeKind.DELIVERY, delivery.id, delivery, note=format_note(state, delivery.target))


LeasedDelivery = tuple[Delivery, LeaseToken]


class DeliveryClaims(NamedTuple):
    """Deliveries that a sender got. `waiting`: others of its account are left, which may not go now."""

    leased: list[LeasedDelivery]
    waiting: bool


def claim(
    tx: Transaction,
    *,
    most: int,
    platform: str,
    account: str,
    worker: WorkerId,
    lease: timedelta,
    after: str = "",
) -> DeliveryClaims:
    """Lease the next deliveries of an account, up to `most`. When very much is held up, targets take turns: the one
    behind the target `after` comes next."""
    params = {
        "platform": ids.escape(platform),
        "account": ids.escape(account),
        "gate": Target(platform, account).account_key,
        "now": to_micros(tx.now),
        "oldest": _MAX_OLDEST,
        "targets": _TARGETS_PER_WALK,
        "candidates": most + _SPARE_CANDIDATES,
    }

    candidates, ready = _list_oldest_candidates(tx, params)
    leased = _lease_first(tx, candidates, most, worker, lease)
    waiting = ready > len(leased)
    while ready > _MAX_OLDEST and len(leased) < most:
        after = leased[-1][0].target.key if leased else after
        candidates = _list_target_candidates(tx, {**params, "after": after})
        if not (more := _lease_first(tx, candidates, 1, worker, lease)):
            break
        leased += more
    return DeliveryClaims(leased, waiting)


def get_next_ready_at(tx: Transaction) -> datetime | None:
    """When the next delivery that is held back may go."""
    row = tx.row(
        "select min(not_before) from deliveries where state = 'ready' and not_before > 0 and not_before > :now",
        {"now": to_micros(tx.now)},
    )
    return maybe_moment(row[0]) if row else None


def _list_oldest_candidates(tx: Transaction, params: Params) -> tuple[list[str], int]:
    """Return those of the oldest waiting deliveries that may be sent now, and how many wait in all: at most one more than
    the oldest that were looked at."""
    ready = """
        select count(*) from (
          select 1 from deliveries
          where state = 'ready' and platform = :platform and account = :account
          order by position
          limit :oldest + 1
        ) counted
        """
    rows = tx.rows(
        f"""
        select oldest.id, ({ready})
        from (
          select id, target_key, position, not_before from deliveries
          where state = 'ready' and platform = :platform and account = :account
          order by position
          limit :oldest
        ) oldest
        where oldest.not_before <= :now
          and coalesce((select a.not_before from gates a where a.key = :gate), 0) <= :now
          and coalesce((select g.not_before from gates g where g.key = oldest.target_key), 0) <= :now
          and not exists (
            select 1 from deliveries e
            where e.target_key = oldest.target_key and e.state in ('ready', 'sending') and e.position < oldest.position
          )
        order by oldest.position
        limit :candidates
        """,
        params,
    )
    if rows:
        return [row[0] for row in rows], rows[0][1]
    counted = tx.row(ready, params)
    assert counted is not None
    return [], counted[0]


def _list_target_candidates(tx: Transaction, params: Params) -> list[str]:
    """Return what may be sent to the next targets, when more waits than the oldest that are looked at. The cost is
    one step for each target, however many deliveries wait behind the first."""
    if tx.row("select 1 from gates where key = :gate and not_before > :now", params):
        return []
    # The next targets in order of their keys, each with its first delivery if that may be sent. The subquery fixes
    # the join order, so the plan does not depend on the statistics.
    walk = """
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
        """
    for after in dict.fromkeys((params["after"], "")):
        while rows := tx.rows(walk, {**params, "after": after}):
            if deliveries := sorted(row[1] for row in rows if row[1]):
                return deliveries
            after = rows[-1][0]
    return []


def _lease_first(
    tx: Transaction, candidates: Iterable[str], most: int, worker: WorkerId, lease: timedelta
) -> list[LeasedDelivery]:
    """Lease the candidates in their order, up to `most`, without those that another worker has."""
    leased: list[LeasedDelivery] = []
    for candidate in candidates:
        if len(leased) == most:
            break
        # The state is an expression, so that an index of all that waits is never taken for shorter than one id.
        if tx.skip_locked and not tx.row(
            f"select 1 from deliveries where id = :id and state || '' = 'ready'{tx.skip_locked}",
            {"id": candidate},
        ):
            continue
        row = tx.row(
            f"""
            update deliveries as d
            set state = 'sending', attempts = d.attempts + 1, worker = :worker, lease = :lease, lease_until = :until
            where d.id = :id and d.state || '' = 'ready' and not exists (
              select 1 from deliveries e
              where e.target_key = d.target_key and e.state in ('ready', 'sending') and e.position < d.position
            )
            returning {_ROWS.columns}, lease
            """,
            {"id": candidate, "worker": worker, "lease": ids.new_token(), "until": to_micros(tx.now + lease)},
        )
        if row is not None:
            leased.append((_ROWS.decode(row), LeaseToken(row[-1])))
    return leased


def find_preview(tx: Transaction, turn: TurnId) -> Preview | None:
    row = tx.row(
        """
        select target, state, receipt, revision, token, key, at, replace_until, delivery from previews
        where turn = :turn
        """,
        {"turn": turn},
    )
    if row is None:
        return None
    target, state, receipt, revision, token, key, at, replace_until, delivery = row
    return Preview(
        turn=turn,
        target=codec.loads(target, Target),
        state=PreviewState(state),
        receipt=codec.loads(receipt, str) if receipt else "",
        revision=revision,
        token=LeaseToken(token),
        key=key or f"{turn}.preview",
        at=from_micros(at),
        replace_until=from_micros(replace_until),
        delivery=DeliveryId(delivery) if delivery else None,
    )


def find_replaced_preview(tx: Transaction, delivery: Delivery) -> Preview | None:
    """The preview whose place the first part of a delivery takes, if it has one."""
    if delivery.turn is None or delivery.parts_sent:
        return None
    row = tx.row(
        "select 1 from previews where turn = :turn and delivery = :delivery",
        {"turn": delivery.turn, "delivery": delivery.id},
    )
    return find_preview(tx, delivery.turn) if row else None


def set_preview_delivery(tx: Transaction, turn: TurnId, delivery: DeliveryId) -> None:
    """A turn is over, and a delivery says how: its first part takes the place of the preview."""
    tx.run(
        "update previews set delivery = :delivery where turn = :turn and delivery is null",
        {"turn": turn, "delivery": delivery},
    )


def begin_preview(
    tx: Transaction,
    turn: Turn,
    target: Target,
    *,
    worker: WorkerId,
    replace_for: timedelta = timedelta(days=1),
) -> Preview:
    """A preview is about to be sent for the first time, or once more under the same key. The caller holds the turn."""
    tx.run(
        """
        insert into previews (turn, target, state, token, worker, at, key, replace_until)
        values (:turn, :target, 'sending', :token, :worker, :now, :key, :until)
        on conflict (turn) do update
        set state = 'sending', receipt = '', revision = previews.revision + 1, token = excluded.token,
            worker = excluded.worker
        """,
        {
            "turn": turn.id,
            "target": codec.dumps(target),
            "token": ids.new_token(),
            "worker": worker,
            "now": to_micros(tx.now),
            "key": f"{turn.id}.preview.{ids.new(tx.now)}",
            "until": to_micros(tx.now + replace_for),
        },
    )
    return _get_preview(tx, turn.id)


def withdraw_preview(tx: Transaction, turn: TurnId, delivery: DeliveryId) -> None:
    """A delivery is to be sent below what a turn shows: the preview is removed first."""
    tx.run(
        "update previews set delivery = :delivery, replace_until = 0 where turn = :turn and delivery is null",
        {"turn": turn, "delivery": delivery},
    )


def is_overtaken(tx: Transaction, preview: Preview) -> bool:
    """Whether another message of the turn was sent after its preview."""
    row = tx.row(
        "select 1 from deliveries where turn = :turn and state = 'sent' and sent_at > :at limit 1",
        {"turn": preview.turn, "at": to_micros(preview.at)},
    )
    return row is not None


def revise_preview(tx: Transaction, turn: Turn) -> Preview:
    """A preview that is shown is about to be edited. The caller holds the turn."""
    tx.run(
        "update previews set revision = revision + 1, token = :token where turn = :turn",
        {"turn": turn.id, "token": ids.new_token()},
    )
    return _get_preview(tx, turn.id)


def record_preview(tx: Transaction, preview: Preview, state: PreviewState, *, receipt: str = "") -> bool:
    """Record how a send ended, unless another sender has taken the preview over; return whether it was recorded."""
    changed = tx.count(
        "update previews set state = :state, receipt = :receipt where turn = :turn and token = :token",
        {
            "turn": preview.turn,
            "token": preview.token,
            "state": state.value,
            "receipt": codec.dumps(receipt) if receipt else "",
        },
    )
    return bool(changed)


def remove_preview(tx: Transaction, preview: Preview) -> None:
    """The preview is certainly not there, or no longer."""
    tx.run(
        "delete from previews where turn = :turn and token = :token",
        {"turn": preview.turn, "token": preview.token},
    )


def remove_replaced_preview(tx: Transaction, delivery: Delivery) -> None:
    """The answer has taken the place of its preview, if it had one."""
    if delivery.turn is not None:
        tx.run(
            "delete from previews where turn = :turn and delivery = :delivery",
            {"turn": delivery.turn, "delivery": delivery.id},
        )


def has_waiting(tx: Transaction, target: Target) -> bool:
    """Whether a delivery waits for the same place, or is on its way there: previews make room."""
    row = tx.row(
        "select 1 from deliveries where target_key = :key and state in ('ready', 'sending') limit 1",
        {"key": target.key},
    )
    return row is not None


def trim_previews(tx: Transaction, *, before: datetime) -> int:
    """Forget the previews of turns that ended and whose answer was given up."""
    return tx.count(
        """
        delete from previews
        where at < :before
          and not exists (select 1 from turns t where t.id = previews.turn and t.state in ('queued', 'running'))
          and not exists (
            select 1 from deliveries d where d.turn = previews.turn and d.state not in ('sent', 'discarded')
          )
        """,
        {"before": to_micros(before)},
    )


def _get_preview(tx: Transaction, turn: TurnId) -> Preview:
    found = find_preview(tx, turn)
    assert found is not None
    return found
