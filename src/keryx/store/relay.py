"""The relay on the connector: instances, rules and chats, the queue of events for each instance, and the sends that they asked for."""

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from keryx.core import codec, ids
from keryx.core.changes import ChangeKind
from keryx.core.clock import to_micros
from keryx.core.deliveries import Target
from keryx.core.errors import Conflict, NotFound
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR
from keryx.core.media import RemoteFile
from keryx.core.ports.relay import (
    QueuedEvent,
    RelayedSend,
    RelayEventKind,
    RelayEventState,
    RelayInstance,
    RelayKey,
    RelayRule,
    RelaySendState,
)
from keryx.core.sessions import Viewer
from keryx.store import changes
from keryx.store.db import Transaction
from keryx.store.db.rows import RowMapper

_INSTANCE_ROWS = RowMapper(RelayInstance)
_RULE_ROWS = RowMapper(RelayRule, json={"platform", "account", "chat", "person"})
# `event` and `chat` are the escaped ids, which are compared and never sent.
_EVENT_ROWS = RowMapper(QueuedEvent, json={"platform", "account"})
_SEND_ROWS = RowMapper(RelayedSend, json={"send_key", "receipt"})
_OPERATOR = Viewer(DEFAULT_PROFILE, OPERATOR)


class QueueSize(NamedTuple):
    events: int
    size: int


class RelayChat(NamedTuple):
    """A chat whose people are to be told that their instance is away."""

    instance: str
    platform: str
    account: str
    chat: str
    # The first event that waits there.
    position: int


def note_change(tx: Transaction, instance: str, what: str) -> None:
    """Wake the connector: something changed for an instance."""
    changes.note(tx, ChangeKind.RELAY, instance, _OPERATOR, note=what)


def add_instance(tx: Transaction, name: str, key: RelayKey) -> None:
    """Add an instance. Raise `Conflict` if there is one of this name."""
    added = tx.count(
        """
        insert into relay_instances (name, key_id, digest, created_at, left_at)
        values (:name, :key_id, :digest, :now, :now)
        on conflict (name) do nothing
        """,
        {"name": name, "key_id": key.id, "digest": key.digest, "now": to_micros(tx.now)},
    )
    if not added:
        raise Conflict(
            f"there is an instance {name!r} already: choose another name, or see `keryx relay list`"
        )


def set_key(tx: Transaction, name: str, key: RelayKey) -> None:
    """Replace the key of an instance. The old one is worth nothing any more."""
    tx.run(
        "update relay_instances set key_id = :key_id, digest = :digest where name = :name",
        {"name": name, "key_id": key.id, "digest": key.digest},
    )


def get_instance(tx: Transaction, name: str) -> RelayInstance:
    row = tx.row(f"select {_INSTANCE_ROWS.columns} from relay_instances where name = :name", {"name": name})
    if row is None:
        raise NotFound(f"there is no instance {name[:80]!r}: `keryx relay list` shows them")
    return _INSTANCE_ROWS.decode(row)


def find_by_key(tx: Transaction, key_id: str) -> RelayInstance | None:
    row = tx.row(
        f"select {_INSTANCE_ROWS.columns} from relay_instances where key_id = :key_id", {"key_id": key_id}
    )
    return _INSTANCE_ROWS.decode_optional(row)


def list_instances(tx: Transaction) -> list[RelayInstance]:
    return _INSTANCE_ROWS.decode_all(
        tx.rows(f"select {_INSTANCE_ROWS.columns} from relay_instances order by name")
    )


def remove_instance(tx: Transaction, name: str) -> None:
    """Remove an instance with its rules, its queue and its sends."""
    tx.run("delete from relay_instances where name = :name", {"name": name})


def record_connection(tx: Transaction, name: str, *, address: str, evicted: bool) -> None:
    tx.run(
        """
        update relay_instances
        set connected_at = :now, address = :address,
            evicted_at = case when :evicted = 1 then :now else evicted_at end
        where name = :name
        """,
        {"name": name, "address": address, "evicted": int(evicted), "now": to_micros(tx.now)},
    )


def record_end(tx: Transaction, name: str | None = None) -> None:
    """Record that the connection of an instance has ended, or those of all."""
    tx.run(
        """
        update relay_instances set connected_at = null, left_at = :now
        where connected_at is not null and name = coalesce(cast(:name as text), name)
        """,
        {"name": name, "now": to_micros(tx.now)},
    )


