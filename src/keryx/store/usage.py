"""Usage: tokens and cost of each model call, by turn, model and task."""

from datetime import datetime

from keryx.core.ids import SessionId
from keryx.core.turns import Turn, Usage
from keryx.store.database import Transaction, micros


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
