"""What an adapter may rely on when it asks through its door."""

from tests.engine.conftest import Begin

NAME = "fake:"


async def test_where_an_account_begins_is_stored_and_a_later_position_stays(begin: Begin) -> None:
    world = await begin()
    await world.hub.begin(NAME, "first")
    assert await world.hub.position(NAME) == "first"
    await world.hub.begin(NAME, "second")
    assert await world.hub.position(NAME) == "first"
