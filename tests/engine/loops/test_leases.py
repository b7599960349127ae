"""What is left after a crash, a lost lease, or the end of a process."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import Open
from tests.engine.conftest import Begin
from tests.engine.world import OPERATORS, Pause, Scenes, World, inbound

from keryx.core.messages import INTERRUPTED_OUTPUT, Mark, Message, Role, ToolCall, ToolResult
from keryx.core.ports.adapter import InboundMessage, Receipt
from keryx.core.ports.agent import TextDelta, ToolCallEvent, ToolResultEvent, TurnContext
from keryx.core.turns import BusyMode, TurnLimits, TurnState
from keryx.engine.loops.leases import Leases
from keryx.engine.policy import Policy
from keryx.engine.units import workers as worker_units
from keryx.engine.units.workers import ActiveWork
from keryx.store import lanes, messages, turns, workers
from keryx.store.db import Transaction
from keryx.store.workers import Worker
from keryx.testing import CrashingDatabase, DatabaseFault, FakeClock, FaultTiming, ScriptedAgent

LEASE = timedelta(seconds=15)
LONGER = LEASE + timedelta(seconds=1)


def another_worker(world: World) -> Leases:
    """The heartbeat and sweep of a process that runs nothing itself."""
    me = worker_units.build_worker("other", now=world.clock.now())
    return Leases(
        world.database,
        world.clock,
        me=me,
        policy=world.policy,
        idempotency={},
        list_active=lambda: ActiveWork(frozenset(), frozenset()),
        look_again=lambda: None,
    )


async def test_a_message_survives_a_crash_before_its_turn_began(world: World) -> None:
    await world.node.stop()
    said = await world.say("hello")
    await world.start()
    turn = await world.settle(said)
    assert (turn.state, turn.attempts) == (TurnState.DONE, 1)
    assert await world.sent() == ["hello"]


async def test_a_crash_in_mid_answer_keeps_the_question_and_the_partial_and_runs_again(begin: Begin) -> None:
    agent = ScriptedAgent([TextDelta("half "), Pause()], [TextDelta("whole")])
    world = await begin(agent=agent)
    said = await world.say("a")
    await world.drafted(said, "half ")
    await world.restart()
    turn = await world.settle(said)
    assert (turn.state, turn.attempts) == (TurnState.DONE, 2)
    assert await world.transcript(said.session) == [
        "user: a",
        "assistant: half  [interrupted]",
        "assistant: whole",
    ]
    assert await world.sent() == ["whole"]


async def test_the_second_attempt_is_told_what_the_first_had_recorded(begin: Begin) -> None:
    agent = ScriptedAgent([TextDelta("half "), Pause()], [TextDelta("whole")], [TextDelta("next")])
    world = await begin(agent=agent)
    said = await world.say("a")
    await world.drafted(said, "half ")
    await world.restart()
    await world.settle(said)
    await world.ask("b")
    second = agent.contexts[1]
    assert (second.attempt, [m.text for m in agent.histories[1]]) == (2, ["a", "half "])
    assert [m.text for m in agent.histories[2]] == ["a", "whole", "b"]


async def test_a_tool_that_was_running_is_shown_as_interrupted_and_not_run_again(begin: Begin) -> None:
    call = ToolCall("c1", "pay", "{}")
    agent = ScriptedAgent(
        [ToolCallEvent((call,)), Pause()], [TextDelta("I do not know whether it was paid.")]
    )
    world = await begin(agent=agent)
    said = await world.say("pay")
    await world.until(lambda tx: len(entries(tx, said)) == 2)
    await world.restart()
    await world.settle(said)
    history = agent.histories[1]
    assert [m.role for m in history] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    assert history[2].parts == (ToolResult("c1", "pay", INTERRUPTED_OUTPUT, failed=True),)
    assert (await world.transcript(said.session))[1:] == [
        "assistant: <pay>",
        "assistant: I do not know whether it was paid.",
    ]


def entries(tx: Transaction, said: Receipt) -> list[Message]:
    assert said.session
    return messages.list_after(tx, said.session, after=0)


async def test_a_tool_that_had_answered_keeps_its_answer_over_a_crash(begin: Begin) -> None:
    call = ToolCall("c1", "pay", "{}")
    pause = Pause()
    done = ToolResultEvent(ToolResult("c1", "pay", "paid"))
    agent = ScriptedAgent([ToolCallEvent((call,)), done, pause], [TextDelta("It is paid.")])
    world = await begin(agent=agent)
    said = await world.say("pay")
    await pause.reached()
    await world.restart()
    await world.settle(said)
    assert agent.histories[1][2].parts == (ToolResult("c1", "pay", "paid"),)
    assert await world.sent() == ["It is paid."]


async def test_a_message_that_kills_the_process_is_set_aside_after_three_tries(begin: Begin) -> None:
    world = await begin(agent=Scenes({"kill": [TextDelta("x"), Pause()]}))
    said = await world.say("kill")
    behind = await world.say("waiting")
    for _ in range(3):
        await world.drafted(said, "x")
        await world.restart()
    turn = await world.settle(said)
    assert (turn.state, turn.attempts) == (TurnState.PARKED, 3)
    assert (await world.settle(behind)).state is TurnState.DONE
    texts = await world.sent(2)
    assert "tried 3 times" in texts[0] and texts[1] == "waiting"
    (lane,) = await world.hub.lanes.page(OPERATORS)
    assert lane.suspended


def steps(count: int) -> list[list[Any]]:
    """Tries of which each gets one tool step further, then hangs."""
    calls = [ToolCall(f"c{n}", "grep", "{}") for n in range(count)]
    return [
        [ToolCallEvent((c,)), ToolResultEvent(ToolResult(c.id, "grep", "found")), TextDelta("x"), Pause()]
        for c in calls
    ]


async def test_a_turn_that_gets_further_each_time_is_not_set_aside_for_deaths_of_others(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent(*steps(5), [TextDelta("done")]))
    said = await world.say("work")
    for _ in range(5):
        await world.drafted(said, "x")
        await world.restart()
    turn = await world.settle(said)
    assert (turn.state, turn.attempts, turn.blame) == (TurnState.DONE, 6, 0)


async def test_a_turn_that_stops_getting_further_is_set_aside_after_two_more_deaths(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent(*steps(3), [TextDelta("x"), Pause()]))
    said = await world.say("work")
    for _ in range(5):
        await world.drafted(said, "x")
        await world.restart()
    turn = await world.settle(said)
    assert (turn.state, turn.attempts) == (TurnState.PARKED, 5)


async def test_a_turn_that_calls_a_tool_and_kills_is_set_aside_after_twelve_tries(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent(*steps(13)))
    said = await world.say("work")
    for _ in range(12):
        await world.drafted(said, "x")
        await world.restart()
    turn = await world.settle(said)
    assert (turn.state, turn.attempts) == (TurnState.PARKED, 12)


async def test_the_last_try_waits_until_the_node_has_settled(begin: Begin) -> None:
    world = await begin(agent=Scenes({"kill": [TextDelta("x"), Pause()]}), policy=Policy())
    said = await world.say("kill")
    for _ in range(2):
        await world.drafted(said, "x")
        await world.restart()
    assert (await world.ask("others go on", chat="2")).state is TurnState.DONE
    assert (await world.turn(said)).state is TurnState.QUEUED
    world.advance(TurnLimits().settle)
    assert (await world.running(said)).attempts == 3


async def test_a_turn_that_only_ran_beside_the_one_that_kills_is_never_set_aside(begin: Begin) -> None:
    rest = Pause()
    world = await begin(agent=Scenes({"kill": [TextDelta("x"), Pause()], "slow": [rest, TextDelta("done")]}))
    kill, slow = await world.say("kill"), await world.say("slow", chat="2")
    for _ in range(2):
        await world.drafted(kill, "x")
        await world.running(slow)
        await world.restart()
    rest.go_on()
    for _ in range(2):
        await world.drafted(kill, "x")
        await world.restart()
    assert (await world.settle(kill)).state is TurnState.PARKED
    assert (await world.settle(slow)).state is TurnState.DONE


async def test_several_turns_that_were_interrupted_often_are_tried_one_at_a_time(begin: Begin) -> None:
    pause = Pause()
    world = await begin(agent=Scenes({"slow": [pause, TextDelta("done")]}))
    asked = [await world.say("slow", chat=chat) for chat in "123"]
    for _ in range(2):
        for said in asked:
            await world.running(said)
        await world.restart()
    running = "select state from turns where state = 'running'"
    await world.until(lambda tx: len(tx.rows(running)) == 1)
    assert len([s for s in asked if (await world.turn(s)).state is TurnState.QUEUED]) == 2
    pause.go_on()
    assert [(await world.settle(said)).state for said in asked] == [TurnState.DONE] * 3


async def test_what_waits_behind_a_message_that_was_set_aside_is_answered_before_a_new_session(
    begin: Begin,
) -> None:
    hold = Pause()
    world = await begin(agent=Scenes({"kill": [TextDelta("x"), Pause()], "hold": [hold, TextDelta("held")]}))
    said = await world.say("kill")
    waiting = await world.say("hold")
    for _ in range(3):
        await world.drafted(said, "x")
        await world.restart()
    assert (await world.settle(said)).state is TurnState.PARKED
    await world.running(waiting)
    late = await world.say("late")
    assert late.session == said.session
    hold.go_on()
    await world.settle(late)
    assert (await world.say("later")).session != said.session


async def test_a_lane_goes_on_in_a_new_session_after_a_message_was_set_aside(begin: Begin) -> None:
    world = await begin(agent=Scenes({"kill": [TextDelta("x"), Pause()]}))
    said = await world.say("kill")
    for _ in range(3):
        await world.drafted(said, "x")
        await world.restart()
    await world.settle(said)
    fresh = await world.ask("hello again")
    assert fresh.session != said.session and fresh.state is TurnState.DONE


async def test_an_interruption_long_ago_is_closed_and_told_instead_of_run(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([TextDelta("half "), Pause()], [TextDelta("late answer")]))
    said = await world.say("a")
    await world.drafted(said, "half ")
    await world.crash()
    world.advance(timedelta(hours=1, seconds=16))
    await world.start()
    turn = await world.settle(said)
    assert turn.state is TurnState.EXPIRED
    assert await world.transcript(said.session) == [
        "user: a",
        "assistant: half  [interrupted]",
        "notice: This turn was interrupted long ago. /retry asks again.",
    ]
    assert "/retry" in (await world.sent())[0]


async def test_freshness_is_measured_from_the_interruption_and_not_from_the_question(begin: Begin) -> None:
    world = await begin(
        agent=ScriptedAgent([TextDelta("half "), Pause()], [TextDelta("whole")]),
        policy=Policy(limits=TurnLimits(silence=timedelta(hours=9), total=timedelta(hours=9))),
    )
    said = await world.say("a")
    await world.drafted(said, "half ")
    world.advance(timedelta(hours=3))
    await world.node.service.leases.renew()
    await world.crash()
    world.advance(timedelta(minutes=50))
    await world.start()
    assert (await world.settle(said)).state is TurnState.DONE


async def test_a_turn_that_was_being_stopped_is_not_taken_up_again(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([TextDelta("half "), Pause()]))
    said = await world.say("a")
    await world.drafted(said, "half ")
    turn = await world.turn(said)
    await world.crash()
    await world.write(turns.request_cancel, turn)
    world.advance(LONGER)
    await world.start()
    assert (await world.settle(said)).state is TurnState.CANCELLED
    assert (await world.transcript(said.session))[1] == "assistant: half  [interrupted]"


async def test_a_pinned_turn_is_not_run_by_others_when_its_program_is_gone(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([TextDelta("half "), Pause()]))
    said = await world.say("a", pin=world.node.service.worker.id)
    await world.drafted(said, "half ")
    await world.restart()
    turn = await world.settle(said)
    assert turn.state is TurnState.FAILED
    assert "has ended" in (turn.error or "")


async def test_a_process_that_ends_in_good_order_hands_its_turns_back(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([TextDelta("half "), Pause()], [TextDelta("whole")]))
    said = await world.say("a")
    await world.drafted(said, "half ")
    await world.node.stop()
    turn = await world.turn(said)
    assert (turn.state, turn.attempts) == (TurnState.QUEUED, 0)
    await world.start()
    turn = await world.settle(said)
    assert (turn.state, turn.attempts) == (TurnState.DONE, 1)
    assert (await world.transcript(said.session))[1:] == [
        "assistant: half  [interrupted]",
        "assistant: whole",
    ]


async def test_restarts_in_good_order_never_park_a_turn(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent(*[[TextDelta("half "), Pause()]] * 5, [TextDelta("whole")]))
    said = await world.say("a")
    for _ in range(5):
        await world.drafted(said, "half ")
        await world.node.stop()
        await world.start()
    assert (await world.settle(said)).state is TurnState.DONE


async def test_a_turn_that_is_claimed_while_the_process_ends_is_handed_back(world: World) -> None:
    for n in range(10):
        said = await world.say("!silence", chat=str(n))
        await world.node.stop()
        turn = await world.turn(said)
        assert (turn.state, turn.attempts) == (TurnState.QUEUED, 0)
        await world.start()
        assert said.session
        await world.hub.delete(OPERATORS, said.session, erase=True)


async def test_a_late_worker_can_neither_write_nor_send(begin: Begin) -> None:
    pause = Pause()
    world = await begin(
        agent=ScriptedAgent([TextDelta("half "), pause, TextDelta("too late")], [TextDelta("whole")])
    )
    said = await world.say("a")
    await world.drafted(said, "half ")
    old = await world.turn(said)
    other = another_worker(world)
    assert isinstance(world.clock, FakeClock)
    world.clock.jump(LONGER)
    await other.sweep()
    turn = await world.settle(said)
    assert (turn.state, turn.attempts) == (TurnState.DONE, 2)
    assert turn.started_at != old.started_at
    pause.go_on()
    await world.until(lambda tx: len(messages.list_after(tx, turn.session, after=0)) == 4)
    assert await world.transcript(said.session) == [
        "user: a",
        "assistant: half  [interrupted]",
        "assistant: whole",
        "assistant: too late [late]",
    ]
    assert [d.text for d in await world.delivered(1)] == ["whole"]
    assert await world.sent() == ["whole"]


async def test_what_came_too_late_is_not_shown_to_the_model(begin: Begin) -> None:
    pause = Pause()
    agent = ScriptedAgent(
        [TextDelta("half "), pause, TextDelta("too late")], [TextDelta("whole")], [TextDelta("next")]
    )
    world = await begin(agent=agent)
    said = await world.say("a")
    await world.drafted(said, "half ")
    assert isinstance(world.clock, FakeClock)
    world.clock.jump(LONGER)
    await another_worker(world).sweep()
    turn = await world.settle(said)
    pause.go_on()
    await world.until(
        lambda tx: any(m.mark is Mark.LATE for m in messages.list_after(tx, turn.session, after=0))
    )
    await world.ask("b")
    assert [m.text for m in agent.histories[2]] == ["a", "whole", "b"]


async def test_a_turn_that_was_lost_and_came_back_to_the_same_process_harms_nobody(begin: Begin) -> None:
    """The same process runs a turn twice at once: under the old lease in vain, under the new one for good."""
    first, second = Pause(), Pause()
    world = await begin(
        agent=ScriptedAgent([first, TextDelta("old")], [second, TextDelta("new")], [TextDelta("other")])
    )
    said = await world.say("a")
    await first.reached()
    assert isinstance(world.clock, FakeClock)
    world.clock.jump(LONGER)
    await another_worker(world).sweep()
    await second.reached()
    first.go_on()
    await world.until(lambda tx: any(m.mark is Mark.LATE for m in entries(tx, said)))
    second.go_on()
    assert (await world.settle(said)).state is TurnState.DONE
    assert await world.sent() == ["new"]
    assert (await world.ask("b", chat="2")).state is TurnState.DONE


async def test_a_second_node_takes_over_what_a_dead_one_ran(world: World, opener: Open) -> None:
    first = world.node
    said = await world.say("!wait 5")
    await world.drafted(said, "Waiting. ")
    await world.start(await opener())
    await first.crash()
    world.advance(LONGER)
    turn = await world.flow(world.settle(said))
    assert (turn.state, turn.attempts, turn.worker) == (TurnState.DONE, 2, world.node.service.worker.id)


async def test_two_nodes_share_the_work_and_answer_each_question_once(world: World, opener: Open) -> None:
    await world.start(await opener())
    said = [await world.nodes[n % 2].hub.receive(m) for n, m in enumerate(many(24))]
    done = [await world.settle(receipt) for receipt in said]
    assert {t.state for t in done} == {TurnState.DONE} and {t.attempts for t in done} == {1}
    await world.sent(24)
    await world.delivered(24)
    assert sorted(world.fake.texts) == sorted(f"q{n}" for n in range(24))
    for chat in range(4):
        mine = [p.text for p in world.fake.sent_parts if p.target.chat == str(chat)]
        assert mine == [f"q{n}" for n in range(24) if n % 4 == chat]


def many(count: int) -> list[InboundMessage]:
    return [inbound(f"q{n}", chat=str(n % 4)) for n in range(count)]


async def test_a_dead_process_of_this_machine_is_not_waited_for(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([TextDelta("half "), Pause()], [TextDelta("whole")]))
    said = await world.say("a")
    await world.drafted(said, "half ")
    await world.crash()
    await world.write(die, world.node.service.worker)
    await world.start()
    assert (await world.settle(said)).state is TurnState.DONE


def die(tx: Transaction, known: Worker) -> None:
    """Let the worker's row be that of a process that began before this one, as after a restart with the same pid."""
    host, pid, _, kind = known.id.split("/")
    dead = f"{host}/{pid}/1/{kind}"
    workers.remove(tx, known.id)
    tx.run(
        "insert into workers (id, kind, host, pid, started_at, seen_at) values (:id, :kind, :host, :pid, 0, 0)",
        {"id": dead, "kind": known.kind, "host": known.host, "pid": known.pid},
    )
    tx.run("update turns set worker = :dead where worker = :old", {"dead": dead, "old": known.id})


