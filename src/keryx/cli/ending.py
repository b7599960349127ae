"""Ending: a process that was asked to end does so, whatever still runs in it."""

import logging
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from keryx.app import App
from keryx.cli import output
from keryx.engine import foreign
from keryx.engine.service import Service

_GRACE_SECONDS = 2.0
_HELD = "the agent did not stop when it was asked to; everything is recorded"


@asynccontextmanager
async def service(app: App, kind: str) -> AsyncGenerator[Service]:
    """The engine for one session. At the end an agent that does not listen is not waited for."""
    limits: list[threading.Timer] = []
    try:
        async with app.service(kind) as running:
            try:
                yield running
            finally:
                limits.append(end_after(_GRACE_SECONDS, _HELD, code=1))
    finally:
        if not foreign.left():
            for limit in limits:
                limit.cancel()


def end_after(seconds: float, reason: str, *, code: int) -> threading.Timer:
    """End the process after a time, unless it has ended by then or the timer is cancelled."""
    timer = threading.Timer(seconds, end_now, [reason], {"code": code})
    timer.daemon = True
    timer.start()
    return timer


def end_now(reason: str, *, code: int) -> None:
    output.warn(f"keryx: {reason}")
    logging.shutdown()
    os._exit(code)
