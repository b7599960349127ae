"""Usage: tokens and cost of each model call, by turn, model and task."""

from datetime import datetime

from keryx.core.turns import Turn, Usage
from keryx.store import sessions
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
    sessions.add_usage(tx, turn.session, usage)
