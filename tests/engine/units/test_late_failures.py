"""What a platform accepted and says later that it was not delivered."""

from typing import Any

import msgspec
import pytest
from tests.engine.conftest import Begin
from tests.engine.units.test_message_events import SlowAdapter
from tests.engine.world import AT_ONCE, FAKE, OPERATORS, World, inbound

from keryx.core.deliveries import Delivery, DeliveryState, Target
from keryx.core.errors import Retryable
from keryx.core.ids import DeliveryId
from keryx.core.ports.adapter import Capabilities, InboundFailure
from keryx.core.source import Source
from keryx.engine.policy import Policy, map_reach
from keryx.store import deliveries
from keryx.store.admin.verify import verify
from keryx.store.changes import Scope
from keryx.store.db import Transaction
from keryx.testing import RecordingAdapter


def build_failure(delivery: Delivery, number: int = 0, **fields: Any) -> InboundFailure:
    failure = InboundFailure(
        event=f"{delivery.id}.{number}.failed",
        source=Source(platform=FAKE, chat="1"),
        delivery=delivery.id,
        number=number,
        message=delivery.receipts[number],
        reason="nobody is there",
    )
    return msgspec.structs.replace(failure, **fields)


async def begin_with_answer(begin: Begin, *, limit: int = 4096) -> tuple[World, RecordingAdapter, Delivery]:
    adapter = RecordingAdapter(FAKE, capabilities=Capabilities(limit=limit), limit=limit)
    policy: Policy = msgspec.structs.replace(AT_ONCE, reach=map_reach([adapter]))
    world = await begin(adapters=[adapter], policy=policy)
    await world.say("one two three four five")
    [delivery] = await world.delivered(1)
    return world, adapter, delivery


async def load(world: World, delivery: Delivery) -> Delivery:
    return await world.read(deliveries.get, delivery.id)


async def test_the_delivery_has_failed_with_the_reason_and_can_be_retried(begin: Begin) -> None:
    world, adapter, delivery = await begin_with_answer(begin)
    await world.hub.receive(build_failure(delivery))
    failed = await load(world, delivery)
    assert (failed.state, failed.error, failed.sent_at) == (DeliveryState.FAILED, "nobody is there", None)
    assert await verify(world.database) == []
    await world.hub.deliveries.decide(OPERATORS, delivery.id, DeliveryState.READY)
    await adapter.wait_for(2)
    await world.delivered(1)
    assert await verify(world.database) == []


async def test_what_is_held_goes_out_when_the_person_writes(begin: Begin) -> None:
    adapter = RecordingAdapter(FAKE, capabilities=Capabilities(reply_window=AT_ONCE.limits.lease * 1000))
    world = await begin(
        adapters=[adapter], policy=msgspec.structs.replace(AT_ONCE, reach=map_reach([adapter]))
    )
    await world.say("one")
    [delivery] = await world.delivered(1)
    await world.hub.receive(build_failure(delivery, held=True))
    assert (await load(world, delivery)).state is DeliveryState.HELD
    await world.say("two")
    await adapter.wait_for(3)
    assert adapter.texts == ["one", "one", "two"]


async def test_of_several_parts_it_goes_on_with_the_first_that_failed(begin: Begin) -> None:
    world, adapter, delivery = await begin_with_answer(begin, limit=6)
    count = len(delivery.receipts)
    assert count > 2
    # The news come in any order.
    for number in (count - 1, count - 2):
        await world.hub.receive(build_failure(delivery, number))
    failed = await load(world, delivery)
    assert (failed.parts_sent, len(failed.receipts), failed.again) == (count - 2, count - 2, False)
    before = len(adapter.sent_parts)
    await world.hub.deliveries.decide(OPERATORS, delivery.id, DeliveryState.READY)
    await adapter.wait_for(before + 2)
    assert [p.again for p in adapter.sent_parts[before:]] == [False, False]


async def test_if_later_parts_have_arrived_the_rest_comes_with_a_mark(begin: Begin) -> None:
    world, adapter, delivery = await begin_with_answer(begin, limit=6)
    await world.hub.receive(build_failure(delivery, 1))
    failed = await load(world, delivery)
    assert (failed.parts_sent, failed.again) == (1, True)
    before = len(adapter.sent_parts)
    await world.hub.deliveries.decide(OPERATORS, delivery.id, DeliveryState.READY)
    await adapter.wait_for(before + 1)
    assert adapter.sent_parts[before].again


