import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from itertools import pairwise
from time import monotonic
from typing import Any

import msgspec
import pytest
from tests.builders import limit
from tests.engine.conftest import Begin
from tests.engine.world import OPERATORS, Pause, Scenes, World

from keryx.core.errors import AgentFailed
from keryx.core.ids import PrincipalId, WorkerId
from keryx.core.messages import Reasoning, Role, ToolCall, ToolResult
from keryx.core.ports.agent import (
    AgentEvent,
    NoticeEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallEvent,
    ToolResultEvent,
    TurnContext,
    UsageEvent,
)
from keryx.core.turns import BusyMode, StopReason, TurnLimits, TurnState
from keryx.core.usage import Usage
from keryx.engine.policy import Policy
from keryx.engine.units.turn_writes import NO_ANSWER
from keryx.store import messages, turns
from keryx.store.db import Database
from keryx.testing import FakeClock, ScriptedAgent
from keryx.timing import SystemClock

CALL = ToolCall("c1", "grep", "{}")


def limits(**values: Any) -> Policy:
    return Policy(limits=TurnLimits(**values))


async def test_an_answer_is_stored_delivered_counted_and_titled(world: World) -> None:
    turn = await world.ask("Where is Oslo?")
    snapshot = await world.open(turn.session)
    assert [m.text for m in snapshot.messages] == ["Where is Oslo?", "Where is Oslo?"]
    assert (turn.state, turn.attempts, turn.lease, turn.error) == (TurnState.DONE, 1, None, None)
    assert (snapshot.session.title, snapshot.session.turns) == ("Where is Oslo?", 1)
    assert (snapshot.session.tokens.input, snapshot.session.cost_status) == (3, "actual")
    assert await world.sent() == ["Where is Oslo?"]
    assert [d.turn for d in await world.delivered(1)] == [turn.id]


async def test_questions_of_a_session_are_answered_in_the_order_they_came(world: World) -> None:
    said = [await world.say(f"q{n}") for n in range(12)]
    done = [await world.settle(receipt) for receipt in said]
    assert await world.sent(12) == [f"q{n}" for n in range(12)]
    assert all(a.finished_at <= b.started_at for a, b in pairwise(done) if a.finished_at and b.started_at)
    assert [m.text for m in (await world.open(said[0].session)).messages if m.role is Role.ASSISTANT] == [
        f"q{n}" for n in range(12)
    ]


async def test_a_session_never_has_two_turns_at_once(begin: Begin) -> None:
    at_once: list[int] = []
    active = 0

    async def enter(context: TurnContext) -> None:
        nonlocal active
        active += 1
        at_once.append(active)
        await asyncio.sleep(0)

    async def leave(context: TurnContext) -> None:
        nonlocal active
        active -= 1

    world = await begin(agent=ScriptedAgent([enter, TextDelta("a"), enter_nothing, TextDelta("b"), leave]))
    await world.start()
    said = await asyncio.gather(*(world.say(f"q{n}") for n in range(8)))
    for receipt in said:
        await world.settle(receipt)
    assert at_once == [1] * 8


async def enter_nothing(context: TurnContext) -> None:
    await asyncio.sleep(0.001)


async def test_the_model_sees_each_question_before_its_own_answer(begin: Begin) -> None:
    agent = ScriptedAgent([TextDelta("first")], [TextDelta("second")])
    world = await begin(agent=agent)
    said = [await world.say("a"), await world.say("b")]
    for receipt in said:
        await world.settle(receipt)
    assert [m.text for m in agent.histories[1]] == ["a", "first", "b"]


async def test_a_waiting_question_is_not_shown_to_the_model_of_the_running_turn(begin: Begin) -> None:
    pause = Pause()
    agent = ScriptedAgent([pause, TextDelta("one")], [TextDelta("two")])
    world = await begin(agent=agent)
    first = await world.say("a")
    await pause.reached()
    second = await world.say("b")
    pause.go_on()
    await world.settle(second)
    assert [m.text for m in agent.histories[0]] == ["a"]
    assert first.turn == agent.contexts[0].turn


