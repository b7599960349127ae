"""The queue of the relay on the connector: what goes to which instance, its limits, its notices, and what instances may send."""

from datetime import timedelta
from itertools import count
from typing import Any

import msgspec
import pytest
from tests.builders import Store, after

from keryx.core import codec
from keryx.core.deliveries import DoubtPolicy, Idempotency, Target
from keryx.core.errors import Conflict, Forbidden, Invalid, NotFound, NotSent, Refused, Throttled, Uncertain
from keryx.core.ids import DeliveryId, PrincipalId
from keryx.core.media import RemoteFile
from keryx.core.messages import File, Text, text_parts
from keryx.core.ports.adapter import InboundDeletion, InboundFailure, InboundMessage, Receipt
from keryx.core.ports.relay import MEDIA_PREFIX, RelayedMove, RelayEventKind, RelayLimits, RelayRule
from keryx.core.source import ChatType, Source
from keryx.engine.policy import Policy
from keryx.engine.units import receive, relay
from keryx.engine.units.relay import BeginSend, RelayLogin
from keryx.store import inbox
from keryx.store import relay as table
from keryx.store.db import Transaction

LIMITS = RelayLimits(events=3, size=10_000, age=timedelta(days=1), notice_after=timedelta(minutes=1))
POLICY = Policy(relay=LIMITS)
ANN = RelayRule(platform="telegram", person="7")
CHAT = Target("telegram", "bot", "7")
ACCOUNTS = [("telegram", "bot")]
_numbers = count(1)


def message(text: str = "hello", *, chat: str = "7", user: str = "7", **fields: Any) -> InboundMessage:
    number = str(next(_numbers))
    plain = InboundMessage(
        event=number,
        source=Source(platform="telegram", account="bot", chat=chat, user=user, message=number),
        parts=text_parts(text),
        surface="gateway",
        reply=Target("telegram", "bot", chat),
        cursor=number,
    )
    return msgspec.structs.replace(plain, **fields)


async def add_ann(store: Store, *rules: RelayRule) -> RelayLogin:
    key = await store.write(relay.add, "ann", list(rules or (ANN,)))
    return RelayLogin("ann", key.id)


async def take(store: Store, inbound: InboundMessage | InboundDeletion | InboundFailure) -> Receipt:
    return await store.write(receive.receive, inbound, policy=POLICY)


async def list_bodies(store: Store, login: RelayLogin) -> list[InboundMessage]:
    waiting = await store.write(relay.list_waiting, login, ACCOUNTS, limit=10)
    return [codec.loads(event.body, InboundMessage) for event in waiting]


async def list_notices(store: Store) -> list[str]:
    def work(tx: Transaction) -> list[str]:
        return [codec.loads(row[0], str) for row in tx.rows("select body from deliveries order by position")]

    return await store.write(work)


async def begin(store: Store, login: RelayLogin, **changes: Any) -> BeginSend:
    values: dict[str, Any] = {
        "key": "d1.0",
        "delivery": "d1",
        "send_key": "k1",
        "idempotency": Idempotency.NONE,
        "doubt": DoubtPolicy.REPEAT,
        **changes,
    }
    return await store.write(relay.begin_send, login, values.pop("target", CHAT), **values)


async def end(store: Store, login: RelayLogin, **changes: Any) -> None:
    values: dict[str, Any] = {"key": "d1.0", "receipt": "", "error": None, "doubt": False, **changes}
    await store.write(relay.end_send, login, CHAT, **values)


async def test_an_event_of_an_instance_is_queued_with_the_cursor_and_makes_no_session(store: Store) -> None:
    login = await add_ann(store)
    inbound = message()
    assert not (await take(store, inbound)).duplicate
    [body] = await list_bodies(store, login)
    assert (body.event, body.parts, body.cursor) == (inbound.event, inbound.parts, None)
    assert await store.write(inbox.get_cursor, "telegram:bot") == inbound.cursor
    assert not await store.write(lambda tx: tx.rows("select id from sessions"))


async def test_what_no_rule_names_stays_with_the_connector(store: Store) -> None:
    login = await add_ann(store)
    await take(store, message(user="8", chat="8"))
    await take(store, message(principal=PrincipalId("operator")))
    assert await list_bodies(store, login) == []


async def test_a_repeated_event_is_queued_once(store: Store) -> None:
    login = await add_ann(store)
    inbound = message()
    await take(store, inbound)
    assert (await take(store, inbound)).duplicate
    assert len(await list_bodies(store, login)) == 1


