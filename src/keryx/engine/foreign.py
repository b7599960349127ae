"""Foreign: code of agents and adapters runs in our tasks, and must not end more than itself."""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any

_apart: set[asyncio.Task[None]] = set()


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


def apart(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run foreign code as a task that belongs to no group. A group cancels without pause until a task reacts, which
    takes a whole core where foreign code is deaf; this one is asked once and then left to end by itself."""
    task = asyncio.create_task(work)
    _apart.add(task)
    task.add_done_callback(_apart.discard)
    return task
