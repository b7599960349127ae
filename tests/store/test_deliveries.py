import asyncio
from collections import Counter

import msgspec
import pytest
from tests.builders import (
    ANNS,
    BOB,
    BOBS,
    LEASE,
    ODD_TEXTS,
    OPERATORS,
    OTHER_WORKER,
    TELEGRAM,
    WORKER,
    Store,
    a_delivery,
    a_session,
    after,
    at_time,
    chat,
)

from keryx.core.changes import ChangeKind
from keryx.core.deliveries import Delivery, DeliveryState, Target, Wait, WaitReason
from keryx.core.errors import Conflict, LeaseLost, NotFound
from keryx.core.ids import DeliveryId, LeaseToken, TurnId, WorkerId
from keryx.store import change_feed, changes, deliveries, platforms
from keryx.store.db import Transaction
from keryx.testing import START_TIME

Held = tuple[Delivery, LeaseToken]


def claim(
    tx: Transaction, *, worker: WorkerId = WORKER, seconds: float = 0, account: str = "bot"
) -> Held | None:
    found = deliveries.claim(
        at_time(tx, after(seconds)), most=1, platform="telegram", account=account, worker=worker, lease=LEASE
    )
    return found.leased[0] if found.leased else None


async def claimed(store: Store, *, worker: WorkerId = WORKER, seconds: float = 0) -> Held:
    held = await store.write(claim, worker=worker, seconds=seconds)
    assert held is not None
    return held


def settle(tx: Transaction, held: Held, state: DeliveryState) -> None:
    deliveries.finish_attempt(at_time(tx, START_TIME), *held, state)


async def test_a_delivery_keeps_what_it_was_given(store: Store) -> None:
    delivery = await store.write(a_delivery, "hi")
    assert (delivery.text, delivery.target, delivery.state) == ("hi", TELEGRAM, DeliveryState.READY)
    assert (delivery.attempts, delivery.parts_sent, delivery.receipts) == (0, 0, ())


async def test_any_text_survives_in_every_place_of_a_delivery(
    store: Store, subtests: pytest.Subtests
) -> None:
    for text in ODD_TEXTS:
        with subtests.test(ascii(text)):
            target = Target("telegram", text, text, text, text)
            made = await store.write(a_delivery, text, target=target)
            held = await store.write(claim, account=text)
            assert held and held[0].id == made.id
            await store.write(deliveries.record_part_sent, *held, receipt=text)
            await store.at(START_TIME).write(
                deliveries.finish_attempt, *held, DeliveryState.FAILED, error=text
            )
            found = await store.read(deliveries.get, made.id)
            assert (found.text, found.target, found.receipts, found.error) == (text, target, (text,), text)


async def test_deliveries_of_one_target_go_in_order_one_at_a_time(store: Store) -> None:
    for text in ("a", "b", "c"):
        await store.write(a_delivery, text)
    sent: list[str] = []
    for _ in range(3):
        held = await claimed(store)
        assert await store.write(claim) is None
        sent.append(held[0].text)
        await store.write(settle, held, DeliveryState.SENT)
    assert sent == ["a", "b", "c"]


async def test_targets_do_not_wait_for_each_other(store: Store) -> None:
    for n in (1, 1, 2):
        await store.write(a_delivery, f"to {n}", target=chat(n))
    assert [(await claimed(store))[0].text for _ in range(2)] == ["to 1", "to 2"]


async def test_a_reply_to_another_message_is_the_same_target(store: Store) -> None:
    await store.write(a_delivery, "a", target=msgspec.structs.replace(TELEGRAM, reply_to="1"))
    await store.write(a_delivery, "b", target=msgspec.structs.replace(TELEGRAM, reply_to="2"))
    await claimed(store)
    assert await store.write(claim) is None


async def test_accounts_and_platforms_send_their_own_only(store: Store) -> None:
    await store.write(a_delivery)
    assert await store.write(claim, account="other") is None
    found = await store.at(START_TIME).write(
        deliveries.claim, most=1, platform="slack", account="bot", worker=WORKER, lease=LEASE
    )
    assert found == ([], False)


