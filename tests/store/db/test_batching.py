"""Batches: concurrent units share one, and two units of one key never run concurrently."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from keryx.store.db import Transaction, Work
from keryx.store.db.batching import KeyedBatcher, UnitOfWork

NO_STORE = cast(Transaction, None)


class RecordingRunner:
    """Runs units one after the other, and remembers which came together and in which thread."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.threads: set[str] = set()
        self.side_by_side = False
        self._busy: Counter[str] = Counter()

    def __call__(self, units: Sequence[UnitOfWork[Any]]) -> None:
        self.batches.append([unit.label for unit in units])
        self.threads.add(threading.current_thread().name)
        keys = {unit.key for unit in units}
        self._busy.update(keys)
        self.side_by_side = self.side_by_side or any(self._busy[key] > 1 for key in keys)
        for unit in units:
            unit.run(lambda unit=unit: unit.work(NO_STORE))
        self._busy.subtract(keys)


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
def runner() -> RecordingRunner:
    return RecordingRunner()


@pytest.fixture
async def batcher(runner: RecordingRunner) -> AsyncIterator[KeyedBatcher]:
    made = KeyedBatcher(2, 3, "batcher", runner, asyncio.get_running_loop())
    yield made
    await asyncio.to_thread(made.close)


def submit(
    batcher: KeyedBatcher, label: str, key: str, work: Work[Any] = lambda tx: None
) -> asyncio.Future[Any]:
    return asyncio.ensure_future(batcher.run(label, work, key))


async def test_a_unit_gives_its_result_and_raises_its_error(batcher: KeyedBatcher) -> None:
    assert await batcher.run("a", lambda tx: 7, "here") == 7
    with pytest.raises(ValueError, match="no number"):
        await batcher.run("b", lambda tx: int("no number"), "here")
    assert await batcher.run("c", lambda tx: 8, "there") == 8


async def test_units_in_turn_share_one_thread(batcher: KeyedBatcher, runner: RecordingRunner) -> None:
    for n in range(20):
        await batcher.run("a", lambda tx: None, f"key {n}")
    assert runner.threads == {"batcher-0"}


async def test_what_waits_is_done_together_up_to_a_number_and_in_order(
    batcher: KeyedBatcher, runner: RecordingRunner
) -> None:
    gate = Gate()
    waiting = [submit(batcher, "0", "here", gate)]
    await gate.reached()
    waiting += [submit(batcher, str(n), "here") for n in range(1, 6)]
    await asyncio.sleep(0)
    gate.open.set()
    await asyncio.gather(*waiting)
    assert runner.batches == [["0"], ["1", "2", "3"], ["4", "5"]]


async def test_a_key_that_is_busy_holds_up_no_other(batcher: KeyedBatcher, runner: RecordingRunner) -> None:
    gate = Gate()
    held = [submit(batcher, "held", "here", gate), submit(batcher, "behind", "here")]
    await gate.reached()
    await batcher.run("free", lambda tx: None, "there")
    gate.open.set()
    await asyncio.gather(*held)
    assert runner.threads == {"batcher-0", "batcher-1"}


async def test_two_units_of_one_key_never_run_side_by_side(
    batcher: KeyedBatcher, runner: RecordingRunner
) -> None:
    done: list[tuple[int, int]] = []
    units = [
        submit(batcher, "a", str(key), lambda tx, key=key, n=n: done.append((key, n)))
        for n in range(200)
        for key in range(5)
    ]
    await asyncio.gather(*units)
    assert not runner.side_by_side
    for key in range(5):
        assert [n for where, n in done if where == key] == list(range(200))
    assert runner.threads == {"batcher-0", "batcher-1"}


async def test_a_unit_whose_task_was_cancelled_is_done_all_the_same(
    batcher: KeyedBatcher, runner: RecordingRunner
) -> None:
    gate = Gate()
    unit = submit(batcher, "a", "here", gate)
    await gate.reached()
    unit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unit
    gate.open.set()
    assert await batcher.run("b", lambda tx: 1, "here") == 1
    assert runner.batches == [["a"], ["b"]]


async def test_closing_waits_for_what_was_asked(runner: RecordingRunner) -> None:
    batcher = KeyedBatcher(2, 3, "batcher", runner, asyncio.get_running_loop())
    units = [submit(batcher, "a", str(n % 3), lambda tx, n=n: n) for n in range(10)]
    await asyncio.sleep(0)
    await asyncio.to_thread(batcher.close)
    assert await asyncio.gather(*units) == list(range(10))
