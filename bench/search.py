"""How fast conversations are indexed and searched.

    python -m bench.search [--size 100000] [--postgres DSN]

The messages have a Zipf-like vocabulary. One word is in all of them, one in every tenth, one in every ten
thousandth; one in fifty is Japanese.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, PrincipalId, SessionId
from keryx.core.messages import Role, words
from keryx.core.sessions import Viewer
from keryx.store import messages, sessions
from keryx.store.database import Database, Transaction
from keryx.store.postgres import PostgresDatabase
from keryx.store.search import Index
from keryx.store.sqlite import SqliteDatabase

START = datetime(2026, 1, 1, tzinfo=UTC)
SESSIONS = 500
OWNERS = 20
WORDS = 30_000
LENGTH = 40
ROUNDS = 40
CJK = "東京都の天気予報は明日も晴れるでしょう会議資料を確認してください"

QUERIES = {
    "rare word": "needle",
    "word in 10 %": "tenth",
    "word in 100 %": "every",
    "10 % and rare": "tenth needle",
    "10 % and 100 %": "tenth every",
    "100 % without 10 %": "every -tenth",
    "phrase of common words": '"tenth every"',
    "prefix of 1": "n*",
    "prefix of 3": "nee*",
    "prefix of 1, common": "w*",
    "prefix of 3, common": "wor*",
    "CJK, two characters": "会議",
    "CJK, four characters": "天気予報",
    "nothing found": "absentword",
    "common, old": "every before:2026-01-02",
    "common, pinned": "every is:pinned",
    "without": "-every",
}


async def run(dsn: str | None, size: int) -> None:
    """Build `size` messages in a new place, index them, and print one line per measurement."""
    with tempfile.TemporaryDirectory() as folder:
        schema = f"bench_search_{random.getrandbits(32):08x}"
        database = PostgresDatabase(dsn, schema=schema) if dsn else SqliteDatabase(Path(folder) / "keryx.db")
        print(f"search, {database.engine}, {size} messages")
        async with database:
            await _build(database, size)
            await _measure(database, size)
            if dsn:
                await database.write("drop", lambda tx: tx.run(f'drop schema "{schema}" cascade'))


async def _build(database: Database, size: int) -> None:
    dice = random.Random(1)
    made = await database.write("sessions", lambda tx: [_session(tx, n) for n in range(SESSIONS)])
    for start in range(0, size, 2_000):
        await database.write(
            "messages", lambda tx, start=start: _messages(tx, dice, made, start, min(size, start + 2_000))
        )


def _session(tx: Transaction, n: int) -> SessionId:
    owner = PrincipalId(f"owner{n % OWNERS}")
    made = sessions.create(tx, profile=DEFAULT_PROFILE, owner=owner, surface="web", now=START)
    if n % 100 == 0:
        sessions.set_pinned(tx, sessions.get(tx, made), True, now=START)
    return made


def _messages(tx: Transaction, dice: random.Random, made: list[SessionId], start: int, end: int) -> None:
    for n in range(start, end):
        role = Role.ASSISTANT if n % 2 else Role.USER
        at = START + timedelta(seconds=60 * n)
        messages.append(tx, dice.choice(made), role, words(_text(dice, n)), now=at)


def _text(dice: random.Random, n: int) -> str:
    chosen = [f"word{int(WORDS ** dice.random())}" for _ in range(LENGTH)]
    if n % 10 == 0:
        chosen.insert(dice.randrange(LENGTH), "tenth")
    chosen.insert(dice.randrange(LENGTH), "every")
    if n % 10_000 == 77:
        chosen.insert(dice.randrange(LENGTH), "needle")
    if n % 50 == 0:
        first = dice.randrange(len(CJK) - 8)
        chosen.append(CJK[first : first + 8])
    return " ".join(chosen)


async def _measure(database: Database, size: int) -> None:
    index = Index(database)
    started = time.perf_counter()
    await index.catch_up()
    seconds = time.perf_counter() - started
    print(f"  index filled            {size / seconds:10,.0f} messages/s ({seconds:.1f} s)")
    await _follow(database, index)
    for viewer in (Viewer(DEFAULT_PROFILE, OPERATOR), Viewer(DEFAULT_PROFILE, PrincipalId("owner7"))):
        print(f"  asked by {viewer.principal}")
        for name, text in QUERIES.items():
            await _time(index, viewer, name, text)
    index.close()


async def _follow(database: Database, index: Index) -> None:
    """New messages after the index was filled: the feed brings them."""
    dice = random.Random(2)
    now = START + timedelta(days=100)
    session = await database.write("session", lambda tx: _session(tx, 1))

    def more(tx: Transaction) -> None:
        for n in range(1, 2_001):
            messages.append(tx, session, Role.USER, words(_text(dice, n)), now=now)

    await database.write("messages", more)
    started = time.perf_counter()
    await index.catch_up()
    seconds = time.perf_counter() - started
    print(f"  caught up by the feed   {2_000 / seconds:10,.0f} messages/s")
    one: list[float] = []
    for _ in range(ROUNDS):
        await database.write(
            "message", lambda tx: messages.append(tx, session, Role.USER, words("a fresh word"), now=now)
        )
        started = time.perf_counter()
        await index.catch_up()
        one.append(time.perf_counter() - started)
    _print("caught up by one message", one, "")


async def _time(index: Index, viewer: Viewer, name: str, text: str) -> None:
    now = START + timedelta(days=100)
    times: list[float] = []
    hits = await index.search(viewer, text, now=now)
    for _ in range(ROUNDS):
        started = time.perf_counter()
        hits = await index.search(viewer, text, now=now)
        times.append(time.perf_counter() - started)
    _print(name, times, f"{len(hits)} hits")


def _print(name: str, times: list[float], note: str) -> None:
    p50, p95 = statistics.median(times) * 1000, statistics.quantiles(times, n=20)[-1] * 1000
    print(f"  {name:24} p50 {p50:8.2f} ms   p95 {p95:8.2f} ms   {note}".rstrip())


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Measure indexing and searching.")
    options.add_argument("--size", type=int, default=100_000)
    options.add_argument("--postgres", metavar="DSN")
    given = options.parse_args()
    asyncio.run(run(given.postgres, given.size))
