import msgspec
from tests.builders import WORKER, Store, after

from keryx.core.ids import WorkerId
from keryx.store import workers
from keryx.store.workers import Worker
from keryx.testing import START_TIME

SERVE = Worker(id=WORKER, kind="serve", host="here", pid=7, started_at=START_TIME, seen_at=START_TIME)


async def test_a_worker_is_known_from_when_it_was_first_seen(store: Store) -> None:
    editor = Worker(
        id=WorkerId("w2"), kind="acp", host="here", pid=8, started_at=after(-5), seen_at=START_TIME
    )
    await store.write(workers.heartbeat, SERVE)
    await store.write(workers.heartbeat, editor)
    assert await store.read(workers.list_all) == [editor, SERVE]


async def test_seeing_a_worker_again_moves_when_it_was_last_seen(store: Store) -> None:
    await store.write(workers.heartbeat, SERVE)
    later = msgspec.structs.replace(SERVE, seen_at=after(5))
    await store.write(workers.heartbeat, later)
    assert await store.read(workers.list_all) == [later]


async def test_a_removed_worker_is_gone(store: Store) -> None:
    await store.write(workers.heartbeat, SERVE)
    await store.write(workers.remove, WORKER)
    assert await store.read(workers.list_all) == []
