"""Request a compaction, open the new epoch with its summary, or record the failure."""

from keryx.core import ids
from keryx.core.compaction import DONE_KIND, FAILED_KIND, REQUEST_KIND, format_marker
from keryx.core.ids import TurnId
from keryx.core.messages import Message, Notice, Role
from keryx.core.ports.adapter import Receipt
from keryx.core.ports.agent import CompactionEvent, CompactionFailedEvent
from keryx.core.sessions import Session
from keryx.core.turns import Turn
from keryx.engine.units import answers
from keryx.engine.units.user_messages import UserMessage, queue_turn
from keryx.store import epochs, messages
from keryx.store.db import Transaction


def request(tx: Transaction, session: Session, message: UserMessage, focus: str) -> Receipt:
    """Queue a turn that compacts a session. People see the request; the model does not."""
    turn = TurnId(ids.new(tx.now))
    seq = messages.append(
        tx,
        session.id,
        Role.NOTICE,
        (Notice(focus, REQUEST_KIND),),
        turn=turn,
        author=message.author,
        surface=message.surface,
        said_by=message.asker,
    )
    queue_turn(tx, session, message, turn, seq)
    return Receipt(duplicate=False, session=session.id, turn=turn, seq=seq)


def find_focus(message: Message) -> str | None:
    """Return what a requested compaction should keep, perhaps nothing; `None` if the message does not request one."""
    return next((p.text for p in message.parts if isinstance(p, Notice) and p.kind == REQUEST_KIND), None)


def begin(tx: Transaction, turn: Turn, event: CompactionEvent) -> None:
    """Open the epoch, and append its summary as a notice. If the turn was about something else, send the notice to its
    chat too. Idempotent."""
    current = epochs.find_current(tx, turn.session)
    if current is not None and current.first_seq >= event.first:
        return
    epochs.begin(tx, turn.session, first_seq=event.first, summary=event.summary)
    messages.append(tx, turn.session, Role.NOTICE, (Notice(event.summary, DONE_KIND),), turn=turn.id)
    if event.tell and find_focus(messages.get(tx, turn.session, turn.input_seq)) is None:
        _notify(tx, turn, format_marker(event.summary))


def fail(tx: Transaction, turn: Turn, event: CompactionFailedEvent) -> None:
    """Append the reason as a notice, and delay the next attempt. Further failures until then are ignored."""
    if not epochs.can_begin(tx, turn.session):
        return
    epochs.record_failure(tx, turn.session)
    texts = answers.speak(tx, turn)
    text = texts.say("turn.compaction_failed", reason=texts.render(event.reason))
    messages.append(tx, turn.session, Role.NOTICE, (Notice(text, FAILED_KIND),), turn=turn.id)
    if event.tell:
        _notify(tx, turn, text)


def render_result(tx: Transaction, turn: Turn) -> str:
    """Return the answer to a requested compaction."""
    epoch = epochs.find_current(tx, turn.session)
    summary = f"\n\n{epoch.summary}" if epoch else ""
    return f"{answers.speak(tx, turn).say('turn.compacted')}{summary}"


def _notify(tx: Transaction, turn: Turn, text: str) -> None:
    """Send a text to the chat that asked, and to the chats that mirror the session."""
    answers.send_aside(tx, turn, text)
    answers.mirror_notice(tx, turn, text)