async def test_why_an_answer_ends_early_is_told_below_it(begin: Begin) -> None:
    pause = Pause()
    ended = NoticeEvent("It ends here.", StopReason.LENGTH)
    world = await begin(agent=ScriptedAgent([TextDelta("A long"), pause, TextDelta(" one"), ended]))
    receipt = await world.say("all of it")
    await world.drafted(receipt, "A long")
    pause.go_on()
    assert (await world.settle(receipt)).state is TurnState.DONE
    assert await world.transcript(receipt.session) == [
        "user: all of it",
        "assistant: A long one",
        "notice: It ends here.",
    ]
    assert await world.sent() == ["A long one\n\nIt ends here."]


async def test_what_was_shown_is_stored_before_it_is_published(begin: Begin) -> None:
    pause = Pause()
    world = await begin(
        agent=ScriptedAgent([TextDelta("shown "), ReasoningDelta("hm"), pause, TextDelta("more")])
    )
    said = await world.say("a")
    await world.drafted(said, "shown hm")
    await pause.reached()
    snapshot = await world.open(said.session)
    assert snapshot.running and [(p.text, p.thought) for p in snapshot.draft] == [
        ("shown ", False),
        ("hm", True),
    ]
    pause.go_on()
    await world.settle(said)
    assert (await world.open(said.session)).draft == []


async def test_reasoning_is_kept_and_not_sent(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([ReasoningDelta("hm", '{"sig":1}'), TextDelta("yes")]))
    turn = await world.ask("a")
    answer = (await world.open(turn.session)).messages[1]
    assert [p for p in answer.parts if isinstance(p, Reasoning)] == [Reasoning("hm", '{"sig":1}')]
    assert await world.sent() == ["yes"]


async def test_a_tool_step_is_in_the_store_before_the_agent_goes_on(begin: Begin, database: Database) -> None:
    seen: list[list[Role]] = []

    async def look(context: TurnContext) -> None:
        stored = await database.read("look", lambda tx: messages.list_after(tx, context.session, after=0))
        seen.append([m.role for m in stored])

    script = [
        TextDelta("Calling. "),
        ToolCallEvent((CALL,)),
        look,
        ToolResultEvent(ToolResult("c1", "grep", "x")),
        look,
    ]
    world = await begin(agent=ScriptedAgent([*script, TextDelta("Done.")]))
    turn = await world.ask("a")
    assert seen == [
        [Role.USER, Role.ASSISTANT],
        [Role.USER, Role.ASSISTANT, Role.TOOL],
    ]
    assert await world.transcript(turn.session) == [
        "user: a",
        "assistant: Calling. <grep>",
        "tool: <x>",
        "assistant: Done.",
    ]
    assert await world.sent(2) == ["Calling. ", "Done."]


async def test_usage_is_added_up(begin: Begin) -> None:
    used = UsageEvent(Usage(model="m", input=3, output=2, cache_read=1, cost=10))
    world = await begin(agent=ScriptedAgent([used, TextDelta("a"), used]))
    turn = await world.ask("a")
    session = (await world.open(turn.session)).session
    assert (session.tokens.input, session.tokens.output, session.tokens.cache_read) == (6, 4, 2)
    assert (session.cost, session.cost_status) == (20, "estimated")


async def test_a_failure_meant_for_people_is_told_as_it_is(world: World) -> None:
    turn = await world.ask("!fail No credit left.")
    assert (turn.state, turn.error) == (TurnState.FAILED, "No credit left.")
    assert (await world.transcript(turn.session))[1:] == [
        "assistant: This will fail.  [failed]",
        "notice: No credit left.",
    ]
    assert await world.sent() == ["No credit left."]


async def test_an_unexpected_failure_is_told_without_its_details(world: World) -> None:
    turn = await world.ask("!crash the secret is 1234")
    assert turn.state is TurnState.FAILED
    (text,) = await world.sent()
    assert "RuntimeError" in text and "/retry" in text and "1234" not in text