async def test_a_delivery_that_failed_lets_the_next_one_pass(store: Store) -> None:
    for text in ("a", "b"):
        await store.write(a_delivery, text)
    for state in (DeliveryState.UNKNOWN, DeliveryState.FAILED):
        await store.write(settle, await claimed(store), state)
    assert await store.write(claim) is None


async def test_a_delivery_that_is_held_back_holds_its_target(store: Store) -> None:
    for text in ("a", "b"):
        await store.write(a_delivery, text)
    held = await claimed(store)
    await store.at(START_TIME).write(
        deliveries.finish_attempt, *held, DeliveryState.READY, not_before=after(30)
    )
    assert await store.write(claim, seconds=29) is None
    assert await store.at(after(29)).read(deliveries.get_next_ready_at) == after(30)
    again = await claimed(store, seconds=30)
    assert (again[0].text, again[0].attempts) == ("a", 2)
    assert await store.at(after(30)).read(deliveries.get_next_ready_at) is None


@pytest.mark.parametrize("key", [TELEGRAM.key, TELEGRAM.account_key])
async def test_a_closed_gate_holds_its_chat_or_its_account(store: Store, key: str) -> None:
    await store.write(a_delivery)
    await store.write(platforms.close_gate, key, until=after(30), reason="slow down")
    assert await store.write(claim, seconds=29) is None
    await claimed(store, seconds=30)


async def test_a_closed_gate_of_a_chat_leaves_other_chats_open(store: Store) -> None:
    await store.write(a_delivery, target=chat(1))
    await store.write(a_delivery, "other", target=chat(2))
    await store.write(platforms.close_gate, chat(1).key, until=after(30), reason="")
    assert (await claimed(store))[0].text == "other"


async def test_everybody_behind_a_chat_that_holds_up_very_much_gets_a_turn(store: Store) -> None:
    def fill(tx: Transaction) -> None:
        for n in [0] * 70 + [*range(1, 150)] * 2:
            a_delivery(tx, target=chat(n))
        platforms.close_gate(tx, chat(0).key, until=after(30), reason="")

    def send(tx: Transaction, last: str) -> str:
        (held,), _ = deliveries.claim(
            at_time(tx, START_TIME),
            most=1,
            platform="telegram",
            account="bot",
            worker=WORKER,
            lease=LEASE,
            after=last,
        )
        settle(tx, held, DeliveryState.SENT)
        return held[0].target.key

    await store.write(fill)
    served = [chat(0).key]
    for _ in range(2 * 149):
        served.append(await store.write(send, served[-1]))
    assert Counter(served[1:]) == {chat(n).key: 2 for n in range(1, 150)}
    assert await store.write(claim) is None
    assert (await claimed(store, seconds=30))[0].target == chat(0)


async def test_parts_are_recorded_under_the_lease(store: Store) -> None:
    await store.write(a_delivery)
    delivery, lease = await claimed(store)
    await store.write(deliveries.record_part_sent, delivery, lease, receipt="m1")
    delivery = await store.read(deliveries.get, delivery.id)
    await store.at(after(3)).write(deliveries.record_all_sent, delivery, lease, receipt="m2")
    sent = await store.read(deliveries.get, delivery.id)
    assert (sent.parts_sent, sent.receipts, sent.sent_at) == (2, ("m1", "m2"), after(3))


async def test_a_late_sender_cannot_record_anything(store: Store) -> None:
    await store.write(a_delivery)
    late = await claimed(store)
    await store.write(settle, late, DeliveryState.READY)
    current = await claimed(store, worker=OTHER_WORKER)
    for held in (late, (current[0], LeaseToken("wrong"))):
        with pytest.raises(LeaseLost):
            await store.write(deliveries.record_part_sent, *held, receipt="x")
        with pytest.raises(LeaseLost):
            await store.at(START_TIME).write(deliveries.record_all_sent, *held, receipt="x")
        with pytest.raises(LeaseLost):
            await store.write(settle, held, DeliveryState.SENT)
    assert await store.read(deliveries.get, late[0].id) == current[0]


async def test_a_settled_delivery_cannot_be_settled_again(store: Store) -> None:
    await store.write(a_delivery)
    held = await claimed(store)
    await store.write(settle, held, DeliveryState.SENT)
    with pytest.raises(LeaseLost):
        await store.write(settle, held, DeliveryState.FAILED)


