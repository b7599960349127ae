"""Turns of the engine with the LLM agent: what people see after a crash, a failure, a cancel and a stall."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from tests.agents.conversation import Tools, an_agent
from tests.engine.world import World
from tests.fakes.endpoint import OVERFLOW, Endpoint, Refusal, Script, Stall, answer, calls, says

from keryx.core.messages import INTERRUPTED_OUTPUT
from keryx.core.turns import TurnState
from keryx.store.db.sqlite import SqliteDatabase
from keryx.testing import FakeClock

FILTERED = Refusal(status=400, message="flagged by the content policy", code="content_policy_violation")


class Begin:
    """Begins worlds whose agent talks to an endpoint with these scripts."""

    def __init__(self, stack: AsyncExitStack, database: SqliteDatabase, clock: FakeClock) -> None:
        self._stack = stack
        self._database = database
        self._clock = clock

    async def __call__(self, *scripts: Script, tools: Tools | None = None) -> tuple[World, Endpoint]:
        endpoint = self._stack.enter_context(Endpoint(*scripts))
        agent = await self._stack.enter_async_context(an_agent(endpoint, toolbox=tools or Tools()))
        world = World(self._database, self._clock, agent=agent)
        self._stack.push_async_callback(world.close)
        await world.start()
        return world, endpoint


@pytest.fixture
async def begin(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Begin]:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(SqliteDatabase(tmp_path / "keryx.db"))
        yield Begin(stack, database, clock)


def told(endpoint: Endpoint, n: int = -1) -> list[str]:
    """What a request says after the place, without the times."""
    return [
        re.sub(r"\([A-Z][a-z]+day [^)]*\)\n", "", m["content"]) for m in endpoint.requests[n]["messages"][1:]
    ]


async def test_a_crash_in_mid_answer_keeps_the_words_with_a_mark_and_asks_again(begin: Begin) -> None:
    world, endpoint = await begin([*says("Half an"), Stall()], answer("A whole answer."), answer("Bye."))
    said = await world.say("hi")
    await world.drafted(said, "Half an")
    await world.restart()
    await world.settle(said)
    assert await world.transcript(said.session) == [
        "user: hi",
        "assistant: Half an [interrupted]",
        "assistant: A whole answer.",
    ]
    assert await world.sent() == ["A whole answer."]
    await world.ask("bye")
    assert endpoint.refused == []
    assert told(endpoint, 2) == ["hi", "A whole answer.", "bye"]


async def test_a_crash_inside_a_step_runs_nothing_again_that_had_answered(begin: Begin) -> None:
    tools = Tools()
    tools.gate = asyncio.Event()
    step = calls(("c1", "send", "{}"), ("c2", "slow", "{}"), ("c3", "look", "{}"))
    world, endpoint = await begin(step, answer("Done."), tools=tools)
    said = await world.say("go")
    await world.eventually(lambda: len(tools.called) == 3)
    await world.until(
        lambda tx: (tx.row("select count(*) from messages where role = 'tool'") or (0,))[0] == 2
    )
    await world.restart()
    await world.settle(said)
    assert [name for name, _ in tools.called] == ["send", "slow", "look"]
    results = [m["content"] for m in endpoint.requests[-1]["messages"] if m["role"] == "tool"]
    assert results == ["send found nothing", INTERRUPTED_OUTPUT, "look found nothing"]
    assert endpoint.refused == []


async def test_a_failure_is_a_notice_and_the_session_lives_on(begin: Begin) -> None:
    world, endpoint = await begin(OVERFLOW, answer("Better."))
    turn = await world.ask("hi")
    assert turn.state is TurnState.FAILED
    await world.ask("again")
    lines = await world.transcript(turn.session)
    assert lines[1].startswith("notice: The conversation no longer fits")
    assert lines[-1] == "assistant: Better."
    assert told(endpoint) == ["again"]


async def test_what_the_provider_refuses_is_set_aside_and_retry_sends_it_again(begin: Begin) -> None:
    step = calls(("c1", "look", "{}"))
    world, endpoint = await begin(answer("A1"), step, FILTERED, answer("A2"), answer("A3"))
    first = await world.ask("hello")
    assert (await world.ask("something rude")).state is TurnState.FAILED
    assert (await world.sent(2))[1].endswith(
        "Your message is left out of the conversation from here on; /retry sends it again."
    )
    assert await world.transcript(first.session) == [
        "user: hello",
        "assistant: A1",
        "user: something rude [failed]",
        "assistant: <look>",
        "tool: <look found nothing>",
        f"notice: {(await world.sent())[1]}",
    ]
    await world.ask("something nice")
    assert told(endpoint) == ["hello", "A1", "something nice"]
    await world.command("/undo")
    retried = await world.say("/retry")
    await world.settle(retried)
    assert told(endpoint) == ["hello", "A1", "something rude"]


async def test_a_question_that_failed_in_an_outage_is_not_joined_to_the_next(begin: Begin) -> None:
    wrong_key = Refusal(status=401, message="no", code="invalid_api_key")
    world, endpoint = await begin(wrong_key, answer("Better."), answer("Both."))
    turn = await world.ask("one", quote="earlier")
    assert turn.state is TurnState.FAILED
    await world.ask("two")
    assert told(endpoint) == ["two"]
    await world.command("/undo")
    await world.settle(await world.say("/retry"))
    assert told(endpoint) == ['(in reply to "earlier")\none']


async def test_the_steps_of_a_turn_that_failed_in_an_outage_stay_known(begin: Begin) -> None:
    wrong_key = Refusal(status=401, message="no", code="invalid_api_key")
    world, endpoint = await begin(calls(("c1", "look", "{}")), wrong_key, answer("Done."))
    assert (await world.ask("look around")).state is TurnState.FAILED
    await world.ask("go on")
    roles = [m["role"] for m in endpoint.requests[-1]["messages"][1:]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


async def test_a_cancel_in_mid_answer_keeps_what_was_shown_and_frees_the_connection(begin: Begin) -> None:
    world, endpoint = await begin([*says("Half an"), Stall()], answer("Next."))
    said = await world.say("hi")
    await world.drafted(said, "Half an")
    await world.say("/stop")
    turn = await world.settle(said)
    assert turn.state is TurnState.CANCELLED
    await world.eventually(lambda: endpoint.dropped == 1)
    assert (await world.transcript(said.session))[1] == "assistant: Half an [cancelled]"


async def test_a_model_that_stands_still_for_ten_minutes_ends_the_turn(begin: Begin) -> None:
    world, endpoint = await begin([*says("Half an"), Stall()])
    said = await world.say("hi")
    await world.drafted(said, "Half an")
    turn = await world.flow(world.settle(said), step=60)
    assert turn.state is TurnState.FAILED and "said nothing for 10 minutes" in (turn.error or "")
    await world.eventually(lambda: endpoint.dropped == 1)


async def test_each_message_tells_when_it_was_sent_in_the_zone_of_the_person(
    begin: Begin, clock: FakeClock
) -> None:
    world, endpoint = await begin(answer("A1"), answer("A2"), answer("A3"))
    await world.ask("hi")
    clock.advance(90_000)
    await world.ask("and now?")
    assert [m["content"] for m in endpoint.requests[1]["messages"][1:]] == [
        "(Sunday 2026-03-01 12:00, UTC)\nhi",
        "A1",
        "(Monday 2026-03-02 13:00, UTC)\nand now?",
    ]
    assert "Asia/Tokyo" in await world.command("/zone Asia/Tokyo")
    await world.ask("thanks")
    assert endpoint.requests[2]["messages"][-1]["content"] == "(Monday 2026-03-02 22:00, Asia/Tokyo)\nthanks"


async def test_a_prompt_begins_with_the_bytes_of_the_prompt_before(begin: Begin, clock: FakeClock) -> None:
    step = calls(("c1", "look", '{"q": "oslo"}'), ("c2", "fail", "{}"))
    world, endpoint = await begin(answer("A1"), step, answer("A2"), answer("A3"), answer("A4"))
    for n in (1, 2, 3):
        await world.ask(f"question {n} with ünïcode 🦊")
        clock.advance(3700)
    await world.restart()
    await world.ask("after a restart")
    prompts = [json.dumps(r["messages"])[:-1] for r in endpoint.requests]
    assert len(prompts) == 5
    assert all(later.startswith(earlier) for earlier, later in pairwise(prompts))
    assert len({json.dumps(r.get("tools")) for r in endpoint.requests}) == 1