async def test_an_agent_that_cancels_itself_fails_its_own_turn_alone(begin: Begin) -> None:
    async def vanish(context: TurnContext) -> None:
        raise asyncio.CancelledError

    world = await begin(agent=Scenes({"vanish": [TextDelta("x"), vanish]}))
    assert (await world.ask("vanish")).state is TurnState.FAILED
    assert (await world.ask("still there?", chat="2")).state is TurnState.DONE


async def test_an_agent_that_cannot_be_chosen_fails_the_turn(begin: Begin) -> None:
    class Nobody:
        def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
            raise AgentFailed("There is no model called x.")

    world = await begin(agent=Nobody())
    turn = await world.ask("a")
    assert (turn.state, turn.error) == (TurnState.FAILED, "There is no model called x.")


async def test_an_empty_answer_is_said_to_be_empty(world: World) -> None:
    turn = await world.ask("!empty")
    assert turn.state is TurnState.DONE
    assert await world.transcript(turn.session) == ["user: !empty", f"notice: {NO_ANSWER}"]
    assert await world.sent() == [NO_ANSWER]


async def test_a_failed_turn_does_not_stop_the_next(world: World) -> None:
    said = [await world.say(t) for t in ("!crash", "fine")]
    assert [(await world.settle(s)).state for s in said] == [TurnState.FAILED, TurnState.DONE]


async def test_a_turn_without_an_address_is_stored_and_not_sent(world: World) -> None:
    turn = await world.ask("hi", reply=None)
    assert await world.transcript(turn.session) == ["user: hi", "assistant: hi"]
    assert await world.hub.deliveries.page(OPERATORS) == []


async def test_the_answer_goes_to_the_place_that_asked(world: World) -> None:
    """Two chats on one session: the address belongs to the turn."""
    first = await world.ask("from one")
    await world.ask("from two", chat="2", session=first.session)
    await world.sent(2)
    assert [(p.target.chat, p.text) for p in world.fake.sent_parts] == [("1", "from one"), ("2", "from two")]


async def test_a_cancel_keeps_what_was_shown_with_a_mark(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([TextDelta("half "), Pause(), TextDelta("never")]))
    said = await world.say("a")
    await world.drafted(said, "half ")
    assert said.session
    assert await world.hub.stop(OPERATORS, said.session)
    turn = await world.settle(said)
    assert turn.state is TurnState.CANCELLED
    assert await world.transcript(said.session) == ["user: a", "assistant: half  [cancelled]"]
    assert await world.hub.deliveries.page(OPERATORS) == []


async def test_a_cancel_before_the_first_word_marks_the_question_and_the_model_still_knows_it(
    begin: Begin,
) -> None:
    agent = ScriptedAgent([Pause()], [TextDelta("yes")])
    world = await begin(agent=agent)
    said = await world.say("are you there?")
    await world.running(said)
    assert said.session
    await world.hub.stop(OPERATORS, said.session)
    assert (await world.settle(said)).state is TurnState.CANCELLED
    await world.ask("hello?")
    assert await world.transcript(said.session) == [
        "user: are you there? [cancelled]",
        "user: hello?",
        "assistant: yes",
    ]
    assert [m.text for m in agent.histories[-1]] == ["are you there?", "hello?"]


async def test_a_cancel_takes_effect_within_two_seconds_when_the_agent_is_deaf(begin: Begin) -> None:
    world = await begin(clock=SystemClock())
    said = await world.say("!deaf 2.1")
    await world.drafted(said, "Not listening. ")
    began = monotonic()
    assert said.session
    await world.hub.stop(OPERATORS, said.session)
    assert (await world.settle(said)).state is TurnState.CANCELLED
    assert (await world.ask("next")).state is TurnState.DONE
    assert monotonic() - began < limit(2)
    assert "Now I am." not in "".join(await world.transcript(said.session))


async def test_a_cancel_with_nothing_running_does_nothing(world: World) -> None:
    turn = await world.ask("a")
    await world.delivered(1)
    before = await world.open(turn.session)
    assert await world.hub.stop(OPERATORS, turn.session) is None
    after = await world.open(turn.session)
    assert msgspec.structs.replace(after, cursor=before.cursor) == before
    assert (await world.ask("b")).state is TurnState.DONE


