"""Undo, redo, retry and fork, on their own and across a queue."""

import pytest
from tests.engine.conftest import Begin
from tests.engine.world import OPERATORS, Pause, Scenes, World

from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.ports.agent import TextDelta, ToolCallEvent, ToolResultEvent
from keryx.core.turns import BusyMode, TurnState
from keryx.store.db import Engine
from keryx.testing import ScriptedAgent

pytestmark = pytest.mark.engines(Engine.SQLITE)


async def test_an_undone_turn_is_not_shown_to_the_model_and_stays_for_people(begin: Begin) -> None:
    agent = ScriptedAgent([TextDelta("one")], [TextDelta("two")], [TextDelta("three")])
    world = await begin(agent=agent)
    turn = await world.ask("a")
    await world.ask("b")
    assert (await world.hub.undo(OPERATORS, turn.session)).text == "b"
    await world.ask("c")
    assert [m.text for m in agent.histories[2]] == ["a", "one", "c"]
    assert (await world.transcript(turn.session))[2:4] == ["user: b [undone]", "assistant: two [undone]"]


async def test_tool_steps_are_undone_with_their_turn(begin: Begin) -> None:
    call = ToolCall("c", "grep", "{}")
    world = await begin(
        agent=ScriptedAgent(
            [ToolCallEvent((call,)), ToolResultEvent(ToolResult("c", "grep", "x")), TextDelta("done")]
        )
    )
    turn = await world.ask("a")
    await world.hub.undo(OPERATORS, turn.session)
    assert all(m.undone for m in (await world.open(turn.session)).messages)
    assert await world.hub.redo(OPERATORS, turn.session) == 4


async def test_what_was_taken_from_the_queue_is_neither_retried_nor_undone(begin: Begin) -> None:
    pause = Pause()
    agent = Scenes({"a": [pause, TextDelta("one")]})
    world = await begin(agent=agent)
    said = await world.say("a")
    await pause.reached()
    waiting = await world.say("b")
    assert waiting.turn
    await world.hub.drop(OPERATORS, waiting.turn)
    pause.go_on()
    turn = await world.settle(said)
    retried = await world.hub.retry(OPERATORS, turn.session, surface="cli")
    await world.settle(retried)
    assert agent.asked == ["a", "a"]
    assert (await world.hub.undo(OPERATORS, turn.session)).text == "a"


async def test_several_undos_are_brought_back_one_by_one(world: World) -> None:
    turn = await world.ask("a")
    await world.ask("b")
    for expected in ("b", "a"):
        assert (await world.hub.undo(OPERATORS, turn.session)).text == expected
    with pytest.raises(NotFound):
        await world.hub.undo(OPERATORS, turn.session)
    for _ in range(2):
        assert await world.hub.redo(OPERATORS, turn.session) == 2
    with pytest.raises(NotFound):
        await world.hub.redo(OPERATORS, turn.session)


async def test_nothing_is_brought_back_once_something_new_was_said(world: World) -> None:
    turn = await world.ask("a")
    await world.hub.undo(OPERATORS, turn.session)
    await world.ask("b")
    with pytest.raises(NotFound):
        await world.hub.redo(OPERATORS, turn.session)


async def test_an_undo_of_no_turns_is_refused(world: World) -> None:
    turn = await world.ask("a")
    for count in (0, -1):
        with pytest.raises(Invalid):
            await world.hub.undo(OPERATORS, turn.session, count)


@pytest.mark.engines(*Engine)
async def test_undo_to_a_message_takes_its_turn_and_all_later_ones(world: World) -> None:
    turn = await world.ask("a")
    for text in ("b", "c"):
        await world.ask(text)
    for message in (3, 4):
        undone = await world.hub.undo(OPERATORS, turn.session, message=message)
        assert (undone.turns, undone.text) == (2, "b")
        shown = (await world.open(turn.session)).messages
        assert [m.undone > 0 for m in shown] == [False, False, True, True, True, True]
        assert await world.hub.redo(OPERATORS, turn.session) == 4
    with pytest.raises(NotFound):
        await world.hub.undo(OPERATORS, turn.session, message=7)


async def test_undo_to_a_message_that_is_taken_back_already_takes_what_came_after_it(world: World) -> None:
    turn = await world.ask("a")
    await world.ask("b")
    await world.hub.undo(OPERATORS, turn.session)
    await world.ask("c")
    undone = await world.hub.undo(OPERATORS, turn.session, message=3)
    assert (undone.turns, undone.text) == (1, "c")
    with pytest.raises(NotFound):
        await world.hub.undo(OPERATORS, turn.session, message=3)


async def test_undo_takes_questions_that_were_joined_as_one_turn(world: World) -> None:
    first = await world.say("!wait 5")
    await world.drafted(first, "Waiting. ")
    more = [await world.say(t, busy=BusyMode.COLLECT) for t in ("one", "two")]
    await world.flow(world.settle(more[0]))
    assert first.session
    assert (await world.hub.undo(OPERATORS, first.session)).text == "one"
    assert [m.undone > 0 for m in (await world.open(first.session)).messages] == [
        False,
        True,
        True,
        False,
        True,
    ]