async def test_a_live_worker_keeps_its_turns_for_as_long_as_it_works(begin: Begin, clock: FakeClock) -> None:
    world = await begin(agent=ScriptedAgent([TextDelta("x"), Pause()]))
    said = await world.say("a")
    await world.drafted(said, "x")
    other = another_worker(world)
    for _ in range(20):
        clock.advance(5)
        await world.node.service.leases.renew()
        await other.sweep()
    turn = await world.turn(said)
    assert (turn.state, turn.attempts) == (TurnState.RUNNING, 1)


async def test_a_standstill_of_the_process_does_not_cost_it_its_own_turns(
    begin: Begin, clock: FakeClock
) -> None:
    pause = Pause()
    world = await begin(agent=ScriptedAgent([TextDelta("x"), pause, TextDelta("y")]))
    said = await world.say("a")
    await world.drafted(said, "x")
    clock.advance(60)
    await world.node.service.leases.sweep()
    pause.go_on()
    turn = await world.settle(said)
    assert (turn.state, turn.attempts) == (TurnState.DONE, 1)


async def test_a_turn_that_could_not_be_recorded_is_taken_up_again(begin: Begin, world: World) -> None:
    """The store is away for longer than the lease, and comes back: the turn is not held for ever."""
    await world.node.stop()
    fault = DatabaseFault("turn.finish", FaultTiming.BEFORE, sticky=True)
    broken = CrashingDatabase(world.database, fault)
    await world.start(broken)
    said = await world.say("a")
    await world.eventually(lambda: fault.hits > 0)
    for _ in range(40):
        world.advance(0.5)
        await asyncio.sleep(0.005)
    fault.clear()
    turn = await world.flow(world.settle(said))
    assert turn.state is TurnState.DONE
    assert await world.sent() == ["a"]


