"""What people do to messages that were received before: edits, deletions and reactions."""

from keryx.core import ids, lanes, media
from keryx.core.access import AccessRules, Verdict
from keryx.core.errors import NotFound
from keryx.core.ids import SessionId
from keryx.core.lanes import Lane, LaneSharing
from keryx.core.messages import Mark, Message, Notice, Role, join_text
from keryx.core.ports.adapter import InboundDeletion, InboundMessage, InboundReaction, Receipt
from keryx.core.sessions import Viewer
from keryx.core.source import Source
from keryx.core.turns import EditPolicy, TurnState
from keryx.engine.units import access, control, revisions, turn_writes
from keryx.engine.units.user_messages import find_author
from keryx.store import deliveries, inbox, messages, overheard, sessions, turns
from keryx.store import lanes as lane_store
from keryx.store.db import Transaction

_MAX_MESSAGES_SEARCHED = 100


def apply_edit(
    tx: Transaction, inbound: InboundMessage, lane: Lane | None, viewer: Viewer, policy: EditPolicy
) -> Receipt:
    """Replace the text of a message while nothing of its answer is shown. Later, answer it anew or append a notice with
    the new text."""
    named = sessions.get(tx, inbound.session, viewer=viewer).id if inbound.session else None
    session = named or (lane.session if lane else None)
    original = messages.find_by_platform_id(tx, session, ids.escape(inbound.edits or "")) if session else None
    if session is None or original is None:
        return Receipt(duplicate=False, session=session)
    sessions.lock(tx, session)
    text, parts = join_text(inbound.parts), inbound.parts
    if not media.filter_media(parts):
        # An edit of a text does not name the files of the message again.
        parts = (*parts, *media.filter_media(original.parts))
        if text == _find_last_text(tx, original):
            return Receipt(duplicate=False, session=session, turn=original.turn, seq=original.seq)
    if _reopen(tx, original):
        messages.rewrite(tx, original, parts)
        return Receipt(duplicate=False, session=session, turn=original.turn, seq=original.seq)
    if policy is EditPolicy.ANSWER:
        receipt = revisions.answer_edit(
            tx,
            sessions.get(tx, session),
            original,
            parts,
            asker=viewer.principal,
            surface=inbound.surface,
            source=find_author(inbound),
        )
        if receipt is not None:
            return receipt
    seq = messages.append(
        tx,
        session,
        Role.NOTICE,
        (Notice(text, kind=_name_edit(original)),),
        mark=Mark.EDITED,
        said_by=viewer.principal,
    )
    return Receipt(duplicate=False, session=session, seq=seq)


def _find_last_text(tx: Transaction, original: Message) -> str:
    """Return the text of a message after its last edit."""
    kind = _name_edit(original)
    for message in reversed(messages.list_latest(tx, original.session, limit=_MAX_MESSAGES_SEARCHED)):
        for part in message.parts:
            if isinstance(part, Notice) and part.kind == kind:
                return part.text
    return original.text


def _name_edit(original: Message) -> str:
    return f"edit of {original.seq}"


def _reopen(tx: Transaction, message: Message) -> bool:
    """Whether the turn of a message waits. One that runs and has shown nothing is put back into the queue."""
    turn = turns.find(tx, message.turn) if message.turn else None
    if turn is None:
        return False
    if turn.state is TurnState.RUNNING and not turn.cancelling and turn_writes.is_unanswered(tx, turn):
        turns.restart(tx, turn)
        return True
    return turn.state is TurnState.QUEUED


def apply_deletion(tx: Transaction, inbound: InboundDeletion) -> Receipt:
    """Take a deleted message from its turn while nothing of the answer is shown, or mark it. The platform has checked who
    may delete it."""
    source = inbound.source
    overheard.remove(tx, platform=source.platform, account=source.account, event=inbound.message_event)
    message = _find_received(tx, source, inbound.message_event)
    if message is None:
        return Receipt(duplicate=False)
    sessions.lock(tx, message.session)
    if message.observed:
        messages.set_mark(tx, message, Mark.WITHDRAWN)
    elif _reopen(tx, message):
        control.withdraw(tx, message)
    else:
        messages.set_mark(tx, message, Mark.DELETED)
    return Receipt(duplicate=False, session=message.session, turn=message.turn, seq=message.seq)


def apply_reaction(
    tx: Transaction, inbound: InboundReaction, rules: AccessRules, sharing: LaneSharing
) -> Receipt:
    """Append a notice about a reaction of a person who may talk, if the message is known."""
    source = inbound.source
    if access.judge(tx, source, rules) is not Verdict.ALLOWED:
        return Receipt(duplicate=False)
    session, seq = None, 0
    message = _find_received(tx, source, inbound.message_event) if inbound.message_event else None
    if message is not None:
        session, seq = message.session, message.seq
    else:
        address = lanes.build_address(source, sharing=sharing, aliases=access.find_aliases(tx, source))
        lane = lane_store.find_locked(tx, address.key)
        if lane is not None and lane.session is not None:
            sent = deliveries.find_by_receipt(tx, lane.session, inbound.message)
            session = lane.session if sent else None
    if session is None:
        return Receipt(duplicate=False)
    key = "person.unreacted" if inbound.removed else "person.reacted"
    texts = tx.texts.speak(source.language)
    text = texts.say(key, name=source.user_name or texts.say("person.somebody"), reaction=inbound.reaction)
    kind = f"reaction to {seq}" if seq else "reaction"
    seq = messages.append(tx, session, Role.NOTICE, (Notice(text, kind=kind),), surface="gateway")
    return Receipt(duplicate=False, session=session, seq=seq)


def find_quote(tx: Transaction, session: SessionId, platform_id: str) -> str:
    """Return the text of a message of a session by the platform's id of it: one of a person, or one that was sent to them.
    Empty if it is not known."""
    if not platform_id:
        return ""
    message = messages.find_by_platform_id(tx, session, ids.escape(platform_id))
    if message is not None:
        return message.text
    sent = deliveries.find_by_receipt(tx, session, platform_id)
    return sent.text if sent else ""


def _find_received(tx: Transaction, source: Source, event: str) -> Message | None:
    """Return the message that an earlier event brought, if it still exists."""
    receipt = inbox.find_receipt(tx, platform=source.platform, account=source.account, event=event)
    if receipt is None or receipt.session is None or receipt.seq is None:
        return None
    try:
        return messages.get(tx, receipt.session, receipt.seq)
    except NotFound:
        return None
