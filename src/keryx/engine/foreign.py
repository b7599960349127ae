"""Foreign: code of agents and adapters runs in our tasks, and must not end more than itself."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def contained() -> Generator[None]:
    """Turn a cancellation that foreign code raises by itself into an error; one that was asked for passes.

    A task that ends as cancelled would take its whole task group along."""
    try:
        yield
    except asyncio.CancelledError as exc:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("it cancelled itself") from exc
