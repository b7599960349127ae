"""Search: how fast conversations are indexed and searched.

The messages have a Zipf-like vocabulary. One word is in all of them, one in every tenth, one in every ten
thousandth; one in fifty is Japanese.
"""

import random
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.builders import at_time

from bench.floor import Floor, PostgresFloor, SqliteFloor
from bench.spread import beside, ms, spread
from bench.stage import Place, Stage
from bench.table import Line, line
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, PrincipalId, SessionId
from keryx.core.messages import Role, text_parts
from keryx.core.sessions import Viewer
from keryx.store import messages, sessions
from keryx.store.db import Database, Transaction
from keryx.store.search import SearchIndex
from keryx.testing import FakeClock

START = datetime(2026, 1, 1, tzinfo=UTC)
SESSIONS = 500
OWNERS = 20
WORDS = 30_000
LENGTH = 40
ROUNDS = 80
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

# What a person waits for, in milliseconds.
_UNDER = {"rare word": 5, "word in 100 %": 20, "CJK, two characters": 20}
_SQLITE_HITS = "select rowid from search where search match :word and rowid > 0 order by rowid desc limit 20"
_POSTGRES_HITS = """
select id from search where id > 0 and vector @@ cast(:word as tsquery) order by id desc limit 20
"""


async def run(stage: Stage) -> AsyncIterator[Line]:
    """Build messages in a new place, index them, and look for words in them. The floor of a search for one word is the
    index itself, asked for the newest twenty, without who may see them, their text, neighbours and conversations."""
    count = stage.size(100_000)
    place = stage.place()
    async with place.database() as database:
        await _build(database, count)
        index = SearchIndex(database)
        began = time.perf_counter()
        await index.catch_up()
        yield line("index filled", f"{count:,} messages", count / (time.perf_counter() - began), "/s")
        async for found in _follow(database, index, f"{count:,} messages"):
            yield found
        floor = _floor(place)
        database.clock = FakeClock(START + timedelta(days=100))
        for viewer in (Viewer(DEFAULT_PROFILE, OPERATOR), Viewer(DEFAULT_PROFILE, PrincipalId("owner7"))):
            for name in QUERIES:
                yield await _asked(stage, index, viewer, name, floor)
        floor.close()
        index.close()


async def _build(database: Database, size: int) -> None:
    dice = random.Random(1)
    made = await database.write("sessions", lambda tx: [_session(tx, n) for n in range(SESSIONS)])
    for start in range(0, size, 2_000):
        await database.write(
            "messages", lambda tx, start=start: _messages(tx, dice, made, start, min(size, start + 2_000))
        )


def _session(tx: Transaction, n: int) -> SessionId:
    owner = PrincipalId(f"owner{n % OWNERS}")
    made = sessions.create(at_time(tx, START), profile=DEFAULT_PROFILE, owner=owner, surface="web")
    if n % 100 == 0:
        sessions.set_pinned(at_time(tx, START), sessions.get(tx, made), True)
    return made


def _messages(tx: Transaction, dice: random.Random, made: list[SessionId], start: int, end: int) -> None:
    for n in range(start, end):
        role = Role.ASSISTANT if n % 2 else Role.USER
        at = START + timedelta(seconds=60 * n)
        messages.append(at_time(tx, at), dice.choice(made), role, text_parts(_text(dice, n)))


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


async def _follow(database: Database, index: SearchIndex, size: str) -> AsyncIterator[Line]:
    """New messages after the index was filled: the feed brings them."""
    dice = random.Random(2)
    now = START + timedelta(days=100)
    session = await database.write("session", lambda tx: _session(tx, 1))

    def more(tx: Transaction) -> None:
        for n in range(1, 2_001):
            messages.append(at_time(tx, now), session, Role.USER, text_parts(_text(dice, n)))

    await database.write("messages", more)
    began = time.perf_counter()
    await index.catch_up()
    yield line("index, 2,000 more", size, 2_000 / (time.perf_counter() - began), "/s")
    one: list[float] = []
    for _ in range(ROUNDS):
        await database.write(
            "message",
            lambda tx: messages.append(at_time(tx, now), session, Role.USER, text_parts("a fresh word")),
        )
        began = time.perf_counter()
        await index.catch_up()
        one.append(time.perf_counter() - began)
    yield line("index, one more", size, ms(spread(one).p50), "ms")


async def _asked(stage: Stage, index: SearchIndex, viewer: Viewer, name: str, floor: Floor) -> Line:
    text = QUERIES[name]
    hits = await index.search(viewer, text)

    def bare(_: int) -> list[Any]:
        return _hits(stage, floor, text)

    floors = [bare] if name in _UNDER else []
    ours, *plain = await beside(stage.count(ROUNDS), lambda _: index.search(viewer, text), *floors)
    return line(
        f"search, {name}",
        f"{len(hits)} hits for {viewer.principal}",
        ms(ours.p50),
        "ms",
        floor=ms(plain[0].p50) if plain else None,
        under=_UNDER.get(name),
    )


def _floor(place: Place) -> Floor:
    if place.dsn:
        return PostgresFloor(place.dsn, place.schema)
    return SqliteFloor(place.path.with_name(f"{place.path.stem}-search.db"))


def _hits(stage: Stage, floor: Floor, word: str) -> list[Any]:
    if stage.dsn:
        return floor.rows(_POSTGRES_HITS, {"word": f"'{word}'"})
    return floor.rows(_SQLITE_HITS, {"word": f'words : "{word}"'})
