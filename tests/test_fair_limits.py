"""Nobody takes all places of what people share."""

import asyncio

import pytest

from keryx.fair_limits import FairQueue, FairShares


async def hold(queue: FairQueue, person: str, seen: list[str], released: asyncio.Event) -> None:
    async with queue.hold(person):
        seen.append(person)
        await released.wait()


async def let_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_asks_once_waits_only_for_one_request_of_each_other_person() -> None:
    queue, seen, released = FairQueue(1), list[str](), asyncio.Event()
    released.set()
    async with queue.hold("mallory"):
        tasks = [asyncio.create_task(hold(queue, "mallory", seen, released)) for _ in range(50)]
        await let_run()
        tasks += [asyncio.create_task(hold(queue, name, seen, released)) for name in ("ann", "bob")]
        await let_run()
        assert seen == []
    await asyncio.gather(*tasks)
    assert seen[:4] == ["mallory", "ann", "bob", "mallory"] and len(seen) == 52


async def test_no_more_are_let_in_at_once_than_there_are_places() -> None:
    queue, seen, released = FairQueue(2), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(hold(queue, str(n), seen, released)) for n in range(5)]
    await let_run()
    assert seen == ["0", "1"]
    released.set()
    await asyncio.gather(*tasks)
    assert seen == ["0", "1", "2", "3", "4"]


async def test_a_request_that_is_given_up_leaves_its_place_to_the_next() -> None:
    queue, seen, released = FairQueue(1), list[str](), asyncio.Event()
    first = asyncio.create_task(hold(queue, "ann", seen, released))
    await let_run()
    waiting = [asyncio.create_task(hold(queue, name, seen, released)) for name in ("bob", "cleo", "dora")]
    await let_run()
    waiting[0].cancel()
    await let_run()
    released.set()
    # The place of this one has come in the same pass of the event loop.
    first.cancel()
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.gather(first, *waiting, return_exceptions=True)
    assert seen[-1] == "dora"
    async with asyncio.timeout(5), queue.hold("eve"):
        pass


def test_a_person_with_fewer_gets_a_place_of_the_one_with_most() -> None:
    shares = FairShares(4)
    mine = [shares.take("mallory") for _ in range(4)]
    assert None not in mine and not shares.has_place("mallory") and shares.take("mallory") is None
    assert shares.has_place("ann")
    first = shares.take("ann")
    assert first is not None
    assert [share.revoked for share in mine if share] == [True, False, False, False]
    second = shares.take("ann")
    assert second is not None and not first.revoked
    assert [share.revoked for share in mine if share] == [True, True, False, False]
    # Both have two now: a third person gets one of either, and nobody takes it back.
    assert shares.take("ann") is None and shares.take("mallory") is None
    assert shares.take("bob") is not None and shares.take("bob") is None


@pytest.mark.parametrize("revoked", [False, True])
def test_a_place_is_given_back_once(revoked: bool) -> None:
    shares = FairShares(2)
    first, second = shares.take("ann"), shares.take("ann")
    assert first is not None and second is not None
    if revoked:
        assert shares.take("bob") is not None and first.revoked
    for _ in range(3):
        shares.release(first)
    assert (shares.take("ann") is None) is revoked
    assert shares.take("ann") is None