async def test_a_doubtful_part_is_marked_until_it_has_arrived(store: Store) -> None:
    await store.write(a_delivery)
    held = await claimed(store)
    await store.at(START_TIME).write(deliveries.finish_attempt, *held, DeliveryState.READY, again=True)
    delivery, lease = await claimed(store)
    assert delivery.again
    await store.write(deliveries.record_part_sent, delivery, lease, receipt="m1")
    assert not (await store.read(deliveries.get, delivery.id)).again


async def test_deliveries_of_a_dead_sender_are_found(store: Store) -> None:
    await store.write(a_delivery)
    held = await claimed(store)
    assert await store.at(START_TIME + LEASE).read(deliveries.list_abandoned, workers=[]) == []
    assert await store.at(START_TIME).read(deliveries.list_abandoned, workers=[WORKER]) == [held]
    assert await store.at(after(16)).read(deliveries.list_abandoned, workers=[OTHER_WORKER]) == [held]
    await store.write(deliveries.renew_leases, WORKER, [held[0].id], until=after(100))
    assert await store.at(after(16)).read(deliveries.list_abandoned, workers=[]) == []


async def test_many_healthy_deliveries_do_not_hide_an_abandoned_one(store: Store) -> None:
    def arrange(tx: Transaction) -> None:
        session = a_session(tx)
        for n in range(60):
            a_delivery(tx, target=chat(n), session=session)
        for n in range(60):
            assert claim(tx, worker=WORKER if n < 59 else OTHER_WORKER)

    await store.write(arrange)
    assert len(await store.at(START_TIME).read(deliveries.list_abandoned, workers=[OTHER_WORKER])) == 1
    assert len(await store.at(START_TIME).read(deliveries.list_abandoned, workers=[WORKER])) == 50


@pytest.mark.parametrize(
    ("state", "again"),
    [(DeliveryState.UNKNOWN, True), (DeliveryState.FAILED, False), (DeliveryState.DEAD, False)],
)
async def test_a_person_may_retry_what_did_not_arrive(
    store: Store, state: DeliveryState, again: bool
) -> None:
    await store.write(a_delivery)
    held = await claimed(store)
    await store.write(settle, held, state)
    await store.at(START_TIME).write(
        deliveries.override_state,
        await store.read(deliveries.get, held[0].id),
        DeliveryState.READY,
    )
    delivery, _ = await claimed(store)
    assert (delivery.attempts, delivery.again) == (1, again)


async def test_a_person_may_discard_a_delivery_but_not_undo_a_sent_one(store: Store) -> None:
    made = await store.write(a_delivery)
    await store.at(START_TIME).write(deliveries.override_state, made, DeliveryState.DISCARDED)
    assert await store.write(claim) is None
    with pytest.raises(Conflict):
        await store.at(START_TIME).write(deliveries.override_state, made, DeliveryState.DISCARDED)
    await store.write(a_delivery)
    held = await claimed(store)
    await store.write(settle, held, DeliveryState.SENT)
    with pytest.raises(Conflict):
        await store.at(START_TIME).write(
            deliveries.override_state,
            await store.read(deliveries.get, held[0].id),
            DeliveryState.READY,
        )


async def test_what_waits_says_why_and_until_when(store: Store) -> None:
    first = await store.write(a_delivery)
    behind = await store.write(a_delivery)
    elsewhere = await store.write(a_delivery, target=chat(9))
    listed = [first, behind, elsewhere]
    assert await store.read(deliveries.list_waits, listed) == {behind.id: Wait(WaitReason.ORDER)}
    held = await claimed(store)
    await store.at(START_TIME).write(
        deliveries.finish_attempt, held[0], held[1], DeliveryState.READY, not_before=after(60), error="busy"
    )
    await store.at(START_TIME).write(platforms.close_gate, chat(9).account_key, until=after(30), reason="429")
    listed = [await store.read(deliveries.get, d.id) for d in listed]
    assert await store.at(START_TIME).read(deliveries.list_waits, listed) == {
        first.id: Wait(WaitReason.RETRY, after(60)),
        behind.id: Wait(WaitReason.ORDER),
        elsewhere.id: Wait(WaitReason.LIMIT, after(30)),
    }


