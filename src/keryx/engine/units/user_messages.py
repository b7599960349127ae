"""UserMessage, and its submission: append it to a session and queue the turn that answers it."""

from datetime import datetime

import msgspec

from keryx.core import ids
from keryx.core.deliveries import Target
from keryx.core.ids import PrincipalId, SessionId, TurnId, WorkerId
from keryx.core.messages import Parts, Role, ToolResult, join_text, localize_parts, text_parts
from keryx.core.ports.adapter import InboundMessage, Receipt
from keryx.core.sessions import END_SURFACE, Session
from keryx.core.source import Source
from keryx.core.turns import BusyMode
from keryx.engine.units import answers, control
from keryx.store import messages, sessions, turns
from keryx.store.db import Transaction


class UserMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a user, and where its answer is sent."""

    parts: Parts
    asker: PrincipalId
    surface: str
    mode: BusyMode = BusyMode.QUEUE
    # The name of the user.
    author: str = ""
    platform_id: str = ""
    # Stored as context only: no turn answers it.
    observed: bool = False
    reply: Target | None = None
    # Further targets of the answer.
    also: tuple[Target, ...] = ()
    # Only this worker may run the turn.
    pin: WorkerId | None = None
    # Set if the user is on a platform; their rights are checked again before the turn runs.
    source: Source | None = None
    # The text for the model, if it differs from `parts`.
    exact: str | None = None
    # The group of the messages that the turn gathers, and until when it waits for more; `None` for an ordinary message.
    gathers: str | None = None
    not_before: datetime | None = None
    # The model that answers it, if not that of the session.
    model: str | None = None


def build_user_message(
    inbound: InboundMessage,
    asker: PrincipalId,
    mode: BusyMode,
    *,
    exact: str | None = None,
    gather_until: datetime | None = None,
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
        gathers=inbound.group if gather_until else None,
        not_before=gather_until,
    )


def find_author(inbound: InboundMessage) -> Source | None:
    """Return the source whose rights are checked for a message; `None` for a message of a local surface."""
    return inbound.source if inbound.principal is None else None


def submit(tx: Transaction, session: Session, message: UserMessage, *, mirrored: bool = True) -> Receipt:
    """Append a message to a session and queue the turn that answers it. A session that has ended goes on. `mirrored` is false
    if no chat mirrors the session."""
    if session.ended_at is not None and not message.observed:
        control.set_ended(tx, session, None)
    turn = None if message.observed else TurnId(ids.new(tx.now))
    seq = append_input(tx, session, message, turn, mirrored=mirrored)
    if turn is not None:
        queue_turn(tx, session, message, turn, seq)
    return Receipt(duplicate=False, session=session.id, turn=turn, seq=seq)


def append_input(
    tx: Transaction, session: Session, message: UserMessage, turn: TurnId | None, *, mirrored: bool = True
) -> int:
    """Append a message that a turn answers, and return its number."""
    seq = messages.append(
        tx,
        session.id,
        # The results of tools that a program has run are a message too.
        Role.TOOL
        if message.parts and all(isinstance(part, ToolResult) for part in message.parts)
        else Role.USER,
        message.parts,
        turn=turn,
        author=message.author,
        surface=message.surface,
        platform_id=message.platform_id,
        observed=message.observed,
        exact=message.exact,
        said_by=message.asker,
    )
    if turn is not None and mirrored:
        texts = tx.texts.speak(message.source.language if message.source else None)
        answers.mirror_message(
            tx,
            session,
            join_text(localize_parts(message.parts, texts)),
            author=message.author,
            surface=message.surface,
            reply=message.reply,
            turn=turn,
        )
    return seq


def finish_end_hooks(tx: Transaction, *, session_id: SessionId, prompt: str) -> None:
    """Remove the end hooks of a session, and queue a turn with a prompt, if there is one. The session stays ended, and
    the answer is sent to nobody. A session that was reopened or deleted meanwhile is left alone."""
    session = sessions.get(tx, session_id, deleted=True)
    if not sessions.remove_end_hook(tx, session_id) or not prompt or session.deleted_at or not session.turns:
        return
    turn = TurnId(ids.new(tx.now))
    message = UserMessage(parts=text_parts(prompt), asker=session.owner, surface=END_SURFACE)
    seq = messages.append(
        tx, session.id, Role.USER, message.parts, turn=turn, author="Keryx", surface=END_SURFACE
    )
    queue_turn(tx, session, message, turn, seq)


def queue_turn(tx: Transaction, session: Session, message: UserMessage, turn: TurnId, seq: int) -> None:
    """Queue the turn of a message that is stored already."""
    turns.enqueue(
        tx,
        session,
        id=turn,
        asker=message.asker,
        surface=message.surface,
        input_seq=seq,
        mode=message.mode,
        reply=message.reply,
        also=message.also,
        pin=message.pin,
        source=message.source,
        gathers=message.gathers,
        not_before=message.not_before,
        model=message.model,
    )
    running = turns.find_running(tx, session.id) if message.mode is BusyMode.INTERRUPT else None
    if running:
        turns.request_cancel(tx, running)
