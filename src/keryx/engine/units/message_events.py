"""What people do to messages that were received before: edits, deletions and reactions."""

from keryx.core import ids, lanes
from keryx.core.access import AccessRules, Verdict
from keryx.core.errors import NotFound
from keryx.core.lanes import Lane, LaneSharing
from keryx.core.messages import Mark, Message, Notice, Role, Text
from keryx.core.ports.adapter import InboundDeletion, InboundMessage, InboundReaction, Receipt
from keryx.core.sessions import Viewer
from keryx.core.source import Source
from keryx.engine.units import access, control
from keryx.store import deliveries, inbox, messages, sessions
from keryx.store import lanes as lane_store
from keryx.store.db import Transaction

_MAX_DELIVERIES_SEARCHED = 200


def apply_edit(tx: Transaction, inbound: InboundMessage, lane: Lane | None, viewer: Viewer) -> Receipt:
    """Replace the text of a message whose turn is queued; otherwise append a notice with the new text."""
    named = sessions.get(tx, inbound.session, viewer=viewer).id if inbound.session else None
    session = named or (lane.session if lane else None)
    original = messages.find_by_platform_id(tx, session, ids.escape(inbound.edits or "")) if session else None
    if session is None or original is None:
        return Receipt(duplicate=False, session=session)
    sessions.lock(tx, session)
    if control.is_queued(tx, original):
        messages.rewrite(tx, original, inbound.parts)
        return Receipt(duplicate=False, session=session, turn=original.turn, seq=original.seq)
    text = "".join(p.text for p in inbound.parts if isinstance(p, Text))
    seq = messages.append(
        tx,
        session,
        Role.NOTICE,
        (Notice(text, kind=f"edit of {original.seq}"),),
        mark=Mark.EDITED,
        said_by=viewer.principal,
    )
    return Receipt(duplicate=False, session=session, seq=seq)


def apply_deletion(tx: Transaction, inbound: InboundDeletion) -> Receipt:
    """Cancel the queued turn of a deleted message, or mark the message if it was answered. The platform has checked who
    may delete it."""
    message = _find_received(tx, inbound.source, inbound.message_event)
    if message is None:
        return Receipt(duplicate=False)
    sessions.lock(tx, message.session)
    unanswered = message.observed
    if message.turn is not None and control.is_queued(tx, message):
        control.drop(tx, message.turn)
        unanswered = True
    messages.set_mark(tx, message, Mark.WITHDRAWN if unanswered else Mark.DELETED)
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
            sent = deliveries.list_for_session(tx, lane.session)[-_MAX_DELIVERIES_SEARCHED:]
            if any(inbound.message in delivery.receipts for delivery in sent):
                session = lane.session
    if session is None:
        return Receipt(duplicate=False)
    key = "person.unreacted" if inbound.removed else "person.reacted"
    texts = tx.texts.speak(source.language)
    text = texts.say(key, name=source.user_name or texts.say("person.somebody"), reaction=inbound.reaction)
    kind = f"reaction to {seq}" if seq else "reaction"
    seq = messages.append(tx, session, Role.NOTICE, (Notice(text, kind=kind),), surface="gateway")
    return Receipt(duplicate=False, session=session, seq=seq)


def _find_received(tx: Transaction, source: Source, event: str) -> Message | None:
    """Return the message that an earlier event brought, if it still exists."""
    receipt = inbox.find_receipt(tx, platform=source.platform, account=source.account, event=event)
    if receipt is None or receipt.session is None or receipt.seq is None:
        return None
    try:
        return messages.get(tx, receipt.session, receipt.seq)
    except NotFound:
        return None
