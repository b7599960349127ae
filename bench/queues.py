"""Queues: what a claim costs when very much waits, in many places or behind one that is held up."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

from tests.builders import at_time

from bench import fill
from bench.spread import Spread, ms, spread
from bench.stage import Stage
from bench.table import Line, line
from keryx.core.ids import SessionId, WorkerId
from keryx.store import deliveries, platforms, turns
from keryx.store.db import Database, Transaction

Fill = Callable[[Database, int], Awaitable[object]]
Claim = Callable[[Transaction], object]

_WORKER = WorkerId("bench")
_LEASE = timedelta(minutes=5)
_FEW = 200
_MANY = 10_000
_CLAIMS = 100
_FLAT = 3.0


async def run(stage: Stage) -> AsyncIterator[Line]:
    many = stage.size(_MANY)
    async for found in _compare(
        stage,
        "claim a turn p50",
        _claim_turn,
        (f"{_FEW} sessions wait", fill.sessions_with_turns, _FEW),
        (f"{many:,} sessions wait", fill.sessions_with_turns, many),
        (f"{many:,} behind one turn", _behind_one_turn, many),
    ):
        yield found
    async for found in _compare(
        stage,
        "claim a delivery p50",
        _claim_delivery,
        (f"{_FEW} ready", _in_many_chats, _FEW),
        (f"{many:,} ready", _in_many_chats, many),
    ):
        yield found
    async for found in _compare(
        stage,
        "claim a delivery p50",
        _claim_delivery,
        (f"{_FEW} in a closed chat", _in_a_closed_chat, _FEW),
        (f"{many:,} in a closed chat", _in_a_closed_chat, many),
    ):
        yield found


async def _compare(
    stage: Stage, name: str, claim: Claim, few: tuple[str, Fill, int], *many: tuple[str, Fill, int]
) -> AsyncIterator[Line]:
    base = await _measure(stage, claim, few)
    yield line(name, few[0], ms(base.p50), "ms")
    for case in many:
        found = await _measure(stage, claim, case)
        yield line(name, case[0], ms(found.p50), "ms", against=ms(base.p50), most=_FLAT, what=few[0])


async def _measure(stage: Stage, claim: Claim, case: tuple[str, Fill, int]) -> Spread:
    """Claims are timed within their transaction: the commit is the same for all and would hide the query."""
    _, filler, count = case
    times: list[float] = []

    def timed(tx: Transaction) -> None:
        began = time.perf_counter()
        assert claim(tx)
        times.append(time.perf_counter() - began)

    async with stage.place().database() as database:
        await filler(database, count)
        for _ in range(_CLAIMS):
            await database.write("claim", timed)
    return spread(times)


async def _behind_one_turn(database: Database, count: int) -> None:
    """Very much waits in one session whose turn runs; a few other sessions wait behind all that."""
    session = await fill.turns_in_one_session(database, count)
    await database.write("claim", lambda tx: _claim_turn(tx, only=session))
    await fill.sessions_with_turns(database, _FEW)


async def _in_many_chats(database: Database, count: int) -> None:
    await fill.ready_deliveries(database, count, targets=range(count))


async def _in_a_closed_chat(database: Database, count: int) -> None:
    """Very much waits for a chat whose gate is closed; a few others are ready behind all that."""
    await fill.ready_deliveries(database, count, targets=range(1))
    until = datetime.now(UTC) + timedelta(hours=1)
    await database.write(
        "gate", lambda tx: platforms.close_gate(tx, fill.target(0).key, until=until, reason="throttled")
    )
    await fill.ready_deliveries(database, _FEW, targets=range(1, _FEW + 1))


def _claim_turn(tx: Transaction, only: SessionId | None = None) -> object:
    claimed = turns.claim(
        at_time(tx, datetime.now(UTC)),
        most=1,
        worker=_WORKER,
        lease=_LEASE,
        per_principal=8,
        scoped=only is not None,
        session=only,
    )
    return claimed.turns[0] if claimed.turns else None


def _claim_delivery(tx: Transaction) -> object:
    return deliveries.claim(
        at_time(tx, datetime.now(UTC)),
        most=1,
        platform=fill.PLATFORM,
        account=fill.ACCOUNT,
        worker=_WORKER,
        lease=_LEASE,
    ).leased
