"""/search: answered where it was asked, with what the person may see."""

import pytest
from tests.engine.world import FAKE, World, inbound, viewer

from keryx.core.source import Source
from keryx.store.db import Engine

pytestmark = pytest.mark.engines(Engine.SQLITE)


async def test_search_lists_what_a_person_said_and_was_told(world: World) -> None:
    said = await world.hub.receive(inbound("the hotel in Oslo"))
    await world.settle(said)
    receipt = await world.hub.receive(inbound("/search oslo hotel"))
    assert receipt.reply is not None and receipt.turn is None
    assert receipt.reply.splitlines() == [
        "1. “the hotel in Oslo” · 2026-03-01",
        "2. “the hotel in Oslo” · 2026-03-01",
        "the hotel in Oslo",
        "3. “the hotel in Oslo” · 2026-03-01",
        "the hotel in Oslo",
    ]


async def test_search_finds_nothing_of_others(world: World) -> None:
    await world.settle(await world.hub.receive(inbound("the hotel in Oslo")))
    assert (await world.hub.receive(inbound("/search oslo", user="bob", chat="2"))).reply == "Nothing found."
    assert await world.hub.search(viewer("bob"), "oslo") == []
    assert len(await world.hub.search(viewer("ann"), "oslo", limit=1)) == 1


async def test_a_person_is_known_to_search_by_the_identity_on_the_platform(world: World) -> None:
    source = Source(platform=FAKE, chat="9", user="carol", user_name="carol")
    unknown = await world.hub.receive(inbound("/search oslo", source=source, principal=None))
    assert unknown.reply == "Nothing found."
    await world.settle(await world.hub.receive(inbound("Oslo again", source=source, principal=None)))
    known = await world.hub.receive(inbound("/search oslo", source=source, principal=None))
    assert known.reply is not None and "Oslo again" in known.reply


async def test_search_without_words_asks_for_them(world: World) -> None:
    receipt = await world.hub.receive(inbound("/search"))
    assert receipt.reply is not None and receipt.reply.startswith("Say what to look for")


async def test_a_repeated_search_gives_the_first_answer(world: World) -> None:
    message = inbound("/search oslo")
    first = await world.hub.receive(message)
    await world.settle(await world.hub.receive(inbound("Oslo")))
    again = await world.hub.receive(message)
    assert (again.duplicate, again.reply) == (True, first.reply)
