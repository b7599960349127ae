"""Imports a source in a process of its own, which is killed with -9 at one of its commits."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.builders import OPERATORS

from keryx import importers
from keryx.engine.conversation_import import import_conversations
from keryx.importers.conversation import ImportLog
from keryx.store.db.sqlite import SqliteDatabase
from keryx.testing.fault_injection import CrashingDatabase, DatabaseFault, FaultTiming


def _kill(label: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(store: str, name: str, source: str, nth: int, when: str) -> None:
    fault = DatabaseFault("import", FaultTiming(when), nth=nth, strike=_kill)
    program = importers.find_program(name)
    log = ImportLog()
    async with CrashingDatabase(SqliteDatabase(Path(store)), fault) as database:
        await import_conversations(database, OPERATORS, program.key, program.read(Path(source), log), log)


if __name__ == "__main__":
    _, store, name, source, nth, when = sys.argv
    asyncio.run(main(store, name, source, int(nth), when))
