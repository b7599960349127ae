"""An agent asks, and somebody answers: from any place, in any process, in time or not."""

import asyncio
from datetime import timedelta

import pytest
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, FAKE, OPERATORS, World, inbound, viewer

from keryx.agents.permission_rules import find_scope
from keryx.core.changes import ChangeKind
from keryx.core.deliveries import REPEAT_MARK, Target
from keryx.core.errors import Conflict, Forbidden, Invalid, NotFound
from keryx.core.ids import QuestionId, SessionId
from keryx.core.ports.adapter import Receipt
from keryx.core.ports.agent import TextDelta, TurnContext
from keryx.core.questions import ASKER_GONE_NOTE, AskedQuestion, Question, QuestionState
from keryx.core.source import ChatType, Source
from keryx.core.turns import TurnState
from keryx.engine.hub import HubQuestions
from keryx.engine.units import control
from keryx.store import questions
from keryx.store.admin.verify import verify
from keryx.store.db import Database, Transaction
from keryx.testing import ScriptedAgent
from keryx.testing.fault_injection import CrashingDatabase, DatabaseFault, FaultTiming

HOW = "Answer 1, 2 or 3, or /allow /always /deny."


async def asked(
    world: World, text: str = "!ask rm -rf /tmp/x", **fields: str
) -> tuple[Receipt, AskedQuestion]:
    """Say something that makes the agent ask; gives the receipt and the question that waits."""
    receipt = await world.say(text, **fields)
    assert receipt.session
    session = receipt.session
    await world.until(lambda tx: bool(questions.list_open(tx, session)))
    (found,) = await world.read(questions.list_open, session)
    return receipt, found


async def answer(world: World, receipt: Receipt) -> str:
    await world.settle(receipt)
    return (await world.transcript(receipt.session))[-1]


async def test_a_question_goes_to_the_place_that_asked_and_an_answer_there_goes_on(world: World) -> None:
    receipt, _ = await asked(world)
    said, told = await world.sent(2)
    assert said == "Asking. "
    assert told == (
        "May the echo agent go on?\n\n```\nrm -rf /tmp/x\n```\n\n"
        f"1. Allow\n2. Always allow in this conversation\n3. Deny\n\n{HOW}"
    )
    assert await world.command("1") == "Allowed once: May the echo agent go on?"
    assert await answer(world, receipt) == "assistant: Answered: allow"
    assert not await verify(world.database)


@pytest.mark.parametrize(
    ("said", "chosen"),
    [("yes", "allow"), ("No", "deny"), ("/always", "always"), ("/deny", "deny"), ("/answer 3", "deny"),
     ("/answer 1 deny", "deny"), ("Always allow in this conversation", "always"), (" 3 ", "deny")],
)  # fmt: skip
async def test_answers_in_a_chat(world: World, said: str, chosen: str) -> None:
    receipt, _ = await asked(world)
    await world.command(said)
    assert await answer(world, receipt) == f"assistant: Answered: {chosen}"


async def test_other_speech_is_no_answer(world: World) -> None:
    receipt, question = await asked(world)
    waiting = await world.say("what would that do?")
    assert waiting.turn and waiting.reply is None
    assert await world.command("/answer maybe") == (
        "'maybe' is not an answer to “May the echo agent go on?”: answer 1, 2 or 3, or /allow /always /deny."
    )
    assert await world.command("/answer") == (
        "Say what you answer: /answer 1, or /answer <number or id of the question> 1."
    )
    assert (await world.command(f"/answer {question.id} no")).startswith("Denied")
    await world.settle(receipt)
    assert await world.command("/allow") == "No open questions here."
    assert (await world.say("yes")).turn, "without a question, yes is something to say"


async def test_an_answer_comes_from_another_process(begin: Begin) -> None:
    world = await begin()
    receipt, question = await asked(world)
    other = await world.start()
    assert [a.id for a in await other.hub.questions.list_open(OPERATORS)] == [question.id]
    given = await other.hub.questions.answer(viewer("ann"), question.id, "allow")
    assert (given.state, given.answer, given.answered_by) == (QuestionState.ANSWERED, "allow", "ann")
    assert await answer(world, receipt) == "assistant: Answered: allow"
    with pytest.raises(Conflict, match="is closed"):
        await other.hub.questions.answer(viewer("ann"), question.id, "deny")


