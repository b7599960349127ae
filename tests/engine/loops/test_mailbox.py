"""How the words of a turn are joined on their way to the store."""

import asyncio

from keryx.core.messages import ToolCall
from keryx.core.ports.agent import TextDelta, ToolCallEvent, UsageEvent
from keryx.core.usage import Usage
from keryx.engine.loops.mailbox import AgentExit, CancelRequest, Mailbox


async def test_the_first_words_are_taken_before_an_agent_that_has_more_goes_on() -> None:
    mailbox = Mailbox()
    taken = asyncio.create_task(mailbox.take())
    await asyncio.sleep(0)
    for word in ("one", "two", "three"):
        await mailbox.put_event(TextDelta(word), until_stored=False)
    assert await taken == [TextDelta("one"), TextDelta("two")]
    assert await mailbox.take() == [TextDelta("three")]


async def test_what_is_said_at_once_is_taken_with_its_end() -> None:
    mailbox = Mailbox()
    taken = asyncio.create_task(mailbox.take())
    await asyncio.sleep(0)
    used = UsageEvent(Usage(model="m"))
    await mailbox.put_event(TextDelta("all of it"), until_stored=False)
    await mailbox.put_event(used, until_stored=False)
    mailbox.put(AgentExit())
    assert await taken == [TextDelta("all of it"), used, AgentExit()]


async def test_a_stop_does_not_wait_for_words_to_be_joined() -> None:
    mailbox = Mailbox()
    await mailbox.put_event(TextDelta("one"), until_stored=False)
    await mailbox.take()
    await mailbox.put_event(TextDelta("two"), until_stored=False)
    taking = asyncio.create_task(mailbox.take())
    await asyncio.sleep(0)
    mailbox.put(CancelRequest())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert taking.done()
    assert await taking == [TextDelta("two"), CancelRequest()]


async def test_an_agent_is_resumed_only_when_its_step_is_stored() -> None:
    mailbox = Mailbox()
    step = ToolCallEvent((ToolCall("c1", "grep", "{}"),))
    putting = asyncio.create_task(mailbox.put_event(step, until_stored=True))
    assert await mailbox.take() == [step]
    assert not putting.done()
    mailbox.mark_stored(1)
    await putting


async def test_an_agent_that_runs_ahead_is_stored_in_long_stretches() -> None:
    mailbox = Mailbox()

    async def talk() -> None:
        for n in range(200):
            await mailbox.put_event(TextDelta(str(n)), until_stored=False)
        mailbox.put(AgentExit())

    talking = asyncio.create_task(talk())
    stretches: list[int] = []
    while sum(stretches) < 201:
        stretches.append(len(await mailbox.take()))
        for _ in range(3):  # Meanwhile the agent gets as far as it may.
            await asyncio.sleep(0)
        mailbox.mark_stored(stretches[-1])
    await talking
    assert len(stretches) <= 5


async def test_an_agent_with_long_words_waits_for_the_store_and_does_not_hurry_it() -> None:
    mailbox = Mailbox()
    long = TextDelta("x" * 16_384)
    await mailbox.put_event(long, until_stored=False)
    assert await mailbox.take() == [long]

    async def talk() -> None:
        for _ in range(20):
            await mailbox.put_event(long, until_stored=False)

    talking = asyncio.create_task(talk())
    mailbox.mark_stored(1)
    stretches: list[int] = []
    while sum(stretches) < 20:
        taking = asyncio.create_task(mailbox.take())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not taking.done()
        stretches.append(len(await taking))
        mailbox.mark_stored(stretches[-1])
    await talking
    assert max(stretches) == 3


async def test_the_first_words_do_not_wait_for_what_came_before_them() -> None:
    mailbox = Mailbox()
    await mailbox.put_event(UsageEvent(Usage(model="m")), until_stored=False)
    await mailbox.take()
    taking = asyncio.create_task(mailbox.take())
    await asyncio.sleep(0)
    await mailbox.put_event(TextDelta("one"), until_stored=False)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert taking.done()
    assert await taking == [TextDelta("one")]
