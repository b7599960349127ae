"""The command line, with the entry point of the program. For `keryx acp` it redirects stdout before anything else is imported."""

import gc
import io
import os
import sys
from typing import Literal, TextIO

# The default of 700 new objects before a garbage collection costs an eighth of a long read, and a tenth of the start.
GC_THRESHOLDS = (20_000, 20, 20)

_saved_stdout: list[int] = []
_missing_streams: set[int] = set()


def redirect_stdout() -> int:
    """Return a descriptor of the original stdout. From the first call on, all other output goes to stderr."""
    if not _saved_stdout:
        sys.stdout.flush()
        _saved_stdout.append(os.dup(1))
        os.dup2(2, 1)
    return _saved_stdout[0]


def open_streams() -> None:
    """Open the standard streams that are closed, and buffer those that are not.

    If a stream were closed, the next file that is opened, such as the store, would get its number, and output would be
    written into it. Without a buffer (PYTHONUNBUFFERED) Python loses what a pipe does not take at once, without an error."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The system takes the lowest free number, which is this one.
            os.open(os.devnull, os.O_RDWR)
            _missing_streams.add(number)
    sys.stdin = sys.stdin or _open_stream(0, "r")
    if sys.stdout is None or isinstance(sys.stdout.buffer, io.FileIO):
        sys.stdout = _open_stream(1, "w")
    sys.stderr = sys.stderr or _open_stream(2, "w")


def is_stdout_missing() -> bool:
    """Return whether the program was started with a closed stdout, so that its output goes nowhere."""
    return 1 in _missing_streams


def _open_stream(number: int, mode: Literal["r", "w"]) -> TextIO:
    """Return a stream on a descriptor. To close the stream leaves the descriptor open."""
    return open(number, mode, buffering=1, encoding="utf-8", closefd=False)


def main() -> None:
    """Run the command of the arguments, and exit with its code."""
    open_streams()
    gc.set_threshold(*GC_THRESHOLDS)
    if sys.argv[1:2] == ["acp"] and not {"--help", "-h"} & set(sys.argv):
        redirect_stdout()
    from keryx.cli.commands import run  # noqa: PLC0415 libraries may print while they are imported

    sys.exit(run(sys.argv[1:]))
