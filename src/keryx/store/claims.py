"""Claims: which waiting turn a worker may run next, and the leases on those that run."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from keryx.core import ids
from keryx.core.blame import MOST_TRIES, TRIES
from keryx.core.ids import SessionId, TurnId, WorkerId
from keryx.core.turns import BusyMode, Turn, TurnState
from keryx.store import sessions, turns
from keryx.store.database import Engine, Row, Transaction, maybe_moment, micros
from keryx.store.turns import COLUMNS, SELECT, from_row

# SQLite knows no alias in a returning clause.
_RETURNED = COLUMNS.replace("t.", "")
_CANDIDATES = 8


class Claimed(NamedTuple):
    """Turns that a worker got. `passed_over`: another waits whose session somebody else was just writing to.
    `waiting`: some turn, of whomever, is left in the queue."""

    turns: list[Turn]
    passed_over: bool
    waiting: bool


def claim_many(
    tx: Transaction,
    *,
    most: int,
    worker: WorkerId,
    now: datetime,
    lease: timedelta,
    per_principal: int,
    scoped: bool = False,
    session: SessionId | None = None,
    settled: bool = True,
) -> Claimed:
    """Lease the next turns, up to `most`, of sessions that have none running. Safe to call concurrently.

    Sessions take turns: one that was served waits behind those that asked before. The attempt is counted
    here, before any work. A scoped worker takes only turns of `session`, and those pinned to it. A worker runs
    one suspect at a time, and while it is not `settled` none that has been blamed."""
    found: list[Turn] = []
    passed_over, more = False, True
    while more and len(found) < most:
        candidates = _candidates(tx, worker, now, per_principal, scoped, session, settled)
        turn, looked_at, busy = _claim(tx, candidates, worker, now, lease)
        found += [turn] if turn else []
        passed_over = passed_over or busy
        # A turn that begins lets no other begin, so a short list that was looked through has nothing more to give.
        more = looked_at < len(candidates) or (turn is not None and looked_at == _CANDIDATES)
    return Claimed(found, passed_over, _waiting(tx))


def renew(tx: Transaction, worker: WorkerId, turns: Iterable[TurnId], *, until: datetime) -> int:
    """Prolong the leases of turns that a worker runs; gives how many it still holds."""
    return sum(
        tx.count(
            "update turns set lease_until = :until where id = :id and worker = :worker and state = 'running'",
            {"id": turn, "worker": worker, "until": micros(until)},
        )
        for turn in turns
    )


def abandoned(tx: Transaction, *, now: datetime, workers: list[WorkerId], limit: int = 50) -> list[Turn]:
    """Running turns whose lease ran out, or whose worker is among those known to be dead."""
    rows = tx.rows(
        f"{SELECT} where t.state = 'running' and t.lease_until < :now order by t.lease_until limit :limit",
        {"now": micros(now), "limit": limit},
    )
    found = [from_row(row) for row in rows]
    if workers:
        rows = tx.rows(f"{SELECT} where t.state = 'running' order by t.position")
        found += [t for t in map(from_row, rows) if t.worker in workers and t.id not in {f.id for f in found}]
    return found


def cap_waits(tx: Transaction, *, until: datetime) -> None:
    """Let nothing wait longer than until a moment: for a clock that was set back."""
    tx.run(
        "update turns set not_before = :until where state = 'queued' and not_before > :until",
        {"until": micros(until)},
    )


def next_at(tx: Transaction, *, now: datetime) -> datetime | None:
    """When the next waiting turn that is held back may run."""
    row = tx.row(
        "select min(not_before) from turns where state = 'queued' and not_before > 0 and not_before > :now",
        {"now": micros(now)},
    )
    return maybe_moment(row[0]) if row else None


def _waiting(tx: Transaction) -> bool:
    # In the order of an index, so that an engine which believes that many wait does not look for one in the table.
    row = tx.row("select 1 from turns where state = 'queued' order by session, position limit 1")
    return row is not None


def _candidates(
    tx: Transaction,
    worker: WorkerId,
    now: datetime,
    per_principal: int,
    scoped: bool,
    session: SessionId | None,
    settled: bool,
) -> list[Row]:
    _sort(tx, False)
    rows = tx.rows(
        """
        select t.id, t.session
        from turns t
        where t.state = 'queued'
          and t.ready_at is not null
          and t.not_before <= :now
          and t.attempts < :most
          and (
            t.attempts < :suspect
            or (
              (:settled = 1 or t.blame = 0)
              and not exists (
                select 1 from turns r where r.state = 'running' and r.worker = :worker and r.attempts > :suspect
              )
            )
          )
          and (t.pin = :worker or (t.pin is null and (:scoped = 0 or t.session = :session)))
          and (
            select count(*) from turns r where r.profile = t.profile and r.asker = t.asker and r.state = 'running'
          ) < :per_principal
        order by t.ready_at, t.position
        limit :candidates
        """,
        {
            "worker": worker,
            "now": micros(now),
            "session": session or "",
            "per_principal": per_principal,
            "scoped": int(scoped),
            "most": MOST_TRIES,
            "suspect": TRIES - 1,
            "settled": int(settled),
            "candidates": _CANDIDATES,
        },
    )
    _sort(tx, True)
    return rows


def _sort(tx: Transaction, allowed: bool) -> None:
    """With counts from before a rush, PostgreSQL would rather read and sort all that waits than follow the index."""
    if tx.engine is Engine.POSTGRES:
        tx.run(f"set local enable_sort = {'on' if allowed else 'off'}")


def _claim(
    tx: Transaction, candidates: list[Row], worker: WorkerId, now: datetime, lease: timedelta
) -> tuple[Turn | None, int, bool]:
    """Take the first candidate whose session is free; how many were looked at, and whether one was passed over."""
    passed_over = False
    for number, (candidate, session) in enumerate(candidates, start=1):
        if not _free(tx, session):
            passed_over = True
            continue
        turn = _take(tx, candidate, worker, now, lease)
        if turn:
            sessions.count_turn(tx, turn.session, now=now)
            turns.note(tx, turn, TurnState.RUNNING.value, now)
            return _collected(tx, turn, now), number, passed_over
    return None, len(candidates), passed_over


def _free(tx: Transaction, session: SessionId) -> bool:
    """Lock a session, unless somebody else has."""
    return not tx.skip_locked or bool(
        tx.row(f"select 1 from sessions where id = :id{tx.skip_locked}", {"id": session})
    )


def _take(tx: Transaction, turn: TurnId, worker: WorkerId, now: datetime, lease: timedelta) -> Turn | None:
    # The state is an expression, so that an index of all that waits is never taken for shorter than one id.
    row = tx.row(
        f"""
        update turns as t
        set state = 'running', attempts = t.attempts + 1, worker = :worker, lease = :lease, lease_until = :until,
            started_at = :now, cancelling = 0, ready_at = null
        where t.id = :id and t.state || '' = 'queued' and t.attempts < :most
        returning {_RETURNED}
        """,
        {
            "id": turn,
            "worker": worker,
            "lease": ids.token(),
            "until": micros(now + lease),
            "now": micros(now),
            "most": MOST_TRIES,
        },
    )
    return None if row is None else from_row(row)


def _collected(tx: Transaction, turn: Turn, now: datetime) -> Turn:
    """Join the waiting turns behind this one that ask for it, come from the same person and go to the same place."""
    if turn.mode is not BusyMode.COLLECT:
        return turn
    place = turn.reply and turn.reply.key
    for other in turns.queued(tx, turn.session):
        if (
            other.mode is not BusyMode.COLLECT
            or other.asker != turn.asker
            or other.pin != turn.pin
            or (other.reply and other.reply.key) != place
        ):
            break
        turns.merge(tx, other, into=turn, now=now)
    return turn
