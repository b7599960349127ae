"""What happens by itself: expiry with its hooks, housekeeping, the story of a message, and the service around it."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import msgspec
import pytest
from tests.conftest import Open
from tests.engine.conftest import Begin
from tests.engine.witness import Witness
from tests.engine.world import FAKE, OPERATORS, Pause, Scenes, World, inbound, viewer

from keryx.core.deliveries import DeliveryState
from keryx.core.errors import NotFound, Refused
from keryx.core.ports.adapter import AdapterContext
from keryx.core.ports.agent import TextDelta
from keryx.core.resets import ResetMode, ResetPolicies, ResetPolicy
from keryx.core.sessions import EndReason, Session, SessionFilter
from keryx.core.turns import BusyMode, TurnLimits
from keryx.engine.hub.hub import Hub
from keryx.engine.loops.feed import Feed
from keryx.engine.loops.sweeps import ExpirySweep, RetentionSweep
from keryx.engine.policy import Policy
from keryx.store.db.notify import Notifier
from keryx.testing import CrashingDatabase, DatabaseFault, FaultTiming, RecordingAdapter

HOUR = timedelta(hours=1)
IDLE = Policy(resets=ResetPolicies(default=ResetPolicy(mode=ResetMode.IDLE, idle=HOUR)))


class Hooks:
    """A hook that notes what it was called with, and fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.calls: list[tuple[str, str]] = []
        self._failures = failures

    async def __call__(self, session: Session, reason: str) -> None:
        self.calls.append((session.id, reason))
        if len(self.calls) <= self._failures:
            raise RuntimeError("the hook failed")


def expiry(world: World, hook: Hooks) -> ExpirySweep:
    return ExpirySweep(world.database, world.clock, policy=world.policy, hooks=[hook])


async def test_a_session_is_finalised_once_when_its_time_is_over(begin: Begin) -> None:
    hook = Hooks()
    world = await begin(policy=IDLE)
    await world.node.stop()
    said = await world.say("a")
    sweeping = expiry(world, hook)
    await sweeping.sweep()
    assert hook.calls == []
    world.advance(HOUR + timedelta(seconds=1))
    for _ in range(3):
        await sweeping.sweep()
    assert hook.calls == [(said.session, "idle")]
    assert (await world.open(said.session)).session.end_reason is EndReason.IDLE


async def test_a_session_that_was_finalised_is_not_finalised_again_by_a_new_one(begin: Begin) -> None:
    hook = Hooks()
    world = await begin(policy=IDLE)
    await world.node.stop()
    said = await world.say("a")
    world.advance(2 * HOUR)
    await expiry(world, hook).sweep()
    await world.command("/new")
    await expiry(world, hook).sweep()
    assert hook.calls == [(said.session, "idle")]
    assert (await world.open(said.session)).session.end_reason is EndReason.IDLE


async def test_a_hook_that_fails_is_tried_again_a_few_times_and_over_restarts(begin: Begin) -> None:
    hook = Hooks(failures=99)
    world = await begin(policy=msgspec.structs.replace(IDLE, final_tries=3))
    await world.node.stop()
    await world.say("a")
    world.advance(2 * HOUR)
    for _ in range(6):
        await expiry(world, hook).sweep()
        world.advance(timedelta(minutes=6))
    assert len(hook.calls) == 3


async def test_a_hook_that_recovers_has_done_its_work(begin: Begin) -> None:
    hook = Hooks(failures=1)
    world = await begin(policy=IDLE)
    await world.node.stop()
    await world.say("a")
    world.advance(2 * HOUR)
    for _ in range(5):
        await expiry(world, hook).sweep()
        world.advance(timedelta(minutes=6))
    assert len(hook.calls) == 2


async def test_two_nodes_finalise_a_session_once(begin: Begin) -> None:
    hook = Hooks()
    world = await begin(policy=IDLE)
    await world.node.stop()
    for n in range(5):
        await world.say("a", chat=str(n))
    world.advance(2 * HOUR)
    await asyncio.gather(*(expiry(world, hook).sweep() for _ in range(3)))
    assert len(hook.calls) == len(set(hook.calls)) == 5


async def test_a_session_at_work_is_not_ended(begin: Begin) -> None:
    hook = Hooks()
    patient = msgspec.structs.replace(IDLE, limits=TurnLimits(silence=9 * HOUR, total=9 * HOUR))
    world = await begin(policy=patient, agent=Scenes({"hold": [TextDelta("x"), Pause()]}), hooks=[hook])
    said = await world.say("hold")
    await world.drafted(said, "x")
    world.advance(HOUR + timedelta(minutes=5))
    await expiry(world, hook).sweep()
    assert hook.calls == [] and said.session
    await world.hub.stop(OPERATORS, said.session)
    await world.settle(said)
    world.advance(timedelta(hours=25))
    await world.flow(world.eventually(lambda: hook.calls == [(said.session, "idle")]), step=60)