async def test_undo_of_an_answer_that_came_after_the_next_question(world: World) -> None:
    """Q1 Q2 A1 A2: taking the last turn back takes Q2 and A2, and leaves Q1 and A1."""
    said = [await world.say(t) for t in ("!wait 5", "second")]
    await world.flow(world.settle(said[1]))
    assert said[0].session
    await world.hub.undo(OPERATORS, said[0].session)
    assert [m.undone > 0 for m in (await world.open(said[0].session)).messages] == [False, True, False, True]


async def test_retry_asks_the_last_question_again_where_it_was_asked(begin: Begin) -> None:
    agent = ScriptedAgent([TextDelta("bad")], [TextDelta("good")])
    world = await begin(agent=agent)
    turn = await world.ask("a", chat="7")
    receipt = await world.hub.retry(OPERATORS, turn.session, surface="web")
    await world.settle(receipt)
    await world.sent(2)
    assert [(p.target.chat, p.text) for p in world.fake.sent_parts] == [("7", "bad"), ("7", "good")]
    assert [m.text for m in agent.histories[1]] == ["a"]


async def test_a_failed_turn_can_be_retried(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([RuntimeError("x")], [TextDelta("good")]))
    turn = await world.ask("a")
    assert turn.state is TurnState.FAILED
    again = await world.settle(await world.hub.retry(OPERATORS, turn.session, surface="web"))
    assert again.state is TurnState.DONE


async def test_nothing_is_revised_while_a_turn_runs_or_waits(world: World) -> None:
    said = await world.say("!silence")
    await world.running(said)
    assert said.session
    for refused in (
        world.hub.undo(OPERATORS, said.session),
        world.hub.redo(OPERATORS, said.session),
        world.hub.retry(OPERATORS, said.session, surface="web"),
    ):
        with pytest.raises(Conflict):
            await refused


async def test_a_fork_is_an_independent_copy_with_a_parent(begin: Begin) -> None:
    agent = ScriptedAgent([TextDelta("one")], [TextDelta("two")], [TextDelta("three")])
    world = await begin(agent=agent)
    turn = await world.ask("a")
    child = await world.hub.fork(OPERATORS, turn.session, surface="web")
    await world.ask("b", session=child.id)
    await world.ask("c")
    assert (child.parent, child.parent_seq, child.owner) == (turn.session, 2, "ann")
    assert await world.transcript(child.id) == ["user: a", "assistant: one", "user: b", "assistant: two"]
    assert [m.text for m in agent.histories[2]] == ["a", "one", "c"]


async def test_a_fork_from_a_message_ends_there(world: World) -> None:
    turn = await world.ask("a")
    await world.ask("b")
    child = await world.hub.fork(OPERATORS, turn.session, surface="web", through=2, title="Plan B")
    assert (child.title, await world.transcript(child.id)) == ("Plan B", ["user: a", "assistant: a"])
    for wrong in (0, -1, 5, 10**9):
        with pytest.raises(Invalid):
            await world.hub.fork(OPERATORS, turn.session, surface="web", through=wrong)


async def test_a_fork_of_a_running_session_copies_up_to_the_last_complete_turn(begin: Begin) -> None:
    world = await begin(agent=Scenes({"hold": [TextDelta("half "), Pause()]}))
    turn = await world.ask("a")
    said = await world.say("hold")
    await world.say("waiting")
    await world.drafted(said, "half ")
    child = await world.hub.fork(OPERATORS, turn.session, surface="web")
    assert await world.transcript(child.id) == ["user: a", "assistant: a"]
    assert (await world.open(child.id)).running is None


async def test_a_refused_fork_leaves_nothing(world: World) -> None:
    turn = await world.ask("a")
    with pytest.raises(Invalid):
        await world.hub.fork(OPERATORS, turn.session, surface="web", title="a")
    assert len(await world.read(lambda tx: tx.rows("select 1 from sessions"))) == 1


async def test_undone_messages_stay_undone_in_a_fork_and_can_be_brought_back_there(world: World) -> None:
    turn = await world.ask("a")
    await world.ask("b")
    await world.hub.undo(OPERATORS, turn.session)
    child = await world.hub.fork(OPERATORS, turn.session, surface="web")
    assert await world.hub.redo(OPERATORS, child.id) == 2
    assert [m.undone > 0 for m in (await world.open(turn.session)).messages] == [False, False, True, True]


async def test_a_fork_keeps_an_answer_that_came_after_the_question_of_a_running_turn(begin: Begin) -> None:
    pause = Pause()
    agent = Scenes({"first": [pause, TextDelta("one")], "second": [TextDelta("half"), Pause()]})
    world = await begin(agent=agent)
    first = await world.say("first")
    await world.running(first)
    second = await world.say("second")
    pause.go_on()
    turn = await world.settle(first)
    await world.drafted(second, "half")
    child = await world.hub.fork(OPERATORS, turn.session, surface="web")
    assert await world.transcript(child.id) == ["user: first", "assistant: one"]
    assert [m.seq for m in (await world.open(child.id)).messages] == [1, 2]
