"""Tokens and cost of each model call, and their totals by day, model, surface, person, session or task."""

import json
from collections.abc import Iterable
from datetime import datetime

from keryx.core.clock import from_micros, to_micros
from keryx.core.ids import PrincipalId, SessionId, TurnId
from keryx.core.sessions import Session, Viewer
from keryx.core.turns import Turn
from keryx.core.usage import (
    AnswerUsage,
    DailyUsage,
    ModelCall,
    SpentAmount,
    Tokens,
    Usage,
    UsageGrouping,
    UsageTotal,
)
from keryx.store import people
from keryx.store.db import Transaction

_DAY_MICROS = 86_400_000_000
_GROUP_COLUMNS = {
    UsageGrouping.DAY: f"cast(u.at / {_DAY_MICROS} as text)",
    UsageGrouping.MODEL: "u.model",
    UsageGrouping.SURFACE: "u.surface",
    UsageGrouping.PERSON: "u.asker",
    UsageGrouping.SESSION: "u.session",
    UsageGrouping.TASK: "u.task",
}


def add(tx: Transaction, turn: Turn, usage: Usage, *, task: str = "answer") -> None:
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
            "at": to_micros(tx.now),
        },
    )
    _add_to_session(tx, turn.session, usage)


def _add_to_session(tx: Transaction, session: SessionId, usage: Usage) -> None:
    tx.run(
        """
        update sessions
        set tokens_input = tokens_input + :input,
            tokens_output = tokens_output + :output,
            tokens_reasoning = tokens_reasoning + :reasoning,
            tokens_cache_read = tokens_cache_read + :cache_read,
            tokens_cache_write = tokens_cache_write + :cache_write,
            cost = case when cast(:cost as bigint) is null then cost else coalesce(cost, 0) + cast(:cost as bigint) end,
            cost_status = case
              when cast(:cost as bigint) is null then cost_status
              when :estimated = 1 then 'estimated'
              when cost_status = 'estimated' then 'estimated'
              else 'actual' end,
            context_used = coalesce(cast(:context_used as bigint), context_used),
            context_limit = coalesce(cast(:context_limit as bigint), context_limit)
        where id = :id
        """,
        {
            "id": session,
            "input": usage.input,
            "output": usage.output,
            "reasoning": usage.reasoning,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
            "cost": usage.cost,
            "estimated": int(usage.estimated),
            "context_used": usage.context_used,
            "context_limit": usage.context_limit,
        },
    )


def list_for_turn(tx: Transaction, turn: Turn) -> list[ModelCall]:
    """Return the calls of a turn in order."""
    rows = tx.rows(
        """
        select model, task, input, output, at from usage
        where profile = :profile and at >= :since and turn = :turn
        order by at
        """,
        {"profile": turn.profile, "since": to_micros(turn.created_at), "turn": turn.id},
    )
    return [
        ModelCall(model=model, task=task, input=input_, output=output, at=from_micros(at))
        for model, task, input_, output, at in rows
    ]


def list_answers(tx: Transaction, session: Session, turns: Iterable[TurnId]) -> dict[TurnId, AnswerUsage]:
    """Return what turns used, by turn. Messages of a fork name the turns of its parent, which has the same owner."""
    # Sums of single turns, because a join would read all usage where the engine expects many turns.
    sums = ", ".join(
        f"(select {what} from usage u where u.turn = t.id)"
        for what in (
            "max(case when u.task = 'answer' then u.model else '' end)",
            *(
                f"sum(u.{name})"
                for name in ("input", "output", "reasoning", "cache_read", "cache_write", "cost")
            ),
            "max(u.estimated)",
        )
    )
    rows = tx.rows(
        f"select t.id, t.profile, t.owner, {sums} from turns t where t.id {tx.in_names}",
        {"names": json.dumps(sorted(turns))},
    )
    return {
        TurnId(turn): AnswerUsage(
            model=model,
            tokens=_decode_tokens(tokens),
            cost=None if cost is None else int(cost),
            estimated=bool(estimated),
        )
        for turn, profile, owner, model, *tokens, cost, estimated in rows
        if model is not None and (profile, owner) == (session.profile, session.owner)
    }


