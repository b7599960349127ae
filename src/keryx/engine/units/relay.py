"""The relay on the connector: which events go to which instance, their queue with its limits and notices, and what instances may send."""

from datetime import timedelta
from typing import TypeAlias

import msgspec

from keryx.core import codec, ids
from keryx.core.deliveries import DoubtPolicy, Idempotency, Target
from keryx.core.errors import Forbidden, Invalid, NotFound, Refused, SendError, Throttled, Uncertain
from keryx.core.ids import OPERATOR
from keryx.core.media import RemoteFile, filter_media
from keryx.core.messages import Parts, Text
from keryx.core.ports import relay as core
from keryx.core.ports.adapter import (
    InboundDeletion,
    InboundEvent,
    InboundFailure,
    InboundMessage,
    InboundReaction,
    Receipt,
)
from keryx.core.ports.relay import (
    MEDIA_PREFIX,
    QueuedEvent,
    RelayedAlias,
    RelayedMove,
    RelayedSend,
    RelayEventKind,
    RelayEventState,
    RelayInstance,
    RelayKey,
    RelayLimits,
    RelayOverview,
    RelayRule,
    RelaySendState,
)
from keryx.core.sessions import Viewer
from keryx.core.source import Source
from keryx.core.texts import Phrase
from keryx.store import deliveries, platforms, relay
from keryx.store.db import Transaction
from keryx.store.relay import RelayChat

# A longer message does not fit into a frame of the relay.
MAX_EVENT_BYTES = 2_000_000
_KEEP_FILES = timedelta(days=1)
# Nobody is told more often that messages are not taken.
_TELL_AGAIN = timedelta(hours=1)
_WAITS = "relay.waits"
_NOT_TAKEN = "relay.not_taken"
HELD_NOTE = Phrase("delivery.relay_maybe")
_KINDS: dict[type[InboundEvent], RelayEventKind] = {
    InboundMessage: RelayEventKind.MESSAGE,
    InboundDeletion: RelayEventKind.DELETION,
    InboundReaction: RelayEventKind.REACTION,
    InboundFailure: RelayEventKind.FAILURE,
}


class RelayLogin(msgspec.Struct, frozen=True):
    """The instance of a connection, and the key that it has proved to have."""

    name: str
    key_id: str


class BeginSend(msgspec.Struct, frozen=True):
    """What to do with a part: nothing if it has a receipt, or send it under a key."""

    send_key: str = ""
    receipt: str = ""
    # An earlier attempt may have arrived.
    doubt: bool = False
    # It is not sent, because an earlier attempt may have arrived and an operator decides.
    held: bool = False


RelayFile: TypeAlias = tuple[str, str, RemoteFile]
"""The platform and the account of a file, and the file."""


def take(tx: Transaction, inbound: InboundEvent, limits: RelayLimits) -> Receipt | None:
    """Put an event into the queue of the instance that it belongs to. `None` if it belongs to the connector itself."""
    if isinstance(inbound, InboundMessage) and inbound.principal is not None:
        return None
    kind, name = _KINDS.get(type(inbound)), _find_instance(tx, inbound)
    if kind is None or name is None:
        return None
    source = inbound.source
    reply = inbound.reply if isinstance(inbound, InboundMessage) else None
    chats = {chat for chat in (source.chat, reply.chat if reply else "") if chat}
    for chat in chats:
        relay.add_chat(tx, name, platform=source.platform, account=source.account, chat=chat)
    stripped, files, media = _strip(inbound)
    body = codec.dumps(stripped)
    size = len(body.encode("utf-8", "surrogatepass"))
    queue = relay.measure_queue(tx, name)
    fits = queue.events < limits.events and queue.size + size <= limits.size and size <= MAX_EVENT_BYTES
    expects = isinstance(inbound, InboundMessage) and inbound.addressed and inbound.edits is None
    event = relay.add_event(
        tx,
        name,
        platform=source.platform,
        account=source.account,
        event=inbound.event,
        kind=kind,
        chat=reply.chat if reply else source.chat or "",
        body=body,
        files=files,
        media=media if fits else (),
        reply=reply if expects and not source.bot else None,
        language=source.language,
        state=RelayEventState.WAITING if fits else RelayEventState.REFUSED,
    )
    if not fits:
        _tell(tx, event, _NOT_TAKEN)
    return Receipt(duplicate=False)


