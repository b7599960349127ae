"""Previews: one row for each turn that shows itself in a chat before its answer is there."""

from datetime import datetime

from keryx.core import ids, wire
from keryx.core.deliveries import Delivery, Target
from keryx.core.ids import DeliveryId, LeaseToken, TurnId, WorkerId
from keryx.core.previews import Preview, PreviewState
from keryx.core.turns import Turn
from keryx.store.database import Transaction, micros


def find(tx: Transaction, turn: TurnId) -> Preview | None:
    row = tx.row(
        "select target, state, receipt, revision, token from previews where turn = :turn", {"turn": turn}
    )
    if row is None:
        return None
    target, state, receipt, revision, token = row
    return Preview(
        turn=turn,
        target=wire.loads(target, Target),
        state=PreviewState(state),
        receipt=wire.loads(receipt, str) if receipt else "",
        revision=revision,
        token=LeaseToken(token),
    )


def replaced_by(tx: Transaction, delivery: Delivery) -> Preview | None:
    """The preview whose place the first part of a delivery takes, if it has one."""
    if delivery.turn is None or delivery.parts_sent:
        return None
    row = tx.row(
        "select 1 from previews where turn = :turn and delivery = :delivery",
        {"turn": delivery.turn, "delivery": delivery.id},
    )
    return find(tx, delivery.turn) if row else None


def end(tx: Transaction, turn: TurnId, delivery: DeliveryId) -> None:
    """A turn is over, and a delivery says how: its first part takes the place of the preview."""
    tx.run(
        "update previews set delivery = :delivery where turn = :turn and delivery is null",
        {"turn": turn, "delivery": delivery},
    )


def begin(tx: Transaction, turn: Turn, target: Target, *, worker: WorkerId, now: datetime) -> Preview:
    """A preview is about to be sent for the first time, or once more under the same key. The caller holds the turn."""
    tx.run(
        """
        insert into previews (turn, target, state, token, worker, at)
        values (:turn, :target, 'sending', :token, :worker, :now)
        on conflict (turn) do update
        set state = 'sending', receipt = '', revision = previews.revision + 1, token = excluded.token,
            worker = excluded.worker
        """,
        {
            "turn": turn.id,
            "target": wire.dumps(target),
            "token": ids.token(),
            "worker": worker,
            "now": micros(now),
        },
    )
    return _found(tx, turn.id)


def revise(tx: Transaction, turn: Turn) -> Preview:
    """A preview that is shown is about to be edited. The caller holds the turn."""
    tx.run(
        "update previews set revision = revision + 1, token = :token where turn = :turn",
        {"turn": turn.id, "token": ids.token()},
    )
    return _found(tx, turn.id)


def record(tx: Transaction, preview: Preview, state: PreviewState, *, receipt: str = "") -> bool:
    """Say how a send ended, unless somebody else has taken the preview over; gives whether that was recorded."""
    changed = tx.count(
        "update previews set state = :state, receipt = :receipt where turn = :turn and token = :token",
        {
            "turn": preview.turn,
            "token": preview.token,
            "state": state.value,
            "receipt": wire.dumps(receipt) if receipt else "",
        },
    )
    return bool(changed)


def withdraw(tx: Transaction, preview: Preview) -> None:
    """The preview is certainly not there, or no longer."""
    tx.run(
        "delete from previews where turn = :turn and token = :token",
        {"turn": preview.turn, "token": preview.token},
    )


def replace(tx: Transaction, delivery: Delivery) -> None:
    """The answer has taken the place of its preview, if it had one."""
    if delivery.turn is not None:
        tx.run(
            "delete from previews where turn = :turn and delivery = :delivery",
            {"turn": delivery.turn, "delivery": delivery.id},
        )


def waiting(tx: Transaction, target: Target) -> bool:
    """Whether a delivery waits for the same place, or is on its way there: previews make room."""
    row = tx.row(
        "select 1 from deliveries where target_key = :key and state in ('ready', 'sending') limit 1",
        {"key": target.key},
    )
    return row is not None


def trim(tx: Transaction, *, before: datetime) -> int:
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
        {"before": micros(before)},
    )


def _found(tx: Transaction, turn: TurnId) -> Preview:
    found = find(tx, turn)
    assert found is not None
    return found