async def test_a_snapshot_shows_what_waits_and_the_feed_tells(world: World) -> None:
    cursor = await world.hub.head_cursor()
    receipt, question = await asked(world)
    assert [a.id for a in (await world.open(receipt.session)).questions] == [question.id]
    await world.hub.questions.answer(OPERATORS, question.id, "2")
    seen: list[str] = []
    async with asyncio.timeout(10):
        async for change in world.hub.follow(OPERATORS, cursor):
            if change.kind is ChangeKind.QUESTION:
                assert (change.subject, change.session) == (question.id, receipt.session)
                seen.append(change.note)
                if len(seen) == 2:
                    break
    assert seen == ["open", "answered"]
    assert (await world.open(receipt.session)).questions == []
    story = await world.hub.trace(OPERATORS, f"{receipt.session}.{receipt.seq}")
    assert "asked: May the echo agent go on?" in [e.what for e in story.events]


async def test_only_who_asked_and_the_owner_and_the_operator_may_answer(world: World) -> None:
    receipt, question = await asked(world)
    with pytest.raises(NotFound):
        await world.hub.questions.answer(viewer("bob"), question.id, "allow")
    assert await world.hub.questions.list_open(viewer("bob")) == []
    assert receipt.session
    with pytest.raises(NotFound):
        await world.hub.questions.list_for_session(viewer("bob"), receipt.session)
    with pytest.raises(NotFound):
        await world.hub.questions.get(viewer("ann"), QuestionId("nothing"))
    with pytest.raises(Invalid, match="an answer is missing"):
        await world.hub.questions.answer(viewer("ann"), question.id, " ")
    assert await world.hub.questions.get(viewer("ann"), question.id) == question


async def test_where_several_people_talk_only_the_asker_answers(world: World) -> None:
    async def say(text: str, user: str) -> Receipt:
        source = Source(
            platform=FAKE, chat="9", chat_type=ChatType.GROUP, thread="t", user=user, user_name=user
        )
        return await world.hub.receive(
            inbound(text, user=user, source=source, reply=Target(FAKE, chat="9", thread="t"))
        )

    await world.settle(await say("hello", "ann"))
    receipt = await say("!ask it", "bob")
    assert receipt.session
    session = receipt.session
    await world.until(lambda tx: bool(questions.list_open(tx, session)))
    (question,) = await world.read(questions.list_open, session)
    assert (question.owner, question.asker) == ("ann", "bob")
    with pytest.raises(Forbidden, match="only the person who asked"):
        await world.hub.questions.answer(viewer("ann"), question.id, "allow")
    assert (await say("/allow", "ann")).reply == (
        "Only the person who asked, or the operator, may answer this question."
    )
    assert (await say("yes", "ann")).turn, "from somebody else, yes is something to say"
    assert [a.id for a in await world.hub.questions.list_open(viewer("bob"))] == [question.id]
    assert (await say("yes", "bob")).reply
    await world.settle(receipt)
    assert "assistant: Answered: allow" in await world.transcript(session)


async def test_a_lasting_consent_is_not_asked_for_again(world: World) -> None:
    receipt, _ = await asked(world)
    await world.command("/always")
    await world.settle(receipt)
    assert await answer(world, await world.say("!ask again")) == "assistant: Answered: allow"
    other, _ = await asked(world, chat="2")
    await world.command("/deny", chat="2")
    assert await answer(world, other) == "assistant: Answered: deny"


async def test_a_lasting_consent_can_be_seen_and_taken_back(world: World) -> None:
    receipt, _ = await asked(world)
    assert await world.command("/permissions") == "Nothing is always allowed or denied here."
    await world.command("/always")
    await world.settle(receipt)
    (kept,) = await world.hub.questions.list_consents(viewer("ann"), session=receipt.session)
    assert (kept.session, kept.label) == (receipt.session, "allowed")
    assert f"{kept.tool}: always allowed, since " in await world.command("/permissions")
    refused = await world.command("/permissions forget nothing")
    assert refused == f"There is no permission 'nothing'; there is {kept.tool}."
    assert await world.command("/permissions forget all") == f"The agent asks again for {kept.tool}."
    assert await world.hub.questions.list_consents(viewer("ann")) == []
    await asked(world)