@pytest.mark.parametrize("when", list(FaultTiming))
async def test_a_claim_that_was_lost_on_the_way_is_made_good(world: World, when: FaultTiming) -> None:
    await world.node.stop()
    await world.start(CrashingDatabase(world.database, DatabaseFault("turn.claim", when, nth=2)))
    turn = await world.flow(world.settle(await world.say("a")))
    assert turn.state is TurnState.DONE
    assert await world.sent() == ["a"]


async def test_waiting_messages_keep_their_order_over_a_crash(begin: Begin) -> None:
    world = await begin(agent=Scenes({"hold": [TextDelta("x"), Pause()]}))
    said = await world.say("hold")
    await world.drafted(said, "x")
    more = [await world.say(f"q{n}") for n in range(3)]
    await world.restart()
    await world.drafted(said, "x")
    assert said.session
    await world.hub.stop(OPERATORS, said.session)
    for receipt in more:
        await world.settle(receipt)
    assert await world.sent(3) == ["q0", "q1", "q2"]


async def test_what_was_steered_belongs_to_the_turn_over_a_crash(begin: Begin) -> None:
    steered, held = Pause(), Pause()

    async def steer(context: TurnContext) -> None:
        await context.fetch_new_messages()

    agent = ScriptedAgent([TextDelta("x"), steered, steer, held], [TextDelta("whole")])
    world = await begin(agent=agent)
    said = await world.say("a")
    await steered.reached()
    hint = await world.say("hint", busy=BusyMode.STEER)
    steered.go_on()
    await held.reached()
    await world.restart()
    await world.settle(said)
    assert (await world.turn(hint)).state is TurnState.MERGED
    assert "hint" in [m.text for m in agent.histories[1]]


async def test_a_parked_turn_suspends_only_its_own_lane(begin: Begin) -> None:
    world = await begin(agent=Scenes({"kill": [TextDelta("x"), Pause()]}))
    await world.ask("hi", chat="2")
    said = await world.say("kill")
    for _ in range(3):
        await world.drafted(said, "x")
        await world.restart()
    await world.settle(said)
    suspended = {lane.source.chat: lane.suspended for lane in await world.read(lanes.list_recent, OPERATORS)}
    assert suspended == {"1": True, "2": False}
