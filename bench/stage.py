"""Stage: where a benchmark runs: which engine, how big, and stores that are filled once and used by several."""

import secrets
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import LiteralString, TypeVar, cast

import msgspec
import psycopg

from bench import fill
from bench.floor import Floor, PostgresFloor, SqliteFloor
from keryx.core.access import AccessRule
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import InboundMessage
from keryx.engine.hub import Hub
from keryx.engine.loops.feed import Feed
from keryx.engine.policy import Policy
from keryx.store.db import Database
from keryx.store.db.metrics import MeteredDatabase
from keryx.store.db.postgres import PostgresDatabase
from keryx.store.db.sqlite import SqliteDatabase
from keryx.timing import SystemClock

T = TypeVar("T")
_PLATFORMS = (
    fill.PLATFORM,
    "telegram",
    "discord",
    "slack",
    "whatsapp",
    "signal",
    "wechat",
    "feishu",
    "email",
)
OPEN = Policy(access={name: AccessRule(allow=("*",)) for name in _PLATFORMS})
"""Everybody may talk: a stranger is turned away, and costs less."""

Filler = Callable[[Database], Awaitable[T]]


class Place(msgspec.Struct, frozen=True):
    """One store: a file, or a schema of a PostgreSQL server."""

    path: Path
    dsn: str = ""

    @property
    def schema(self) -> str:
        return f"bench_{self.path.stem}"

    def database(self) -> MeteredDatabase:
        if self.dsn:
            return MeteredDatabase(PostgresDatabase(self.dsn, schema=self.schema))
        return MeteredDatabase(SqliteDatabase(self.path))


class Stage:
    """`size` cuts sizes down for a quick run; `count` cuts repetitions down."""

    def __init__(self, folder: Path, *, dsn: str = "", quick: bool = False) -> None:
        self.folder = folder
        self.dsn = dsn
        self.quick = quick
        self._tag = secrets.token_hex(3)
        self._filled: dict[str, tuple[Place, object]] = {}
        self._made: list[Place] = []

    @property
    def engine(self) -> str:
        return "PostgreSQL" if self.dsn else "SQLite"

    def size(self, full: int) -> int:
        return max(10, full // 100) if self.quick else full

    def count(self, full: int) -> int:
        return max(5, full // 100) if self.quick else full

    def place(self) -> Place:
        made = Place(self.folder / f"{self._tag}_{len(self._made)}.db", self.dsn)
        self._made.append(made)
        return made

    async def filled(self, name: str, filler: Filler[T]) -> tuple[Place, T]:
        """A store filled under this name, once. It may be written to, so whoever minds takes a name of its own."""
        if name not in self._filled:
            place = self.place()
            async with place.database() as database:
                self._filled[name] = place, await filler(database)
        place, value = self._filled[name]
        return place, cast(T, value)

    async def lanes(self, count: int) -> tuple[Place, list[fill.Filled]]:
        return await self.filled(f"lanes-{count}", lambda db: fill.lanes_with_sessions(db, count))

    def floor(self, place: Place) -> Floor:
        """A bare connection to the same data. SQLite gets a copy of the file, for two connections that write
        to one file in turns would each drop the pages it has cached."""
        if place.dsn:
            return PostgresFloor(place.dsn, place.schema)
        copy = self.place()
        shutil.copyfile(place.path, copy.path)
        return SqliteFloor(copy.path)

    def remove(self) -> None:
        if self.dsn:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                for place in self._made:
                    connection.execute(cast(LiteralString, f'drop schema if exists "{place.schema}" cascade'))


@asynccontextmanager
async def hub_of(place: Place) -> AsyncGenerator[tuple[Hub, MeteredDatabase]]:
    """The verbs alone, over an open store."""
    clock = SystemClock()
    async with place.database() as database:
        yield Hub(database, policy=OPEN, feed=Feed(database, clock)), database


def inbound(
    n: int, event: int | str, text: str = "how long does this take?", *, reader: str = fill.ACCOUNT
) -> InboundMessage:
    """A message as a platform's adapter hands it over, in the lane of person `n`. Each reader of the platform
    has a position of its own, which is stored with its messages."""
    return InboundMessage(
        event=str(event),
        source=fill.source(n),
        parts=text_parts(text),
        surface=fill.PLATFORM,
        reply=fill.target(n),
        state={str(reader): str(event)},
    )


def scattered(filled: Sequence[T]) -> Callable[[int], tuple[int, T]]:
    """Picks entries all over the place, the same ones in every run."""
    step = 7919 if len(filled) % 7919 else 7907

    def pick(n: int) -> tuple[int, T]:
        index = n * step % len(filled)
        return index, filled[index]

    return pick