def add_rule(tx: Transaction, rule: RelayRule, instance: str) -> None:
    """Assign what a rule names to an instance. Raise `Conflict` if it belongs to another one."""
    tx.run(
        """
        insert into relay_rules (platform, account, chat, person, instance)
        values (:platform, :account, :chat, :person, :instance)
        on conflict (platform, account, chat, person) do nothing
        """,
        {**_RULE_ROWS.encode(rule), "instance": instance},
    )
    row = tx.row(
        """
        select instance from relay_rules
        where platform = :platform and account = :account and chat = :chat and person = :person
        """,
        _RULE_ROWS.encode(rule),
    )
    if row is not None and row[0] != instance:
        raise Conflict(f"{rule} belongs to {row[0]}: `keryx relay release {row[0]}` takes it back")


def remove_rule(tx: Transaction, rule: RelayRule, instance: str) -> bool:
    return bool(
        tx.count(
            """
            delete from relay_rules
            where platform = :platform and account = :account and chat = :chat and person = :person
              and instance = :instance
            """,
            {**_RULE_ROWS.encode(rule), "instance": instance},
        )
    )


def list_rules(
    tx: Transaction, *, platform: str | None = None, instance: str | None = None
) -> list[tuple[RelayRule, str]]:
    """Return the rules with their instances: those of a platform, of an instance, or all."""
    rows = tx.rows(
        f"""
        select {_RULE_ROWS.columns}, instance from relay_rules
        where platform = coalesce(cast(:platform as text), platform)
          and instance = coalesce(cast(:instance as text), instance)
        order by platform, account, chat, person
        """,
        {"platform": None if platform is None else codec.dumps(platform), "instance": instance},
    )
    return [(_RULE_ROWS.decode(row), row[_RULE_ROWS.width]) for row in rows]


def add_chat(tx: Transaction, instance: str, *, platform: str, account: str, chat: str) -> None:
    """Remember that an instance got an event of a chat."""
    tx.run(
        """
        insert into relay_chats (instance, platform, account, chat)
        values (:instance, :platform, :account, :chat)
        on conflict (instance, platform, account, chat) do nothing
        """,
        {"instance": instance, **_encode_place(platform, account, chat)},
    )


def has_chat(tx: Transaction, instance: str, *, platform: str, account: str, chat: str) -> bool:
    row = tx.row(
        """
        select 1 from relay_chats
        where instance = :instance and platform = :platform and account = :account and chat = :chat
        """,
        {"instance": instance, **_encode_place(platform, account, chat)},
    )
    return row is not None


def list_chat_owners(tx: Transaction, *, platform: str, account: str, chat: str) -> list[str]:
    """Return the instances that got events of a chat."""
    rows = tx.rows(
        """
        select instance from relay_chats
        where platform = :platform and account = :account and chat = :chat order by instance
        """,
        _encode_place(platform, account, chat),
    )
    return [str(row[0]) for row in rows]


def move_rules(tx: Transaction, *, platform: str, account: str, old: str, new: str) -> None:
    """Let the rules of a chat name its new id, unless there is a rule for that already."""
    tx.run(
        """
        update relay_rules set chat = :new
        where platform = :platform and account in ('""', :account) and chat = :old
          and not exists (
            select 1 from relay_rules other
            where other.platform = relay_rules.platform and other.account = relay_rules.account
              and other.chat = :new and other.person = relay_rules.person
          )
        """,
        {
            "platform": codec.dumps(platform),
            "account": codec.dumps(account),
            "old": codec.dumps(old),
            "new": codec.dumps(new),
        },
    )


def mark_told(tx: Transaction, chat: RelayChat, what: str, *, since: datetime) -> bool:
    """Record that the people of a chat are told something. False if they were told the same since a time."""
    return bool(
        tx.count(
            """
            update relay_chats set told = :what, told_at = :now
            where instance = :instance and platform = :platform and account = :account and chat = :chat
              and (told <> :what or told_at < :since)
            """,
            {
                "instance": chat.instance,
                "platform": codec.dumps(chat.platform),
                "account": codec.dumps(chat.account),
                "chat": chat.chat,
                "what": what,
                "now": to_micros(tx.now),
                "since": to_micros(since),
            },
        )
    )


def measure_queue(tx: Transaction, instance: str) -> QueueSize:
    row = tx.row(
        """
        select count(*), coalesce(sum(size), 0) from relay_events
        where instance = :instance and state = 'waiting'
        """,
        {"instance": instance},
    )
    assert row is not None
    return QueueSize(int(row[0]), int(row[1]))


