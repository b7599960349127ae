"""Threads: one that is opened on an answer begins with the conversation that led to it, and needs no mention."""

from itertools import count
from typing import Any

import msgspec
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, FAKE, OPERATORS, Scenes, World, inbound

from keryx.core.access import EVERYBODY, AccessRule
from keryx.core.deliveries import Target
from keryx.core.lanes import LaneSharing
from keryx.core.ports.adapter import Capabilities, InboundMessage, Receipt
from keryx.core.source import ChatType, Source
from keryx.testing import RecordingAdapter

_numbers = count(1)
MENTION = AccessRule(allow=(EVERYBODY,))
POLICY = msgspec.structs.replace(AT_ONCE, access={FAKE: MENTION})


def said(
    text: str, *, user: str = "ann", chat: str = "g", root: str = "", direct: bool = False, **fields: Any
) -> InboundMessage:
    """A message in a group or direct chat, or with `root` in the thread on that message."""
    number = f"p{next(_numbers)}"
    source = Source(
        platform=FAKE,
        chat=chat,
        chat_type=ChatType.DM if direct else ChatType.GROUP,
        thread=root or None,
        user=user,
        user_name=user,
        message=number,
    )
    reply = Target(FAKE, chat=chat, thread=root, reply_to=number)
    event = inbound(text, event=number, source=source, reply=reply, principal=None, thread_root=root)
    return msgspec.structs.replace(event, **fields)


async def ask(world: World, event: InboundMessage) -> Receipt:
    receipt = await world.hub.receive(event)
    await world.settle(receipt)
    return receipt


async def test_a_thread_on_an_answer_begins_with_what_led_to_it(begin: Begin) -> None:
    world = await begin(policy=POLICY)
    for text in ("one", "two", "three"):
        first = await ask(world, said(text))
    await world.delivered(3)
    thread = await ask(world, said("in the thread", user="bob", root="fake-1"))
    assert thread.session != first.session
    assert await world.transcript(thread.session) == [
        "user: one",
        "assistant: one",
        "user: two",
        "assistant: two",
        "user: in the thread",
        "assistant: in the thread",
    ]
    # The thread goes on in its own session, and the conversation in the chat in its own.
    assert (await ask(world, said("more", root="fake-1"))).session == thread.session
    assert (await ask(world, said("four"))).session == first.session


async def test_in_a_thread_of_others_nothing_is_told_that_was_said_elsewhere(begin: Begin) -> None:
    world = await begin(policy=POLICY)
    private = await ask(world, said("my secret", chat="ann", direct=True))
    await world.hub.receive(said(f"/resume {private.session}"))
    await ask(world, said("in public"))
    sent = await world.delivered(3)
    thread = await ask(world, said("what did ann say?", user="bob", root=sent[-1].receipts[0]))
    assert await world.transcript(thread.session) == [
        "user: in public",
        "assistant: in public",
        "user: what did ann say?",
        "assistant: what did ann say?",
    ]


async def test_a_thread_in_a_direct_chat_has_the_whole_conversation(begin: Begin) -> None:
    world = await begin(policy=POLICY)
    first = await ask(world, said("one", chat="ann", direct=True))
    await world.delivered(1)
    thread = await ask(world, said("aside", chat="ann", direct=True, root="fake-0"))
    assert (await world.transcript(thread.session))[:2] == ["user: one", "assistant: one"]
    assert thread.session and first.session
    assert (await world.hub.session(OPERATORS, thread.session)).parent == first.session


async def test_a_thread_on_a_message_of_a_person_begins_empty(begin: Begin) -> None:
    world = await begin(policy=POLICY)
    await ask(world, said("one"))
    await world.delivered(1)
    thread = await ask(world, said("hello", root="p1"))
    assert await world.transcript(thread.session) == ["user: hello", "assistant: hello"]


async def test_a_thread_does_not_inherit_if_the_setting_says_so(begin: Begin) -> None:
    policy = msgspec.structs.replace(POLICY, sharing=LaneSharing(threads_inherit=False))
    world = await begin(policy=policy)
    await ask(world, said("one"))
    await world.delivered(1)
    thread = await ask(world, said("hello", root="fake-0"))
    assert await world.transcript(thread.session) == ["user: hello", "assistant: hello"]


async def test_no_mention_is_needed_in_a_thread_in_which_the_agent_takes_part(begin: Begin) -> None:
    agent = Scenes({})
    world = await begin(policy=POLICY, agent=agent)
    await ask(world, said("one"))
    await world.delivered(1)
    elsewhere = said("not to you", root="p7", addressed=False)
    assert (await world.hub.receive(elsewhere)).turn is None
    assert (await world.hub.receive(said("nor this", addressed=False))).turn is None
    # A thread on an answer, and one in which somebody has mentioned the agent.
    await ask(world, said("on the answer", root="fake-0", addressed=False))
    await ask(world, said("@you", root="p7"))
    await ask(world, said("to you", root="p7", user="bob", addressed=False))
    assert agent.asked == ["one", "on the answer", "@you", "to you"]


async def test_a_mention_is_needed_if_the_rule_says_so(begin: Begin) -> None:
    rule = AccessRule(allow=(EVERYBODY,), follow_threads=False)
    world = await begin(policy=msgspec.structs.replace(POLICY, access={FAKE: rule}))
    await ask(world, said("one"))
    await world.delivered(1)
    assert (await world.hub.receive(said("hm", root="fake-0", addressed=False))).turn is None


async def test_a_standing_topic_is_no_thread(begin: Begin) -> None:
    adapter = RecordingAdapter(FAKE, capabilities=Capabilities(threads=True, topics=True))
    world = await begin(policy=POLICY, adapters=[adapter])
    await ask(world, said("one", root="7"))
    assert (await world.hub.receive(said("hm", root="7", addressed=False))).turn is None
