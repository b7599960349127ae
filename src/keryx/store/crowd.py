"""A crowd: small units of work that come at once, and are done together by a few threads.

Units of one place never run side by side, so that none waits in the database for another that this process runs."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from keryx.store.crew import Outcome
from keryx.store.database import Work

T = TypeVar("T")


class Unit(Outcome[T]):
    """A unit of work on its way."""

    __slots__ = ("label", "place", "work")

    def __init__(self, label: str, work: Work[T], place: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.label = label
        self.work = work
        self.place = place


Doing = Callable[[Sequence[Unit[Any]]], None]
"""Does units, one or several, and gives each its outcome. Must not raise."""


class Crowd:
    """A place belongs to one thread while something of it waits or runs there. Else the first thread that has nothing to
    do takes it, so that few threads run for few callers."""

    def __init__(self, size: int, most: int, name: str, do: Doing, loop: asyncio.AbstractEventLoop) -> None:
        self._size = size
        self._most = most
        self._name = name
        self._do = do
        self._loop = loop
        self._lines: list[_Line] = []
        self._of: dict[str, _Line] = {}

    async def run(self, label: str, work: Work[T], place: str) -> T:
        """What the unit gives or raises. If the task is cancelled meanwhile, the unit is done all the same."""
        unit = Unit(label, work, place, self._loop)
        line = self._of.get(place) or self._free()
        self._of[place] = line
        line.waiting[place] = line.waiting.get(place, 0) + 1
        line.units.put(unit)
        return await unit.future

    def close(self) -> None:
        """Wait until all that was asked is done. Not to be called in the loop, which has to take the answers."""
        for line in self._lines:
            line.units.put(None)
        for line in self._lines:
            line.thread.join()

    def _free(self) -> "_Line":
        idle = next((line for line in self._lines if not line.waiting), None)
        if idle is None and len(self._lines) < self._size:
            idle = _Line(f"{self._name}-{len(self._lines)}", self._work)
            self._lines.append(idle)
        return idle or min(self._lines, key=lambda line: sum(line.waiting.values()))

    def _work(self, line: "_Line") -> None:
        while units := line.next(self._most):
            self._do(units)
            self._loop.call_soon_threadsafe(self._settle, line, units)
            del units  # or an idle thread would keep what it did last

    def _settle(self, line: "_Line", units: Sequence[Unit[Any]]) -> None:
        for unit in units:
            line.waiting[unit.place] -= 1
            if not line.waiting[unit.place]:
                del line.waiting[unit.place], self._of[unit.place]
            unit.settle()


class _Line:
    """A thread and what waits for it: `waiting` counts the units of each place, and is touched in the loop only."""

    def __init__(self, name: str, work: Callable[["_Line"], None]) -> None:
        self.units: queue.SimpleQueue[Unit[Any] | None] = queue.SimpleQueue()
        self.waiting: dict[str, int] = {}
        self._ends = False
        self.thread = threading.Thread(target=work, args=(self,), name=name, daemon=True)
        self.thread.start()

    def next(self, most: int) -> list[Unit[Any]]:
        """Wait for units; gives those that are there, up to `most`, and none at the end."""
        found: list[Unit[Any]] = []
        while not self._ends and len(found) < most and not (found and self.units.empty()):
            unit = self.units.get()
            self._ends = unit is None
            found += [unit] if unit else []
        return found