async def test_always_covers_what_the_question_showed_and_nothing_else(begin: Begin) -> None:
    async def run(context: TurnContext) -> None:
        command = context.turn_messages[0].text
        scope = find_scope("run_in_terminal", {"command": command}, cwd="")
        found.append(
            await context.ask(
                Question(
                    key=command, title="May I?", detail=command, tool="run_in_terminal", rules=scope.rules
                )
            )
        )

    found: list[str | None] = []
    world = await begin(agent=ScriptedAgent([run, TextDelta("Done.")]))
    receipt, _ = await asked(world, "git status")
    await world.command("/always")
    await world.settle(receipt)
    await world.settle(await world.say("git log"))
    assert found == ["always", "allow"], "the same program is not asked for again"
    for command in ("rm -rf /", "git log; rm -rf /"):
        receipt, _ = await asked(world, command)
        await world.command("/deny")
        await world.settle(receipt)
    assert found[2:] == ["deny", "deny"]
    assert "run_in_terminal(git *): always allowed" in await world.command("/permissions")
    forgotten = await world.command("/permissions forget run_in_terminal")
    assert forgotten == "The agent asks again for run_in_terminal(git *)."
    await asked(world, "git status")


async def test_nobody_takes_back_what_is_not_theirs(world: World) -> None:
    receipt, _ = await asked(world)
    await world.command("/always")
    await world.settle(receipt)
    assert receipt.session
    with pytest.raises(NotFound):
        await world.hub.questions.forget_consents(viewer("bob"), receipt.session, "all")
    assert await world.hub.questions.list_consents(viewer("bob")) == []


async def test_nobody_answers_in_time(begin: Begin) -> None:
    limits = AT_ONCE.limits.__class__(
        settle=timedelta(0), question=timedelta(minutes=30), silence=timedelta(minutes=1)
    )
    world = await begin(policy=AT_ONCE.__class__(limits=limits))
    receipt, question = await asked(world)
    await world.flow(world.settle(receipt), step=20)
    assert await answer(world, receipt) == "assistant: Answered: nothing"
    closed = await world.hub.questions.get(OPERATORS, question.id)
    assert closed.state is QuestionState.EXPIRED and closed.closed_at
    assert closed.closed_at - closed.created_at >= timedelta(minutes=30), "silence did not end it before"


async def test_the_silence_after_an_answer_counts_again(begin: Begin) -> None:
    async def hush(context: TurnContext) -> None:
        await context.ask(Question(key="1", title="May I?"))
        await asyncio.Event().wait()

    world = await begin(agent=ScriptedAgent([hush]))
    receipt, question = await asked(world)
    await world.hub.questions.answer(OPERATORS, question.id, "allow")
    turn = await world.flow(world.settle(receipt), step=30)
    assert turn.state is TurnState.FAILED
    assert turn.error and "said nothing for 10 minutes" in turn.error


async def test_a_stopped_turn_cancels_its_question(world: World) -> None:
    receipt, question = await asked(world)
    await world.command("/stop")
    turn = await world.settle(receipt)
    assert turn.state is TurnState.CANCELLED
    assert (await world.hub.questions.get(OPERATORS, question.id)).state is QuestionState.CANCELLED
    assert receipt.session
    listed = await world.hub.questions.list_for_session(viewer("ann"), receipt.session)
    assert [a.state for a in listed] == [QuestionState.CANCELLED]


async def test_after_a_crash_the_answer_that_was_given_is_used(begin: Begin) -> None:
    world = await begin()
    receipt, question = await asked(world)
    await world.crash()
    await HubQuestions(world.database).answer(viewer("ann"), question.id, "allow")
    world.advance(AT_ONCE.limits.lease + timedelta(seconds=1))
    await world.start()
    assert await answer(world, receipt) == "assistant: Answered: allow"
    # A crash in mid-send may show the question again, with its mark.
    texts = [t for t in await world.sent(2) if HOW in t]
    assert len(texts) - len([t for t in texts if t.startswith(REPEAT_MARK)]) <= 1, "the place was asked once"
    assert len({t.removeprefix(REPEAT_MARK) for t in texts}) == 1


