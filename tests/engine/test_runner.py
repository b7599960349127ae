import asyncio
from tests.engine.world import World

async def test_smoke(world: World) -> None:
    turn = await world.ask("hello")
    assert await world.transcript(turn.session) == ["user: hello", "assistant: hello"]
    assert await world.sent() == ["hello"]

async def test_smoke_crash(world: World) -> None:
    said = await world.say("slow 10 a b c d")
    await world.drafted(said, "a ")
    await world.restart()
    turn = await world.flow(world.settle(said))
    assert await world.transcript(turn.session) == []
