"""A clock that is set back or forward loses nothing, doubles nothing and stops nothing."""

import asyncio
from datetime import timedelta

from tests.engine.conftest import Begin
from tests.engine.world import Pause, Scenes, World

from keryx.core.errors import Throttled
from keryx.core.ports.agent import TextDelta
from keryx.core.turns import TurnState
from keryx.store import platforms
from keryx.testing import FakeClock


async def test_a_throttled_chat_does_not_wait_a_day_when_the_clock_goes_back_a_day(
    world: World, clock: FakeClock
) -> None:
    world.fake.errors_before.append(Throttled("slow down", after=timedelta(seconds=30)))
    await world.ask("hello")
    await world.until(lambda tx: platforms.get_next_gate_opening(tx) is not None)
    clock.jump(timedelta(days=-1))
    await world.flow(world.fake.wait_for(1), step=5)
    assert world.fake.texts == ["hello"]


async def test_a_running_turn_survives_a_jump_of_hours(begin: Begin, clock: FakeClock) -> None:
    pause = Pause()
    world = await begin(agent=Scenes({"wait": [TextDelta("still "), pause, TextDelta("here")]}))
    receipt = await world.say("wait")
    await pause.reached()
    clock.jump(timedelta(hours=5))
    world.advance(6)
    await asyncio.sleep(0.05)
    pause.go_on()
    turn = await world.settle(receipt)
    assert (turn.state, turn.attempts) == (TurnState.DONE, 1)
    assert await world.sent() == ["still here"]


async def test_messages_keep_their_order_when_the_clock_goes_back(world: World, clock: FakeClock) -> None:
    await world.ask("one")
    clock.jump(timedelta(hours=-3))
    receipt = await world.say("two")
    await world.settle(receipt)
    assert [line.split()[-1] for line in await world.transcript(receipt.session)] == [
        "one",
        "one",
        "two",
        "two",
    ]
