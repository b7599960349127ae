"""A database that fails before or after a labelled commit."""

from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import Self, TypeVar

from keryx.core.errors import Retryable
from keryx.store.database import Database, Work

T = TypeVar("T")


class When(StrEnum):
    """Before: nothing was written. After: it was, and nobody was told."""

    BEFORE = "before"
    AFTER = "after"


def _raise(label: str) -> None:
    raise Retryable(f"a fault was put into {label}")


class Fault:
    """What goes wrong: at the n-th unit with a label, once, or from then on until it is healed. `strike` may
    raise, or end the process."""

    def __init__(
        self,
        label: str,
        when: When,
        *,
        nth: int = 1,
        sticky: bool = False,
        strike: Callable[[str], None] = _raise,
    ) -> None:
        self.label = label
        self.when = when
        self.struck = 0
        self._nth = nth
        self._sticky = sticky
        self._strike = strike
        self._seen = 0
        self._healed = False

    def heal(self) -> None:
        self._healed = True

    def meet(self, label: str, when: When) -> None:
        if when is not self.when or label != self.label or self._healed:
            return
        self._seen += 1
        if self._seen == self._nth or (self._sticky and self._seen > self._nth):
            self.struck += 1
            self._strike(label)


class CrashingDatabase:
    """Passes units of work through to another database; `labels` are those that were written."""

    def __init__(self, inner: Database, *faults: Fault) -> None:
        self._inner = inner
        self.engine = inner.engine
        self.wake = inner.wake
        self.faults = list(faults)
        self.labels: list[str] = []

    async def write(self, label: str, work: Work[T], *, place: str = "") -> T:
        self.labels.append(label)
        self._meet(label, When.BEFORE)
        result = await self._inner.write(label, work, place=place)
        self._meet(label, When.AFTER)
        return result

    async def read(self, label: str, work: Work[T]) -> T:
        self._meet(label, When.BEFORE)
        return await self._inner.read(label, work)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)

    def _meet(self, label: str, when: When) -> None:
        for fault in self.faults:
            fault.meet(label, when)
