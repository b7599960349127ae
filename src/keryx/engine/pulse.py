"""Pulse: watches that a turn speaks; its first word, its silences and its whole length have limits."""

from collections.abc import Generator
from contextlib import contextmanager

import anyio

from keryx.core.ports import Clock
from keryx.core.turns import Limits
from keryx.engine.mailbox import Mailbox, TimedOut


class Pulse:
    """Watches that a turn speaks: its first word, its silences and its whole length have limits."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits
        self._started = self._last = clock.monotonic()
        self._spoken = False
        self._patience = 0

    def beat(self) -> None:
        self._last = self._clock.monotonic()
        self._spoken = True

    @contextmanager
    def patient(self) -> Generator[None]:
        """While the block runs a person is asked something, and the turn may be silent."""
        self._patience += 1
        try:
            yield
        finally:
            self._patience -= 1
            self.beat()

    async def watch(self, mailbox: Mailbox, scope: anyio.CancelScope) -> None:
        with scope:
            while True:
                left, reason = self._left()
                if left <= 0:
                    mailbox.put(TimedOut(reason))
                    return
                await self._clock.sleep(left)

    def _left(self) -> tuple[float, str]:
        now = self._clock.monotonic()
        if self._patience:
            self._last = now
        silence = self._limits.silence if self._spoken else self._limits.first_byte
        quiet = self._last + silence.total_seconds() - now
        total = self._started + self._limits.total.total_seconds() - now
        if quiet < total:
            return quiet, f"The agent said nothing for {_span(silence.total_seconds())}. /retry asks again."
        return (
            total,
            f"The turn took longer than {_span(self._limits.total.total_seconds())}. /retry asks again.",
        )


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"
