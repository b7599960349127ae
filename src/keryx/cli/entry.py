"""Entry: where the program begins. It loads nothing before stdout is safe."""

import gc
import sys

from keryx.cli import stdout

# How many new objects make Python look for cycles. Its own 700 costs a long read an eighth of its time.
COLLECT_AFTER = (20_000, 20, 20)


def main() -> None:
    gc.set_threshold(*COLLECT_AFTER)
    if sys.argv[1:2] == ["acp"] and not {"--help", "-h"} & set(sys.argv):
        stdout.keep()
    from keryx.cli.main import main as run  # noqa: PLC0415 a library may print while it is loaded

    run()
