from tests.builders import Store, a_running_turn

from keryx.core.usage import Tokens, Usage
from keryx.store import sessions, usage
from keryx.store.db import Transaction
from keryx.testing import START_TIME


async def test_usage_is_summed_over_the_calls_of_a_session(store: Store) -> None:
    turn = await store.write(a_running_turn)
    call = Usage(model="m", input=10, output=5, reasoning=2, cache_read=7, cache_write=1)
    await store.at(START_TIME).write(usage.add, turn, call)
    await store.at(START_TIME).write(usage.add, turn, call, task="title")
    session = await store.read(sessions.get, turn.session)
    assert session.tokens == Tokens(input=20, output=10, reasoning=4, cache_read=14, cache_write=2)


async def test_a_cost_is_unknown_until_one_is_told(store: Store) -> None:
    turn = await store.write(a_running_turn)
    await store.at(START_TIME).write(usage.add, turn, Usage(input=10))
    session = await store.read(sessions.get, turn.session)
    assert (session.cost, session.cost_status) == (None, "unknown")


async def test_one_estimated_call_makes_the_sum_an_estimate(store: Store) -> None:
    turn = await store.write(a_running_turn)

    async def status(call: Usage) -> tuple[int | None, str]:
        await store.at(START_TIME).write(usage.add, turn, call)
        session = await store.read(sessions.get, turn.session)
        return session.cost, session.cost_status

    assert await status(Usage(cost=100, estimated=False)) == (100, "actual")
    assert await status(Usage(cost=20, estimated=True)) == (120, "estimated")
    assert await status(Usage(cost=3, estimated=False)) == (123, "estimated")
    assert await status(Usage(input=1)) == (123, "estimated")


async def test_the_context_size_is_the_last_one_told(store: Store) -> None:
    turn = await store.write(a_running_turn)
    await store.at(START_TIME).write(usage.add, turn, Usage(context_used=100, context_limit=8000))
    await store.at(START_TIME).write(usage.add, turn, Usage(context_used=150))
    await store.at(START_TIME).write(usage.add, turn, Usage(input=1))
    session = await store.read(sessions.get, turn.session)
    assert (session.context_used, session.context_limit) == (150, 8000)


async def test_each_call_is_kept_with_its_turn_and_task(store: Store) -> None:
    turn = await store.write(a_running_turn)
    await store.at(START_TIME).write(usage.add, turn, Usage(model="m", input=3), task="title")

    def kept(tx: Transaction) -> list[tuple[object, ...]]:
        return [tuple(row) for row in tx.rows("select turn, session, model, task, input from usage")]

    assert await store.read(kept) == [(turn.id, turn.session, "m", "title", 3)]