@pytest.mark.parametrize(
    "fields",
    [
        {"message": "another"},
        {"number": 7},
        {"delivery": DeliveryId("unknown")},
        {"source": Source(platform=FAKE, account="other", chat="1")},
        {"source": Source(platform="webhook", chat="1")},
    ],
    ids=["message", "number", "delivery", "account", "platform"],
)
async def test_a_failure_of_something_else_changes_nothing(begin: Begin, fields: dict[str, Any]) -> None:
    world, _, delivery = await begin_with_answer(begin)
    await world.hub.receive(msgspec.structs.replace(build_failure(delivery), **fields))
    assert await load(world, delivery) == delivery


async def test_a_failure_may_name_the_message_alone(begin: Begin) -> None:
    world, _, delivery = await begin_with_answer(begin, limit=6)
    unnamed = msgspec.structs.replace(build_failure(delivery, 1), delivery=None, number=0)
    await world.hub.receive(msgspec.structs.replace(unnamed, source=Source(platform="webhook", chat="1")))
    assert await load(world, delivery) == delivery
    await world.hub.receive(msgspec.structs.replace(unnamed, source=Source(platform=FAKE)))
    failed = await load(world, delivery)
    assert (failed.state, failed.parts_sent, failed.error) == (DeliveryState.FAILED, 1, "nobody is there")
    # The message that failed is no longer part of the delivery.
    await world.hub.receive(msgspec.structs.replace(unnamed, event="again", source=Source(platform=FAKE)))
    assert await load(world, delivery) == failed


async def test_a_failure_before_the_receipt_waits_for_it(begin: Begin) -> None:
    adapter = SlowAdapter()
    world = await begin(adapters=[adapter])
    receipt = await world.say("hello")
    await adapter.wait_for(1)
    failure = InboundFailure(
        event="f1", source=Source(platform=FAKE), message="fake-0", reason="nobody is there"
    )
    await world.hub.receive(failure)
    adapter.answer.set()
    assert receipt.session

    def has_failed(tx: Transaction) -> bool:
        found = deliveries.list_recent(tx, OPERATORS)
        return [(d.state, d.error) for d in found] == [(DeliveryState.FAILED, "nobody is there")]

    await world.until(has_failed)
    assert await verify(world.database) == []


async def test_a_repeated_failure_counts_once(begin: Begin) -> None:
    world, adapter, delivery = await begin_with_answer(begin)
    await world.hub.receive(build_failure(delivery))
    await world.hub.deliveries.decide(OPERATORS, delivery.id, DeliveryState.READY)
    await adapter.wait_for(2)
    [sent] = await world.delivered(1)
    receipt = await world.hub.receive(build_failure(delivery))
    assert receipt.duplicate and await load(world, delivery) == sent


async def test_a_failure_waits_while_the_rest_is_being_sent(begin: Begin) -> None:
    world, _, delivery = await begin_with_answer(begin)

    def put_back(tx: Transaction) -> None:
        tx.run("update deliveries set state = 'ready', not_before = 9000000000000000")

    await world.write(put_back)
    with pytest.raises(Retryable):
        await world.hub.receive(build_failure(delivery))


async def test_what_was_discarded_stays_so(begin: Begin) -> None:
    world, _, delivery = await begin_with_answer(begin)
    await world.hub.receive(build_failure(delivery))
    await world.hub.deliveries.decide(OPERATORS, delivery.id, DeliveryState.DISCARDED)
    later = build_failure(delivery, event="again", held=True)
    await world.hub.receive(later)
    assert (await load(world, delivery)).state is DeliveryState.DISCARDED


async def test_a_secret_text_is_not_kept_so_it_is_not_held(begin: Begin) -> None:
    world, adapter, _ = await begin_with_answer(begin)
    scope = Scope(OPERATORS.profile, OPERATORS.principal, None)
    id_ = await world.write(
        lambda tx: deliveries.enqueue(tx, Target(FAKE, chat="1"), "a code", of=scope, secret=True)
    )
    await adapter.wait_for(2)
    await world.delivered(2)
    sent = await world.read(deliveries.get, id_)
    await world.hub.receive(build_failure(sent, held=True))
    assert (await load(world, sent)).state is DeliveryState.FAILED


async def test_buttons_stay_where_messages_cannot_be_edited(begin: Begin) -> None:
    adapter = RecordingAdapter(FAKE, capabilities=Capabilities(buttons=True))
    world = await begin(adapters=[adapter])
    await world.say("!ask rm x")
    await world.eventually(lambda: any(p.buttons for p in adapter.sent_parts))
    buttons = next(p.buttons for p in adapter.sent_parts if p.buttons)
    await world.hub.receive(inbound(buttons[0].says, reply=None))
    await world.say("next")
    await world.eventually(lambda: "next" in adapter.texts)
    assert not any(p.edits for p in adapter.sent_parts)
    assert await verify(world.database) == []
