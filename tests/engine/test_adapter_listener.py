"""An adapter is restarted after a failure, and what it may rely on when it calls its context."""

import asyncio
from itertools import pairwise

import msgspec
import pytest
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, FAKE, OPERATORS, inbound

from keryx.core.access import AccessRule
from keryx.core.errors import Invalid
from keryx.core.ports.adapter import AdapterContext, InboundMessage
from keryx.core.source import Source
from keryx.engine import adapter_listener
from keryx.store.db import Engine
from keryx.testing import RecordingAdapter

pytestmark = pytest.mark.engines(Engine.SQLITE)

NAME = "fake:"


async def test_where_an_account_begins_is_stored_and_a_later_position_stays(begin: Begin) -> None:
    world = await begin()
    await world.hub.init_cursor(NAME, "first")
    assert await world.hub.platform_cursor(NAME) == "first"
    await world.hub.init_cursor(NAME, "second")
    assert await world.hub.platform_cursor(NAME) == "first"


def said(text: str, user: str, platform: str = "webhook") -> InboundMessage:
    source = Source(platform=platform, chat=user, user=user, user_name="Ann")
    return inbound(text, source=source, reply=None, principal=None)


async def test_an_adapter_tells_another_id_of_a_person_and_their_conversations_become_one(
    begin: Begin,
) -> None:
    rules = {"webhook": AccessRule(allow=("ann",))}
    world = await begin(policy=msgspec.structs.replace(AT_ONCE, access=rules))
    context = await adapter_listener.open_context(
        world.hub, RecordingAdapter("webhook"), world.node.service.platform_status, world.node.service.roles
    )
    first = await context.receive(said("hello", "ann"))
    assert (await context.receive(said("who am I?", "crm-17"))).session is None
    for _ in range(2):
        await context.add_alias(said("", "crm-17").source, "ann")
    again = await context.receive(said("it is me", "crm-17"))
    assert again.session == first.session
    (person,) = await world.hub.people.list_all(OPERATORS)
    assert [i.person for i in person.principal.identities] == ["ann"]


async def test_where_a_person_has_one_id_there_is_no_other_to_tell(begin: Begin) -> None:
    world = await begin()
    context = await adapter_listener.open_context(
        world.hub, RecordingAdapter("fake"), world.node.service.platform_status, world.node.service.roles
    )
    for source, other in ((said("", "ann", "fake").source, "b"), (Source(platform="webhook"), "b")):
        with pytest.raises(Invalid):
            await context.add_alias(source, other)
    with pytest.raises(Invalid):
        await context.add_alias(said("", "ann").source, "x" * 300)


async def test_an_adapter_that_fails_is_started_again_where_it_was(begin: Begin) -> None:
    began: list[str | None] = []

    class Failing(RecordingAdapter):
        async def listen(self, context: AdapterContext) -> None:
            began.append(context.cursor)
            number = len(began)
            await context.receive(inbound(f"m{number}", cursor=str(number)))
            match number:
                case 1:
                    raise RuntimeError("lost the connection")
                case 2:
                    raise asyncio.CancelledError
                case 3:
                    return
                case _:
                    await asyncio.Event().wait()

    other = RecordingAdapter("other")
    world = await begin(adapters=[adapter := Failing(FAKE), other])
    await world.flow(world.eventually(lambda: len(adapter.sent_parts) == 4), step=0.5)
    assert began == [None, "1", "2", "3"]
    assert adapter.texts == ["m1", "m2", "m3", "m4"]


async def test_the_pause_before_an_adapter_is_started_again_grows(begin: Begin) -> None:
    began: list[float] = []

    class Failing(RecordingAdapter):
        async def listen(self, context: AdapterContext) -> None:
            began.append(world.clock.monotonic() if ready else 0.0)
            raise RuntimeError("no network")

    ready = False
    world = await begin(adapters=[Failing(FAKE)])
    ready = True
    await world.flow(world.eventually(lambda: len(began) == 5), step=0.5)
    gaps = [b - a for a, b in pairwise(began)]
    assert all(gap >= 2**n for n, gap in enumerate(gaps))
