"""A world to receive hostile events."""

from tests.engine.conftest import begin, world

__all__ = ["begin", "world"]
