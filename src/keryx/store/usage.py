"""Usage: tokens and cost of each model call, by turn, model and task."""

from datetime import date, datetime

import msgspec

from keryx.core.ids import SessionId
from keryx.core.sessions import Tokens, Viewer
from keryx.core.turns import Turn, Usage
from keryx.store import sessions
from keryx.store.database import Transaction, micros, moment

_DAY = 86_400_000_000
_MOST_SESSIONS = 20


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What one day, model and surface used. `cost` is `None` when no price is known for any of it."""

    day: date
    model: str
    surface: str
    turns: int
    tokens: Tokens
    cost: int | None
    estimated: bool


class SpentBy(msgspec.Struct, frozen=True, kw_only=True):
    """What one session used."""

    session: SessionId
    title: str
    tokens: int
    cost: int | None


def add(tx: Transaction, turn: Turn, usage: Usage, *, now: datetime, task: str = "answer") -> None:
    """Record what a call used, and add it to its session."""
    tx.run(
        """
        insert into usage
          (turn, session, profile, owner, asker, surface, model, task, input, output, reasoning, cache_read, cache_write, cost,
           estimated, at)
        values
          (:turn, :session, :profile, :owner, :asker, :surface, :model, :task, :input, :output, :reasoning, :cache_read,
           :cache_write, :cost, :estimated, :at)
        """,
        {
            "turn": turn.id,
            "session": turn.session,
            "profile": turn.profile,
            "owner": turn.owner,
            "asker": turn.asker,
            "surface": turn.surface,
            "model": usage.model,
            "task": task,
            "input": usage.input,
            "output": usage.output,
            "reasoning": usage.reasoning,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
            "cost": usage.cost,
            "estimated": int(usage.estimated),
            "at": micros(now),
        },
    )
    sessions.add_usage(tx, turn.session, usage)


def by_day(tx: Transaction, viewer: Viewer, *, since: datetime) -> list[Spent]:
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
        Spent(
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


def by_session(tx: Transaction, viewer: Viewer, *, since: datetime) -> list[SpentBy]:
    """The sessions that used most since a moment."""
    rows = tx.rows(
        """
        select u.session, s.title, sum(u.input + u.output), sum(u.cost)
        from usage u join sessions s on s.id = u.session
        where u.profile = :profile and u.at >= :since and u.owner = coalesce(cast(:owner as text), u.owner)
        group by u.session, s.title
        order by 3 desc
        limit :limit
        """,
        {
            "profile": viewer.profile,
            "owner": viewer.owner,
            "since": micros(since),
            "limit": _MOST_SESSIONS,
        },
    )
    return [
        SpentBy(
            session=SessionId(session),
            title=title,
            tokens=int(tokens),
            cost=None if cost is None else int(cost),
        )
        for session, title, tokens, cost in rows
    ]
