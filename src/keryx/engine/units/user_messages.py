"""UserMessage, and its submission: append it to a session and queue the turn that answers it."""

import msgspec

from keryx.core import ids
from keryx.core.deliveries import Target
from keryx.core.ids import PrincipalId, TurnId, WorkerId
from keryx.core.messages import Parts, Role, join_text
from keryx.core.ports.adapter import InboundMessage, Receipt
from keryx.core.sessions import Session
from keryx.core.source import Source
from keryx.core.turns import BusyMode
from keryx.engine.units import answers
from keryx.store import messages, turns
from keryx.store.db.database import Transaction


class UserMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What was said, by whom, and where the answer goes. An observed one gets none.
    `source` is set if its author came in through a platform. `exact` is what the model is given, if it differs."""

    parts: Parts
    asker: PrincipalId
    surface: str
    mode: BusyMode = BusyMode.QUEUE
    author: str = ""
    platform_id: str = ""
    observed: bool = False
    reply: Target | None = None
    also: tuple[Target, ...] = ()
    pin: WorkerId | None = None
    source: Source | None = None
    exact: str | None = None


def build_user_message(
    inbound: InboundMessage, asker: PrincipalId, mode: BusyMode, *, exact: str | None = None
) -> UserMessage:
    return UserMessage(
        parts=inbound.parts,
        asker=asker,
        surface=inbound.surface,
        mode=mode,
        author=inbound.source.user_name or "",
        platform_id=ids.escape(inbound.source.message or ""),
        observed=inbound.observed,
        reply=inbound.reply,
        pin=inbound.pin,
        source=find_author(inbound),
        exact=exact,
    )


def find_author(inbound: InboundMessage) -> Source | None:
    """Whose rights count for a message: nobody's, where a local transport vouches for it."""
    return inbound.source if inbound.principal is None else None


def submit(tx: Transaction, session: Session, asked: UserMessage) -> Receipt:
    """Append what was said to a session and queue the turn that will answer it."""
    turn = None if asked.observed else TurnId(ids.new(tx.now))
    seq = messages.append(
        tx,
        session.id,
        Role.USER,
        asked.parts,
        turn=turn,
        author=asked.author,
        surface=asked.surface,
        platform_id=asked.platform_id,
        observed=asked.observed,
        exact=asked.exact,
        said_by=asked.asker,
    )
    if turn is not None:
        answers.mirror_message(
            tx,
            session,
            join_text(asked.parts),
            author=asked.author,
            surface=asked.surface,
            reply=asked.reply,
            turn=turn,
        )
        queue_turn(tx, session, asked, turn, seq)
    return Receipt(duplicate=False, session=session.id, turn=turn, seq=seq)


def queue_turn(tx: Transaction, session: Session, asked: UserMessage, turn: TurnId, seq: int) -> None:
    """Queue the turn of a message that is stored already."""
    turns.enqueue(
        tx,
        session,
        id=turn,
        asker=asked.asker,
        surface=asked.surface,
        input_seq=seq,
        mode=asked.mode,
        reply=asked.reply,
        also=asked.also,
        pin=asked.pin,
        source=asked.source,
    )
    running = turns.find_running(tx, session.id) if asked.mode is BusyMode.INTERRUPT else None
    if running:
        turns.request_cancel(tx, running)
