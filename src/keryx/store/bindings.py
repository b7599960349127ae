"""Bindings: the sessions of outside agents that continue ours. They go with the session."""

from datetime import datetime

from keryx.core import ids, wire
from keryx.core.bindings import Binding
from keryx.core.ids import SessionId
from keryx.store.database import Transaction, micros


def put(tx: Transaction, session: SessionId, binding: Binding, *, now: datetime) -> None:
    """Keep a binding in place of the one that this session had with the same agent."""
    tx.run(
        """
        insert into bindings (session, agent, body, bound_at, seen_at)
        values (:session, :agent, :body, :now, :now)
        on conflict (session, agent) do update
        set body = excluded.body, seen_at = excluded.seen_at
        """,
        {
            "session": session,
            "agent": ids.plain(binding.agent),
            "body": wire.dumps(binding),
            "now": micros(now),
        },
    )


def of_session(tx: Transaction, session: SessionId) -> dict[str, Binding]:
    """The bindings of a session, by the name of the agent."""
    rows = tx.rows("select body from bindings where session = :session", {"session": session})
    found = [wire.loads(row[0], Binding) for row in rows]
    return {binding.agent: binding for binding in found}
