"""Buttons: a question is answered by a press where the platform has buttons. The delivery of a question has its id."""

from datetime import datetime

from keryx.core import questions as core
from keryx.core.deliveries import Delivery
from keryx.core.ids import QuestionId
from keryx.core.questions import Button, QuestionState
from keryx.store import buttons, questions, sessions
from keryx.store.database import Transaction


def offered(tx: Transaction, delivery: Delivery) -> tuple[Button, ...]:
    """What is to be pressed under a delivery: the options of the question that it puts, while that waits."""
    asked = questions.known(tx, QuestionId(delivery.id)) if delivery.turn else None
    return core.buttons(asked) if asked and asked.state is QuestionState.OPEN else ()


def lock(tx: Transaction, delivery: Delivery) -> None:
    """Keep the question of a delivery from being closed meanwhile. The session is locked before all else."""
    if delivery.session is not None:
        sessions.lock(tx, delivery.session)


def shown(tx: Transaction, delivery: Delivery, receipt: str, *, now: datetime) -> None:
    """A question has arrived with its buttons. One that was closed on the way loses them again."""
    asked = questions.get(tx, QuestionId(delivery.id))
    buttons.show(tx, asked.id, receipt)
    if asked.state is not QuestionState.OPEN:
        buttons.end(tx, asked, now=now)
