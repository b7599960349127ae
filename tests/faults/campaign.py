"""Campaign: a storm from the command line, with its seed first and its verdict last."""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Protocol


class Verdict(Protocol):
    @property
    def clean(self) -> bool: ...

    def table(self) -> str: ...


class Campaign(Protocol):
    """A home, how many kills, the seed and the database."""

    def __call__(self, home: Path, kills: int, *, seed: int, database: str) -> Verdict: ...


def command(what: str | None, kills: int, run: Campaign) -> int:
    """Run a storm as the command line says. Return the exit code."""
    options = build_parser(what, kills).parse_args()
    return run_campaign(run, options.kills, seed=options.seed, database=options.database)


def build_parser(what: str | None, kills: int | None = None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--database", default="")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    return parser


def run_campaign(run: Campaign, kills: int, *, seed: int, database: str) -> int:
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        verdict = run(Path(folder), kills, seed=seed, database=database)
    print(f"{kills} kills\n{verdict.table()}", flush=True)
    return 0 if verdict.clean else 1
