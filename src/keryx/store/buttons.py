"""Buttons: which message of a chat shows a question with buttons, and the delivery that takes its place in the end."""

from datetime import datetime

from keryx.core import questions as core
from keryx.core import wire
from keryx.core.ids import DeliveryId, QuestionId
from keryx.core.questions import Asked
from keryx.store import deliveries
from keryx.store.database import Transaction


def show(tx: Transaction, question: QuestionId, receipt: str) -> None:
    """A question is shown with buttons by this message; one that was repeated by the last."""
    tx.run(
        """
        insert into buttons (question, receipt) values (:question, :receipt)
        on conflict (question) do update set receipt = excluded.receipt
        """,
        {"question": question, "receipt": wire.dumps(receipt)},
    )


def end(tx: Transaction, asked: Asked, *, now: datetime) -> None:
    """A question is closed: a delivery that says how takes the place of its buttons, if it is shown with any."""
    if not tx.row(
        "select 1 from buttons where question = :question and delivery is null", {"question": asked.id}
    ):
        return
    first = deliveries.get(tx, DeliveryId(asked.id))
    made = deliveries.enqueue(
        tx,
        first.target.place,
        core.closed(asked, whole=len(first.receipts) == 1),
        profile=asked.profile,
        owner=asked.owner,
        session=asked.session,
        turn=asked.turn,
        now=now,
    )
    tx.run(
        "update buttons set delivery = :delivery where question = :question",
        {"question": asked.id, "delivery": made},
    )


def replaced_by(tx: Transaction, delivery: DeliveryId) -> str:
    """The message whose place a delivery takes; empty if it takes none."""
    row = tx.row("select receipt from buttons where delivery = :delivery", {"delivery": delivery})
    return "" if row is None else wire.loads(row[0], str)


def remove(tx: Transaction, delivery: DeliveryId) -> None:
    """A delivery has taken its place, or there is none to take any more."""
    tx.run("delete from buttons where delivery = :delivery", {"delivery": delivery})
