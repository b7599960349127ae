"""A store and its search index from their making to their end, in a process that may not survive it. It prints the number
of each message when it is acknowledged.

python -m tests.faults.sync_scenario FOLDER write|read
"""

import asyncio
import logging
import sys
from pathlib import Path

from tests.builders import ANNS, Store, a_message, a_session

from keryx.core.ids import SessionId
from keryx.store import messages
from keryx.store.db.sqlite import SqliteDatabase
from keryx.store.search import SearchIndex

MESSAGES = 10
# Large enough for a checkpoint of the store, with few words to index.
_PADDING = " ".join(f"{n:x<1000}" for n in range(900))


async def write(folder: Path) -> None:
    async with SqliteDatabase(folder / "keryx.db") as database:
        store, index = Store(database), SearchIndex(database)
        session = await store.write(a_session)
        (folder / "session").write_text(session.id)
        for n in range(MESSAGES):
            await store.write(a_message, session.id, f"word{n} {_PADDING}")
            print(n, flush=True)
            if n in (2, MESSAGES - 1):
                await index.search(ANNS, f"word{n}")
        index.close()


async def read(folder: Path) -> None:
    """Print what is there and found."""
    if not (folder / "session").exists():
        return
    session = SessionId((folder / "session").read_text())
    async with SqliteDatabase(folder / "keryx.db") as database:
        index = SearchIndex(database)
        for message in await Store(database).read(messages.list_after, session, after=0):
            word = message.text.split()[0]
            if await index.search(ANNS, word):
                print(word.removeprefix("word"))
        index.close()


if __name__ == "__main__":
    logging.basicConfig()
    asyncio.run({"write": write, "read": read}[sys.argv[2]](Path(sys.argv[1])))
