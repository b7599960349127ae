"""The end of a process: signals, a deadline for parts that do not stop, and the killing of child processes."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FrameType

from keryx.app import App
from keryx.cli import output
from keryx.engine import plugins
from keryx.engine.service import Service
from keryx.process_group import list_descendants

log = logging.getLogger(__name__)
_GRACE_SECONDS = 2.0
_AGENT_STUCK = "the agent did not stop when it was asked to; everything is recorded"


@asynccontextmanager
async def open_service(app: App, kind: str) -> AsyncGenerator[Service]:
    """Run the engine for one session. At the end, exit without waiting for an agent that does not stop."""
    limits: list[threading.Timer] = []
    try:
        async with app.service(kind) as running:
            try:
                yield running
            finally:
                limits.append(exit_after(_GRACE_SECONDS, _AGENT_STUCK, code=1))
    finally:
        if not plugins.has_detached():
            for limit in limits:
                limit.cancel()


def list_stop_signals() -> list[signal.Signals]:
    """Return the signals that stop a node in good order. The end of its terminal is one, unless `nohup` has it ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if ignored else [signal.SIGHUP])]


@contextmanager
def handle_signals(numbers: Sequence[signal.Signals], action: Callable[[], object]) -> Generator[None]:
    """Call `action` in the event loop for these signals instead of the default.

    The handlers are not those of the event loop, because those take the descriptor that the watchdog needs."""
    loop = asyncio.get_running_loop()

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(action)

    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def exit_after(seconds: float, reason: str, *, code: int) -> threading.Timer:
    """Exit the process after a delay, unless the timer is cancelled."""
    timer = threading.Timer(seconds, exit_now, [reason], {"code": code})
    timer.daemon = True
    try:
        timer.start()
    except RuntimeError as exc:
        # No more threads are allowed. The process that watches a node has a deadline too.
        log.warning("cannot set a deadline for the shutdown: %s", exc)
    return timer


def exit_now(reason: str, *, code: int) -> None:
    output.warn(f"keryx: {reason}")
    logging.shutdown()
    os._exit(code)


def kill_children() -> None:
    """Kill all descendants of this process. Does nothing without /proc."""
    for pid in list_descendants(os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
