"""Spending: what was used, added up by day, model, place, person, session or task."""

from datetime import date, datetime
from enum import StrEnum

import msgspec

from keryx.core import wire
from keryx.core.budgets import Spent
from keryx.core.ids import OPERATOR, PrincipalId
from keryx.core.sessions import Tokens, Viewer
from keryx.store.database import Row, Transaction, micros, moment

_DAY = 86_400_000_000


class By(StrEnum):
    DAY = "day"
    MODEL = "model"
    SURFACE = "surface"
    PERSON = "person"
    SESSION = "session"
    TASK = "task"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One group. `cost` leaves out the calls without a price, of which there are `unpriced`."""

    key: str
    label: str
    calls: int
    tokens: Tokens
    cost: int
    unpriced: int
    estimated: bool


class Daily(msgspec.Struct, frozen=True, kw_only=True):
    """What one day, model and surface used. `cost` is `None` when no price is known for any of it."""

    day: date
    model: str
    surface: str
    turns: int
    tokens: Tokens
    cost: int | None
    estimated: bool


_KEYS = {
    By.DAY: f"cast(u.at / {_DAY} as text)",
    By.MODEL: "u.model",
    By.SURFACE: "u.surface",
    By.PERSON: "u.asker",
    By.SESSION: "u.session",
    By.TASK: "u.task",
}


def report(
    tx: Transaction, viewer: Viewer, *, by: By, since: datetime, until: datetime, limit: int = 1000
) -> list[Line]:
    """What the viewer may see of the usage in a span of time. Days in order, anything else the costliest first."""
    order = "1" if by is By.DAY else "coalesce(sum(u.cost), 0) desc, 3 desc, 1"
    rows = tx.rows(
        f"""
        select {_KEYS[by]}, count(*), sum(u.input + u.output + u.reasoning), sum(u.input), sum(u.output),
          sum(u.reasoning), sum(u.cache_read), sum(u.cache_write), coalesce(sum(u.cost), 0),
          sum(case when u.cost is null then 1 else 0 end), max(u.estimated)
        from usage u
        where u.profile = :profile and u.at >= :since and u.at <= :until
          and u.owner = coalesce(cast(:owner as text), u.owner)
        group by 1
        order by {order}
        limit :limit
        """,
        {
            "profile": viewer.profile,
            "owner": viewer.owner,
            "since": micros(since),
            "until": micros(until),
            "limit": limit,
        },
    )
    return [_line(tx, by, row) for row in rows]


def by_day(tx: Transaction, viewer: Viewer, *, since: datetime) -> list[Daily]:
    """Usage since a moment by UTC day, model and surface, oldest first."""
    rows = tx.rows(
        f"""
        select at / {_DAY}, model, surface, count(distinct turn), sum(input), sum(output), sum(reasoning),
          sum(cache_read), sum(cache_write), sum(cost), max(estimated)
        from usage
        where profile = :profile and at >= :since and owner = coalesce(cast(:owner as text), owner)
        group by 1, 2, 3
        order by 1, 2, 3
        """,
        {"profile": viewer.profile, "owner": viewer.owner, "since": micros(since)},
    )
    return [
        Daily(
            day=moment(int(day) * _DAY).date(),
            model=model,
            surface=surface,
            turns=int(turns),
            tokens=Tokens(
                input=int(fed),
                output=int(output),
                reasoning=int(reasoning),
                cache_read=int(cache_read),
                cache_write=int(cache_write),
            ),
            cost=None if cost is None else int(cost),
            estimated=bool(estimated),
        )
        for day, model, surface, turns, fed, output, reasoning, cache_read, cache_write, cost, estimated in rows
    ]


def spent(tx: Transaction, *, profile: str, asker: PrincipalId, since: datetime) -> Spent:
    """What one person has used since a moment."""
    row = tx.row(
        """
        select coalesce(sum(cost), 0), coalesce(sum(input + output + reasoning + cache_read + cache_write), 0)
        from usage
        where profile = :profile and asker = :asker and at >= :since
        """,
        {"profile": profile, "asker": asker, "since": micros(since)},
    )
    assert row is not None
    return Spent(int(row[0]), int(row[1]))


def askers(tx: Transaction, *, profile: str, since: datetime) -> list[PrincipalId]:
    """Everybody who has used something since a moment."""
    rows = tx.rows(
        "select distinct asker from usage where profile = :profile and at >= :since order by asker",
        {"profile": profile, "since": micros(since)},
    )
    return [PrincipalId(row[0]) for row in rows if row[0]]


def _line(tx: Transaction, by: By, row: Row) -> Line:
    key, calls, _, fed, output, reasoning, cache_read, cache_write, cost, unpriced, estimated = row
    tokens = Tokens(
        input=int(fed),
        output=int(output),
        reasoning=int(reasoning),
        cache_read=int(cache_read),
        cache_write=int(cache_write),
    )
    return Line(
        key=str(key),
        label=_label(tx, by, str(key)),
        calls=int(calls),
        tokens=tokens,
        cost=int(cost),
        unpriced=int(unpriced),
        estimated=bool(estimated),
    )


def _label(tx: Transaction, by: By, key: str) -> str:
    match by:
        case By.DAY:
            return moment(int(key) * _DAY).date().isoformat()
        case By.PERSON:
            return (
                "operator"
                if key == OPERATOR
                else _text(tx, "select name from principals where id = :id", key)
            )
        case By.SESSION:
            row = tx.row("select title from sessions where id = :id", {"id": key})
            return str(row[0]) if row and row[0] else key
        case _:
            return key or "unknown"


def _text(tx: Transaction, query: str, key: str) -> str:
    row = tx.row(query, {"id": key})
    return (wire.loads(row[0], str) if row and row[0] else "") or key or "unknown"
