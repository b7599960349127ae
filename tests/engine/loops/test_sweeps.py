"""Periodic sweeps: expiry with its hooks, and retention; and the service around them."""

import asyncio
from datetime import timedelta

import msgspec
import pytest
from tests.conftest import Open
from tests.engine.conftest import Begin
from tests.engine.support.fault_recorder import FaultRecorder
from tests.engine.world import AT_ONCE, FAKE, OPERATORS, Pause, Scenes, World, inbound

from keryx.core.deliveries import DeliveryState
from keryx.core.errors import NotFound
from keryx.core.ports.agent import TextDelta
from keryx.core.resets import ResetMode, ResetPolicies, ResetPolicy
from keryx.core.sessions import EndReason, PruneRule, Session, SessionChange, SessionFilter
from keryx.core.turns import TurnLimits
from keryx.engine.hub import Hub
from keryx.engine.loops.feed import Feed
from keryx.engine.loops.sweeps import ExpirySweep, RetentionSweep
from keryx.engine.policy import Policy, Retention
from keryx.engine.units import control
from keryx.store import sessions, turns
from keryx.store.db.notify import Notifier
from keryx.testing import CrashingDatabase, DatabaseFault, FaultTiming

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
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
    return ExpirySweep(world.database, world.clock, policy=world.policy, hooks={"hook": hook})


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


async def test_only_the_hook_that_failed_is_tried_again(begin: Begin) -> None:
    good, bad = Hooks(), Hooks(failures=1)
    world = await begin(policy=IDLE, hooks={"good": good, "bad": bad})
    await world.ask("a")
    world.advance(timedelta(hours=2))
    await world.flow(world.eventually(lambda: len(bad.calls) == 2), step=60)
    assert len(good.calls) == 1


async def test_the_agent_is_asked_once_at_the_end_and_the_chat_sees_nothing(begin: Begin) -> None:
    policy = msgspec.structs.replace(IDLE, end_prompt="Save what is worth remembering.")
    world = await begin(policy=policy)
    asked = await world.ask("a")
    world.advance(timedelta(hours=2))
    for _ in range(2):
        await asyncio.gather(*(expiry(world, Hooks()).sweep() for _ in range(3)))
    await world.until(lambda tx: not turns.has_open(tx, asked.session))
    await world.restart()
    await expiry(world, Hooks()).sweep()
    assert await world.transcript(asked.session) == [
        "user: a",
        "assistant: a",
        "user: Save what is worth remembering.",
        "assistant: Save what is worth remembering.",
    ]
    assert await world.sent() == ["a"]
    assert (await world.read(sessions.get, asked.session)).ended_at is not None
    assert (await world.ask("b")).session != asked.session


async def test_a_prompt_at_the_end_survives_a_crash(begin: Begin) -> None:
    pause = Pause()
    policy = msgspec.structs.replace(IDLE, end_prompt="save this")
    world = await begin(policy=policy, agent=Scenes({"save": [pause, TextDelta("saved")]}))
    asked = await world.ask("a")
    world.advance(timedelta(hours=2))
    await expiry(world, Hooks()).sweep()
    await pause.reached()
    assert (await world.ask("b")).session != asked.session, "a new message does not wait for it"
    await world.crash()
    pause.go_on()
    world.advance(60)
    await world.start()
    await world.until(lambda tx: not turns.has_open(tx, asked.session))
    assert (await world.transcript(asked.session))[2:] == ["user: save this", "assistant: saved"]


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
    world = await begin(
        policy=patient, agent=Scenes({"hold": [TextDelta("x"), Pause()]}), hooks={"hook": hook}
    )
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
    world = await begin(policy=IDLE, hooks={"hook": hook})
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


async def test_old_sessions_are_archived_and_deleted_by_the_rules_of_keep(begin: Begin) -> None:
    keep = Retention(archive={"*": 30 * DAY}, sessions={"web": 30 * DAY})
    world = await begin(policy=msgspec.structs.replace(AT_ONCE, keep=keep))
    kept, pinned, gone = [
        (await world.ask(text, chat=chat, surface=surface)).session
        for text, chat, surface in (("a", "1", "gateway"), ("b", "2", "web"), ("c", "3", "web"))
    ]
    await world.hub.change(OPERATORS, pinned, SessionChange(pinned=True))
    world.advance(31 * DAY)
    new = (await world.ask("d", chat="4", surface="web")).session
    await world.node.stop()
    await RetentionSweep(world.database, world.clock, policy=world.policy).sweep()
    listed, _ = await world.hub.list_sessions(OPERATORS, SessionFilter())
    assert [entry.session.id for entry in listed] == [pinned, new]
    assert (await world.hub.session(OPERATORS, kept)).archived
    with pytest.raises(NotFound):
        await world.hub.session(OPERATORS, gone)


async def test_a_session_that_is_used_after_a_sweep_has_listed_it_stays(begin: Begin) -> None:
    world = await begin()
    used = (await world.ask("a", chat="1")).session
    rule = PruneRule(before=world.clock.now() + timedelta(seconds=1), delete=True)
    world.advance(2)
    await world.ask("still here", chat="1")
    assert not await world.write(control.prune, used, rule, grace=DAY)
    await world.hub.change(OPERATORS, used, SessionChange(pinned=True))
    later = msgspec.structs.replace(rule, before=world.clock.now() + DAY)
    assert not await world.write(control.prune, used, later, grace=DAY)
    await world.hub.change(OPERATORS, used, SessionChange(pinned=False))
    assert await world.write(control.prune, used, later, grace=DAY)


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
    recorder = FaultRecorder(world.database)
    await world.start(recorder)
    there = await opener()
    monkeypatch.setattr(Notifier, "notify", Notifier.close)
    hub = Hub(there, policy=world.policy, feed=Feed(there, world.clock))
    await recorder.quiet()
    await hub.receive(inbound("are you there?"))
    monkeypatch.undo()
    await recorder.quiet()
    assert world.fake.texts == []
    world.advance(world.policy.limits.lease)
    assert await world.sent() == ["are you there?"]
