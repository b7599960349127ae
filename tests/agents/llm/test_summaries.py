"""Compaction: where a conversation is cut, what the model is sent before and after, and what people see."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from tests.agents.conversation import TURN, Conversation, a_context, an_agent, collect, spoken
from tests.engine.world import OPERATORS, World
from tests.fakes.endpoint import DOWN, OVERFLOW, Endpoint, Script, answer

from keryx.agents.llm import summaries
from keryx.agents.llm.chat_client import RetryPolicy
from keryx.agents.llm.history import SUMMARY_HEADER
from keryx.core.compaction import CompactionPolicy, format_marker
from keryx.core.errors import AgentFailed, Conflict, Unavailable
from keryx.core.ids import TurnId
from keryx.core.messages import (
    Message,
    Role,
    ToolCall,
    ToolResult,
    build_model_view,
    drop_summarized,
    text_parts,
)
from keryx.core.ports.agent import CompactionEvent, CompactionFailedEvent, UsageEvent
from keryx.core.sessions import TitleBy
from keryx.core.turns import TurnState
from keryx.store import epochs, messages, sessions
from keryx.store.db import Transaction
from keryx.store.db.sqlite import SqliteDatabase
from keryx.testing import CrashingDatabase, DatabaseFault, FakeClock, FaultTiming

ONCE = RetryPolicy(tries=1)
SMALL = {"context": 500}


def long_talk(turns: int, *, size: int = 200) -> Conversation:
    talk = Conversation()
    for n in range(turns):
        talk.ask(f"question {n} " + "x" * size).say(f"answer {n} " + "y" * size)
    return talk.ask("and now?", turn=TURN)


def test_the_cut_is_the_beginning_of_a_turn_and_keeps_what_fits() -> None:
    talk = long_talk(6).messages
    first = summaries.find_cut(talk, limit=1200)
    assert first is not None
    kept = [m for m in talk if m.seq >= first]
    assert kept[0].role is Role.USER and sum(map(summaries.estimate_size, kept)) <= 1200
    assert sum(map(summaries.estimate_size, [m for m in talk if m.seq >= first - 2])) > 1200


def test_the_last_turn_is_kept_however_long_it_is() -> None:
    talk = long_talk(3).messages
    assert summaries.find_cut(talk, limit=1) == talk[-1].seq


def test_nothing_is_cut_from_a_single_turn() -> None:
    assert summaries.find_cut(Conversation().ask("a").say("b").messages, limit=1) is None
    assert summaries.find_cut([], limit=1) is None


def test_a_call_and_its_result_are_never_parted() -> None:
    rng = random.Random(7)
    for _ in range(200):
        talk = Conversation()
        for n in range(rng.randint(1, 8)):
            talk.ask("q" * rng.randint(1, 50))
            for step in range(rng.randint(0, 3)):
                talk.call(ToolCall(f"c{n}.{step}", "look", "{}")).result(f"c{n}.{step}", "found")
            talk.say("a" * rng.randint(1, 50))
        first = summaries.find_cut(talk.messages, limit=rng.randint(1, 400))
        kept = [m for m in talk.messages if first is None or m.seq >= first]
        called = {c.id for m in kept for c in m.calls}
        answered = {p.id for m in kept if m.role is Role.TOOL for p in m.parts if isinstance(p, ToolResult)}
        assert called == answered


def overlapping(count: int) -> list[Message]:
    """Each question was there before the one before it was answered."""
    talk = Conversation()
    for n in range(count + 1):
        if n < count:
            talk.ask(f"q{n} " + "x" * 100, turn=f"t{n}")
        if n:
            talk.turn = TurnId(f"t{n - 1}")
            talk.say(f"a{n - 1} " + "y" * 100)
    return talk.messages


def test_a_queue_that_never_empties_is_cut_and_answers_go_with_their_questions() -> None:
    everything = overlapping(9)
    first = summaries.find_cut(build_model_view(everything), limit=500)
    assert first is not None
    kept = build_model_view(drop_summarized([m for m in everything if m.seq >= first]))
    assert [m.text[:2] for m in kept] == ["q7", "a7", "q8", "a8"]


def test_what_was_given_to_a_turn_while_it_ran_is_not_cut_from_it() -> None:
    talk = Conversation().ask("one", turn="t1").ask("two", turn="t2")
    talk.turn = TurnId("t1")
    talk.add(Role.USER, *text_parts("and this")).say("first")
    assert summaries.find_cut(build_model_view(talk.messages), limit=1) is None


async def test_answers_that_came_late_are_summed_up_with_their_questions() -> None:
    talk = overlapping(9)
    history = (
        build_model_view([m for m in talk if m.turn != "t8"]) + Conversation().ask("now?", turn=TURN).messages
    )
    history[-1] = msgspec.structs.replace(history[-1], seq=100)
    with Endpoint(answer("They spoke.")) as endpoint:
        async with an_agent(endpoint, model=SMALL) as agent:
            await collect(agent, a_context(history))
    assert endpoint.refused == []
    told, summed = str(endpoint.requests[-1]), str(endpoint.requests[:-1])
    assert all((f"q{n} " in told) == (f"a{n} " in told) != (f"q{n} " in summed) for n in range(8))


async def test_a_conversation_that_grew_too_long_is_compacted_before_it_is_asked() -> None:
    with Endpoint(answer("They spoke of x and y."), answer("Now this.")) as endpoint:
        async with an_agent(endpoint, model={"context": 1000}) as agent:
            events = await collect(agent, a_context(long_talk(6, size=245).messages))
    assert spoken(events) == "Now this."
    (done,) = [e for e in events if isinstance(e, CompactionEvent)]
    assert done.summary == "They spoke of x and y."
    assert [e.task for e in events if isinstance(e, UsageEvent)] == ["summary", "answer"]
    asked, answered = endpoint.requests
    assert "question 0" in asked["messages"][-1]["content"] and "tools" not in asked
    assert answered["messages"][1]["content"].startswith(f"{SUMMARY_HEADER}\n\nThey spoke of x and y.")
    assert "question 0" not in str(answered) and "and now?" in answered["messages"][-1]["content"]
    assert endpoint.refused == []


async def test_a_provider_that_says_the_context_is_full_is_asked_again_after_a_compaction() -> None:
    with Endpoint(OVERFLOW, answer("Short."), answer("Fine.")) as endpoint:
        async with an_agent(endpoint, model={"context": None}) as agent:
            events = await collect(agent, a_context(long_talk(4).messages))
    assert spoken(events) == "Fine." and any(isinstance(e, CompactionEvent) for e in events)


async def test_a_compaction_that_fails_is_told_and_the_old_view_stays() -> None:
    with Endpoint(DOWN, answer("Still here.")) as endpoint:
        async with an_agent(endpoint, model=SMALL, retry=ONCE) as agent:
            events = await collect(agent, a_context(long_talk(8).messages))
    assert spoken(events) == "Still here."
    assert [type(e) for e in events if isinstance(e, CompactionEvent | CompactionFailedEvent)] == [
        CompactionFailedEvent
    ]
    assert "question 0" in str(endpoint.requests[-1])


async def test_what_is_summarised_goes_in_pieces_that_fit() -> None:
    with Endpoint(answer("So far.")) as endpoint:
        async with an_agent(endpoint, model=SMALL) as agent:
            events = [e async for e in agent.compact(a_context(long_talk(9).messages), "the colours")]
    assert isinstance(events[-1], CompactionEvent)
    assert len(endpoint.requests) > 2
    assert all(len(str(r["messages"][-1]["content"])) < 4 * 500 for r in endpoint.requests)
    assert all(
        "Summary so far:\n\nSo far." in str(r["messages"][1]["content"]) for r in endpoint.requests[1:]
    )
    assert all('"the colours"' in r["messages"][-1]["content"] for r in endpoint.requests)


async def test_there_is_nothing_to_compact_in_a_new_conversation() -> None:
    with Endpoint(answer("x")) as endpoint:
        async with an_agent(endpoint) as agent, aclosing(agent.compact(a_context(), "")) as events:
            with pytest.raises(AgentFailed, match="nothing to compact"):
                await anext(events)


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("Trip to Oslo", "Trip to Oslo"),
        ('Title: "Trip to Oslo".', "Trip to Oslo"),
        ("\n**Trip to Oslo**\nbecause", "Trip to Oslo"),
        ("   ", ""),
        ("word " * 60, ""),
        ("\u200b\u202e", ""),
    ],
)
def test_a_title_of_a_model_is_cleaned(written: str, title: str) -> None:
    assert summaries.clean_title(written) == title


class Begin:
    def __init__(self, stack: AsyncExitStack, database: SqliteDatabase, clock: FakeClock) -> None:
        self.database = database
        self._stack = stack
        self._clock = clock

    async def __call__(self, *scripts: Script, tell: bool = True, **model: object) -> tuple[World, Endpoint]:
        endpoint = self._stack.enter_context(Endpoint(*scripts))
        rule = CompactionPolicy(at=0.5, keep=0.2, tell=tell)
        agent = await self._stack.enter_async_context(
            an_agent(endpoint, model={"tools": False, **model}, retry=ONCE, compaction=rule)
        )
        world = World(self.database, self._clock, agent=agent)
        self._stack.push_async_callback(world.close)
        await world.start()
        return world, endpoint


@pytest.fixture
async def begin(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Begin]:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(SqliteDatabase(tmp_path / "keryx.db"))
        yield Begin(stack, database, clock)


async def test_a_person_asks_for_a_compaction_and_still_sees_everything(begin: Begin) -> None:
    world, endpoint = await begin(answer("A1"), answer("A2"), answer("A3"), answer("In short."), answer("A4"))
    for n in (1, 2, 3):
        turn = await world.ask(f"q{n}")
    done = await world.ask("/compact the dates")
    assert done.state is TurnState.DONE
    assert (await world.sent(4))[-1].startswith("Older messages are summarized.") and "In short." in (
        await world.sent(4)
    )[-1]
    await world.ask("q4")
    seen = await world.transcript(turn.session)
    assert seen[:6] == ["user: q1", "assistant: A1", "user: q2", "assistant: A2", "user: q3", "assistant: A3"]
    assert "notice: In short." in seen
    last = str(endpoint.requests[-1]["messages"])
    assert "In short." in last and "q1" not in last and "q4" in last
    assert endpoint.refused == []
    with pytest.raises(Conflict, match="summarized"):
        await world.hub.undo(OPERATORS, turn.session, 4)


async def test_an_agent_without_a_context_says_so(clock: FakeClock, tmp_path: Path) -> None:
    async with SqliteDatabase(tmp_path / "keryx.db") as database:
        world = World(database, clock)
        await world.start()
        await world.ask("a")
        done = await world.ask("/compact")
        assert done.state is TurnState.DONE
        assert "/compact has nothing to do here" in (await world.transcript(done.session))[-1]
        await world.close()


async def test_a_failed_compaction_is_not_tried_again_at_once_and_later_it_is(begin: Begin) -> None:
    big = "w" * 700
    world, _ = await begin(answer(big), answer(big), DOWN, answer("A3"), answer("A4"), context=600)
    for n in (1, 2, 3, 4):
        turn = await world.ask(f"q{n}")
    shown = await world.transcript(turn.session)
    assert sum("could not be summarized" in line for line in shown) == 1
    told = [t for t in await world.sent(5) if not t.startswith(("w", "A"))]
    assert len(told) == 1 and told[0].startswith("The conversation could not be summarized: ")
    assert await world.read(lambda tx: epochs.find_current(tx, turn.session)) is None
    world.advance(timedelta(minutes=6))
    await world.ask("q5")
    assert await world.read(lambda tx: epochs.find_current(tx, turn.session)) is not None


LONG = "w" * 700
MARKER = "— Older messages were summarized to make room: “First. Second.” —"


async def test_a_chat_is_told_of_a_compaction_that_nobody_asked_for_before_its_answer(begin: Begin) -> None:
    world, _ = await begin(answer(LONG), answer(LONG), answer("First.\nSecond."), answer("A3"), context=600)
    for n in (1, 2, 3):
        await world.ask(f"q{n}")
    assert (await world.sent(4))[2:] == [MARKER, "A3"]


async def test_a_chat_that_wants_no_marker_gets_none(begin: Begin) -> None:
    world, _ = await begin(
        answer(LONG), answer(LONG), answer("In short."), answer("A3"), tell=False, context=600
    )
    for n in (1, 2, 3):
        turn = await world.ask(f"q{n}")
    assert (await world.sent(3))[2:] == ["A3"]
    assert "notice: In short." in await world.transcript(turn.session)


def test_a_marker_is_one_short_line_whatever_the_summary_holds() -> None:
    told = format_marker("one\n\n\u202etwo\x00 " + "very " * 500)
    assert told.startswith("— Older messages were summarized to make room: “one two very")
    assert told.endswith("…” —") and len(told) < 400 and "\n" not in told


@pytest.mark.parametrize("when", list(FaultTiming))
@pytest.mark.parametrize("script", [answer("First. Second."), DOWN], ids=["made", "failed"])
async def test_a_marker_is_sent_once_when_nobody_knows_of_its_commit(
    begin: Begin, script: Script, when: FaultTiming
) -> None:
    world, _ = await begin(answer(LONG), answer(LONG), script, answer("A3"), context=600)
    for n in (1, 2):
        turn = await world.ask(f"q{n}")
    fault = DatabaseFault("turn.progress", when)
    await world.node.stop()
    await world.start(CrashingDatabase(begin.database, fault))
    assert (await world.flow(world.ask("q3"))).state is TurnState.DONE
    assert fault.hits == 1
    marked = [t for t in await world.flow(world.sent(4)) if t == MARKER or "could not be summarized" in t]
    assert len(marked) == 1
    notices = [t for t in await world.transcript(turn.session) if t.startswith("notice")]
    assert len(notices) == 1


@pytest.mark.parametrize("when", list(FaultTiming))
@pytest.mark.parametrize("label", ["turn.progress", "turn.finish", "turn.claim"])
async def test_a_crash_at_any_commit_of_a_compaction_leaves_one_chain_of_epochs(
    begin: Begin, label: str, when: FaultTiming
) -> None:
    world, endpoint = await begin(answer("A1"), answer("A2"), answer("In short."))
    for n in (1, 2):
        turn = await world.ask(f"q{n}")

    def die(struck: str) -> None:
        world.node.die()
        raise Unavailable(f"killed at {struck}")

    fault = DatabaseFault(label, when, strike=die)
    await world.node.stop()
    await world.start(CrashingDatabase(begin.database, fault))
    said = await world.say("/compact")
    await world.eventually(lambda: fault.hits == 1)
    await world.restart()
    assert (await world.settle(said)).state is TurnState.DONE
    found = await world.read(lambda tx: epochs.list_all(tx, turn.session))
    assert [e.summary for e in found] == ["In short."]
    session = await world.read(lambda tx: sessions.get(tx, turn.session))
    assert session.epoch == 1
    assert endpoint.refused == []


async def test_a_session_of_many_messages_keeps_answering_with_a_bounded_prompt(begin: Begin) -> None:
    world, endpoint = await begin(answer("fine " + "z" * 300), context=1000)
    turn = await world.ask("question 0")
    for n in range(1, 60):
        await world.ask(f"question {n} " + "x" * 300)
    sizes = [len(str(r["messages"])) for r in endpoint.requests]
    assert max(sizes) < 4 * 1000
    assert len(await world.read(lambda tx: epochs.list_all(tx, turn.session))) > 3
    assert (await world.open(turn.session)).session.messages > 120
    assert endpoint.refused == []


async def test_the_model_names_a_conversation_after_its_first_answer(begin: Begin) -> None:
    world, endpoint = await begin(
        answer("Oslo is fine."), answer("Trip to Oslo"), answer("Yes."), titles=True
    )
    turn = await world.ask("where shall I go in may, says ann")
    await world.until(lambda tx: sessions.get(tx, turn.session).title == "Trip to Oslo")
    assert (await world.open(turn.session)).session.title_by is TitleBy.MODEL
    await world.ask("sure?")
    assert len(endpoint.requests) == 3
    used = await world.read(lambda tx: tx.rows("select task from usage order by id"))
    assert [task for (task,) in used] == ["answer", "title", "answer"]


async def test_a_title_that_cannot_be_made_leaves_the_one_by_rule(begin: Begin) -> None:
    world, endpoint = await begin(answer("Oslo is fine."), DOWN, answer("Yes."), titles=True)
    turn = await world.ask("where shall I go")
    await world.eventually(lambda: len(endpoint.requests) == 2)
    await world.ask("sure?")
    assert (await world.open(turn.session)).session.title == "where shall I go"


async def test_a_title_of_a_person_is_never_replaced(begin: Begin) -> None:
    world, endpoint = await begin(answer("Oslo."), answer("Trip to Oslo"), titles=True)
    turn = await world.ask("where?")
    await world.hub.rename(OPERATORS, turn.session, "mine")
    await world.eventually(lambda: len(endpoint.requests) == 2)
    await world.ask("again?")
    assert (await world.open(turn.session)).session.title == "mine"


async def test_a_session_of_five_thousand_messages_goes_on_with_a_short_prompt(begin: Begin) -> None:
    world, endpoint = await begin(answer("In short."), context=8192)
    turn = await world.ask("the first of many")

    def fill(tx: Transaction) -> None:
        for n in range(2500):
            for role in (Role.USER, Role.ASSISTANT):
                messages.append(tx, turn.session, role, text_parts(f"{role} {n} " + "z" * 80))

    await world.database.write("fill", fill)
    before = len(endpoint.requests)
    assert (await world.ask("and now?")).state is TurnState.DONE
    sizes = [len(str(r["messages"])) for r in endpoint.requests[before:]]
    assert max(sizes) < 4 * 8192 and len(sizes) < 20
    await world.ask("still there?")
    assert len(str(endpoint.requests[-1]["messages"])) < 4 * 8192
    assert (await world.open(turn.session)).session.messages > 5000
    assert endpoint.refused == []
