# LangGraph has no type stubs for a part of its modules.
# pyright: reportMissingTypeStubs=false
"""A fault before and after every labelled commit of a framework: it is whole or it is not there, and the framework can ask for
it again."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from tests.engine.support import labels
from tests.engine.support.fault_recorder import changed, rows

from keryx.core.errors import Conflict, Retryable
from keryx.integrations import StoreThread
from keryx.integrations.langgraph import KeryxMemory, KeryxSaver
from keryx.store.admin.verify import verify
from keryx.store.db import Database
from keryx.testing import CrashingDatabase, DatabaseFault, FakeClock, FaultTiming

CONFIG: Any = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}
METADATA: Any = {"source": "loop", "step": 1, "parents": {}}
SPACE = ("people", "ann")


def a_checkpoint(number: int) -> Checkpoint:
    values = {"messages": [f"text {n} of some length, so that it is stored apart" for n in range(number)]}
    return {
        **empty_checkpoint(),
        "id": f"00000000-0000-6000-8000-{number:012}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": {"messages": number},
    }


class Frameworks:
    """What a program asks of the store, by the label of the write."""

    def __init__(self, store: StoreThread, clock: FakeClock) -> None:
        self._saver, self._memory, self._clock = KeryxSaver(store), KeryxMemory(store), clock

    def prepare(self, label: str) -> None:
        """Store what the write with this label needs, or changes."""
        for number in (1, 2):
            self._put(number)
        if label == "graph.sweep":
            self._memory.put(SPACE, "soon", {"likes": "tea"}, ttl=1)
            self._clock.advance(timedelta(minutes=2))

    def act(self, label: str) -> None:
        acts: dict[str, Callable[[], object]] = {
            "graph.put": lambda: self._put(3),
            "graph.writes": lambda: self._saver.put_writes(
                {"configurable": {**CONFIG["configurable"], "checkpoint_id": a_checkpoint(2)["id"]}},
                [("messages", "what a task wrote")],
                "task",
            ),
            "graph.delete": lambda: self._saver.delete_thread("a"),
            "graph.copy": lambda: self._saver.copy_thread("a", "b"),
            "graph.prune": lambda: self._saver.prune(["a"]),
            "graph.memory": lambda: self._memory.put(SPACE, "food", {"likes": "cake"}),
            "graph.sweep": self._memory.sweep_ttl,
        }
        acts[label]()

    def _put(self, number: int) -> None:
        parent = {"checkpoint_id": a_checkpoint(number - 1)["id"]} if number > 1 else {}
        config: Any = {"configurable": {**CONFIG["configurable"], **parent}}
        self._saver.put(config, a_checkpoint(number), METADATA, {"messages": number})


def list_labels() -> list[str]:
    return sorted(label for label in labels.written() if label.startswith("graph."))


@pytest.mark.parametrize("label", list_labels())
async def test_a_write_of_a_framework_that_is_struck_is_done_whole_or_not_at_all(
    closed: Callable[[], Database], clock: FakeClock, label: str
) -> None:
    database = CrashingDatabase(closed())
    with StoreThread(database=database) as store:
        program = Frameworks(store, clock)
        for when in FaultTiming:
            program.prepare(label)
            before = store.read("rows", rows)
            fault = DatabaseFault(label, when)
            database.faults = [fault]
            with pytest.raises(Retryable):
                program.act(label)
            assert fault.hits == 1
            found = store.read("rows", rows)
            if when is FaultTiming.BEFORE:
                assert not changed(before, found)
                program.act(label)
                found = store.read("rows", rows)
            assert changed(before, found)
            try:
                program.act(label)
            except Conflict:
                assert label == "graph.copy"
            repeated = store.read("rows", rows)
            # A checkpoint that is put again takes a number of its thread again.
            assert not changed(found, repeated) - {"graph_threads"}
            KeryxSaver(store).delete_thread("a")
            KeryxSaver(store).delete_thread("b")
            KeryxMemory(store).delete(SPACE, "food")
    async with closed() as reopened:
        assert await verify(reopened) == []