async def test_an_event_waits_until_the_instance_has_stored_it(store: Store) -> None:
    login = await add_ann(store)
    await take(store, message("one"))
    await take(store, message("two"))
    first, second = await store.write(relay.list_waiting, login, ACCOUNTS, limit=10)
    assert first.position < second.position
    await store.write(relay.settle_event, login, first.position, "")
    assert [b.parts for b in await list_bodies(store, login)] == [text_parts("two")]


async def test_events_of_accounts_that_the_instance_does_not_serve_wait(store: Store) -> None:
    login = await add_ann(store)
    await take(store, message())
    assert await store.write(relay.list_waiting, login, [("telegram", "other")], limit=10) == []
    assert len(await store.write(relay.list_waiting, login, ACCOUNTS, limit=10)) == 1


async def test_an_event_that_an_instance_cannot_read_is_dropped_and_the_person_told(store: Store) -> None:
    login = await add_ann(store)
    await take(store, message())
    [event] = await store.write(relay.list_waiting, login, ACCOUNTS, limit=10)
    await store.write(relay.settle_event, login, event.position, "it is broken")
    [overview] = await store.write(relay.list_all)
    assert (overview.waiting, overview.dropped) == (0, 1)
    [notice] = await list_notices(store)
    assert "not taken" in notice


async def test_a_deletion_without_a_person_follows_its_message(store: Store) -> None:
    login = await add_ann(store)
    inbound = message()
    await take(store, inbound)
    bare = Source(platform="telegram", account="bot", chat="c9")
    await take(store, InboundDeletion(event="gone", source=bare, message_event=inbound.event))
    kinds = [e.kind for e in await store.write(relay.list_waiting, login, ACCOUNTS, limit=10)]
    assert kinds == [RelayEventKind.MESSAGE, RelayEventKind.DELETION]


async def test_a_late_failure_goes_to_the_instance_that_has_sent(store: Store) -> None:
    login = await add_ann(store)
    await take(store, message())
    await begin(store, login)
    source = Source(platform="telegram", account="bot", chat="elsewhere")
    failure = InboundFailure(
        event="f", source=source, delivery=DeliveryId("d1"), number=0, message="m", reason="no"
    )
    await take(store, failure)
    events = await store.write(relay.list_waiting, login, ACCOUNTS, limit=10)
    assert [e.kind for e in events] == [RelayEventKind.MESSAGE, RelayEventKind.FAILURE]


async def test_a_failure_that_names_its_message_alone_finds_its_instance(store: Store) -> None:
    login = await add_ann(store)
    await take(store, message())
    await begin(store, login)
    await end(store, login, receipt="m1")
    source = Source(platform="telegram", account="bot", chat="elsewhere")
    await take(store, InboundFailure(event="f", source=source, message="m1", reason="no"))
    events = await store.write(relay.list_waiting, login, ACCOUNTS, limit=10)
    assert [e.kind for e in events] == [RelayEventKind.MESSAGE, RelayEventKind.FAILURE]


async def test_beyond_its_limit_the_queue_takes_nothing_and_the_person_is_told_once(store: Store) -> None:
    login = await add_ann(store)
    for _ in range(5):
        await take(store, message())
    assert len(await list_bodies(store, login)) == 3
    [notice] = await list_notices(store)
    assert "not taken" in notice


async def test_the_size_of_the_queue_is_limited_too(store: Store) -> None:
    login = await add_ann(store)
    await take(store, message("x" * 6_000))
    await take(store, message("x" * 6_000))
    await take(store, message("short"))
    assert [
        len(b.parts[0].text) for b in await list_bodies(store, login) if isinstance(b.parts[0], Text)
    ] == [
        6_000,
        5,
    ]


async def test_people_are_told_once_that_their_messages_wait(store: Store) -> None:
    await add_ann(store)
    await take(store, message())
    await take(store, message())
    assert await store.write(relay.sweep, LIMITS) == 0
    later = store.at(after(120))
    assert await later.write(relay.sweep, LIMITS) == 1
    assert await later.write(relay.sweep, LIMITS) == 0
    await take(later, message())
    assert await store.at(after(500)).write(relay.sweep, LIMITS) == 0
    [notice] = await list_notices(store)
    assert "waits" in notice


async def test_people_are_told_again_the_next_time(store: Store) -> None:
    login = await add_ann(store)
    await take(store, message())
    await store.at(after(120)).write(relay.sweep, LIMITS)
    back = store.at(after(130))
    await back.write(relay.connect, login, address="::1", evicted=False)
    [event] = await back.write(relay.list_waiting, login, ACCOUNTS, limit=10)
    await back.write(relay.settle_event, login, event.position, "")
    await store.at(after(300)).write(table.record_end, "ann")
    await take(store.at(after(390)), message())
    # It has been away for long enough, so nobody waits for the notice.
    assert await store.at(after(400)).write(relay.sweep, LIMITS) == 1
    assert len(await list_notices(store)) == 2


