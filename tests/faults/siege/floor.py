"""What the machine itself still gives during a siege: a bare server that stores each message five times, each time
durably, and answers. Its delays tell how much of a slow answer is the attackers' use of the same processors and disk.

python -m tests.faults.siege.floor FOLDER SECONDS      prints samples as the probe does
"""

import asyncio
import sqlite3
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.faults.siege.probe import print_sample

FLOOR = "floor"
# As many as a message has in Keryx from its arrival to its answer.
_COMMITS = 5
_INTERVAL = 0.1


async def run(folder: Path, seconds: float) -> None:
    """Ask the server, which answers each line after it was stored, at intervals."""
    database = sqlite3.connect(folder / "floor.db", isolation_level=None, check_same_thread=False)
    database.execute("pragma journal_mode = wal")
    database.execute("pragma synchronous = full")
    database.execute("create table messages (text)")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            for _ in range(_COMMITS):
                # While the disk is full, nothing is stored.
                with suppress(sqlite3.OperationalError):
                    await asyncio.to_thread(database.execute, "insert into messages values (?)", (line,))
            writer.write(line)

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        until = time.monotonic() + seconds
        while (began := time.monotonic()) < until:
            writer.write(b"floor\n")
            await reader.readline()
            print_sample(FLOOR, began, time.monotonic() - began)
            await asyncio.sleep(_INTERVAL)
        writer.close()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), float(sys.argv[2])))
