"""A crowd: what comes at once is done together, and never two units of one place side by side."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from keryx.store.db.batching import KeyedBatcher, UnitOfWork
from keryx.store.db.database import Transaction, Work

NO_STORE = cast(Transaction, None)


class Doing:
    """Does units one after the other, and remembers which came together and in which thread."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.threads: set[str] = set()
        self.side_by_side = False
        self._busy: Counter[str] = Counter()

    def __call__(self, units: Sequence[UnitOfWork[Any]]) -> None:
        self.batches.append([unit.label for unit in units])
        self.threads.add(threading.current_thread().name)
        places = {unit.key for unit in units}
        self._busy.update(places)
        self.side_by_side = self.side_by_side or any(self._busy[place] > 1 for place in places)
        for unit in units:
            unit.run(lambda unit=unit: unit.work(NO_STORE))
        self._busy.subtract(places)


class Gate:
    """Work that tells when it began and waits until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()

    def __call__(self, tx: Transaction) -> None:
        self.entered.release()
        assert self.open.wait(10)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=10)


@pytest.fixture
def doing() -> Doing:
    return Doing()


@pytest.fixture
async def crowd(doing: Doing) -> AsyncIterator[KeyedBatcher]:
    made = KeyedBatcher(2, 3, "crowd", doing, asyncio.get_running_loop())
    yield made
    await asyncio.to_thread(made.close)


def asked(
    crowd: KeyedBatcher, label: str, place: str, work: Work[Any] = lambda tx: None
) -> asyncio.Future[Any]:
    return asyncio.ensure_future(crowd.run(label, work, place))


async def test_a_unit_gives_its_result_and_raises_its_error(crowd: KeyedBatcher) -> None:
    assert await crowd.run("a", lambda tx: 7, "here") == 7
    with pytest.raises(ValueError, match="no number"):
        await crowd.run("b", lambda tx: int("no number"), "here")
    assert await crowd.run("c", lambda tx: 8, "there") == 8


async def test_units_in_turn_share_one_thread(crowd: KeyedBatcher, doing: Doing) -> None:
    for n in range(20):
        await crowd.run("a", lambda tx: None, f"place {n}")
    assert doing.threads == {"crowd-0"}


async def test_what_waits_is_done_together_up_to_a_number_and_in_order(
    crowd: KeyedBatcher, doing: Doing
) -> None:
    gate = Gate()
    waiting = [asked(crowd, "0", "here", gate)]
    await gate.reached()
    waiting += [asked(crowd, str(n), "here") for n in range(1, 6)]
    await asyncio.sleep(0)
    gate.open.set()
    await asyncio.gather(*waiting)
    assert doing.batches == [["0"], ["1", "2", "3"], ["4", "5"]]


async def test_a_place_that_is_busy_holds_up_no_other(crowd: KeyedBatcher, doing: Doing) -> None:
    gate = Gate()
    held = [asked(crowd, "held", "here", gate), asked(crowd, "behind", "here")]
    await gate.reached()
    await crowd.run("free", lambda tx: None, "there")
    gate.open.set()
    await asyncio.gather(*held)
    assert doing.threads == {"crowd-0", "crowd-1"}


async def test_two_units_of_one_place_never_run_side_by_side(crowd: KeyedBatcher, doing: Doing) -> None:
    done: list[tuple[int, int]] = []
    units = [
        asked(crowd, "a", str(place), lambda tx, place=place, n=n: done.append((place, n)))
        for n in range(200)
        for place in range(5)
    ]
    await asyncio.gather(*units)
    assert not doing.side_by_side
    for place in range(5):
        assert [n for where, n in done if where == place] == list(range(200))
    assert doing.threads == {"crowd-0", "crowd-1"}


async def test_a_unit_whose_task_was_cancelled_is_done_all_the_same(
    crowd: KeyedBatcher, doing: Doing
) -> None:
    gate = Gate()
    unit = asked(crowd, "a", "here", gate)
    await gate.reached()
    unit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unit
    gate.open.set()
    assert await crowd.run("b", lambda tx: 1, "here") == 1
    assert doing.batches == [["a"], ["b"]]


async def test_closing_waits_for_what_was_asked(doing: Doing) -> None:
    crowd = KeyedBatcher(2, 3, "crowd", doing, asyncio.get_running_loop())
    units = [asked(crowd, "a", str(n % 3), lambda tx, n=n: n) for n in range(10)]
    await asyncio.sleep(0)
    await asyncio.to_thread(crowd.close)
    assert await asyncio.gather(*units) == list(range(10))