async def test_a_cancel_right_after_the_question_leaves_no_turn_behind(world: World) -> None:
    for n in range(20):
        said = await world.say("!silence", chat=str(n))
        assert said.session
        stopping = await world.hub.stop(OPERATORS, said.session, queue=True)
        assert (await world.settle(said)).state is TurnState.CANCELLED
        assert stopping is None or stopping.id == said.turn


async def test_a_cancel_stops_only_the_running_turn_and_the_queue_goes_on(world: World) -> None:
    said = [await world.say(t) for t in ("!silence", "next")]
    await world.running(said[0])
    assert said[0].session
    await world.hub.stop(OPERATORS, said[0].session)
    assert [(await world.settle(s)).state for s in said] == [TurnState.CANCELLED, TurnState.DONE]


async def test_a_dropped_question_is_never_run(world: World) -> None:
    first, second, third = [await world.say(t) for t in ("!silence", "drop me", "third")]
    await world.running(first)
    assert second.turn and first.session
    await world.hub.drop(OPERATORS, second.turn)
    await world.hub.stop(OPERATORS, first.session)
    await world.settle(third)
    assert (await world.turn(second)).state is TurnState.CANCELLED
    assert await world.sent() == ["third"]


async def test_an_agent_that_never_speaks_is_ended_by_the_first_deadline(
    begin: Begin, clock: FakeClock
) -> None:
    pause = Pause()
    world = await begin(agent=ScriptedAgent([pause]), policy=limits(first_byte=timedelta(seconds=60)))
    said = await world.say("a")
    await pause.reached()
    clock.advance(59.9)
    await asyncio.sleep(0.02)
    assert (await world.turn(said)).state is TurnState.RUNNING
    clock.advance(0.2)
    turn = await world.settle(said)
    assert (turn.state, turn.error) == (
        TurnState.FAILED,
        "The agent said nothing for 60 seconds. /retry asks again.",
    )
    assert await world.sent() == [f"{turn.error} Until then your message is left out of the conversation."]


async def test_a_silence_ends_a_turn_and_keeps_what_was_said(begin: Begin, clock: FakeClock) -> None:
    world = await begin(
        agent=ScriptedAgent([TextDelta("so far "), Pause()]),
        policy=limits(first_byte=timedelta(seconds=5), silence=timedelta(minutes=3)),
    )
    said = await world.say("a")
    await world.drafted(said, "so far ")
    clock.advance(6)
    await asyncio.sleep(0.02)
    assert (await world.turn(said)).state is TurnState.RUNNING
    clock.advance(timedelta(minutes=3))
    turn = await world.settle(said)
    assert turn.error == "The agent said nothing for 3 minutes. /retry asks again."
    assert (await world.transcript(said.session))[1] == "assistant: so far  [failed]"


async def test_an_agent_that_talks_for_ever_is_ended_by_the_last_deadline(begin: Begin) -> None:
    world = await begin(
        policy=limits(silence=timedelta(seconds=50), total=timedelta(seconds=200), lease=timedelta(hours=1))
    )
    said = await world.say("slow 4000 " + "word " * 100)
    turn = await world.flow(world.settle(said), step=10)
    assert (turn.state, turn.error) == (
        TurnState.FAILED,
        "The turn took longer than 3 minutes. /retry asks again.",
    )
    assert turn.finished_at and turn.started_at
    assert turn.finished_at - turn.started_at < timedelta(seconds=4000)


async def test_a_hung_turn_does_not_slow_the_others(begin: Begin) -> None:
    world = await begin(policy=limits(at_once=8))
    for n in range(5):
        await world.running(await world.say("!silence", chat=f"hung{n}"))
    began = monotonic()
    for n in range(10):
        await world.ask(f"q{n}", user="bob", chat="free")
    assert monotonic() - began < limit(3)