async def test_people_are_told_if_an_instance_is_connected_and_does_not_take_their_messages(
    store: Store,
) -> None:
    login = await add_ann(store)
    await store.write(relay.connect, login, address="::1", evicted=False)
    await take(store, message())
    assert await store.at(after(50)).write(relay.sweep, LIMITS) == 0
    assert await store.at(after(70)).write(relay.sweep, LIMITS) == 1
    assert await store.at(after(900)).write(relay.sweep, LIMITS) == 0
    [notice] = await list_notices(store)
    assert "waits" in notice


async def test_people_are_told_once_if_an_instance_connects_again_and_again(store: Store) -> None:
    login = await add_ann(store)
    await take(store, message())
    told = 0
    for seconds in range(10, 200, 20):
        await store.at(after(seconds)).write(relay.connect, login, address="::1", evicted=False)
        told += await store.at(after(seconds + 5)).write(relay.sweep, LIMITS)
        await store.at(after(seconds + 10)).write(table.record_end, "ann")
    assert told == 1
    assert len(await list_notices(store)) == 1


async def test_people_are_told_again_after_an_hour_that_their_messages_are_not_taken(store: Store) -> None:
    login = await add_ann(store)
    await store.write(relay.connect, login, address="::1", evicted=False)
    for seconds in (0, 10, 4_000, 4_010):
        await take(store.at(after(seconds)), message("x" * 20_000))
    assert ["not taken" in text for text in await list_notices(store)] == [True, True]


async def test_nobody_is_told_for_what_is_not_said_to_the_agent(store: Store) -> None:
    await add_ann(store)
    group = Source(platform="telegram", account="bot", chat="-5", chat_type=ChatType.GROUP, user="7")
    await take(store, message(source=group, addressed=False))
    await take(store, message(source=msgspec.structs.replace(group, bot=True)))
    assert await store.at(after(120)).write(relay.sweep, LIMITS) == 0
    assert await list_notices(store) == []


async def test_what_has_waited_for_too_long_is_dropped_and_the_person_told(store: Store) -> None:
    login = await add_ann(store)
    await take(store, message())
    late = store.at(after(2 * 86_400))
    while await late.write(relay.sweep, LIMITS):
        pass
    assert await list_bodies(store, login) == []
    assert ["not taken" in text for text in await list_notices(store)] == [True]


async def test_a_revoked_key_is_worth_nothing_at_once(store: Store) -> None:
    login = await add_ann(store)
    await take(store, message())
    assert await store.write(relay.revoke, "ann") == 1
    for refused in (
        store.write(relay.list_waiting, login, ACCOUNTS, limit=1),
        store.write(relay.settle_event, login, 1, ""),
        store.write(relay.check_target, login, CHAT),
        store.write(relay.connect, login, address="", evicted=False),
        begin(store, login),
    ):
        with pytest.raises(Forbidden):
            await refused
    [notice] = await list_notices(store)
    assert "not taken" in notice
    with pytest.raises(NotFound):
        await store.write(relay.revoke, "ann")


async def test_a_new_key_replaces_the_old_one_and_keeps_the_queue(store: Store) -> None:
    old = await add_ann(store)
    await take(store, message())
    key = await store.write(relay.renew, "ann")
    with pytest.raises(Forbidden):
        await store.write(relay.list_waiting, old, ACCOUNTS, limit=1)
    assert len(await list_bodies(store, RelayLogin("ann", key.id))) == 1


async def test_a_name_and_a_rule_belong_to_one_instance(store: Store) -> None:
    await add_ann(store)
    with pytest.raises(Conflict):
        await add_ann(store)
    with pytest.raises(Conflict, match="belongs to ann"):
        await store.write(relay.add, "ben", [ANN])
    await store.write(relay.release, "ann", ANN)
    await store.write(relay.add, "ben", [ANN])
    with pytest.raises(NotFound):
        await store.write(relay.release, "ann", ANN)


async def test_an_instance_sends_to_its_own_chats_only(store: Store) -> None:
    login = await add_ann(store)
    other = Target("telegram", "bot", "8")
    await store.write(relay.check_target, login, CHAT)
    with pytest.raises(Refused):
        await store.write(relay.check_target, login, other)
    group = Source(platform="telegram", account="bot", chat="-5", chat_type=ChatType.GROUP, user="7")
    await take(store, message(source=group, reply=Target("telegram", "bot", "-5")))
    await store.write(relay.check_target, login, Target("telegram", "bot", "-5"))
    with pytest.raises(Refused):
        await begin(store, login, target=other)


