"""Threads that a platform opens for conversations: named after the title, archived at the end."""

from datetime import timedelta

import msgspec
import pytest
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, FAKE, OPERATORS, World, inbound

from keryx.core.deliveries import Target
from keryx.core.errors import NotSent, Refused, SendError, Throttled
from keryx.core.lanes import LaneSharing
from keryx.core.ports.adapter import Capabilities, InboundMessage
from keryx.core.source import ChatType, Source
from keryx.engine.units import thread_states
from keryx.store.db import Engine, Transaction
from keryx.testing import RecordingAdapter

PLACE = {"platform": FAKE, "account": Target(FAKE, chat="g").account}
on_sqlite = pytest.mark.engines(Engine.SQLITE)


class ThreadAdapter(RecordingAdapter):
    """A platform with threads; `calls` is what was done to them, `errors` what the next calls raise."""

    def __init__(self) -> None:
        super().__init__(FAKE, capabilities=Capabilities(threads=True, thread_titles=True))
        self.calls: list[str] = []
        self.errors: list[SendError] = []

    async def rename_thread(self, target: Target, title: str) -> None:
        self._call(f"{target.thread}: {title}")

    async def archive_thread(self, target: Target) -> None:
        self._call(f"{target.thread} archived after {self.texts[-1]!r}")

    def _call(self, what: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.calls.append(what)


def said(text: str, *, thread: str = "t1", user: str = "ann") -> InboundMessage:
    """A message to the agent in a thread of a group."""
    source = Source(
        platform=FAKE, chat="g", chat_type=ChatType.THREAD, thread=thread, user=user, user_name=user
    )
    return inbound(
        text, user=user, source=source, reply=Target(FAKE, chat="g", thread=thread), principal=None
    )


async def ask(world: World, event: InboundMessage) -> None:
    await world.settle(await world.hub.receive(event))


async def rest(world: World) -> None:
    """Wait until nothing is left to do in any thread."""

    def is_done(tx: Transaction) -> bool:
        lanes = thread_states.list_lanes(tx, **PLACE)
        return not any(thread_states.find_update(tx, lane, **PLACE) for lane in lanes)

    await world.until(is_done)


async def test_a_thread_is_named_after_the_title_of_its_conversation(begin: Begin) -> None:
    adapter = ThreadAdapter()
    world = await begin(adapters=[adapter])
    receipt = await world.hub.receive(said("plan a trip"))
    await world.eventually(lambda: adapter.calls == ["t1: plan a trip"])
    assert receipt.session
    await world.hub.rename(OPERATORS, receipt.session, "Rome in May")
    await world.eventually(lambda: adapter.calls[1:] == ["t1: Rome in May"])
    await ask(world, said("by train", user="bob"))
    await ask(world, said("cook a soup", thread="t2"))
    await world.eventually(lambda: adapter.calls[2:] == ["t2: cook a soup"])


async def test_a_process_that_ends_between_the_title_and_the_name_leaves_the_name_to_the_next(
    begin: Begin,
) -> None:
    adapter = ThreadAdapter()
    world = await begin(adapters=[adapter])
    adapter.errors = [NotSent("no connection")] * 2
    await ask(world, said("plan a trip"))
    await world.eventually(lambda: len(adapter.errors) == 1)
    adapter.errors.clear()
    await world.restart()
    await world.eventually(lambda: adapter.calls == ["t1: plan a trip"])
    await rest(world)
    # The next process has nothing to do.
    await world.restart()
    await ask(world, said("cook a soup", thread="t2"))
    await world.eventually(lambda: adapter.calls[1:] == ["t2: cook a soup"])


@on_sqlite
async def test_a_thread_is_archived_when_its_conversation_ends_and_its_last_message_was_sent(
    begin: Begin,
) -> None:
    adapter = ThreadAdapter()
    world = await begin(adapters=[adapter])
    await ask(world, said("plan a trip"))
    await world.eventually(lambda: len(adapter.calls) == 1)
    await world.hub.receive(said("/new"))
    await adapter.wait_for(2)
    last = adapter.texts[-1]
    assert last != "plan a trip"
    await world.flow(world.eventually(lambda: adapter.calls[1:] == [f"t1 archived after {last!r}"]))
    # It goes on with a new conversation.
    await ask(world, said("cook a soup"))
    await world.eventually(lambda: adapter.calls[2:] == ["t1: cook a soup"])


@on_sqlite
async def test_a_platform_that_asks_to_wait_is_asked_later(begin: Begin) -> None:
    adapter = ThreadAdapter()
    world = await begin(adapters=[adapter])
    adapter.errors = [Throttled("too many names", after=timedelta(minutes=10))]
    await ask(world, said("plan a trip"))
    await world.eventually(lambda: not adapter.errors)
    world.advance(timedelta(minutes=9))
    await ask(world, said("cook a soup", thread="t2"))
    await world.eventually(lambda: adapter.calls == ["t2: cook a soup"])
    world.advance(timedelta(minutes=2))
    await world.eventually(lambda: adapter.calls[1:] == ["t1: plan a trip"])


@on_sqlite
async def test_a_thread_that_cannot_be_renamed_is_left_alone(begin: Begin) -> None:
    adapter = ThreadAdapter()
    world = await begin(adapters=[adapter])
    adapter.errors = [Refused("the thread is locked")]
    await ask(world, said("plan a trip"))
    await world.eventually(lambda: not adapter.errors)
    await rest(world)
    await world.restart()
    await ask(world, said("cook a soup", thread="t2"))
    await world.eventually(lambda: adapter.calls == ["t2: cook a soup"])


@on_sqlite
async def test_other_chats_and_threads_of_several_conversations_keep_their_names(begin: Begin) -> None:
    adapter = ThreadAdapter()
    sharing = LaneSharing(threads_shared=False)
    world = await begin(adapters=[adapter], policy=msgspec.structs.replace(AT_ONCE, sharing=sharing))
    await world.ask("in a direct chat")
    await ask(world, said("plan a trip"))
    await world.hub.receive(said("/help"))
    await world.restart()
    assert adapter.calls == []