async def test_after_a_crash_a_question_still_waits(begin: Begin) -> None:
    world = await begin()
    receipt, question = await asked(world)
    await world.restart()
    await world.running(receipt)
    assert (await world.hub.questions.get(OPERATORS, question.id)).state is QuestionState.OPEN
    await world.hub.questions.answer(viewer("ann"), question.id, "deny")
    assert await answer(world, receipt) == "assistant: Answered: deny"


async def test_free_text_is_the_answer_to_a_question_without_options(begin: Begin) -> None:
    async def where(context: TurnContext) -> None:
        found.append(await context.ask(Question(key="1", title="Which city?", options=())))

    found: list[str | None] = []
    world = await begin(agent=ScriptedAgent([where, TextDelta("Good.")]))
    receipt, _ = await asked(world, "book a hotel")
    assert (await world.sent())[0] == "Which city?\n\nAnswer in your own words."
    await world.command("Oslo, please")
    await world.settle(receipt)
    assert found == ["Oslo, please"]


async def test_questions_of_one_turn_are_put_one_after_the_other(begin: Begin) -> None:
    async def both(context: TurnContext) -> None:
        titles = ("First?", "Second?")
        answers = await asyncio.gather(*(context.ask(Question(key=t, title=t)) for t in titles))
        found.extend(answers)

    found: list[str | None] = []
    world = await begin(agent=ScriptedAgent([both, TextDelta("Done.")]))
    receipt, first = await asked(world, "go")
    await world.command("yes")
    assert receipt.session
    session = receipt.session
    await world.until(lambda tx: [a.id for a in questions.list_open(tx, session)] not in ([], [first.id]))
    await world.command("no")
    await world.settle(receipt)
    assert found == ["allow", "deny"]


async def test_several_that_wait_are_told_apart(begin: Begin) -> None:
    """An attempt that died asked one thing, and the next asks another."""

    async def ask(context: TurnContext) -> None:
        await context.ask(Question(key=str(context.attempt), title=f"Try {context.attempt}?"))

    world = await begin(agent=ScriptedAgent([ask, TextDelta("Done.")]))
    receipt, _ = await asked(world, "go")
    await world.restart()
    assert receipt.session
    session = receipt.session
    await world.until(lambda tx: len(questions.list_open(tx, session)) == 2)
    reply = await world.command("/allow")
    assert "1. Try 1?\n2. Try 2?" in reply
    assert (
        await world.command("/allow 9")
        == "There is no open question '9' here: /allow alone answers the only one."
    )
    assert await world.command("/allow 2") == "Allowed once: Try 2?"
    await world.settle(receipt)
    states = [a.state for a in await world.hub.questions.list_for_session(OPERATORS, session)]
    assert states == [QuestionState.ANSWERED, QuestionState.CANCELLED]


@pytest.mark.parametrize("when", list(FaultTiming))
@pytest.mark.parametrize("label", ["question.ask", "question.take"])
async def test_a_store_that_is_away_for_a_moment_asks_nobody_twice(
    begin: Begin, database: Database, label: str, when: FaultTiming
) -> None:
    fault = DatabaseFault(label, when)
    world = await begin(database=CrashingDatabase(database, fault))
    receipt = await world.say("!ask rm x")
    assert receipt.session
    session = receipt.session
    await world.flow(world.until(lambda tx: bool(questions.list_open(tx, session))), step=0.05)
    await world.command("yes")
    await world.flow(world.settle(receipt), step=0.05)
    assert fault.hits == 1
    assert (await world.transcript(session))[-1] == "assistant: Answered: allow"
    assert len([t for t in await world.sent(4) if HOW in t]) == 1
    assert not await verify(world.database)


async def test_of_two_answers_at_once_one_counts(world: World) -> None:
    receipt, question = await asked(world)
    given = await asyncio.gather(
        world.hub.questions.answer(viewer("ann"), question.id, "allow"),
        world.hub.questions.answer(OPERATORS, question.id, "deny"),
        return_exceptions=True,
    )
    (kept,) = [g for g in given if isinstance(g, AskedQuestion)]
    assert [type(g) for g in given if not isinstance(g, AskedQuestion)] == [Conflict]
    assert await answer(world, receipt) == f"assistant: Answered: {kept.answer}"
    assert not await verify(world.database)


