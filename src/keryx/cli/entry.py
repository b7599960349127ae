"""Entry: where the program begins. It loads nothing before stdout is safe."""

import sys

from keryx.cli import stdout


def main() -> None:
    if sys.argv[1:2] == ["acp"] and not {"--help", "-h"} & set(sys.argv):
        stdout.keep()
    from keryx.cli.main import main as run  # noqa: PLC0415 a library may print while it is loaded

    run()
