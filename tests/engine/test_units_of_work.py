"""The number of units of work of an exchange, and that no wake-up is missed with so few."""

import asyncio
from typing import TypeVar

import msgspec
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, FAKE, SECONDS, Pause, Scenes

from keryx.core.deliveries import Target
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR
from keryx.core.ports.adapter import OutgoingPart
from keryx.core.ports.agent import TextDelta
from keryx.core.sessions import Viewer
from keryx.core.turns import TurnState
from keryx.store import deliveries
from keryx.store.db import Database, DatabaseWrapper, Transaction, Work
from keryx.store.db.metrics import MeteredDatabase
from keryx.testing import RecordingAdapter

T = TypeVar("T")


class Slow(DatabaseWrapper):
    """A database whose answers to one kind of unit come late, once the test says so."""

    def __init__(self, inner: Database, label: str) -> None:
        super().__init__(inner)
        self._label = label
        self._slow = False
        self._reached, self._open = asyncio.Event(), asyncio.Event()

    def hold(self) -> None:
        self._slow = True

    async def held(self) -> None:
        async with asyncio.timeout(SECONDS):
            await self._reached.wait()

    def let_go(self) -> None:
        self._open.set()

    async def write(self, label: str, work: Work[T], *, key: str = "") -> T:
        answer = await self._inner.write(label, work, key=key)
        if self._slow and label == self._label:
            self._reached.set()
            await self._open.wait()
        return answer


class Patient(RecordingAdapter):
    """Sends nothing before it may."""

    def __init__(self) -> None:
        super().__init__(FAKE)
        self.may = asyncio.Event()
        self.begun = asyncio.Event()

    async def send(self, part: OutgoingPart) -> str:
        self.begun.set()
        await self.may.wait()
        return await super().send(part)


async def test_an_exchange_takes_six_units_of_work_however_many_platforms_there_are(
    begin: Begin, database: Database
) -> None:
    metered = MeteredDatabase(database)
    others = [RecordingAdapter("another"), RecordingAdapter("third")]
    world = await begin(database=metered, adapters=[RecordingAdapter(FAKE), *others])

    async def exchange(number: int) -> None:
        await world.ask("hello")
        await world.delivered(number)
        # A unit is counted after others see what it wrote.
        await world.eventually(lambda: metered.meters["delivery.settle"].units == number)

    await exchange(1)
    before = {label: meter.units for label, meter in metered.meters.items()}
    for number in range(2, 7):
        await exchange(number)
    asked = {
        label: units
        for label, meter in metered.meters.items()
        if label.startswith(("receive", "turn", "deliver")) and (units := meter.units - before.get(label, 0))
    }
    assert asked == dict.fromkeys(
        ("receive", "turn.claim", "turn.read", "turn.finish", "delivery.claim", "delivery.settle"), 5
    )


async def test_a_turn_that_ends_while_the_next_is_looked_for_lets_it_run(
    begin: Begin, database: Database
) -> None:
    slow, pause = Slow(database, "turn.claim"), Pause()
    policy = msgspec.structs.replace(AT_ONCE, limits=msgspec.structs.replace(AT_ONCE.limits, per_principal=1))
    world = await begin(agent=Scenes({"first": (pause, TextDelta("one"))}), database=slow, policy=policy)
    first = await world.say("first")
    await pause.reached()
    slow.hold()
    second = await world.say("second", chat="2")
    await slow.held()
    pause.go_on()
    await world.settle(first)
    await world.sent(1)
    slow.let_go()
    assert (await world.settle(second)).state is TurnState.DONE


async def test_a_delivery_that_ends_while_the_next_is_looked_for_lets_it_go(
    begin: Begin, database: Database
) -> None:
    slow, adapter = Slow(database, "delivery.claim"), Patient()
    world = await begin(adapters=[adapter], database=slow)

    def post(tx: Transaction, text: str) -> None:
        deliveries.enqueue(tx, Target(FAKE, chat="1"), text, of=Viewer(DEFAULT_PROFILE, OPERATOR))

    await world.write(post, "a")
    async with asyncio.timeout(SECONDS):
        await adapter.begun.wait()
    slow.hold()
    await world.write(post, "b")
    await slow.held()
    adapter.may.set()
    await world.delivered(1)
    slow.let_go()
    await world.delivered(2)
    assert adapter.texts == ["a", "b"]
