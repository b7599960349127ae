"""Faults at every labelled unit of work of an exchange: at the end each message is answered once, in order."""

import asyncio

import pytest
from tests.engine.conftest import Begin
from tests.engine.world import OPERATORS, World, inbound

from keryx.core.deliveries import REPEAT_MARK, DeliveryState
from keryx.core.errors import Retryable, Unavailable
from keryx.core.messages import Mark, Role
from keryx.core.ports.adapter import InboundMessage, Receipt
from keryx.store.db import Database
from keryx.testing import CrashingDatabase, DatabaseFault, FaultTiming

TEXTS = ("one", "!tool grep x", "three")
STEP = "Calling grep. "
ANSWERS = ("one", STEP, "grep was given x", "three")

# What one exchange writes, and what each part of the engine reads for it.
WRITES = ("receive", "turn.claim", "turn.progress", "turn.finish", "delivery.claim", "delivery.settle")
READS = ("turn.read", "feed.after", "leases.abandoned", "leases.sending", "head")


async def take_in(world: World, message: InboundMessage) -> Receipt:
    """As a platform does: what was not acknowledged comes again."""
    async with asyncio.timeout(15):
        while True:
            try:
                return await world.hub.receive(message)
            except Retryable:
                await asyncio.sleep(0)


async def converse(world: World) -> list[Receipt]:
    """Every message is given twice, as platforms do."""
    given = [inbound(text) for text in TEXTS]
    receipts = [await take_in(world, message) for message in given]
    again = [await take_in(world, message) for message in given]
    assert [r.turn for r in again] == [r.turn for r in receipts] and all(r.duplicate for r in again)
    return receipts


async def check(world: World, receipts: list[Receipt]) -> None:
    """What the person sees: each answer once, in order; a repetition only with its mark."""
    for receipt in receipts:
        await world.flow(world.settle(receipt))
    await world.flow(world.delivered(len(ANSWERS)))
    await world.flow(world.until(lambda tx: not tx.row("select 1 from deliveries where state <> 'sent'")))
    deliveries = (await world.hub.deliveries.page(OPERATORS))[::-1]
    assert [d.text for d in deliveries] == list(ANSWERS)
    assert {d.state for d in deliveries} == {DeliveryState.SENT}
    shown = [t.removeprefix(REPEAT_MARK) for t in world.fake.texts]
    assert list(dict.fromkeys(shown)) == list(ANSWERS)
    unmarked = [t for t in world.fake.texts if not t.startswith(REPEAT_MARK)]
    assert len(unmarked) == len(set(unmarked))
    entries = (await world.open(receipts[0].session)).messages
    assert [m.text for m in entries if m.role is Role.USER] == list(TEXTS)
    final = {m.turn: m.text for m in entries if m.role is Role.ASSISTANT and m.mark is None}
    assert list(final.values()) == ["one", "grep was given x", "three"]
    assert not [m for m in entries if m.mark is Mark.LATE]


async def test_the_labels_below_are_those_of_an_exchange(begin: Begin, database: Database) -> None:
    watched = CrashingDatabase(database)
    world = await begin(database=watched)
    await check(world, await converse(world))
    missing = set(WRITES) - set(watched.labels)
    unknown = {x for x in watched.labels if x.startswith(("turn.", "delivery.", "receive"))} - set(WRITES)
    assert (missing, unknown - {"delivery.part", "turn.steer"}) == (set(), set())


@pytest.mark.parametrize("when", list(FaultTiming))
@pytest.mark.parametrize("label", WRITES)
async def test_a_fault_at_a_write_loses_and_doubles_nothing(
    begin: Begin, database: Database, label: str, when: FaultTiming
) -> None:
    # The first claim of a node finds nothing; the second is for the first message.
    fault = DatabaseFault(label, when, nth=2 if label.endswith("claim") else 1)
    world = await begin(database=CrashingDatabase(database, fault))
    await check(world, await converse(world))


@pytest.mark.parametrize("when", list(FaultTiming))
@pytest.mark.parametrize("label", [w for w in WRITES if w != "receive"])
async def test_a_store_that_is_away_for_a_while_loses_and_doubles_nothing(
    begin: Begin, database: Database, label: str, when: FaultTiming
) -> None:
    fault = DatabaseFault(label, when, sticky=True)
    world = await begin(database=CrashingDatabase(database, fault))
    receipts = await converse(world)
    await world.flow(world.eventually(lambda: fault.hits >= 2), step=0.5)
    fault.clear()
    await check(world, receipts)


@pytest.mark.parametrize("label", READS)
async def test_a_store_that_cannot_be_read_for_a_while_ends_nothing(
    begin: Begin, database: Database, label: str
) -> None:
    fault = DatabaseFault(label, FaultTiming.BEFORE, nth=2)
    world = await begin(database=CrashingDatabase(database, fault))
    await check(world, await converse(world))


@pytest.mark.parametrize("when", list(FaultTiming))
@pytest.mark.parametrize(
    "label", ["turn.claim", "turn.progress", "turn.finish", "delivery.claim", "delivery.settle"]
)
async def test_a_process_that_dies_at_a_write_loses_and_doubles_nothing(
    begin: Begin, database: Database, label: str, when: FaultTiming
) -> None:
    """The process dies at the second such write, or at the first if there is but one."""
    world = await begin(database=database)
    await world.node.stop()
    struck = asyncio.Event()

    def strike(_: str) -> None:
        world.node.die()
        struck.set()
        raise Unavailable("dead")

    receipts = await converse(world)
    fault = DatabaseFault(label, when, nth=2, strike=strike)
    await world.start(CrashingDatabase(database, fault))
    async with asyncio.timeout(15):
        await struck.wait()
    await world.restart()
    await check(world, receipts)