def _find_instance(tx: Transaction, inbound: InboundEvent) -> str | None:
    source = inbound.source
    if isinstance(inbound, InboundFailure):
        return relay.find_sender(tx, inbound.delivery, inbound.message)
    chosen = core.choose_rule(relay.list_rules(tx, platform=source.platform), source)
    earlier = inbound.message_event if isinstance(inbound, InboundDeletion | InboundReaction) else ""
    if chosen is None and earlier:
        # Not every platform says who deleted a message.
        return relay.find_owner(tx, platform=source.platform, account=source.account, event=earlier)
    return None if chosen is None else chosen[1]


def _strip(inbound: InboundEvent) -> tuple[InboundEvent, tuple[RemoteFile, ...], list[str]]:
    """Return an event without what concerns the connector alone, its files, and the ids of those that are in the store. The
    instance asks for them by their number."""
    bare = msgspec.structs.replace(inbound, cursor=None, state={})
    if not isinstance(bare, InboundMessage):
        return bare, (), []
    stored = filter_media(bare.parts)
    files = bare.files + tuple(
        RemoteFile(reference=f"{MEDIA_PREFIX}{part.media}", name=part.name, mime=part.mime) for part in stored
    )
    named = tuple(msgspec.structs.replace(file, reference=str(n)) for n, file in enumerate(files))
    parts: Parts = tuple(part for part in bare.parts if isinstance(part, Text))
    return msgspec.structs.replace(bare, parts=parts, files=named), files, [part.media for part in stored]


def may_enter(tx: Transaction, source: Source) -> bool:
    """Whether a rule names the chat or the person of a source, so that an invitation from there is accepted."""
    chosen = core.choose_rule(relay.list_rules(tx, platform=source.platform), source)
    return chosen is not None and bool(chosen[0].chat or chosen[0].person)


def queue_move(tx: Transaction, *, platform: str, account: str, old: str, new: str) -> None:
    """Tell the instances of a chat about its new id, in the order of the events. Idempotent."""
    rules = [
        name
        for rule, name in relay.list_rules(tx, platform=platform)
        if rule.chat == old and rule.account in ("", account)
    ]
    owners = relay.list_chat_owners(tx, platform=platform, account=account, chat=old)
    relay.move_rules(tx, platform=platform, account=account, old=old, new=new)
    for name in dict.fromkeys((*rules, *owners)):
        relay.add_chat(tx, name, platform=platform, account=account, chat=new)
        relay.add_event(
            tx,
            name,
            platform=platform,
            account=account,
            event=f"move {old} {new}",
            kind=RelayEventKind.MOVE,
            chat=new,
            body=codec.dumps(RelayedMove(old, new)),
        )


def queue_alias(tx: Transaction, source: Source, other: str) -> bool:
    """Tell the instance of a person about another id of theirs. False if they belong to the connector itself."""
    chosen = core.choose_rule(relay.list_rules(tx, platform=source.platform), source)
    if chosen is None:
        return False
    relay.add_event(
        tx,
        chosen[1],
        platform=source.platform,
        account=source.account,
        event=f"alias {source.user or ''} {other}",
        kind=RelayEventKind.ALIAS,
        chat=source.chat or "",
        body=codec.dumps(RelayedAlias(source, other)),
    )
    return True


def add(tx: Transaction, name: str, rules: list[RelayRule]) -> RelayKey:
    """Add an instance with its rules. Return its key, which cannot be read again."""
    key = core.generate_key()
    relay.add_instance(tx, core.parse_name(name), key)
    assign(tx, name, rules)
    return key


def assign(tx: Transaction, name: str, rules: list[RelayRule]) -> None:
    """Assign chats to an instance. Raise `Conflict` if they belong to another one."""
    relay.get_instance(tx, name)
    for rule in rules:
        if any(ids.unescape(ids.escape(id_)) != id_ for id_ in (rule.account, rule.chat, rule.person)):
            raise Invalid("an id of this rule is too long")
        relay.add_rule(tx, rule, name)
    relay.note_change(tx, name, "rules")