def list_totals(
    tx: Transaction, viewer: Viewer, *, by: UsageGrouping, since: datetime, until: datetime, limit: int = 1000
) -> list[UsageTotal]:
    """What the viewer may see of the usage in a span of time. Days in order, anything else the costliest first."""
    order = "1" if by is UsageGrouping.DAY else "coalesce(sum(u.cost), 0) desc, 3 desc, 1"
    rows = tx.rows(
        f"""
        select {_GROUP_COLUMNS[by]}, count(*), sum(u.input + u.output + u.reasoning), sum(u.input), sum(u.output),
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
            "since": to_micros(since),
            "until": to_micros(until),
            "limit": limit,
        },
    )
    return [
        UsageTotal(
            key=str(key),
            label=_get_label(tx, by, str(key)),
            calls=int(calls),
            tokens=_decode_tokens(tokens),
            cost=int(cost),
            unpriced=int(unpriced),
            estimated=bool(estimated),
        )
        for key, calls, _, *tokens, cost, unpriced, estimated in rows
    ]


def list_daily(tx: Transaction, viewer: Viewer, *, since: datetime) -> list[DailyUsage]:
    """Usage since a moment by UTC day, model and surface, oldest first."""
    rows = tx.rows(
        f"""
        select at / {_DAY_MICROS}, model, surface, count(distinct turn), sum(input), sum(output), sum(reasoning),
          sum(cache_read), sum(cache_write), sum(cost), max(estimated)
        from usage
        where profile = :profile and at >= :since and owner = coalesce(cast(:owner as text), owner)
        group by 1, 2, 3
        order by 1, 2, 3
        """,
        {"profile": viewer.profile, "owner": viewer.owner, "since": to_micros(since)},
    )
    return [
        DailyUsage(
            day=from_micros(int(day) * _DAY_MICROS).date(),
            model=model,
            surface=surface,
            turns=int(turns),
            tokens=_decode_tokens(tokens),
            cost=None if cost is None else int(cost),
            estimated=bool(estimated),
        )
        for day, model, surface, turns, *tokens, cost, estimated in rows
    ]


def sum_for_asker(tx: Transaction, *, profile: str, asker: PrincipalId, since: datetime) -> SpentAmount:
    """What one person has used since a moment."""
    row = tx.row(
        """
        select coalesce(sum(cost), 0), coalesce(sum(input + output + reasoning + cache_read + cache_write), 0)
        from usage
        where profile = :profile and asker = :asker and at >= :since
        """,
        {"profile": profile, "asker": asker, "since": to_micros(since)},
    )
    assert row is not None
    return SpentAmount(int(row[0]), int(row[1]))


def list_askers(tx: Transaction, *, profile: str, since: datetime) -> list[PrincipalId]:
    """Return the people with usage since a time."""
    rows = tx.rows(
        "select distinct asker from usage where profile = :profile and at >= :since order by asker",
        {"profile": profile, "since": to_micros(since)},
    )
    return [PrincipalId(row[0]) for row in rows if row[0]]


def _decode_tokens(counts: Iterable[int]) -> Tokens:
    fed, output, reasoning, cache_read, cache_write = map(int, counts)
    return Tokens(
        input=fed, output=output, reasoning=reasoning, cache_read=cache_read, cache_write=cache_write
    )


def _get_label(tx: Transaction, by: UsageGrouping, key: str) -> str:
    match by:
        case UsageGrouping.DAY:
            return from_micros(int(key) * _DAY_MICROS).date().isoformat()
        case UsageGrouping.PERSON:
            return people.get_name(tx, PrincipalId(key)) or key or "unknown"
        case UsageGrouping.SESSION:
            row = tx.row("select title from sessions where id = :id", {"id": key})
            return str(row[0]) if row and row[0] else key
        case _:
            return key or "unknown"
