"""Foreign: code of agents and adapters runs in our tasks, and must not end more than itself."""

import asyncio
import logging
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import anyio

from keryx.core.errors import SendError, Uncertain
from keryx.core.ports import Adapter, Parcel

log = logging.getLogger(__name__)

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


async def send(adapter: Adapter, parcel: Parcel, timeout: timedelta) -> str:
    """Send through an adapter. Whatever it does, only a `SendError` comes out; what is no such error leaves it in
    doubt whether the part arrived."""
    try:
        with anyio.fail_after(timeout.total_seconds()), contained():
            return await adapter.send(parcel)
    except SendError:
        raise
    except TimeoutError as exc:
        raise Uncertain(f"{adapter.platform} did not answer in time") from exc
    except Exception as exc:
        log.exception("the %s adapter failed with delivery %s", adapter.platform, parcel.delivery)
        raise Uncertain(f"the {adapter.platform} adapter failed: {type(exc).__name__}") from exc


def left() -> bool:
    """Whether foreign code that was asked to end still runs."""
    return bool(_apart)