async def test_a_send_that_is_repeated_gets_the_first_receipt(store: Store) -> None:
    login = await add_ann(store)
    assert await begin(store, login) == BeginSend(send_key="k1")
    await end(store, login, receipt="m1")
    assert await begin(store, login, send_key="k2") == BeginSend(receipt="m1")


async def test_a_send_of_a_dead_connector_is_in_doubt_and_keeps_its_key(store: Store) -> None:
    login = await add_ann(store)
    await begin(store, login)
    assert await begin(store, login, send_key="k2") == BeginSend(send_key="k1", doubt=True)
    await end(store, login, error=NotSent("no network"), doubt=True)
    assert await begin(store, login, send_key="k2") == BeginSend(send_key="k1", doubt=True)
    await end(store, login, receipt="m1", doubt=True)
    assert await begin(store, login) == BeginSend(receipt="m1")


async def test_a_send_that_has_certainly_failed_begins_anew(store: Store) -> None:
    login = await add_ann(store)
    await begin(store, login)
    await end(store, login, error=NotSent("no network"))
    assert await begin(store, login, send_key="k2") == BeginSend(send_key="k2")
    await end(store, login, error=Uncertain("no answer"))
    assert (await begin(store, login)).doubt


async def test_with_hold_an_operator_decides_about_a_send_in_doubt(store: Store) -> None:
    login = await add_ann(store)
    await begin(store, login)
    hold = {"doubt": DoubtPolicy.HOLD}
    assert (await begin(store, login, **hold)).held
    assert await begin(store, login, **hold) == BeginSend(send_key="k1", doubt=True)


async def test_a_throttled_chat_is_closed_for_every_instance(store: Store) -> None:
    login = await add_ann(store)
    await begin(store, login)
    await end(store, login, error=Throttled("slow down", after=timedelta(seconds=9)))
    with pytest.raises(Throttled) as caught:
        await begin(store, login)
    assert caught.value.after == timedelta(seconds=9)


async def test_a_file_is_given_to_the_instance_of_its_event_only(store: Store) -> None:
    login = await add_ann(store)
    file = RemoteFile(reference="secret-id", name="a.txt")
    parts = (Text("look"), File("m1", "text/plain", "b.txt"))
    await take(store, message(parts=parts, files=(file,)))
    [event] = await store.write(relay.list_waiting, login, ACCOUNTS, limit=1)
    body = codec.loads(event.body, InboundMessage)
    assert body.parts == (Text("look"),) and [f.reference for f in body.files] == ["0", "1"]
    assert await store.write(relay.find_file, login, event.position, 0) == ("telegram", "bot", file)
    _, _, stored = await store.write(relay.find_file, login, event.position, 1)
    assert stored.reference == f"{MEDIA_PREFIX}m1"
    with pytest.raises(Invalid):
        await store.write(relay.find_file, login, event.position, 2)
    ben = await store.write(relay.add, "ben", [])
    with pytest.raises(Invalid):
        await store.write(relay.find_file, RelayLogin("ben", ben.id), event.position, 0)


async def test_a_chat_that_moves_takes_its_rules_and_its_instance_along(store: Store) -> None:
    login = await add_ann(store, RelayRule(platform="telegram", chat="-5"))
    await store.write(relay.queue_move, platform="telegram", account="bot", old="-5", new="-100")
    [event] = await store.write(relay.list_waiting, login, ACCOUNTS, limit=1)
    assert codec.loads(event.body, RelayedMove) == RelayedMove("-5", "-100")
    await store.write(relay.check_target, login, Target("telegram", "bot", "-100"))
    [overview] = await store.write(relay.list_all)
    assert overview.rules == [RelayRule(platform="telegram", chat="-100")]


async def test_what_ended_is_forgotten_in_time_and_what_waits_is_not(store: Store) -> None:
    login = await add_ann(store)
    await take(store, message("one"))
    await take(store, message("two"))
    [first, _] = await store.write(relay.list_waiting, login, ACCOUNTS, limit=10)
    await store.write(relay.settle_event, login, first.position, "")
    await begin(store, login)
    await store.at(after(20 * 86_400)).write(relay.trim, keep=timedelta(days=14))
    assert [b.parts for b in await list_bodies(store, login)] == [text_parts("two")]
    assert await begin(store, login, send_key="k2") == BeginSend(send_key="k2")
    with pytest.raises(NotFound):
        await store.write(table.get_event, "ann", first.position)


async def test_a_person_or_chat_of_a_rule_may_invite_and_a_stranger_may_not(store: Store) -> None:
    await add_ann(store, ANN, RelayRule(platform="matrix"))
    assert await store.write(relay.may_enter, Source(platform="telegram", account="bot", chat="7", user="7"))
    assert not await store.write(relay.may_enter, Source(platform="matrix", chat="!r", user="@x"))