def count_dropped(tx: Transaction, instance: str) -> int:
    row = tx.row(
        """
        select count(*) from relay_events
        where instance = :instance and state in ('rejected', 'refused', 'expired')
        """,
        {"instance": instance},
    )
    assert row is not None
    return int(row[0])


def add_event(
    tx: Transaction,
    instance: str,
    *,
    platform: str,
    account: str,
    event: str,
    kind: RelayEventKind,
    chat: str,
    body: str,
    files: Sequence[RemoteFile] = (),
    media: Collection[str] = (),
    reply: Target | None = None,
    language: str | None = None,
    state: RelayEventState = RelayEventState.WAITING,
) -> QueuedEvent:
    """Put an event at the end of the queue of an instance; in any state but `WAITING`, only remember it."""
    waits = state is RelayEventState.WAITING
    row = tx.row(
        f"""
        insert into relay_events
          (instance, platform, account, event, kind, chat, reply, language, body, files, size, state, created_at,
           settled_at)
        values
          (:instance, :platform, :account, :event, :kind, :chat, :reply, :language, :body, :files, :size, :state, :now,
           :settled_at)
        returning {_EVENT_ROWS.columns}
        """,
        {
            "instance": instance,
            **_encode_place(platform, account, chat),
            "event": ids.escape(event),
            "kind": kind.value,
            "reply": None if reply is None else codec.dumps(reply),
            "language": language,
            "body": body if waits else "",
            "files": codec.dumps(list(files)),
            "size": len(body.encode("utf-8", "surrogatepass")),
            "state": state.value,
            "now": to_micros(tx.now),
            "settled_at": None if waits else to_micros(tx.now),
        },
    )
    assert row is not None
    queued = _EVENT_ROWS.decode(row)
    for id_ in sorted(set(media)):
        tx.run(
            "insert into relay_files (media, position) values (:media, :position)",
            {"media": id_, "position": queued.position},
        )
    if waits:
        note_change(tx, instance, "queued")
    return queued


def find_owner(tx: Transaction, *, platform: str, account: str, event: str) -> str | None:
    """Return the instance that got an event."""
    row = tx.row(
        """
        select instance from relay_events
        where platform = :platform and account = :account and event = :event order by position desc limit 1
        """,
        {
            "platform": codec.dumps(platform),
            "account": codec.dumps(account),
            "event": ids.escape(event),
        },
    )
    return None if row is None else str(row[0])


def get_event(tx: Transaction, instance: str, position: int) -> QueuedEvent:
    row = tx.row(
        f"select {_EVENT_ROWS.columns} from relay_events where position = :position and instance = :instance",
        {"position": position, "instance": instance},
    )
    if row is None:
        raise NotFound(f"there is no event {position} of the instance {instance!r} any more")
    return _EVENT_ROWS.decode(row)


def list_waiting(
    tx: Transaction, instance: str, *, accounts: Collection[tuple[str, str]] | None = None, limit: int
) -> list[QueuedEvent]:
    """Return the first events that wait for an instance, those of some accounts or of all, in order."""
    chosen = "" if accounts is None else f"and (platform || account) {tx.in_names}"
    names = [codec.dumps(platform) + codec.dumps(account) for platform, account in accounts or ()]
    rows = tx.rows(
        f"""
        select {_EVENT_ROWS.columns} from relay_events
        where instance = :instance and state = 'waiting' {chosen}
        order by position limit :limit
        """,
        {
            "instance": instance,
            "limit": limit,
            **({} if accounts is None else {"names": json.dumps(names)}),
        },
    )
    return _EVENT_ROWS.decode_all(rows)


def settle_event(
    tx: Transaction, instance: str, position: int, state: RelayEventState, *, error: str = ""
) -> bool:
    """Remove an event from the queue. False if it does not wait."""
    return bool(
        tx.count(
            """
            update relay_events set state = :state, body = '', error = :error, settled_at = :now
            where position = :position and instance = :instance and state = 'waiting'
            """,
            {
                "instance": instance,
                "position": position,
                "state": state.value,
                "error": codec.dumps(error) if error else "",
                "now": to_micros(tx.now),
            },
        )
    )


def list_expired(tx: Transaction, *, before: datetime, limit: int = 100) -> list[QueuedEvent]:
    """Return events that have waited since before a time."""
    rows = tx.rows(
        f"""
        select {_EVENT_ROWS.columns} from relay_events
        where created_at < :before and state = 'waiting' order by created_at limit :limit
        """,
        {"before": to_micros(before), "limit": limit},
    )
    return _EVENT_ROWS.decode_all(rows)


