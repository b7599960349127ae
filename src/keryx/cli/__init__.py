"""The command line, with the entry point of the program. For `keryx acp` it redirects stdout before anything else is imported."""

import gc
import os
import sys

# The default of 700 new objects before a garbage collection costs an eighth of a long read, and a tenth of the start.
GC_THRESHOLDS = (20_000, 20, 20)

_saved_stdout: list[int] = []


def redirect_stdout() -> int:
    """Return a descriptor of the original stdout. From the first call on, all other output goes to stderr."""
    if not _saved_stdout:
        sys.stdout.flush()
        _saved_stdout.append(os.dup(1))
        os.dup2(2, 1)
    return _saved_stdout[0]


def main() -> None:
    gc.set_threshold(*GC_THRESHOLDS)
    if sys.argv[1:2] == ["acp"] and not {"--help", "-h"} & set(sys.argv):
        redirect_stdout()
    from keryx.cli.commands import run  # noqa: PLC0415 libraries may print while they are imported

    sys.exit(run(sys.argv[1:]))
