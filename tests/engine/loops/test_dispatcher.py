"""How deliveries leave: in order, never silently twice, never dropped."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.builders import at_time, until
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, FAKE, OPERATORS, Pause, Scenes, World

from keryx.core.deliveries import REPEAT_MARK, Delivery, DeliveryState, DoubtPolicy, Idempotency, Target
from keryx.core.errors import Conflict, NotSent, Refused, SendError, Throttled, Uncertain
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, DeliveryId
from keryx.core.ports.adapter import Capabilities, OutgoingPart
from keryx.core.ports.agent import TextDelta
from keryx.core.sessions import Viewer
from keryx.core.turns import TurnState
from keryx.engine.policy import Policy
from keryx.engine.units import deliveries as delivery_units
from keryx.store import deliveries, platforms
from keryx.store.db import Engine, Transaction
from keryx.testing import START_TIME, CrashingDatabase, DatabaseFault, FaultTiming, RecordingAdapter

pytestmark = pytest.mark.engines(Engine.SQLITE)
# For those in which nodes claim, crash or take over.
BOTH = pytest.mark.engines(*Engine)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
LOST = Uncertain("the line broke")


def post(tx: Transaction, *texts: str, chat: str = "1", platform: str = FAKE) -> list[DeliveryId]:
    return [
        deliveries.enqueue(
            at_time(tx, START_TIME),
            Target(platform, chat=chat),
            text,
            of=Viewer(DEFAULT_PROFILE, OPERATOR),
        )
        for text in texts
    ]


async def stored(world: World, delivery: DeliveryId) -> Delivery:
    return await world.read(deliveries.get, delivery)


async def became(world: World, delivery: DeliveryId, state: DeliveryState) -> Delivery:
    await world.until(lambda tx: deliveries.get(tx, delivery).state is state)
    return await stored(world, delivery)


async def tried(world: World, delivery: DeliveryId, attempts: int) -> Delivery:
    """Wait until an attempt has been made and recorded."""
    await world.until(
        lambda tx: (d := deliveries.get(tx, delivery)).attempts >= attempts and d.state != "sending"
    )
    return await stored(world, delivery)


def fake(**able: Any) -> RecordingAdapter:
    limit = able.pop("split", 0)
    return RecordingAdapter(FAKE, capabilities=Capabilities(**able), limit=limit)


@BOTH
async def test_deliveries_of_one_target_arrive_in_order(world: World) -> None:
    texts = [f"t{n}" for n in range(20)]
    await world.write(post, *texts)
    assert await world.sent(20) == texts


async def test_parts_of_a_delivery_arrive_in_order_before_the_next_delivery(begin: Begin) -> None:
    adapter = fake(split=2)
    world = await begin(adapters=[adapter])
    first, _ = await world.write(post, "aabbc", "ddee")
    await adapter.wait_for(5)
    assert adapter.texts == ["aa", "bb", "c", "dd", "ee"]
    assert len({p.key for p in adapter.sent_parts}) == 5
    done = await became(world, first, DeliveryState.SENT)
    assert (done.parts_sent, done.receipts, done.sent_at) == (3, ("fake-0", "fake-1", "fake-2"), START_TIME)


async def test_a_delivery_is_stored_before_the_network_is_touched(begin: Begin) -> None:
    seen: list[DeliveryState] = []

    class Curious(RecordingAdapter):
        async def send(self, part: OutgoingPart) -> str:
            seen.append((await stored(world, part.delivery)).state)
            return await super().send(part)

    world = await begin(adapters=[Curious(FAKE)])
    await world.ask("hi")
    await world.delivered(1)
    assert seen == [DeliveryState.SENDING]


async def test_a_throttled_chat_waits_and_others_do_not(begin: Begin) -> None:
    world = await begin()
    world.fake.errors_before = [Throttled("slow down", after=30 * SECOND)]
    (first,) = await world.write(post, "a")
    await tried(world, first, 1)
    await world.write(post, "b")
    await world.write(post, "c", chat="2")
    assert await world.sent(1) == ["c"]
    await asyncio.sleep(0.02)
    world.advance(31)
    assert await world.sent(3) == ["c", "a", "b"]
    assert (await became(world, first, DeliveryState.SENT)).attempts == 2


@BOTH
async def test_a_closed_gate_stays_closed_over_a_restart(begin: Begin) -> None:
    world = await begin()
    world.fake.errors_before = [Throttled("slow down", after=timedelta(minutes=5))]
    (first,) = await world.write(post, "a")
    waiting = await tried(world, first, 1)
    assert (waiting.state, waiting.error) == (DeliveryState.READY, "slow down")
    await world.restart()
    await asyncio.sleep(0.05)
    assert world.fake.texts == []
    world.advance(timedelta(minutes=5))
    assert await world.sent() == ["a"]


async def test_what_a_platform_refuses_is_failed_and_the_next_goes_on(begin: Begin) -> None:
    world = await begin()
    world.fake.errors_before = [Refused("the chat is gone")]
    first, _ = await world.write(post, "a", "b")
    failed = await became(world, first, DeliveryState.FAILED)
    assert failed.error == "the chat is gone"
    assert await world.sent() == ["b"]


async def test_what_was_not_sent_is_tried_again_after_growing_pauses(begin: Begin) -> None:
    world = await begin()
    world.fake.errors_before = [NotSent("no route")] * 3
    (first,) = await world.write(post, "a")
    for attempt, pause in ((1, 1), (2, 2), (3, 4)):
        waiting = await tried(world, first, attempt)
        assert waiting.not_before == world.clock.now() + pause * SECOND
        world.advance(pause)
    assert await world.sent() == ["a"]


async def test_what_cannot_be_sent_for_a_day_is_given_up_and_the_next_goes_on(begin: Begin) -> None:
    world = await begin(policy=Policy(give_up=DAY))
    world.fake.errors_before = [NotSent("no route")] * 2
    first, _ = await world.write(post, "a", "b")
    await tried(world, first, 1)
    world.advance(DAY + SECOND)
    dead = await became(world, first, DeliveryState.DEAD)
    assert dead.error == "no route"
    assert await world.sent() == ["b"]


@BOTH
async def test_an_unknown_outcome_is_repeated_with_a_mark(begin: Begin) -> None:
    world = await begin()
    world.fake.errors_after = [LOST]
    (first,) = await world.write(post, "a")
    await tried(world, first, 1)
    await world.write(post, "b")
    world.advance(1)
    assert await world.sent(3) == ["a", f"{REPEAT_MARK}a", "b"]


async def test_the_mark_of_a_repetition_is_a_setting(begin: Begin) -> None:
    world = await begin(policy=msgspec.structs.replace(AT_ONCE, repeat_mark="(vielleicht doppelt) "))
    world.fake.errors_after = [LOST]
    (first,) = await world.write(post, "a")
    await tried(world, first, 1)
    world.advance(1)
    assert await world.sent(2) == ["a", "(vielleicht doppelt) a"]


async def test_only_the_part_in_doubt_carries_the_mark(begin: Begin) -> None:
    adapter = fake(split=1)
    world = await begin(adapters=[adapter])
    (first,) = await world.write(post, "ab")
    await adapter.wait_for(2)
    await became(world, first, DeliveryState.SENT)
    adapter.errors_after = [LOST]
    (second,) = await world.write(post, "xyz")
    await tried(world, second, 1)
    world.advance(1)
    await became(world, second, DeliveryState.SENT)
    assert adapter.texts == ["a", "b", "x", f"{REPEAT_MARK}x", "y", "z"]


async def test_a_platform_with_keys_of_its_own_is_asked_again_without_a_mark(begin: Begin) -> None:
    adapter = fake(idempotency=Idempotency.NATIVE)
    world = await begin(adapters=[adapter])
    adapter.errors_after = [LOST]
    (first,) = await world.write(post, "a")
    await tried(world, first, 1)
    world.advance(1)
    await became(world, first, DeliveryState.SENT)
    assert adapter.texts == ["a"]


async def test_an_unknown_outcome_can_be_held_for_a_person(begin: Begin) -> None:
    world = await begin(policy=Policy(doubt=DoubtPolicy.HOLD))
    world.fake.errors_after = [LOST]
    first, _ = await world.write(post, "a", "b")
    held = await became(world, first, DeliveryState.UNKNOWN)
    assert held.error == "the line broke"
    assert await world.sent(2) == ["a", "b"]
    await world.hub.deliveries.decide(OPERATORS, first, DeliveryState.READY)
    assert await world.sent(3) == ["a", "b", f"{REPEAT_MARK}a"]


async def test_the_mark_stays_until_the_part_has_arrived(begin: Begin) -> None:
    """In doubt, then throttled, then not sent: it may still have arrived the first time."""
    world = await begin()
    world.fake.errors_after = [LOST]
    (first,) = await world.write(post, "a")
    await tried(world, first, 1)
    world.fake.errors_before = [Throttled("slow", after=SECOND), NotSent("no route")]
    for attempt in (2, 3):
        world.advance(10)
        await tried(world, first, attempt)
    world.advance(10)
    assert await world.sent(2) == ["a", f"{REPEAT_MARK}a"]


async def test_the_mark_stays_when_a_person_repeats_what_was_refused(begin: Begin) -> None:
    world = await begin()
    world.fake.errors_after = [LOST]
    (first,) = await world.write(post, "a")
    await tried(world, first, 1)
    world.fake.errors_before = [Refused("blocked")]
    world.advance(10)
    await became(world, first, DeliveryState.FAILED)
    await world.hub.deliveries.decide(OPERATORS, first, DeliveryState.READY)
    assert await world.sent(2) == ["a", f"{REPEAT_MARK}a"]


async def test_doubt_does_not_repeat_for_ever(begin: Begin) -> None:
    world = await begin(policy=Policy(give_up=DAY))
    world.fake.errors_after = [LOST] * 2
    (first,) = await world.write(post, "a")
    await tried(world, first, 1)
    world.advance(DAY + SECOND)
    assert (await became(world, first, DeliveryState.DEAD)).again


async def test_a_platform_that_does_not_answer_leaves_a_doubt(begin: Begin) -> None:
    class Silent(RecordingAdapter):
        async def send(self, part: OutgoingPart) -> str:
            await super().send(part)
            await asyncio.Event().wait()
            return ""

    world = await begin(
        adapters=[Silent(FAKE)],
        policy=Policy(doubt=DoubtPolicy.HOLD, send_timeout=timedelta(milliseconds=20)),
    )
    (first,) = await world.write(post, "a")
    held = await became(world, first, DeliveryState.UNKNOWN)
    assert held.error == "fake did not answer in time"


@pytest.mark.parametrize("error", [KeyError("oops"), asyncio.CancelledError()], ids=["error", "cancel"])
async def test_an_adapter_that_breaks_leaves_a_doubt_and_harms_no_other(
    begin: Begin, error: BaseException
) -> None:
    class Broken(RecordingAdapter):
        async def send(self, part: OutgoingPart) -> str:
            if part.text == "bad":
                raise error
            return await super().send(part)

    adapter = Broken(FAKE)
    world = await begin(adapters=[adapter], policy=Policy(doubt=DoubtPolicy.HOLD))
    first, _ = await world.write(post, "bad", "good")
    await became(world, first, DeliveryState.UNKNOWN)
    await adapter.wait_for(1)
    assert adapter.texts == ["good"]


@BOTH
async def test_sending_goes_on_at_the_right_part_after_a_crash(begin: Begin) -> None:
    arrived = asyncio.Event()

    class Slow(RecordingAdapter):
        async def send(self, part: OutgoingPart) -> str:
            receipt = await super().send(part)
            if part.number == 1 and not arrived.is_set():
                arrived.set()
                await asyncio.Event().wait()
            return receipt

    adapter = Slow(FAKE, limit=1)
    world = await begin(adapters=[adapter])
    await world.write(post, "abc", "d")
    async with asyncio.timeout(10):
        await arrived.wait()
    await world.restart()
    world.advance(5)
    await world.delivered(2)
    assert adapter.texts == ["a", "b", f"{REPEAT_MARK}b", "c", "d"]


@pytest.mark.parametrize(
    ("when", "texts"),
    [(FaultTiming.BEFORE, ["a", f"{REPEAT_MARK}a"]), (FaultTiming.AFTER, ["a"])],
    ids=["before", "after"],
)
async def test_a_crash_at_the_record_of_the_last_part_repeats_it_with_a_mark_or_not_at_all(
    world: World, when: FaultTiming, texts: list[str]
) -> None:
    await world.node.stop()
    fault = DatabaseFault("delivery.settle", when, sticky=True)
    await world.start(CrashingDatabase(world.database, fault))
    (first,) = await world.write(post, "a")
    await world.eventually(lambda: fault.hits > 0)
    await world.restart()
    world.advance(5)
    await became(world, first, DeliveryState.SENT)
    assert world.fake.texts == texts


@pytest.mark.parametrize("label", ["delivery.claim", "delivery.part", "delivery.settle"])
@pytest.mark.parametrize("when", list(FaultTiming))
async def test_a_delivery_that_could_not_be_recorded_is_not_held_for_ever(
    world: World, label: str, when: FaultTiming
) -> None:
    await world.node.stop()
    await world.start(
        CrashingDatabase(world.database, DatabaseFault(label, when, nth=2 if "claim" in label else 1))
    )
    first, second = await world.write(post, "a", "b")
    await world.flow(became(world, second, DeliveryState.SENT))
    await became(world, first, DeliveryState.SENT)
    told = [t.removeprefix(REPEAT_MARK) for t in world.fake.texts]
    assert list(dict.fromkeys(told)) == ["a", "b"]
    unmarked = [t for t in world.fake.texts if not t.startswith(REPEAT_MARK)]
    assert len(unmarked) == len(set(unmarked))


@BOTH
async def test_different_targets_are_served_side_by_side(begin: Begin) -> None:
    busy, most = 0, 0

    class Counting(RecordingAdapter):
        async def send(self, part: OutgoingPart) -> str:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0.02)
            busy -= 1
            return await super().send(part)

    adapter = Counting(FAKE)
    world = await begin(adapters=[adapter])
    await world.write(lambda tx: [post(tx, "x", chat=str(n)) for n in range(6)])
    await adapter.wait_for(6)
    assert most > 1


async def test_the_rate_of_a_chat_spaces_its_parts(begin: Begin) -> None:
    adapter = fake(chat_interval=10 * SECOND)
    world = await begin(adapters=[adapter])
    await world.write(post, "a", "b")
    await world.write(post, "c", chat="2")
    await adapter.wait_for(2)
    await asyncio.sleep(0.03)
    assert adapter.texts == ["a", "c"]
    world.advance(9)
    await world.flow(adapter.wait_for(3))
    assert adapter.texts == ["a", "c", "b"]


async def test_the_rate_of_an_account_spaces_all_its_chats(begin: Begin) -> None:
    adapter = fake(account_interval=10 * SECOND)
    world = await begin(adapters=[adapter])
    (first,) = await world.write(post, "a")
    await became(world, first, DeliveryState.SENT)
    (second,) = await world.write(post, "b", chat="2")
    await asyncio.sleep(0.03)
    assert adapter.texts == ["a"]
    world.advance(10)
    await became(world, second, DeliveryState.SENT)
    assert await world.read(platforms.get_next_gate_opening) == world.clock.now() + 10 * SECOND


async def test_each_account_sends_its_own(begin: Begin) -> None:
    one, other = RecordingAdapter("one"), RecordingAdapter("other")
    world = await begin(adapters=[one, other])
    await world.write(post, "a", platform="one")
    await world.write(post, "b", platform="other")
    (nobody,) = await world.write(post, "c", platform="nobody")
    await one.wait_for(1)
    await other.wait_for(1)
    assert (one.texts, other.texts) == (["a"], ["b"])
    assert (await stored(world, nobody)).state is DeliveryState.READY


@BOTH
async def test_a_person_discards_or_repeats_what_failed_and_nothing_else(begin: Begin) -> None:
    world = await begin()
    world.fake.errors_before = [Refused("x"), Refused("y")]
    first, second, third = await world.write(post, "a", "b", "c")
    await became(world, third, DeliveryState.SENT)
    await world.hub.deliveries.decide(OPERATORS, first, DeliveryState.DISCARDED)
    await world.hub.deliveries.decide(OPERATORS, second, DeliveryState.READY)
    assert await world.sent(2) == ["c", "b"]
    await became(world, second, DeliveryState.SENT)
    for wrong in (first, second, third):
        with pytest.raises(Conflict):
            await world.hub.deliveries.decide(OPERATORS, wrong, DeliveryState.READY)
    states = {d.id: d.state for d in await world.hub.deliveries.page(OPERATORS)}
    assert [states[d] for d in (first, second, third)] == ["discarded", "sent", "sent"]


@BOTH
async def test_a_late_sender_cannot_record_a_delivery_that_was_taken_over(begin: Begin) -> None:
    going, go_on = asyncio.Event(), asyncio.Event()

    class Stalled(RecordingAdapter):
        async def send(self, part: OutgoingPart) -> str:
            receipt = await super().send(part)
            if not going.is_set():
                going.set()
                await go_on.wait()
            return receipt

    adapter = Stalled(FAKE)
    world = await begin(adapters=[adapter])
    (first,) = await world.write(post, "a")
    async with asyncio.timeout(10):
        await going.wait()
    (taken,) = await world.at(START_TIME + timedelta(hours=1)).read(deliveries.list_abandoned, workers=[])
    await world.write(
        lambda tx: delivery_units.settle(
            at_time(tx, START_TIME),
            delivery=taken[0],
            lease=taken[1],
            step=delivery_units.SendOutcome(state=DeliveryState.UNKNOWN),
            policy=Policy(),
        )
    )
    go_on.set()
    await asyncio.sleep(0.02)
    assert (await stored(world, first)).state is DeliveryState.UNKNOWN
    assert (await stored(world, first)).receipts == ()


class Freezing(RecordingAdapter):
    """Ends the process with each delivery that says "poison": nothing that is being sent then arrives."""

    def __init__(self) -> None:
        super().__init__(FAKE)
        self.freezes = 0
        self.frozen = False
        self.healed = False

    async def send(self, part: OutgoingPart) -> str:
        if part.text == "poison" and not self.healed:
            self.freezes += 1
            self.frozen = True
        await asyncio.sleep(0.01)
        if self.frozen:
            await asyncio.Event().wait()
        return await super().send(part)


async def end_by_poison(world: World, adapter: Freezing, freezes: int) -> None:
    """Let time pass until the process stands still, and start another one."""

    async def stands_still() -> None:
        await until(lambda: adapter.freezes >= freezes)

    await world.flow(stands_still(), step=0.05)
    await world.crash()
    adapter.frozen = False
    world.advance(world.policy.limits.lease + timedelta(seconds=1))
    await world.start()


@BOTH
async def test_a_delivery_that_ends_its_sender_is_set_aside_and_all_others_are_sent(begin: Begin) -> None:
    adapter = Freezing()
    world = await begin(adapters=[adapter])
    await world.node.stop()
    (poison, behind) = await world.write(post, "poison", "behind")
    others = [(await world.write(post, f"hello {n}", chat=f"c{n}"))[0] for n in range(5)]
    await world.start()
    for freezes in range(1, 5):
        await end_by_poison(world, adapter, freezes)
    dead = await became(world, poison, DeliveryState.DEAD)
    assert dead.error == "4 processes ended while they were sending this"
    for other in (behind, *others):
        await world.flow(became(world, other, DeliveryState.SENT))
    assert sorted(t.removeprefix(REPEAT_MARK) for t in adapter.texts) == [
        "behind",
        *(f"hello {n}" for n in range(5)),
    ]
    assert adapter.freezes == 4


async def test_turns_are_not_blamed_for_a_delivery_that_ends_its_sender(begin: Begin) -> None:
    adapter = Freezing()
    world = await begin(adapters=[adapter], agent=Scenes({"slow": [Pause(), TextDelta("done")]}))
    said = await world.say("slow", chat="2")
    await world.running(said)
    (poison,) = await world.write(post, "poison")
    for freezes in range(1, 5):
        await end_by_poison(world, adapter, freezes)
        await world.running(said)
    await became(world, poison, DeliveryState.DEAD)
    assert (await world.turn(said)).state is TurnState.RUNNING


async def test_a_delivery_that_was_set_aside_can_be_retried_by_a_person(begin: Begin) -> None:
    adapter = Freezing()
    world = await begin(adapters=[adapter])
    (poison,) = await world.write(post, "poison")
    for freezes in range(1, 5):
        await end_by_poison(world, adapter, freezes)
    dead = await became(world, poison, DeliveryState.DEAD)
    await world.write(deliveries.override_state, dead, DeliveryState.READY)
    await world.flow(until(lambda: adapter.freezes == 5))
    assert (await stored(world, poison)).ends == 0


async def test_an_attempt_that_was_recorded_clears_a_delivery_of_suspicion(begin: Begin) -> None:
    adapter = Freezing()
    world = await begin(adapters=[adapter])
    (poison,) = await world.write(post, "poison")
    for freezes in range(1, 4):
        await end_by_poison(world, adapter, freezes)
    assert (await stored(world, poison)).ends == 3
    adapter.healed = True
    adapter.errors_before = [NotSent("the platform is away")]
    failed = await world.flow(tried(world, poison, 4))
    assert (failed.ends, failed.state) == (0, DeliveryState.READY)


def a_delivery(**fields: Any) -> Delivery:
    plain: dict[str, Any] = {
        "id": "d",
        "profile": "default",
        "owner": "operator",
        "session": None,
        "turn": None,
        "target": Target(FAKE, chat="1"),
        "text": "x",
        "state": DeliveryState.SENDING,
        "attempts": 1,
        "created_at": START_TIME,
        "not_before": START_TIME,
    }
    return Delivery(**{**plain, **fields})


def failed(error: SendError, **how: Any) -> delivery_units.SendOutcome:
    fields: dict[str, Any] = {
        "idempotency": Idempotency.NONE,
        "doubt": DoubtPolicy.REPEAT,
        "now": START_TIME,
        "give_up": DAY,
        **how,
    }
    delivery = fields.pop("delivery", a_delivery())
    return delivery_units.judge_failure(
        delivery, error, fields.pop("idempotency"), fields.pop("doubt"), **fields
    )


def test_pauses_grow_up_to_two_minutes() -> None:
    pauses = [
        (step.not_before or START_TIME) - START_TIME
        for n in range(1, 12)
        if (step := failed(NotSent("x"), delivery=a_delivery(attempts=n)))
    ]
    assert pauses[:4] == [SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND]
    assert pauses[-1] == timedelta(minutes=2) and pauses == sorted(pauses)


def test_a_throttle_closes_the_gate_for_as_long_as_the_platform_says() -> None:
    step = failed(Throttled("x", after=90 * SECOND))
    assert (step.state, step.gate_until) == (DeliveryState.READY, START_TIME + 90 * SECOND)


@pytest.mark.parametrize(
    ("idempotency", "doubt", "state", "again"),
    [
        (Idempotency.NATIVE, DoubtPolicy.REPEAT, DeliveryState.READY, False),
        (Idempotency.NATIVE, DoubtPolicy.HOLD, DeliveryState.READY, False),
        (Idempotency.NONE, DoubtPolicy.REPEAT, DeliveryState.READY, True),
        (Idempotency.NONE, DoubtPolicy.HOLD, DeliveryState.UNKNOWN, False),
    ],
)
def test_what_doubt_leads_to(
    idempotency: Idempotency, doubt: DoubtPolicy, state: DeliveryState, again: bool
) -> None:
    step = failed(LOST, idempotency=idempotency, doubt=doubt)
    assert (step.state, step.again) == (state, again)


async def test_a_node_that_stops_lets_a_delivery_on_its_way_arrive(begin: Begin) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    class Slow(RecordingAdapter):
        async def send(self, part: OutgoingPart) -> str:
            reached.set()
            await go_on.wait()
            return await super().send(part)

    adapter = Slow(FAKE)
    world = await begin(adapters=[adapter])
    (delivery,) = await world.write(post, "hello")
    await reached.wait()
    stopping = asyncio.create_task(world.node.stop())
    await asyncio.sleep(0.05)
    go_on.set()
    await stopping
    assert (await stored(world, delivery)).state is DeliveryState.SENT
    assert adapter.texts == ["hello"]