def list_untold_chats(tx: Transaction, *, since: datetime, limit: int = 100) -> list[RelayChat]:
    """Return the chats in which a message waits, of instances that have been away since a time or have not taken it since
    then, and whose people were told nothing since the first message that waits."""
    rows = tx.rows(
        """
        select e.instance, e.platform, e.account, e.chat, min(e.position)
        from relay_instances i
        join relay_events e on e.instance = i.name and e.state = 'waiting' and e.reply is not null
        join relay_chats c
          on c.instance = e.instance and c.platform = e.platform and c.account = e.account and c.chat = e.chat
        group by e.instance, e.platform, e.account, e.chat, i.connected_at, i.left_at, c.told_at
        having c.told_at < min(e.created_at)
          and (min(e.created_at) <= :since or (i.connected_at is null and i.left_at <= :since))
        order by min(e.position) limit :limit
        """,
        {"since": to_micros(since), "limit": limit},
    )
    return [
        RelayChat(instance, codec.loads(platform, str), codec.loads(account, str), chat, int(position))
        for instance, platform, account, chat, position in rows
    ]


def trim(tx: Transaction, *, before: datetime, files_before: datetime) -> None:
    """Remove events and sends that ended before a time, and let go of the files of earlier ones."""
    tx.run(
        """
        delete from relay_files where position in (
          select position from relay_events where settled_at < :before
        )
        """,
        {"before": to_micros(files_before)},
    )
    tx.run(
        "delete from relay_events where created_at < :before and state <> 'waiting'",
        {"before": to_micros(before)},
    )
    tx.run("delete from relay_sends where created_at < :before", {"before": to_micros(before)})


def find_send(tx: Transaction, instance: str, key: str) -> RelayedSend | None:
    row = tx.row(
        f"""
        select {_SEND_ROWS.columns} from relay_sends
        where instance = :instance and key = :key{tx.for_update}
        """,
        {"instance": instance, "key": ids.escape(key)},
    )
    return _SEND_ROWS.decode_optional(row)


def add_send(tx: Transaction, send: RelayedSend) -> None:
    """Store a part before it is sent."""
    tx.run(
        """
        insert into relay_sends (instance, key, delivery, target, send_key, state, created_at)
        values (:instance, :key, :delivery, :target, :send_key, :state, :now)
        """,
        {
            **_SEND_ROWS.encode(send),
            "key": ids.escape(send.key),
            "delivery": ids.escape(send.delivery),
            "now": to_micros(tx.now),
        },
    )


def set_send_state(
    tx: Transaction, instance: str, key: str, state: RelaySendState, *, receipt: str = ""
) -> None:
    tx.run(
        "update relay_sends set state = :state, receipt = :receipt where instance = :instance and key = :key",
        {
            "instance": instance,
            "key": ids.escape(key),
            "state": state.value,
            "receipt": codec.dumps(receipt),
        },
    )


def is_marked(tx: Transaction, instance: str, *, target: str, receipt: str) -> bool:
    """Whether a message was sent with the mark of a possible repetition."""
    row = tx.row(
        """
        select 1 from relay_sends
        where instance = :instance and target = :target and receipt = :receipt and state = 'marked'
        """,
        {"instance": instance, "target": target, "receipt": codec.dumps(receipt)},
    )
    return row is not None


def remove_send(tx: Transaction, instance: str, key: str) -> None:
    """Forget a part that has certainly not arrived."""
    tx.run(
        "delete from relay_sends where instance = :instance and key = :key",
        {"instance": instance, "key": ids.escape(key)},
    )


def find_sender(tx: Transaction, delivery: str | None, message: str) -> str | None:
    """Return the instance that has sent a delivery, or if that is not known, a message of the platform."""
    if delivery is None:
        row = tx.row(
            "select instance from relay_sends where receipt = :receipt limit 1",
            {"receipt": codec.dumps(message)},
        )
    else:
        row = tx.row(
            "select instance from relay_sends where delivery = :delivery limit 1",
            {"delivery": ids.escape(delivery)},
        )
    return None if row is None else str(row[0])


def _encode_place(platform: str, account: str, chat: str) -> dict[str, str]:
    return {
        "platform": codec.dumps(platform),
        "account": codec.dumps(account),
        "chat": ids.escape(chat),
    }
