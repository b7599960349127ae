"""A chat that gets another id on its platform goes on with the same conversations."""

from typing import Any

from tests.builders import OPERATORS
from tests.engine.world import FAKE, World, inbound

from keryx.core.deliveries import Target
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, SessionId
from keryx.core.source import ChatType, Source
from keryx.store import lanes, platforms
from keryx.testing import START_TIME


async def said(world: World, chat: str, user: str, **place: Any) -> SessionId | None:
    source = Source(platform=FAKE, chat=chat, chat_type=ChatType.GROUP, user=user, **place)
    receipt = await world.hub.receive(inbound("hi", user=user, source=source))
    await world.settle(receipt)
    return receipt.session


async def test_every_lane_of_a_chat_goes_on_under_its_new_id(world: World) -> None:
    ann, bob = await said(world, "-5", "ann"), await said(world, "-5", "bob")
    other = await said(world, "-55", "ann")
    for _ in range(2):
        await world.hub.lanes.move_chat(FAKE, "", "-5", "-100")
    assert [await said(world, "-100", "ann"), await said(world, "-100", "bob")] == [ann, bob]
    assert await said(world, "-55", "ann") == other
    assert await said(world, "-5", "ann") not in (ann, bob, other)


async def test_a_lane_that_has_begun_under_the_new_id_stays(world: World) -> None:
    old, new = await said(world, "-5", "ann"), await said(world, "-100", "ann")
    await world.hub.lanes.move_chat(FAKE, "", "-5", "-100")
    assert await said(world, "-100", "ann") == new != old
    assert await said(world, "-5", "ann") == old


async def test_odd_ids_and_other_accounts_are_not_taken_for_the_chat(world: World) -> None:
    odd = await said(world, '%_"\\', "ann")
    await world.hub.lanes.move_chat(FAKE, "", "-5", "-100")
    await world.hub.lanes.move_chat(FAKE, "other", '%_"\\', "-100")
    assert await said(world, '%_"\\', "ann") == odd
    await world.hub.lanes.move_chat(FAKE, "", '%_"\\', "-100")
    assert await said(world, "-100", "ann") == odd


async def test_instructions_and_the_mirror_go_along(world: World) -> None:
    await said(world, "-5", "ann")
    (lane,) = await world.hub.lanes.page(OPERATORS)
    await world.hub.lanes.set_instructions(OPERATORS, lane.key, "be brief")
    await world.write(lanes.set_mirror, lane, True)
    await world.hub.lanes.move_chat(FAKE, "", "-5", "-100")
    (moved,) = [found for found in await world.hub.lanes.page(OPERATORS) if found.source.chat == "-100"]
    assert (moved.instructions, moved.mirror) == ("be brief", True)


async def test_the_home_channel_goes_along_and_those_of_other_chats_stay(world: World) -> None:
    await world.at(START_TIME).write(
        platforms.set_home,
        Target(FAKE, "", "-5", "7"),
        profile=DEFAULT_PROFILE,
        name="Team",
        by=OPERATOR,
    )
    await world.at(START_TIME).write(
        platforms.set_home,
        Target("other", "", "-5"),
        profile=DEFAULT_PROFILE,
        name="",
        by=OPERATOR,
    )
    for _ in range(2):
        await world.hub.lanes.move_chat(FAKE, "", "-5", "-100")
    assert [home.target for home in await world.read(platforms.list_homes)] == [
        Target(FAKE, "", "-100", "7"),
        Target("other", "", "-5"),
    ]
