"""Adapters for chat platforms, one module or package each, and how they decode what a platform sends."""

import logging
from typing import TypeVar

import msgspec

T = TypeVar("T")


class EventDecoder:
    """Decodes the events of a platform. One that cannot be read is counted and logged, and the others go on."""

    def __init__(self, platform: str, log: logging.Logger) -> None:
        self._platform = platform
        self._log = log
        # The number of events that could not be read or were refused as invalid.
        self.skipped = 0

    def decode(self, payload: bytes, kind: type[T]) -> T | None:
        """Return an event, or `None` for one that cannot be read."""
        try:
            return msgspec.json.decode(payload, type=kind)
        except (msgspec.DecodeError, RecursionError) as exc:
            self.skip(str(exc))
            return None

    def skip(self, why: str) -> None:
        """Leave an event out."""
        self.skipped += 1
        self._log.warning("an event of %s is left out, %d so far: %s", self._platform, self.skipped, why)
