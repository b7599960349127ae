"""What people do to messages that were received before: edits, deletions and reactions. Those that come before the message is recorded are kept until then."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from keryx.core import codec, ids, media
from keryx.core.access import AccessRules, Verdict
from keryx.core.deliveries import Delivery, Target
from keryx.core.errors import Conflict, Forbidden, Invalid, NotFound
from keryx.core.ids import PrincipalId, QuestionId, SessionId
from keryx.core.lanes import Lane
from keryx.core.messages import Mark, Message, Notice, Role, join_text
from keryx.core.ports.adapter import InboundDeletion, InboundFailure, InboundMessage, InboundReaction, Receipt
from keryx.core.questions import find_reaction_answer, format_confirmation
from keryx.core.sessions import Viewer
from keryx.core.source import Source
from keryx.core.turns import EditPolicy, TurnState
from keryx.engine.units import access, control, downloads, questions, revisions, turn_writes
from keryx.engine.units.user_messages import find_author
from keryx.store import deliveries, inbox, messages, overheard, sessions, turns
from keryx.store import questions as question_store
from keryx.store.changes import Scope
from keryx.store.db import Transaction

_REACTION = "reaction"
_MAX_MESSAGES_SEARCHED = 100
_EARLY_PREFIX = "early:"
# Of one message: more reactions than come within the moment that a send takes.
_MAX_EARLY = 20


class EarlyReaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reaction of a person who may talk in its chat."""

    inbound: InboundReaction
    # `None` for one who has never sent a message.
    person: PrincipalId | None = None