async def test_an_answer_and_a_stop_at_once_leave_one_ending(world: World) -> None:
    receipt, question = await asked(world)
    assert receipt.session
    await asyncio.gather(
        world.hub.questions.answer(viewer("ann"), question.id, "allow"),
        world.hub.stop(viewer("ann"), receipt.session),
        return_exceptions=True,
    )
    turn = await world.settle(receipt)
    assert turn.state in (TurnState.DONE, TurnState.CANCELLED)
    assert (await world.open(receipt.session)).questions == []
    assert not await verify(world.database)


async def left(world: World, text: str = "!ask rm x") -> tuple[SessionId, AskedQuestion]:
    """A question whose turn only a program that is gone could run, after another node has noticed."""
    receipt, question = await asked(world, text, pin=world.node.service.worker.id)
    await world.restart()
    assert (await world.settle(receipt)).state is TurnState.FAILED
    assert receipt.session
    return receipt.session, await world.hub.questions.get(OPERATORS, question.id)


@pytest.mark.parametrize("chosen", ["allow", "deny"])
async def test_an_answer_to_a_question_that_was_left_counts_once(world: World, chosen: str) -> None:
    session, question = await left(world)
    assert question.state is QuestionState.OPEN and question.note == ASKER_GONE_NOTE
    assert (await world.open(session)).questions == [question]
    assert (await world.command(f"/{chosen}")).endswith(ASKER_GONE_NOTE)
    assert await answer(world, await world.say("!ask rm x")) == f"assistant: Answered: {chosen}"
    _, again = await asked(world, "!ask rm x")
    assert not again.left
    assert not await verify(world.database)


async def test_it_counts_for_the_very_same_thing_only(world: World) -> None:
    await left(world)
    await world.command("yes")
    _, other = await asked(world, "!ask rm y")
    assert other.question.detail == "rm y"


async def test_an_answer_means_what_an_agent_waits_for_rather_than_what_was_left(world: World) -> None:
    session, question = await left(world)
    receipt = await world.say("!ask rm y")
    await world.until(lambda tx: len(questions.list_open(tx, session)) == 2)
    assert await world.command("no") == "Denied: May the echo agent go on?"
    assert await answer(world, receipt) == "assistant: Answered: deny"
    assert (await world.hub.questions.get(OPERATORS, question.id)).state is QuestionState.OPEN


async def test_what_was_left_is_closed_when_the_same_is_asked_again(world: World) -> None:
    session, question = await left(world)
    await world.say("!ask rm x")
    await world.until(lambda tx: [a.left for a in questions.list_open(tx, session)] == [False])
    assert (await world.hub.questions.get(OPERATORS, question.id)).state is QuestionState.CANCELLED


async def test_what_was_left_runs_out_and_nothing_is_kept(world: World) -> None:
    session, question = await left(world)
    world.advance(question.expires_at - world.clock.now())
    # The sweep may close it before the answer comes.
    with pytest.raises(Conflict, match=r"not answered in time|is closed"):
        await HubQuestions(world.database).answer(OPERATORS, question.id, "allow")
    await world.flow(world.until(lambda tx: not questions.list_open(tx, session)))
    assert (await world.hub.questions.get(OPERATORS, question.id)).state is QuestionState.EXPIRED
    _, again = await asked(world, "!ask rm x")
    assert again.state is QuestionState.OPEN


async def test_the_answer_of_a_turn_that_a_person_stopped_is_not_kept(world: World) -> None:
    receipt, question = await asked(world, "!ask rm x", pin=world.node.service.worker.id)
    await world.crash()
    assert receipt.turn
    turn = receipt.turn

    def stop(tx: Transaction) -> None:
        control.cancel(tx, turn)

    await HubQuestions(world.database).answer(OPERATORS, question.id, "allow")
    await world.database.write("test.stop", stop)
    world.advance(AT_ONCE.limits.lease + timedelta(seconds=1))
    await world.start()
    assert (await world.settle(receipt)).state is TurnState.CANCELLED
    _, again = await asked(world, "!ask rm x")
    assert again.state is QuestionState.OPEN


async def test_deleting_a_session_closes_what_was_left(world: World) -> None:
    session, question = await left(world)
    await world.hub.delete(OPERATORS, session)
    assert await world.hub.questions.list_open(OPERATORS) == []
    assert (await world.hub.questions.get(OPERATORS, question.id)).state is QuestionState.CANCELLED
