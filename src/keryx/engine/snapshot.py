"""Snapshot: a session with all that a surface shows of it, as one read saw it."""

import msgspec

from keryx.core.changes import Piece
from keryx.core.deliveries import Delivery
from keryx.core.ids import Cursor, SessionId
from keryx.core.messages import Message
from keryx.core.questions import Asked
from keryx.core.sessions import Activity, Session, Viewer
from keryx.core.turns import Turn
from keryx.store import changes, deliveries, drafts, epochs, listings, messages, questions, sessions, turns
from keryx.store.database import Transaction
from keryx.store.epochs import Epoch


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A session as one read saw it. Following from `cursor` misses nothing and repeats nothing."""

    session: Session
    activity: Activity
    messages: list[Message]
    earlier: bool
    running: Turn | None
    draft: list[Piece]
    queue: list[Turn]
    questions: list[Asked]
    deliveries: list[Delivery]
    epochs: list[Epoch]
    cursor: Cursor


def take(tx: Transaction, *, viewer: Viewer, id_: SessionId, limit: int, before: int | None) -> Snapshot:
    session = sessions.get(tx, id_, viewer=viewer)
    window = messages.latest(tx, id_, limit=limit, before=before)
    running = turns.running(tx, id_)
    return Snapshot(
        session=session,
        activity=listings.activity(tx, id_),
        messages=window,
        earlier=bool(window) and window[0].seq > 1,
        running=running,
        draft=drafts.pieces(tx, running.id) if running else [],
        queue=turns.queued(tx, id_),
        questions=questions.waiting(tx, id_),
        deliveries=deliveries.of_session(tx, id_, unfinished=True),
        epochs=epochs.every(tx, id_),
        cursor=changes.head(tx),
    )
