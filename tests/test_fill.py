"""What benchmarks are filled with is what the product writes."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from bench import fill
from bench.stage import Stage

from keryx.store.admin.copy import TABLES, TableSpec
from keryx.store.admin.verify import verify
from keryx.store.db import Database, Engine, Row, Transaction

COUNT = 5
_ID = re.compile(r"[0-9a-hjkmnp-tv-z]{18}")
# All but the number of the transaction, which the engines do not share.
_CHANGES = "position, at, kind, profile, owner, subject, session, turn, n, note"

Fill = Callable[[Database, int], Awaitable[object]]
Make = Callable[[Transaction], object]


def lanes(tx: Transaction) -> None:
    for n in range(COUNT):
        fill.lane(tx, n)


def messages(tx: Transaction) -> None:
    session = fill.session(tx, 0)
    for n in range(COUNT):
        fill.said(tx, session, n)


def sessions(tx: Transaction) -> None:
    for n in range(COUNT):
        fill.turn(tx, fill.session(tx, n), n)


def turns(tx: Transaction) -> None:
    session = fill.session(tx, 0)
    for n in range(COUNT):
        fill.turn(tx, session, n)


def deliveries(tx: Transaction) -> None:
    for n in range(COUNT):
        fill.delivery(tx, n)


async def ready(database: Database, count: int) -> None:
    await fill.ready_deliveries(database, count, targets=range(count))


@pytest.fixture
async def stage(engine: Engine, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    dsn = "" if engine is Engine.SQLITE else request.getfixturevalue("postgres")
    made = Stage(tmp_path, dsn=dsn)
    yield made
    made.remove()


@pytest.mark.parametrize(
    ("filler", "one_by_one"),
    [
        (fill.lanes_with_sessions, lanes),
        (fill.session_with_messages, messages),
        (fill.sessions_with_turns, sessions),
        (fill.turns_in_one_session, turns),
        (ready, deliveries),
    ],
)
async def test_a_fill_writes_the_rows_that_the_product_writes_one_by_one(
    stage: Stage, filler: Fill, one_by_one: Make
) -> None:
    async with stage.place().database() as filled, stage.place().database() as made:
        await filler(filled, COUNT)
        await made.write("made", one_by_one)
        assert await filled.read("rows", _rows) == await made.read("rows", _rows)
        assert await verify(filled) == await verify(made)


async def test_a_filled_lane_is_found_by_what_the_fill_tells_of_it(stage: Stage) -> None:
    async with stage.place().database() as database:
        found = await fill.lanes_with_sessions(database, COUNT)
        rows = await database.read(
            "rows", lambda tx: tx.rows("select key, session, owner from lanes order by created_at")
        )
    assert [tuple(row) for row in rows] == [(f.lane, f.session, f.owner) for f in found]


def _rows(tx: Transaction) -> dict[str, list[str]]:
    """Every row of every table. Ids are new in every store: they are told by the order in which they come."""
    seen: dict[str, str] = {}

    def told(row: Row) -> str:
        return _ID.sub(lambda found: seen.setdefault(found[0], f"id {len(seen)}"), repr(tuple(row)))

    return {table.name: [told(row) for row in tx.rows(_select(table))] for table in TABLES}


def _select(table: TableSpec) -> str:
    columns = _CHANGES if table.name == "changes" else "*"
    return f"select {columns} from {table.name} order by {', '.join(table.key)}"
