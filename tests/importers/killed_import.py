"""Imports a source in a process of its own, which is killed with -9 at one of its commits."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.builders import OPERATORS

from keryx import importers
from keryx.engine import conversation_import
from keryx.importers.conversation import ImportLog
from keryx.store.db.sqlite import SqliteDatabase
from keryx.testing.fault_injection import CrashingDatabase, DatabaseFault, FaultTiming


def _kill(label: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(store: str, name: str, source: str, nth: int, when: str, batch: int) -> None:
    conversation_import.BATCH_SIZE = batch
    fault = DatabaseFault("import", FaultTiming(when), nth=nth, strike=_kill)
    program = importers.find_program(name)
    log = ImportLog()
    async with CrashingDatabase(SqliteDatabase(Path(store)), fault) as database:
        found = program.read(Path(source), log)
        await conversation_import.import_conversations(database, OPERATORS, program.key, found, log)


if __name__ == "__main__":
    _, store, name, source, nth, when, batch = sys.argv
    asyncio.run(main(store, name, source, int(nth), when, int(batch)))
