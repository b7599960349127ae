"""Starts the process that watches this one, and reports to it that the event loop runs. It is a process of its own, because code that holds the interpreter lock stops every thread and every signal handler of this process."""

import faulthandler
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from keryx.cli import watchdog_process
from keryx.config import LogFormat, WatchdogSettings

log = logging.getLogger(__name__)
_MAX_BEAT_SECONDS = 1.0
_RESTART_SECONDS = 10.0
# The watched process gets this much longer, because it ends with a better message and exit code by itself.
_MARGIN_SECONDS = 1.0


class LoopWatchdog:
    """The watching process, and this end of its pipes."""

    def __init__(self, settings: WatchdogSettings, *, stop: float, log_format: LogFormat) -> None:
        self._report = settings.report.total_seconds()
        self._end = settings.exit.total_seconds()
        self._stop = stop + _MARGIN_SECONDS
        self._format = log_format
        self._writers: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._beat_seconds = min((_MAX_BEAT_SECONDS, *(s / 4 for s in (self._report, self._end) if s)))

    def start(self) -> None:
        """Start to watch. From now on the bytes of signals go to the watching process, and its signal for a dump is handled.
        Raise `OSError` if the process cannot be started."""
        pipes = [os.pipe() for _ in range(3)]
        limits = (f"{s:g}" for s in (self._report, self._end, self._stop))
        readers = [reader for reader, _ in pipes]
        self._writers = [writer for _, writer in pipes]
        script = [sys.executable, "-I", "-S", str(Path(watchdog_process.__file__))]
        try:
            self._process = subprocess.Popen(
                [*script, *map(str, readers), *limits, self._format.value],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=readers,
                start_new_session=True,
            )
        except OSError:
            self._close_pipes()
            raise
        finally:
            for reader in readers:
                os.close(reader)
        for writer in self._writers:
            os.set_blocking(writer, False)
        beats, signals, dumps = self._writers
        self._beats = beats
        faulthandler.register(watchdog_process.DUMP_SIGNAL, file=dumps, all_threads=True)
        signal.set_wakeup_fd(signals, warn_on_full_buffer=False)

    async def keep_beating(self) -> None:
        """Tell again and again that the event loop turns. Starts the watching process again if it has ended."""
        while True:
            try:
                self._beat()
            except BrokenPipeError:
                log.error("the process that watches this one has ended, and is started again")
                self.stop()
                await self._restart()
            await anyio.sleep(self._beat_seconds)

    async def _restart(self) -> None:
        while True:
            await anyio.sleep(_RESTART_SECONDS)
            try:
                return self.start()
            except OSError as exc:
                log.error("the process that watches this one cannot be started: %s", exc)

    def _beat(self) -> None:
        """Tell that the event loop turns. Raise `BrokenPipeError` if nothing watches."""
        try:
            os.write(self._beats, b".")
        except BlockingIOError:
            # The pipe is full of beats that were not read yet.
            return

    def stop(self) -> None:
        """Stop to watch. Does nothing if it was not started."""
        if self._process is None:
            return
        signal.set_wakeup_fd(-1)
        faulthandler.unregister(watchdog_process.DUMP_SIGNAL)
        self._close_pipes()
        self._process.wait()
        self._process = None

    def _close_pipes(self) -> None:
        while self._writers:
            os.close(self._writers.pop())


@asynccontextmanager
async def watch_loop(watchdog: LoopWatchdog) -> AsyncGenerator[None]:
    """Watch the event loop during the block. Signals must be handled by `signal.signal` meanwhile, not by the event loop."""
    # While no process watches, the signal for a dump must not end this one. Children would inherit that it is ignored.
    previous = signal.signal(watchdog_process.DUMP_SIGNAL, lambda _, __: None)
    try:
        watchdog.start()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(watchdog.keep_beating)
                try:
                    yield
                finally:
                    group.cancel_scope.cancel()
        finally:
            watchdog.stop()
    finally:
        signal.signal(watchdog_process.DUMP_SIGNAL, previous)
