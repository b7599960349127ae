import asyncio
from tests.engine.world import World, OPERATORS
from keryx.store import changes, feed, turns

async def test_diag(world: World) -> None:
    for n in range(150):
        said = await world.say(f"q{n}")
        try:
            async with asyncio.timeout(2):
                await world.settle(said)
        except TimeoutError:
            s = world.node.service
            print("TURNS", await world.read(lambda tx: tx.rows("select id, state, lease, pin, not_before from turns order by position desc limit 3")))
            print("work", s.runner._work.count, "busy", s.runner.busy, "drain", s.runner._draining, s.runner._claiming)
            print("feed cursor", s.feed._cursor, "wake", s.feed._wake.count, "db wake", world.database.wake.count, "waiters", len(world.database.wake._waiters))
            print("after", [(c.cursor, c.kind, c.note) for c in await world.read(feed.after, s.feed._cursor)], await world.read(feed.held_back))
            print("recent", [(c.cursor, c.kind, c.note) for c in list(s.feed._recent)[-8:]])
            for t in asyncio.all_tasks():
                fs = t.get_stack()
                print(t.get_name(), [f"{f.f_code.co_qualname}:{f.f_lineno}" for f in fs][-1:], t.get_coro().__qualname__ )
            raise