async def test_the_service_sweeps_by_itself(begin: Begin) -> None:
    hook = Hooks()
    world = await begin(policy=IDLE, hooks=[hook])
    await world.ask("a")
    world.advance(2 * HOUR)
    await world.flow(world.eventually(lambda: len(hook.calls) == 1), step=60)


async def test_a_deleted_session_is_erased_after_its_grace_period(world: World) -> None:
    turn = await world.ask("a")
    await world.hub.delete(OPERATORS, turn.session)
    await world.node.stop()
    keeping = RetentionSweep(world.database, world.clock, policy=world.policy)
    world.advance(timedelta(days=29))
    await keeping.sweep()
    await world.hub.undelete(OPERATORS, turn.session)
    await world.hub.delete(OPERATORS, turn.session)
    world.advance(timedelta(days=30, seconds=1))
    await keeping.sweep()
    with pytest.raises(NotFound):
        await world.hub.undelete(OPERATORS, turn.session)


async def test_what_may_be_forgotten_is_forgotten_and_sessions_stay(world: World) -> None:
    message = inbound("a")
    receipt = await world.hub.receive(message)
    await world.settle(receipt)
    await world.node.stop()
    world.advance(timedelta(days=91))
    await RetentionSweep(world.database, world.clock, policy=world.policy).sweep()
    assert await world.hub.lanes.page(OPERATORS) == []
    assert not (await world.hub.receive(message)).duplicate
    assert len((await world.hub.list_sessions(OPERATORS, SessionFilter()))[0]) == 2


async def test_the_story_of_an_answered_message(world: World) -> None:
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


async def test_the_story_tells_of_interruptions_and_refusals(begin: Begin) -> None:
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


async def test_an_adapter_that_fails_is_started_again_where_it_was(begin: Begin) -> None:
    began: list[str | None] = []

    class Failing(RecordingAdapter):
        async def listen(self, context: AdapterContext) -> None:
            began.append(context.cursor)
            number = len(began)
            await context.receive(inbound(f"m{number}", cursor=str(number)))
            match number:
                case 1:
                    raise RuntimeError("lost the connection")
                case 2:
                    raise asyncio.CancelledError
                case 3:
                    return
                case _:
                    await asyncio.Event().wait()

    other = RecordingAdapter("other")
    world = await begin(adapters=[adapter := Failing(FAKE), other])
    await world.flow(world.eventually(lambda: len(adapter.sent_parts) == 4), step=0.5)
    assert began == [None, "1", "2", "3"]
    assert adapter.texts == ["m1", "m2", "m3", "m4"]


async def test_the_pause_before_an_adapter_is_started_again_grows(begin: Begin) -> None:
    began: list[float] = []

    class Failing(RecordingAdapter):
        async def listen(self, context: AdapterContext) -> None:
            began.append(world.clock.monotonic() if ready else 0.0)
            raise RuntimeError("no network")

    ready = False
    world = await begin(adapters=[Failing(FAKE)])
    ready = True
    await world.flow(world.eventually(lambda: len(began) == 5), step=0.5)
    gaps = [b - a for a, b in pairwise(began)]
    assert all(gap >= 2**n for n, gap in enumerate(gaps))


async def test_an_event_is_acknowledged_only_when_it_is_stored(begin: Begin) -> None:
    world = await begin()
    await world.node.stop()
    await world.start(CrashingDatabase(world.database, DatabaseFault("receive", FaultTiming.BEFORE)))
    message = inbound("a", cursor="1")
    with pytest.raises(Exception, match="fault"):
        await world.hub.receive(message)
    assert await world.hub.platform_cursor(f"{FAKE}:") is None
    receipt = await world.hub.receive(message)
    assert not receipt.duplicate and await world.hub.platform_cursor(f"{FAKE}:") == "1"


async def test_what_waits_is_shown_in_the_snapshot(begin: Begin) -> None:
    world = await begin(adapters=[])
    turn = await world.ask("a")
    (delivery,) = (await world.open(turn.session)).deliveries
    assert (delivery.state, delivery.text) == (DeliveryState.READY, "a")


async def test_a_message_whose_wake_up_was_lost_is_answered_within_a_lease(
    begin: Begin, opener: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that took it in was killed after its commit, before it had told anybody."""
    world = await begin()
    await world.node.stop()
    witness = Witness(world.database)
    await world.start(witness)
    there = await opener()
    monkeypatch.setattr(Notifier, "notify", Notifier.close)
    hub = Hub(there, policy=world.policy, feed=Feed(there, world.clock))
    await witness.quiet()
    await hub.receive(inbound("are you there?"))
    monkeypatch.undo()
    await witness.quiet()
    assert world.fake.texts == []
    world.advance(world.policy.limits.lease)
    assert await world.sent() == ["are you there?"]