class EarlyEvents(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known about one message, in the order in which it came."""

    reactions: tuple[EarlyReaction, ...] = ()
    failures: tuple[InboundFailure, ...] = ()


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
    # A file may have been put into it before the lock.
    original = messages.get(tx, session, original.seq)
    text, parts = join_text(inbound.parts), inbound.parts
    edited = Receipt(duplicate=False, session=session, turn=original.turn, seq=original.seq)
    is_text = not inbound.files and not media.filter_media(parts)
    is_same = text == _find_last_text(tx, original)
    if is_text or inbound.files:
        # An edit of a text does not name the files of the message again, and those of an answered message stay.
        parts = (*parts, *media.filter_media(original.parts))
    if is_text and is_same:
        return edited
    if _reopen(tx, original):
        messages.rewrite(tx, original, downloads.add_placeholders(inbound).parts if inbound.files else parts)
        downloads.begin(tx, inbound, edited)
        return edited
    if inbound.files and is_same:
        return edited
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
    message = find_received(tx, source, inbound.message_event)
    if message is None:
        return Receipt(duplicate=False)
    sessions.lock(tx, message.session)
    downloads.cancel(tx, message)
    if message.observed:
        messages.set_mark(tx, message, Mark.WITHDRAWN)
    elif _reopen(tx, message):
        control.withdraw(tx, message)
    else:
        messages.set_mark(tx, message, Mark.DELETED)
    return Receipt(duplicate=False, session=message.session, turn=message.turn, seq=message.seq)


def apply_reaction(
    tx: Transaction, inbound: InboundReaction, rules: AccessRules, person: PrincipalId | None
) -> Receipt:
    """Answer the question of an agent by a reaction of a person who may do so, or append a notice about any other reaction
    to a message that is known. A reaction to a message that may be on its way waits for the receipt of it."""
    source = inbound.source
    if access.judge(tx, source, rules) is not Verdict.ALLOWED:
        return Receipt(duplicate=False)
    message = find_received(tx, source, inbound.message_event) if inbound.message_event else None
    sent = _find_sent(tx, source, inbound.message) if message is None else None
    if message is None and sent is None:
        keep_reaction(tx, inbound, person)
        # It may have been recorded meanwhile.
        sent = _find_sent(tx, source, inbound.message)
    return _apply_to(tx, inbound, person, message=message, sent=sent)


def apply_early(tx: Transaction, early: EarlyReaction, sent: Delivery) -> None:
    """Apply a reaction to a message whose receipt is recorded now."""
    if sent.profile == early.inbound.source.profile:
        _apply_to(tx, early.inbound, early.person, message=None, sent=sent)


def _apply_to(
    tx: Transaction,
    inbound: InboundReaction,
    person: PrincipalId | None,
    *,
    message: Message | None,
    sent: Delivery | None,
) -> Receipt:
    """Apply a reaction to a message of a person, or to one that was sent; to none, it says nothing."""
    source = inbound.source
    session = message.session if message else sent.session if sent else None
    if session is None:
        return Receipt(duplicate=False)
    if sent is not None and person is not None and not inbound.removed:
        viewer = Viewer(source.profile, person)
        answered = _answer_by_reaction(tx, sent, viewer, inbound.reaction, source.language)
        if answered is not None:
            return Receipt(duplicate=False, session=session, reply=answered)
    key = "person.reacted"
    if inbound.removed and source.user:
        key = "person.unreacted" if inbound.reaction else "person.unreacted_all"
    elif inbound.removed:
        key = "reactions.removed" if inbound.reaction else "reactions.removed_all"
    texts = tx.texts.speak(source.language)
    text = texts.say(key, name=source.user_name or texts.say("person.somebody"), reaction=inbound.reaction)
    kind = f"{_REACTION} to {message.seq}" if message else _REACTION
    seq = messages.append(
        tx, session, Role.NOTICE, (Notice(text, kind=kind),), surface="gateway", said_by=person
    )
    return Receipt(duplicate=False, session=session, seq=seq)


def list_reactions(message: Message) -> list[str]:
    """Return the reactions that a notice tells of."""
    return [p.text for p in message.parts if isinstance(p, Notice) and p.kind.partition(" ")[0] == _REACTION]


def _find_sent(tx: Transaction, source: Source, message: str) -> Delivery | None:
    """Return the delivery of a message that was sent to the chat of a source, by the platform's id of the message."""
    chat = Target(source.platform, source.account, source.chat or "")
    delivery = deliveries.find_by_message(tx, chat, message)
    return delivery if delivery and delivery.profile == source.profile else None


def _answer_by_reaction(
    tx: Transaction, sent: Delivery, viewer: Viewer, reaction: str, language: str | None
) -> str | None:
    """Answer the question that a message asks, with the rights of the person who reacted. Return the confirmation, or `None`
    if it is no open question, the reaction is no answer to it, or the person may not answer."""
    word = find_reaction_answer(reaction)
    asked = question_store.find_by_id(tx, QuestionId(sent.id)) if word and sent.turn else None
    if asked is None or word is None:
        return None
    try:
        closed = questions.record_answer(tx, asked, viewer, word)
    except (Forbidden, Conflict, Invalid):
        return None
    reply = format_confirmation(closed, tx.texts.speak(language))
    # A question with buttons is edited and shows its answer.
    if not question_store.has_buttons(tx, asked.id):
        deliveries.enqueue(
            tx, sent.target.without_reply, reply, of=Scope(sent.profile, sent.owner, sent.session)
        )
    return reply


def find_quote(tx: Transaction, session: SessionId, source: Source, platform_id: str) -> str:
    """Return the text of a message of a session by the platform's id of it: one of a person, or one that was sent to them.
    Empty if it is not known."""
    if not platform_id:
        return ""
    message = messages.find_by_platform_id(tx, session, ids.escape(platform_id))
    if message is not None:
        return message.text
    sent = _find_sent(tx, source, platform_id)
    return sent.text if sent and sent.session == session else ""


def find_received(tx: Transaction, source: Source, event: str) -> Message | None:
    """Return the message that an earlier event brought, if it still exists."""
    receipt = inbox.find_receipt(tx, platform=source.platform, account=source.account, event=event)
    if receipt is None or receipt.session is None or receipt.seq is None:
        return None
    try:
        return messages.get(tx, receipt.session, receipt.seq)
    except NotFound:
        return None


def keep_reaction(tx: Transaction, inbound: InboundReaction, person: PrincipalId | None) -> None:
    """Keep a reaction to a message that is not known, if something is being sent to its chat."""
    source = inbound.source
    chat = Target(source.platform, source.account, source.chat or "")
    if deliveries.has_in_flight(tx, chat):
        name, earlier = _load_early(tx, chat, inbound.message)
        bare = msgspec.structs.replace(inbound, cursor=None, state={})
        reactions = (*earlier.reactions, EarlyReaction(bare, person))
        _save_early(tx, name, msgspec.structs.replace(earlier, reactions=reactions[-_MAX_EARLY:]))


def keep_failure(tx: Transaction, failure: InboundFailure) -> None:
    """Keep the failure of a message that is not known, if something is being sent by its account."""
    account = Target(failure.source.platform, failure.source.account)
    if deliveries.has_in_flight(tx, account):
        name, earlier = _load_early(tx, account, failure.message)
        bare = msgspec.structs.replace(failure, cursor=None, state={})
        _save_early(tx, name, msgspec.structs.replace(earlier, failures=(bare,)))


def take_early(
    tx: Transaction, target: Target, messages: Sequence[str]
) -> list[EarlyReaction | InboundFailure]:
    """Return what was kept about messages whose receipts are recorded now, and forget it: reactions first."""
    kept = inbox.take_states(tx, [_name_early(target, message) for message in messages if message])
    found = [codec.loads(value, EarlyEvents) for value in kept]
    # In a chat of another id, the message is another one.
    reactions = (
        early for one in found for early in one.reactions if (early.inbound.source.chat or "") == target.chat
    )
    return [*reactions, *(failure for one in found for failure in one.failures)]


def trim_early(tx: Transaction, *, before: datetime) -> None:
    inbox.trim_states(tx, _EARLY_PREFIX, before=before)


def _name_early(account: Target, message: str) -> str:
    return f"{_EARLY_PREFIX}{account.account_key}:{ids.escape(message)}"


def _load_early(tx: Transaction, account: Target, message: str) -> tuple[str, EarlyEvents]:
    name = _name_early(account, message)
    stored = inbox.get_cursor(tx, name)
    return name, codec.loads(stored, EarlyEvents) if stored else EarlyEvents()


def _save_early(tx: Transaction, name: str, events: EarlyEvents) -> None:
    inbox.set_state(tx, name, codec.dumps(events))
