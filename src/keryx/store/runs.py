"""Runs: what became of each due moment of a job. At most one row for each, so that none is run twice."""

from datetime import datetime

from keryx.core import wire
from keryx.core.deliveries import Target
from keryx.core.errors import NotFound
from keryx.core.ids import SessionId, TurnId
from keryx.core.jobs import Job, Outcome, Run
from keryx.core.sessions import Viewer
from keryx.core.turns import TurnState
from keryx.store import deliveries
from keryx.store.database import Row, Transaction, micros, moment

_LOOKED_AT = 200
_SELECT = """
select r.job, r.due_at, r.at, r.outcome, r.session, r.turn, t.state, coalesce(r.error, t.error), j.targets <> '[]'
from job_runs r join jobs j on j.id = r.job left join turns t on t.id = r.turn
"""


def begin(tx: Transaction, job: Job, *, due_at: datetime, now: datetime) -> bool:
    """Claim a due moment of a job; false if it has been claimed before."""
    return bool(
        tx.count(
            """
            insert into job_runs (job, due_at, profile, owner, outcome, at)
            values (:job, :due_at, :profile, :owner, 'skipped', :now)
            on conflict do nothing
            """,
            {
                "job": job.id,
                "due_at": micros(due_at),
                "profile": job.profile,
                "owner": job.owner,
                "now": micros(now),
            },
        )
    )


def settle(
    tx: Transaction,
    job: Job,
    outcome: Outcome,
    *,
    due_at: datetime,
    session: SessionId | None = None,
    turn: TurnId | None = None,
    error: str | None = None,
) -> None:
    """Say what a claimed moment led to."""
    tx.run(
        """
        update job_runs set outcome = :outcome, session = :session, turn = :turn, error = :error
        where job = :job and due_at = :due_at
        """,
        {
            "job": job.id,
            "due_at": micros(due_at),
            "outcome": outcome.value,
            "session": session,
            "turn": turn,
            "error": error and wire.dumps(error),
        },
    )


def trim(tx: Transaction, *, before: datetime) -> None:
    """Forget what became of moments long past. They never come again: a job's next moment only moves on."""
    tx.run("delete from job_runs where at < :before", {"before": micros(before)})


def get(tx: Transaction, job: Job, *, due_at: datetime) -> Run:
    row = tx.row(
        f"{_SELECT} where r.job = :job and r.due_at = :due_at", {"job": job.id, "due_at": micros(due_at)}
    )
    if row is None:
        raise NotFound(f"{job.name!r} has no run of {due_at}")
    return _run(tx, row)


def of_job(tx: Transaction, job: Job, *, limit: int = 20) -> list[Run]:
    """The last runs of a job, newest first."""
    rows = tx.rows(
        f"{_SELECT} where r.job = :job order by r.due_at desc limit :limit", {"job": job.id, "limit": limit}
    )
    return [_run(tx, row) for row in rows]


def recent(tx: Transaction, viewer: Viewer, *, limit: int) -> list[Run]:
    """The last runs of a person's own jobs that have a conversation, newest first."""
    rows = tx.rows(
        f"""
        {_SELECT}
        join sessions s on s.id = r.session and s.deleted_at is null
        where r.profile = :profile and r.owner = :owner
        order by r.at desc limit :limit
        """,
        {"profile": viewer.profile, "owner": viewer.principal, "limit": limit},
    )
    return [_run(tx, row) for row in rows]


def sent_to(tx: Transaction, viewer: Viewer, place: Target, *, receipt: str = "") -> SessionId | None:
    """The conversation of the last run of a person's own jobs that sent something to a chat; with `receipt`, of the run
    that sent the message of this id. Looks no further back than at the last two hundred runs."""
    there = (place.platform, place.account, place.chat)
    for run in recent(tx, viewer, limit=_LOOKED_AT):
        sent = [d for d in run.deliveries if (d.target.platform, d.target.account, d.target.chat) == there]
        if any(not receipt or receipt in d.receipts for d in sent):
            return run.session
    return None


def _run(tx: Transaction, row: Row) -> Run:
    job, due_at, at, outcome, session, turn, state, error, sends = row
    return Run(
        job=job,
        due_at=moment(due_at),
        at=moment(at),
        outcome=Outcome(outcome),
        session=session,
        turn=turn,
        turn_state=TurnState(state) if state else None,
        error=wire.loads(error, str) if error else None,
        sends=bool(sends),
        deliveries=tuple(deliveries.of_turn(tx, turn)) if turn else (),
    )
