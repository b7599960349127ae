"""What an adapter may rely on when it asks through its door."""

import msgspec
import pytest
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, OPERATORS, inbound

from keryx.core.access import AccessRule
from keryx.core.errors import Invalid
from keryx.core.ports.adapter import InboundMessage
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
    door = await adapter_listener.open_context(
        world.hub, RecordingAdapter("webhook"), world.node.service.platform_status, world.node.service.roles
    )
    first = await door.receive(said("hello", "ann"))
    assert (await door.receive(said("who am I?", "crm-17"))).session is None
    for _ in range(2):
        await door.add_alias(said("", "crm-17").source, "ann")
    again = await door.receive(said("it is me", "crm-17"))
    assert again.session == first.session
    (person,) = await world.hub.people.list_all(OPERATORS)
    assert [i.person for i in person.principal.identities] == ["ann"]


async def test_where_a_person_has_one_id_there_is_no_other_to_tell(begin: Begin) -> None:
    world = await begin()
    door = await adapter_listener.open_context(
        world.hub, RecordingAdapter("fake"), world.node.service.platform_status, world.node.service.roles
    )
    for source, other in ((said("", "ann", "fake").source, "b"), (Source(platform="webhook"), "b")):
        with pytest.raises(Invalid):
            await door.add_alias(source, other)
    with pytest.raises(Invalid):
        await door.add_alias(said("", "ann").source, "x" * 300)