async def test_messages_for_a_busy_lane_wait_by_default(world: World) -> None:
    said = [await world.say(t) for t in ("!wait 5", "b", "c")]
    await world.drafted(said[0], "Waiting. ")
    assert [t.id for t in (await world.open(said[0].session)).queue] == [said[1].turn, said[2].turn]
    await world.flow(world.settle(said[2]))
    assert await world.sent(3) == ["Waiting. Nobody steered.", "b", "c"]


async def test_a_steering_message_is_given_to_the_running_turn(world: World) -> None:
    said = await world.say("!wait 5")
    await world.drafted(said, "Waiting. ")
    hint = await world.say("use metres", busy=BusyMode.STEER)
    turn = await world.flow(world.settle(said))
    merged = await world.turn(hint)
    assert (merged.state, merged.merged_into) == (TurnState.MERGED, turn.id)
    assert await world.sent() == ["Waiting. Steered: use metres"]


async def test_a_steering_message_that_nobody_took_becomes_a_turn_of_its_own(world: World) -> None:
    said = await world.say("slow 3 a b c")
    await world.drafted(said, "a ")
    hint = await world.say("too late", busy=BusyMode.STEER)
    await world.flow(world.settle(hint))
    assert await world.sent(2) == ["a b c", "too late"]


async def test_steering_does_not_overtake_what_was_said_before(world: World) -> None:
    said = await world.say("!wait 5")
    await world.drafted(said, "Waiting. ")
    await world.say("first this")
    hint = await world.say("then that", busy=BusyMode.STEER)
    await world.flow(world.settle(hint))
    assert await world.sent(3) == ["Waiting. Nobody steered.", "first this", "then that"]


async def test_collected_messages_become_one_turn(world: World) -> None:
    said = await world.say("!wait 5")
    await world.drafted(said, "Waiting. ")
    more = [await world.say(t, busy=BusyMode.COLLECT) for t in ("one", "two", "three")]
    turn = await world.flow(world.settle(more[0]))
    assert [(await world.turn(m)).state for m in more[1:]] == [TurnState.MERGED] * 2
    assert await world.sent(2) == ["Waiting. Nobody steered.", "one\ntwo\nthree"]
    assert (await world.transcript(turn.session))[-1] == "assistant: one\ntwo\nthree"


async def test_messages_of_two_people_are_not_collected_into_one_turn(world: World) -> None:
    said = await world.say("!wait 5")
    await world.drafted(said, "Waiting. ")
    mine = await world.say("mine", busy=BusyMode.COLLECT)
    yours = await world.say("yours", busy=BusyMode.COLLECT, principal=PrincipalId("operator"))
    await world.flow(world.settle(yours))
    assert (await world.turn(mine)).state is TurnState.DONE
    assert await world.sent(3) == ["Waiting. Nobody steered.", "mine", "yours"]


async def test_an_interrupting_message_stops_the_running_turn(world: World) -> None:
    first = await world.say("!wait 500")
    await world.drafted(first, "Waiting. ")
    second = await world.say("now this", busy=BusyMode.INTERRUPT)
    await world.settle(second)
    assert (await world.turn(first)).state is TurnState.CANCELLED
    assert await world.transcript(first.session) == [
        "user: !wait 500",
        "user: now this",
        "assistant: Waiting.  [cancelled]",
        "assistant: now this",
    ]


@pytest.mark.parametrize("mode", list(BusyMode))
async def test_every_mode_answers_at_once_when_nothing_runs(world: World, mode: BusyMode) -> None:
    assert (await world.ask("hi", busy=mode)).state is TurnState.DONE
    assert await world.sent() == ["hi"]


async def test_a_process_runs_no_more_turns_at_once_than_it_may(begin: Begin) -> None:
    pauses = {f"p{n}": Pause() for n in range(3)}
    world = await begin(
        agent=Scenes({k: [p, TextDelta("ok")] for k, p in pauses.items()}), policy=limits(at_once=2)
    )
    said = [await world.say(name, chat=name, user=name) for name in pauses]
    await pauses["p0"].reached()
    await pauses["p1"].reached()
    await asyncio.sleep(0.02)
    assert (await world.turn(said[2])).state is TurnState.QUEUED
    pauses["p0"].go_on()
    await pauses["p2"].reached()
    assert world.node.service.runner.busy == 2


