"""Watches another process from outside: reports where its threads stand when its event loop does not turn, and kills it when it does not end. A script of its own that uses the standard library only."""

import contextlib
import json
import os
import select
import signal
import sys
import time

DUMP_SIGNAL = signal.SIGUSR2
# How long the process may take to end by itself after a second signal.
_SECOND_SIGNAL_SECONDS = 1.0
_MAX_TICK_SECONDS = 1.0
_DUMP_SECONDS = 2.0
_MAX_DUMP_BYTES = 200_000
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ProcessWatch:
    """The state of the watched process, as its pipes tell it. A limit of 0 seconds is none."""

    def __init__(
        self, pipes: tuple[int, int, int], *, report: float, end: float, stop: float, as_json: bool
    ) -> None:
        self._beats, self._signals, self._dumps = pipes
        self._report = report
        self._end = end
        self._stop = stop
        self._as_json = as_json
        self._parent = os.getppid()
        self._tick = min((_MAX_TICK_SECONDS, *(s / 4 for s in (report, end, stop) if s)))
        # The seconds without a beat, and the seconds until the process must have ended.
        self._silent = 0.0
        self._left: float | None = None
        self._reported = False

    def run(self) -> None:
        """ProcessWatch until the process has ended, or kill it."""
        while os.getppid() == self._parent:
            began = time.monotonic()
            ready, _, _ = select.select([self._beats, self._signals, self._dumps], [], [], self._tick)
            # Time in which this process was suspended does not count.
            passed = min(time.monotonic() - began, 2 * self._tick)
            if self._beats in ready:
                if not os.read(self._beats, 4_096):
                    return
                self._note_beat()
            elif not self._is_suspended():
                self._silent += passed
            if self._left is not None:
                self._left -= passed
            if self._signals in ready:
                self._note_signals(os.read(self._signals, 4_096))
            if self._dumps in ready and (dump := self._read_dump()):
                self._log("where every thread stands, because a signal asked for it", dump)
            self._act()

    def _is_suspended(self) -> bool:
        """Whether the process is stopped by a signal or a debugger. Without /proc it is never known to be."""
        try:
            with open(f"/proc/{self._parent}/stat", encoding="utf-8", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[0] in "Tt"
        except OSError:
            return False

    def _note_beat(self) -> None:
        if self._reported:
            self._log(f"the event loop turns again, after {self._silent:.0f} s")
        self._silent, self._reported = 0.0, False

    def _note_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _STOP_SIGNALS:
                self._left = self._stop if self._left is None else min(self._left, _SECOND_SIGNAL_SECONDS)

    def _act(self) -> None:
        if self._left is not None and self._left <= 0:
            self._kill("the process did not end in time after a signal, so it is killed")
        if self._report and self._silent >= self._report and not self._reported:
            self._reported = True
            os.kill(self._parent, DUMP_SIGNAL)
            message = (
                f"the event loop has not turned for {self._silent:.0f} s; this is where every thread stands"
            )
            self._log(message, self._read_dump() or "(the process did not tell)")
        if self._end and self._silent >= self._end:
            self._kill(f"the event loop has not turned for {self._silent:.0f} s, so the process is killed")

    def _kill(self, reason: str) -> None:
        self._log(f"{reason}; nothing is lost, and what ran is taken up again at the next start")
        if os.getppid() == self._parent:
            os.kill(self._parent, signal.SIGKILL)
        sys.exit(1)

    def _read_dump(self) -> str:
        """Return what the process writes about its threads, within a time limit."""
        dump = b""
        until = time.monotonic() + _DUMP_SECONDS
        while (
            len(dump) < _MAX_DUMP_BYTES
            and select.select(
                [self._dumps], [], [], max(0, min(0.3, until - time.monotonic())) if dump else 1
            )[0]
        ):
            chunk = os.read(self._dumps, 65_536)
            if not chunk:
                break
            dump += chunk
        return dump.decode("utf-8", "replace").strip()

    def _log(self, message: str, detail: str = "") -> None:
        moment = time.time()
        stamp = (
            f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(moment))}.{int(moment % 1 * 1000):03d}+00:00"
        )
        if self._as_json:
            entry = {"time": stamp, "level": "error", "logger": "keryx.watchdog", "message": message}
            text = json.dumps({**entry, "error": detail} if detail else entry)
        else:
            text = f"{stamp} ERROR keryx.watchdog: {message}" + (f"\n{detail}" if detail else "")
        # Continue to watch when the disk of the log is full.
        with contextlib.suppress(OSError):
            os.write(2, f"{text}\n".encode("utf-8", "replace"))


if __name__ == "__main__":
    for _number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(_number, signal.SIG_IGN)
    _beats, _signals, _dumps, _report, _end, _stop, _format = sys.argv[1:]
    ProcessWatch(
        (int(_beats), int(_signals), int(_dumps)),
        report=float(_report),
        end=float(_end),
        stop=float(_stop),
        as_json=_format == "json",
    ).run()
