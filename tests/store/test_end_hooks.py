import asyncio

from tests.builders import ODD_TEXTS, Store, a_session, after

from keryx.store import sessions
from keryx.store.sessions import SessionEndHook
from keryx.testing import START_TIME


async def take(store: Store, seconds: float = 0) -> SessionEndHook | None:
    return await store.at(after(seconds)).write(sessions.claim_end_hook, retry_at=after(seconds + 60), most=2)


async def test_an_end_hook_comes_back_until_it_is_removed(store: Store) -> None:
    session = await store.write(a_session)
    await store.at(START_TIME).write(sessions.add_end_hook, session.id, "idle")
    await store.at(START_TIME).write(sessions.add_end_hook, session.id, "daily")
    assert await take(store) == SessionEndHook(session.id, "idle", 1)
    assert await take(store, 59) is None
    await store.write(sessions.remove_end_hook, session.id)
    assert await take(store, 60) is None


async def test_an_end_hook_is_tried_a_bounded_number_of_times(store: Store) -> None:
    session = await store.write(a_session)
    await store.at(START_TIME).write(sessions.add_end_hook, session.id, "idle")
    for tries in (1, 2):
        final = await take(store, tries * 100)
        assert final and final.tries == tries
        for text in ODD_TEXTS:
            await store.write(sessions.record_end_hook_error, session.id, text)
    assert await take(store, 1000) is None


async def test_an_end_hook_is_taken_by_one_worker(store: Store) -> None:
    session = await store.write(a_session)
    await store.at(START_TIME).write(sessions.add_end_hook, session.id, "idle")
    taken = await asyncio.gather(*(take(store) for _ in range(8)))
    assert len([final for final in taken if final]) == 1