async def test_one_person_cannot_take_all_places(begin: Begin) -> None:
    world = await begin(policy=limits(per_principal=2))
    mine = [await world.say("!silence", chat=f"mine{n}") for n in range(4)]
    await world.until(lambda tx: len(turns.list_active(tx, profile="default", owner=None)) == 4)
    assert (await world.ask("hi", user="bob", chat="bob")).state is TurnState.DONE
    states = [(await world.turn(m)).state for m in mine]
    assert states == [TurnState.RUNNING, TurnState.RUNNING, TurnState.QUEUED, TurnState.QUEUED]
    assert mine[0].session
    await world.hub.stop(OPERATORS, mine[0].session)
    await world.running(mine[2])


async def test_a_few_people_cannot_take_all_places(begin: Begin) -> None:
    world = await begin(policy=limits(at_once=4, per_principal=3))
    for name in ("ann", "bob"):
        held = [await world.say("!silence", chat=f"{name}{n}", user=name) for n in range(4)]
        await world.running(held[0])
    assert (await world.ask("hi", user="cleo", chat="cleo")).state is TurnState.DONE
    assert world.node.service.runner.busy == 3


async def test_one_person_may_be_allowed_all_places(begin: Begin) -> None:
    world = await begin(policy=limits(at_once=3, per_principal=3))
    for turn in [await world.say("!silence", chat=f"mine{n}") for n in range(3)]:
        await world.running(turn)


async def test_sessions_take_turns(begin: Begin) -> None:
    """One session with a long queue does not keep a short one waiting."""
    pause = Pause()
    agent = Scenes({"hold": [pause, TextDelta("ok")]})
    clock = SystemClock()
    world = await begin(agent=agent, policy=limits(at_once=1), clock=clock)
    await world.say("hold", chat="x", user="x")
    await pause.reached()
    many = [await world.say(f"many{n}", chat="many") for n in range(6)]
    one = await world.say("one", chat="one", user="bob")
    pause.go_on()
    for receipt in (*many, one):
        await world.settle(receipt)
    assert agent.asked.index("one") <= 2


async def test_a_pinned_turn_is_run_by_its_worker_alone(world: World) -> None:
    first = world.node
    second = await world.start()
    said = await world.say("for one", pin=first.service.worker.id)
    turn = await world.settle(said)
    assert (turn.state, turn.worker) == (TurnState.DONE, first.service.worker.id)
    turn = await world.ask("for two", pin=second.service.worker.id)
    assert turn.worker == second.service.worker.id


async def test_a_pinned_turn_whose_worker_is_gone_is_closed_and_told(world: World) -> None:
    said = await world.say("for nobody", pin=WorkerId("nowhere/1/1/cli"))
    await world.node.service.leases.sweep()
    turn = await world.settle(said)
    assert (turn.state, turn.attempts) == (TurnState.CANCELLED, 0)
    assert "has ended" in (await world.sent())[0]


async def test_a_terminal_runs_the_turns_of_its_session_and_no_others(begin: Begin) -> None:
    world = await begin()
    await world.node.stop()
    mine, other = [await world.say(text, chat=text) for text in ("mine", "other")]
    terminal = await world.start(everything=False)
    assert mine.session
    terminal.service.runner.serve(mine.session)
    await world.settle(mine)
    assert (await world.turn(other)).state is TurnState.QUEUED


async def test_an_agent_may_not_run_far_ahead_of_the_store(begin: Begin) -> None:
    """Many small pieces arrive whole, in order, as one answer."""
    world = await begin(agent=ScriptedAgent([TextDelta(f"{n} ") for n in range(500)]))
    turn = await world.ask("a")
    assert (await world.transcript(turn.session))[1] == "assistant: " + "".join(f"{n} " for n in range(500))
