"""Lay siege to a node and print what its well-behaved users saw.

python -m tests.faults.siege --minutes 10
python -m tests.faults.siege --minutes 2 --only network --only plugins
python -m tests.faults.siege --database postgresql://...
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.siege.siege import ATTACKERS, Siege


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.siege", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--quiet", type=float, default=60, help="seconds without attackers before it")
    parser.add_argument("--only", action="append", choices=ATTACKERS, help="these attackers only")
    parser.add_argument("--database", default="")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    random.seed(options.seed)
    with tempfile.TemporaryDirectory(prefix="keryx-siege-") as folder:
        home = Path(folder)
        siege = Siege(
            home,
            options.minutes * 60,
            options.quiet,
            options.only or ATTACKERS,
            database=options.database,
            seed=options.seed,
        )
        verdict = siege.run()
    print(verdict.table())
    return 0 if verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main())
