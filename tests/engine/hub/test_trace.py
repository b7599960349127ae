"""The trace of a message: everything that happened to it, and how it ended."""

from tests.engine.conftest import Begin
from tests.engine.world import OPERATORS, Pause, Scenes, World, viewer

from keryx.core.errors import Refused
from keryx.core.ports.agent import TextDelta
from keryx.core.turns import BusyMode


async def test_the_trace_of_an_answered_message(world: World) -> None:
    turn = await world.ask("hello")
    await world.delivered(1)
    story = await world.hub.trace(viewer("ann"), f"{turn.session}.1")
    told = [e.what for e in story.events]
    assert story.outcome == f"answered in turn {turn.id}"
    for words in (
        "received via gateway from ann",
        "led here: first message",
        "queued as turn",
        "attempt 1 began",
    ):
        assert any(words in t for t in told), words
    assert any("sent after 1 attempts, 1 parts as fake-0" in t for t in told)
    assert [e.at for e in story.events] == sorted(e.at for e in story.events)


async def test_every_way_to_end_is_a_visible_outcome(begin: Begin) -> None:
    world = await begin()
    failed = await world.ask("!fail x")
    observed = await world.say("talk", observed=True)
    said = await world.say("!wait 9")
    await world.drafted(said, "Waiting. ")
    merged = await world.say("hint", busy=BusyMode.STEER)
    dropped = await world.say("later")
    assert dropped.turn
    await world.hub.drop(OPERATORS, dropped.turn)
    await world.flow(world.settle(said))

    async def outcome(seq: int | None) -> str:
        return (await world.hub.trace(OPERATORS, f"{failed.session}.{seq}")).outcome

    assert (await outcome(1)).startswith("failed") and "observed" in await outcome(observed.seq)
    assert (await outcome(merged.seq)) == f"answered in turn {said.turn}"
    assert (await outcome(dropped.seq)).startswith("cancelled")
    await world.hub.undo(OPERATORS, failed.session)
    assert "undone" in {await outcome(n) for n in range(1, 9)}


async def test_the_trace_tells_of_interruptions_and_refusals(begin: Begin) -> None:
    pause = Pause()
    world = await begin(agent=Scenes({"hold": [TextDelta("x"), pause]}))
    said = await world.say("hold")
    await world.drafted(said, "x")
    await world.restart()
    pause.go_on()
    world.fake.errors_before = [Refused("the chat is gone")]
    turn = await world.settle(said)
    await world.until(lambda tx: bool(tx.rows("select 1 from deliveries where state = 'failed'")))
    told = " ".join(e.what for e in (await world.hub.trace(OPERATORS, f"{turn.session}.1")).events)
    assert "interrupted" in told and "the chat is gone" in told and "attempt 2 began" in told