def release(tx: Transaction, name: str, rule: RelayRule) -> None:
    """Take chats back. What waits for the instance stays in its queue."""
    relay.get_instance(tx, name)
    if not relay.remove_rule(tx, rule, name):
        raise NotFound(f"{name} has no rule for {rule}: `keryx relay list` shows them")
    relay.note_change(tx, name, "rules")


def renew(tx: Transaction, name: str) -> RelayKey:
    """Give an instance a new key. The old one is worth nothing any more; the queue stays."""
    relay.get_instance(tx, name)
    key = core.generate_key()
    relay.set_key(tx, name, key)
    relay.note_change(tx, name, "renewed")
    return key


def revoke(tx: Transaction, name: str) -> int:
    """Remove an instance. The people whose messages wait for it are told that they were not taken. Return how many events
    waited."""
    relay.get_instance(tx, name)
    waiting = relay.measure_queue(tx, name).events
    for event in relay.list_waiting(tx, name, limit=waiting):
        _tell(tx, event, _NOT_TAKEN)
    relay.remove_instance(tx, name)
    relay.note_change(tx, name, "revoked")
    return waiting


def list_all(tx: Transaction) -> list[RelayOverview]:
    overviews: list[RelayOverview] = []
    for instance in relay.list_instances(tx):
        waiting = relay.measure_queue(tx, instance.name)
        values = msgspec.structs.asdict(instance)
        del values["digest"]
        overviews.append(
            RelayOverview(
                **values,
                rules=[rule for rule, _ in relay.list_rules(tx, instance=instance.name)],
                waiting=waiting.events,
                waiting_bytes=waiting.size,
                dropped=relay.count_dropped(tx, instance.name),
            )
        )
    return overviews


def connect(tx: Transaction, login: RelayLogin, *, address: str, evicted: bool) -> None:
    """Record a connection. Raise `Forbidden` if its key was revoked meanwhile."""
    check_login(tx, login)
    relay.record_connection(tx, login.name, address=address, evicted=evicted)


def check_login(tx: Transaction, login: RelayLogin) -> RelayInstance:
    """Return the instance of a connection. Raise `Forbidden` if its key was revoked."""
    found = relay.find_by_key(tx, login.key_id)
    if found is None or found.name != login.name:
        raise Forbidden(
            "the key of this instance was revoked: `keryx relay` on the connector makes a new one"
        )
    return found


def settle_event(tx: Transaction, login: RelayLogin, position: int, error: str) -> None:
    """Record that an instance has stored an event, or why it cannot."""
    check_login(tx, login)
    state = RelayEventState.REJECTED if error else RelayEventState.TAKEN
    if relay.settle_event(tx, login.name, position, state, error=error) and error:
        _tell(tx, relay.get_event(tx, login.name, position), _NOT_TAKEN)


def list_waiting(
    tx: Transaction, login: RelayLogin, accounts: list[tuple[str, str]], *, limit: int
) -> list[QueuedEvent]:
    """Return the first events that wait for a connection."""
    check_login(tx, login)
    return relay.list_waiting(tx, login.name, accounts=accounts, limit=limit)


def find_file(tx: Transaction, login: RelayLogin, position: int, number: int) -> RelayFile:
    """Return a file of an event that an instance got. Raise `Invalid` for any other."""
    check_login(tx, login)
    try:
        event = relay.get_event(tx, login.name, position)
    except NotFound as exc:
        raise Invalid(Phrase("file.not_in_time")) from exc
    if not 0 <= number < len(event.files):
        raise Invalid(f"event {position} has no file {number}")
    return event.platform, event.account, event.files[number]


def check_target(tx: Transaction, login: RelayLogin, target: Target) -> None:
    """Raise `Refused` if a chat does not belong to an instance."""
    check_login(tx, login)
    if any(rule.allows(target) for rule, _ in relay.list_rules(tx, instance=login.name)):
        return
    if not relay.has_chat(tx, login.name, platform=target.platform, account=target.account, chat=target.chat):
        raise Refused(
            Phrase("delivery.relay_foreign_chat", chat=repr(target.chat[:80]), platform=target.platform)
        )


