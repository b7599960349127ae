import msgspec
from tests.builders import NOW, WORKER, Store, after

from keryx.core.ids import WorkerId
from keryx.store import workers
from keryx.store.workers import Worker

SERVE = Worker(id=WORKER, kind="serve", host="here", pid=7, started_at=NOW, seen_at=NOW)


async def test_a_worker_is_known_from_when_it_was_first_seen(store: Store) -> None:
    editor = Worker(id=WorkerId("w2"), kind="acp", host="here", pid=8, started_at=after(-5), seen_at=NOW)
    await store.write(workers.see, SERVE)
    await store.write(workers.see, editor)
    assert await store.read(workers.every) == [editor, SERVE]


async def test_seeing_a_worker_again_moves_when_it_was_last_seen(store: Store) -> None:
    await store.write(workers.see, SERVE)
    later = msgspec.structs.replace(SERVE, seen_at=after(5))
    await store.write(workers.see, later)
    assert await store.read(workers.every) == [later]


async def test_a_removed_worker_is_gone(store: Store) -> None:
    await store.write(workers.see, SERVE)
    await store.write(workers.remove, WORKER)
    assert await store.read(workers.every) == []
