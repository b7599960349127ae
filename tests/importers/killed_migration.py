"""Migrates in a process of its own, which is killed with -9 at one of its commits. The settings are those of the variables."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from keryx import config, importers
from keryx.bootstrap import BaseApp, open_database
from keryx.cli.commands.migration import ProgramMigration
from keryx.testing.fault_injection import CrashingDatabase, DatabaseFault, FaultTiming


def _kill(label: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(name: str, source: str, label: str, nth: int, when: str) -> None:
    settings = config.read()
    fault = DatabaseFault(label, FaultTiming(when), nth=nth, strike=_kill)
    base = BaseApp(settings, database=CrashingDatabase(open_database(settings), fault))
    migration = ProgramMigration(base, importers.find_program(name), Path(source))
    async with base.database as database:
        await migration.run(database)


if __name__ == "__main__":
    _, name, source, label, nth, when = sys.argv
    asyncio.run(main(name, source, label, int(nth), when))