def begin_send(
    tx: Transaction,
    login: RelayLogin,
    target: Target,
    *,
    key: str,
    delivery: str,
    send_key: str,
    idempotency: Idempotency,
    doubt: DoubtPolicy,
) -> BeginSend:
    """Record that a part is sent, before the platform is asked. `send_key` is the key for a first attempt. Raise `Refused`
    for a chat of somebody else, or if an operator must decide, and `Throttled` while nothing may be sent there."""
    check_target(tx, login, target)
    earlier = relay.find_send(tx, login.name, key)
    if earlier is not None and earlier.state in (RelaySendState.SENT, RelaySendState.MARKED):
        return BeginSend(receipt=earlier.receipt)
    opens_at = platforms.get_gates_open_at(tx, target)
    if opens_at is not None:
        raise Throttled(Phrase("delivery.closed", platform=target.platform), after=opens_at - tx.now)
    if earlier is None:
        sending = RelaySendState.SENDING
        relay.add_send(
            tx,
            RelayedSend(
                instance=login.name,
                key=key,
                delivery=delivery,
                target=target.key,
                send_key=send_key,
                state=sending,
            ),
        )
        return BeginSend(send_key=send_key)
    if (
        idempotency is Idempotency.NONE
        and doubt is DoubtPolicy.HOLD
        and earlier.state is not RelaySendState.HELD
    ):
        relay.set_send_state(tx, login.name, key, RelaySendState.HELD)
        return BeginSend(held=True)
    # The send counts as uncertain until its outcome is known.
    relay.set_send_state(tx, login.name, key, RelaySendState.DOUBT)
    return BeginSend(send_key=earlier.send_key, doubt=True)


def end_send(
    tx: Transaction,
    login: RelayLogin,
    target: Target,
    *,
    key: str,
    receipt: str,
    error: SendError | None,
    doubt: bool,
    marked: bool = False,
) -> None:
    """Record the outcome of a send. A part that may have arrived stays in doubt until it is known."""
    match error:
        case None:
            state = RelaySendState.MARKED if marked else RelaySendState.SENT
            relay.set_send_state(tx, login.name, key, state, receipt=receipt)
        case Uncertain():
            relay.set_send_state(tx, login.name, key, RelaySendState.DOUBT)
        case _ if not doubt:
            relay.remove_send(tx, login.name, key)
        case _:
            pass
    if isinstance(error, Throttled):
        gate = target.account_key if error.account else target.key
        platforms.close_gate(tx, gate, until=tx.now + error.after, reason=str(error))


def is_marked(tx: Transaction, login: RelayLogin, target: Target, message: str) -> bool:
    """Whether a message in a chat of an instance was sent with a mark. Raise `Refused` for a chat of somebody else."""
    check_target(tx, login, target)
    return relay.is_marked(tx, login.name, target=target.key, receipt=message)


def sweep(tx: Transaction, limits: RelayLimits) -> int:
    """Tell people whose messages wait for an instance that is away or does not take them, and drop what has waited for too
    long. Return how many were found, so that the caller repeats this until there are none."""
    old = relay.list_expired(tx, before=tx.now - limits.age)
    for event in old:
        relay.settle_event(tx, event.instance, event.position, RelayEventState.EXPIRED)
        _tell(tx, event, _NOT_TAKEN)
    chats = relay.list_untold_chats(tx, since=tx.now - limits.notice_after)
    for chat in chats:
        _tell(tx, relay.get_event(tx, chat.instance, chat.position), _WAITS)
    return len(old) + len(chats)


def _tell(tx: Transaction, event: QueuedEvent, what: str) -> None:
    """Tell the people of a chat what happens to their messages, unless they were told the same just before."""
    if event.reply is None:
        return
    chat = RelayChat(event.instance, event.platform, event.account, event.chat, event.position)
    since = tx.now if what == _WAITS else tx.now - _TELL_AGAIN
    if relay.mark_told(tx, chat, what, since=since):
        text = tx.texts.speak(event.language).say(what)
        deliveries.enqueue(tx, event.reply, text, of=Viewer(ids.DEFAULT_PROFILE, OPERATOR))


def trim(tx: Transaction, *, keep: timedelta) -> None:
    """Remove what is too old to matter."""
    relay.trim(tx, before=tx.now - keep, files_before=tx.now - _KEEP_FILES)
