"""Fault injection: a database that fails at a labelled commit, and fault rates for platform fakes."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from keryx.core.errors import Retryable
from keryx.store.db import Database, DatabaseWrapper, Work

T = TypeVar("T")


class FaultTiming(StrEnum):
    # Nothing was written.
    BEFORE = "before"
    # The commit succeeded, but the caller gets an error.
    AFTER = "after"


def _raise_retryable(label: str) -> None:
    raise Retryable(f"a fault was put into {label}")


class DatabaseFault:
    """A failure at the n-th unit of work with a label: once, or with `sticky` from then on until it is cleared. `strike`
    may raise, or end the process."""

    def __init__(
        self,
        label: str,
        when: FaultTiming,
        *,
        nth: int = 1,
        sticky: bool = False,
        strike: Callable[[str], None] = _raise_retryable,
    ) -> None:
        self.label = label
        self.when = when
        self.hits = 0
        self._nth = nth
        self._sticky = sticky
        self._strike = strike
        self._seen = 0
        self._cleared = False

    def clear(self) -> None:
        self._cleared = True

    def check(self, label: str, when: FaultTiming) -> None:
        if when is not self.when or label != self.label or self._cleared:
            return
        self._seen += 1
        if self._seen == self._nth or (self._sticky and self._seen > self._nth):
            self.hits += 1
            self._strike(label)


class CrashingDatabase(DatabaseWrapper):
    """Passes units of work on to another database, and fails where a fault says so."""

    def __init__(self, inner: Database, *faults: DatabaseFault) -> None:
        super().__init__(inner)
        self.faults = list(faults)
        # The labels of all writes.
        self.labels: list[str] = []

    async def write(self, label: str, work: Work[T], *, key: str = "") -> T:
        self.labels.append(label)
        self._check_faults(label, FaultTiming.BEFORE)
        result = await super().write(label, work, key=key)
        self._check_faults(label, FaultTiming.AFTER)
        return result

    async def read(self, label: str, work: Work[T]) -> T:
        self._check_faults(label, FaultTiming.BEFORE)
        return await super().read(label, work)

    def _check_faults(self, label: str, when: FaultTiming) -> None:
        for fault in self.faults:
            fault.check(label, when)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformFaults:
    """Failure rates of a fake platform, as shares of requests."""

    # An update is delivered twice.
    duplicate: float = 0
    # Updates are delivered in another order.
    reorder: float = 0
    # A response is cut off.
    torn: float = 0
    # Something else answers in the place of the platform, such as the sign-in page of a network.
    garbled: float = 0
    # A send is throttled.
    throttle: float = 0
    # The server fails before it accepts a message.
    broken: float = 0
    # The connection breaks after the server accepted a message.
    lost_reply: float = 0
    # In seconds.
    retry_after: float = 0.05
