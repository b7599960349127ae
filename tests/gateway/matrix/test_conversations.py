"""Conversations over the wire of a homeserver, as a person reads them in the room."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest
from tests.engine.world import AT_ONCE, SECONDS, Pause, Scenes, World
from tests.fakes.matrix import FakeMatrix

from keryx.core.access import EVERYBODY, AccessRule
from keryx.core.messages import Message
from keryx.core.ports.agent import TextDelta
from keryx.engine.policy import Policy
from keryx.store import messages
from keryx.store.db import Database, Transaction
from keryx.surfaces.gateway.matrix import MatrixAdapter
from keryx.surfaces.gateway.matrix.homeserver import Homeserver
from keryx.testing import FakeClock

ROOM = "!r:fake.test"


class Room:
    """A person in a room of two with Keryx, over the wire."""

    def __init__(self, world: World, matrix: FakeMatrix) -> None:
        self.world = world
        self.matrix = matrix

    async def reads(self, *texts: str) -> None:
        """Wait until the room shows exactly these messages of Keryx."""
        try:
            async with asyncio.timeout(SECONDS):
                while self.matrix.texts(ROOM) != list(texts):
                    await asyncio.sleep(0.005)
                    self.world.node.check()
        except TimeoutError:
            raise AssertionError(f"the room shows {self.matrix.texts(ROOM)}, not {texts}") from None

    def show_file(self, name: str) -> None:
        self.matrix.files["f"] = b"%PDF"
        content = {"msgtype": "m.file", "body": name, "url": "mxc://fake.test/f", "info": {"size": 4}}
        self.matrix.push(ROOM, content)

    async def count_inputs(self, count: int) -> None:
        def has_all(tx: Transaction) -> bool:
            return tx.rows("select count(*) from messages where role = 'user'") == [(count,)]

        await self.world.until(has_all)

    async def stored(self) -> list[Message]:
        def load(tx: Transaction) -> list[Message]:
            return messages.list_latest(tx, tx.rows("select id from sessions order by id")[-1][0], limit=99)

        return await self.world.read(load)


Enter = Callable[..., Awaitable[Room]]


@pytest.fixture
async def enter(database: Database, clock: FakeClock) -> AsyncIterator[Enter]:
    async def soon(seconds: float) -> None:
        await asyncio.sleep(0)

    with FakeMatrix() as matrix:
        matrix.open(ROOM)
        adapter = MatrixAdapter(Homeserver(matrix.url, matrix.token), matrix.user, sleep=soon)
        worlds: list[World] = []

        async def make(agent: Scenes, *, policy: Policy = AT_ONCE) -> Room:
            access = {"matrix": AccessRule(allow=(EVERYBODY,))}
            world = World(
                database,
                clock,
                agent=agent,
                adapters=[adapter],
                policy=msgspec.structs.replace(policy, access=access),
            )
            worlds.append(world)
            await world.start()
            await world.until(lambda tx: bool(tx.row("select 1 from cursors")))
            return Room(world, matrix)

        yield make
        for world in worlds:
            await world.close()
        await adapter.close()


async def test_files_and_the_text_before_them_get_one_answer(enter: Enter) -> None:
    pause = Pause()
    agent = Scenes({"summarize": [pause, TextDelta("done")]})
    room = await enter(agent)
    room.matrix.say(ROOM, "summarize these")
    await pause.reached()
    room.show_file("a.pdf")
    room.show_file("b.pdf")
    await room.count_inputs(3)
    pause.go_on()
    await room.world.flow(room.reads("done"), step=0.3)
    assert len({m.turn for m in await room.stored()}) == 1