async def test_a_person_sends_what_waits_now_or_stops_its_tries(store: Store) -> None:
    made = await store.write(a_delivery)
    for state in (DeliveryState.READY, DeliveryState.DEAD):
        held = await claimed(store)
        await store.at(START_TIME).write(
            deliveries.finish_attempt, *held, DeliveryState.READY, not_before=after(60), error="busy"
        )
        assert await store.write(claim) is None
        await store.at(START_TIME).write(
            deliveries.override_state, await store.read(deliveries.get, made.id), state
        )
    assert await store.write(claim, seconds=120) is None
    stopped = await store.read(deliveries.get, made.id)
    assert (stopped.state, stopped.error) == (DeliveryState.DEAD, "busy")


async def test_deliveries_are_listed_newest_first_for_those_who_may_see_them(store: Store) -> None:
    anns = [await store.write(a_delivery, target=chat(n)) for n in range(3)]
    bobs = await store.write(a_delivery, session=await store.write(a_session, owner=BOB), target=chat(9))
    await store.write(settle, await claimed(store), DeliveryState.SENT)
    found = await store.read(deliveries.list_recent, ANNS)
    assert [d.id for d in found] == [d.id for d in anns[::-1]]
    ready = await store.read(deliveries.list_recent, ANNS, states=[DeliveryState.READY], limit=1)
    assert [d.id for d in ready] == [anns[2].id]
    assert await store.read(deliveries.list_recent, ANNS, states=[]) == []
    assert [d.id for d in await store.read(deliveries.list_recent, BOBS)] == [bobs.id]
    assert len(await store.read(deliveries.list_recent, OPERATORS)) == 4
    with pytest.raises(NotFound):
        await store.read(deliveries.get, anns[0].id, viewer=BOBS)
    with pytest.raises(NotFound):
        await store.read(deliveries.get, DeliveryId("none"))


async def test_a_session_tells_what_is_still_on_its_way(store: Store) -> None:
    session = await store.write(a_session)
    made = [await store.write(a_delivery, target=chat(n), session=session) for n in range(3)]
    await store.write(settle, await claimed(store), DeliveryState.SENT)
    await store.write(settle, await claimed(store), DeliveryState.FAILED)
    assert [d.id for d in await store.read(deliveries.list_for_session, session.id)] == [d.id for d in made]
    unfinished = await store.read(deliveries.list_for_session, session.id, unfinished=True)
    assert [d.id for d in unfinished] == [made[1].id, made[2].id]


async def test_the_deliveries_of_a_turn_are_found_in_order(store: Store) -> None:
    made = [await store.write(a_delivery, target=chat(n), turn=TurnId("t1")) for n in range(2)]
    await store.write(a_delivery, turn=TurnId("t2"))
    assert await store.read(deliveries.list_for_turn, TurnId("t1")) == made


async def test_every_settled_move_is_in_the_feed(store: Store) -> None:
    cursor = await store.read(changes.get_head)
    made = await store.write(a_delivery)
    await store.write(settle, await claimed(store), DeliveryState.SENT)
    found = [
        c.note for c in await store.read(change_feed.list_after, cursor) if c.kind is ChangeKind.DELIVERY
    ]
    account = made.target.account_key
    assert found == [f"ready {account}", f"sent {account}"]


async def test_senders_that_claim_at_once_keep_each_target_in_order(store: Store) -> None:
    def arrange(tx: Transaction) -> None:
        session = a_session(tx)
        for n in range(30):
            a_delivery(tx, str(n), target=chat(n % 6), session=session)

    await store.write(arrange)
    sent: dict[str, list[int]] = {}
    busy: set[str] = set()

    async def work(worker: WorkerId) -> None:
        while sum(map(len, sent.values())) < 30:
            held = await store.write(claim, worker=worker)
            if held is None:
                await asyncio.sleep(0)
                continue
            place = held[0].target.chat
            assert place not in busy
            busy.add(place)
            sent.setdefault(place, []).append(int(held[0].text))
            await asyncio.sleep(0.001)
            busy.remove(place)
            await store.write(settle, held, DeliveryState.SENT)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for n in range(12):
            group.create_task(work(WorkerId(f"w{n}")))
    assert sorted(sent.values()) == [list(range(n, 30, 6)) for n in range(6)]
