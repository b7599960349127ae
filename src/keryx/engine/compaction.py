"""Compaction: how a summary becomes a new epoch, and how a person asks for one."""

from datetime import datetime

from keryx.core import ids
from keryx.core.compaction import ASKED, DONE, FAILED, marker
from keryx.core.ids import TurnId
from keryx.core.messages import Message, Notice, Role
from keryx.core.ports import Compacted, NotCompacted, Receipt
from keryx.core.sessions import Session
from keryx.core.turns import Turn
from keryx.engine import answers, mirror
from keryx.engine.asking import Question, queue
from keryx.store import epochs, messages
from keryx.store.database import Transaction


def ask(tx: Transaction, session: Session, asked: Question, focus: str, *, now: datetime) -> Receipt:
    """Queue a turn that compacts a conversation. People see that it was asked for; the model does not."""
    turn = TurnId(ids.new(now))
    seq = messages.append(
        tx,
        session.id,
        Role.NOTICE,
        (Notice(focus, ASKED),),
        now=now,
        turn=turn,
        author=asked.author,
        surface=asked.surface,
        said_by=asked.asker,
    )
    queue(tx, session, asked, turn, seq, now)
    return Receipt(duplicate=False, session=session.id, turn=turn, seq=seq)


def focus(asked: Message) -> str | None:
    """What a turn that was asked for by this message should keep above all, perhaps nothing; `None` if it is not to
    compact."""
    return next((p.text for p in asked.parts if isinstance(p, Notice) and p.kind == ASKED), None)


def begin(tx: Transaction, turn: Turn, event: Compacted, *, now: datetime) -> None:
    """Open the epoch, and show where and with which summary: in the conversation, and where somebody asked for something
    else. The same event changes nothing the second time."""
    current = epochs.current(tx, turn.session)
    if current is not None and current.first_seq >= event.first:
        return
    epochs.begin(tx, turn.session, first_seq=event.first, summary=event.summary, now=now)
    messages.append(tx, turn.session, Role.NOTICE, (Notice(event.summary, DONE),), now=now, turn=turn.id)
    if event.tell and focus(messages.get(tx, turn.session, turn.input_seq)) is None:
        _tell(tx, turn, marker(event.summary), now=now)


def fail(tx: Transaction, turn: Turn, event: NotCompacted, *, now: datetime) -> None:
    """Show why, and let the next try wait. While one waits, a failure is not told again."""
    if not epochs.may_begin(tx, turn.session, now=now):
        return
    epochs.fail(tx, turn.session, now=now)
    text = f"The conversation could not be compacted: {event.reason}"
    messages.append(tx, turn.session, Role.NOTICE, (Notice(text, FAILED),), now=now, turn=turn.id)
    if event.tell:
        _tell(tx, turn, text, now=now)


def told(tx: Transaction, turn: Turn) -> str:
    """What the person who asked for it reads."""
    epoch = epochs.current(tx, turn.session)
    summary = f"\n\n{epoch.summary}" if epoch else ""
    return f"Compacted. You still see everything; the model goes on from this summary:{summary}"


def _tell(tx: Transaction, turn: Turn, text: str, *, now: datetime) -> None:
    """To the place that asked, and to the chats that mirror the conversation."""
    answers.aside(tx, turn, text, now=now)
    mirror.aside(tx, turn, text, now=now)
