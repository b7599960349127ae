"""Scheduled prompts with the time at which each is due next, and one row for each due time so that none runs twice."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from keryx.core import codec, sessions
from keryx.core import source as sources
from keryx.core.changes import ChangeKind
from keryx.core.clock import to_micros
from keryx.core.deliveries import Target
from keryx.core.errors import Ambiguous, NotFound
from keryx.core.ids import PrincipalId, ProfileId, ProjectId, SessionId, TurnId
from keryx.core.jobs import Job, JobRun, JobState, RunOutcome
from keryx.core.sessions import Viewer
from keryx.core.source import Source
from keryx.core.texts import Phrase
from keryx.store import changes, deliveries
from keryx.store.db import Row, Transaction, maybe_micros, maybe_moment
from keryx.store.db.rows import RowMapper

_ROWS = RowMapper(Job, json={"prompt"})
_SELECT = f"select {_ROWS.columns} from jobs"
_SHORTEST_PREFIX = 4
_MAX_RUNS_SEARCHED = 200
_RUN_ROWS = RowMapper(
    JobRun,
    table="r",
    json={"error"},
    columns={"turn_state": "t.state", "error": "coalesce(r.error, t.error)", "sends": "j.targets <> '[]'"},
    without={"deliveries"},
)
_SELECT_RUN = f"""
select {_RUN_ROWS.columns}
from job_runs r join jobs j on j.id = r.job left join turns t on t.id = r.turn
"""


def add(tx: Transaction, job: Job) -> Job:
    """Store a new job and return it. A name that is taken gets a number."""
    named = msgspec.structs.replace(job, name=_unique_name(tx, job))
    tx.run(
        """
        insert into jobs
          (id, profile, owner, name, name_key, prompt, schedule, targets, source, project, state, next_at, created_at)
        values
          (:id, :profile, :owner, :name, :key, :prompt, :schedule, :targets, :source, :project, :state, :next_at,
           :created_at)
        """,
        {**_ROWS.encode(named), "key": named.name.casefold()},
    )
    note_change(tx, job, "added")
    return named


def list_for_viewer(tx: Transaction, viewer: Viewer, *, done: bool = False) -> list[Job]:
    """The jobs that a viewer may see, oldest first; with `done`, those that are over too."""
    mine = "" if viewer.owner is None else "and owner = :owner"
    open_ones = "" if done else "and state <> 'done'"
    rows = tx.rows(
        f"{_SELECT} where profile = :profile {mine} {open_ones} order by created_at, id",
        {"profile": viewer.profile, "owner": viewer.owner},
    )
    return _ROWS.decode_all(rows)


def list_for_owner(tx: Transaction, *, profile: ProfileId, owner: PrincipalId) -> list[Job]:
    """Every job of one person, those that are over too, oldest first."""
    rows = tx.rows(
        f"{_SELECT} where profile = :profile and owner = :owner order by created_at, id",
        {"profile": profile, "owner": owner},
    )
    return _ROWS.decode_all(rows)


def count_open(tx: Transaction, *, profile: ProfileId, owner: PrincipalId) -> int:
    """How many jobs of a person are not over."""
    row = tx.row(
        "select count(*) from jobs where profile = :profile and owner = :owner and state <> 'done'",
        {"profile": profile, "owner": owner},
    )
    return int(row[0]) if row else 0


def find(tx: Transaction, viewer: Viewer, text: str) -> Job:
    """The job that a viewer means by an id, a name, or the unique beginning of either; of jobs that are over, the last one of
    a name."""
    wanted = text.strip().casefold()
    found = list_for_viewer(tx, viewer, done=True)
    current = [job for job in found if job.state is not JobState.DONE]
    long_enough = len(wanted) >= _SHORTEST_PREFIX
    for fitting in (
        [job for job in found if job.id == wanted or (long_enough and job.id.startswith(wanted))],
        [job for job in current if job.name.casefold() == wanted],
        [job for job in current if wanted and job.name.casefold().startswith(wanted)],
        sorted((job for job in found if job.name.casefold() == wanted), key=lambda job: job.id)[-1:],
    ):
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise Ambiguous(Phrase("job.ambiguous", name=repr(text[:80]), count=len(fitting)))
    raise NotFound(
        f"there is no job {text[:80]!r}: `keryx jobs list --all` shows them, and one that is over goes by its id",
        Phrase("job.unknown", name=repr(text[:80])),
    )


def lock(tx: Transaction, job: Job) -> Job:
    """A job as it is now, held until the end of the transaction."""
    row = tx.row(f"{_SELECT} where id = :id{tx.for_update}", {"id": job.id})
    if row is None:
        raise NotFound(Phrase("job.gone", name=repr(job.name)))
    return _ROWS.decode(row)


def find_for_turn(tx: Transaction, session: SessionId, turn: TurnId) -> Job | None:
    """The job that a turn is a run of, locked until the end of the transaction."""
    row = tx.row(
        f"""
        {_SELECT} where id = (select job from job_runs where session = :session and turn = :turn){tx.for_update}
        """,
        {"session": session, "turn": turn},
    )
    return _ROWS.decode_optional(row)


def find_due(tx: Transaction) -> Job | None:
    """The job whose time came first, locked until the end of the transaction; `None` if none is due."""
    row = tx.row(
        f"{_SELECT} where state = 'active' and next_at <= :now order by next_at limit 1{tx.for_update}",
        {"now": to_micros(tx.now)},
    )
    return _ROWS.decode_optional(row)


def get_next_due_at(tx: Transaction) -> datetime | None:
    """When a job is due next."""
    row = tx.row("select min(next_at) from jobs where state = 'active'")
    return maybe_moment(row[0]) if row else None


def list_due_after(tx: Transaction, moment: datetime) -> list[Job]:
    """The jobs that wait for a time after a moment."""
    rows = tx.rows(
        f"{_SELECT} where state = 'active' and next_at > :moment order by id{tx.for_update}",
        {"moment": to_micros(moment)},
    )
    return _ROWS.decode_all(rows)


def set_state(tx: Transaction, job: Job, state: JobState, *, next_at: datetime | None, why: str = "") -> Job:
    """Set what a job does and when it is due next."""
    tx.run(
        "update jobs set state = :state, next_at = :next_at, why = :why where id = :id",
        {"id": job.id, "state": state.value, "next_at": maybe_micros(next_at), "why": why},
    )
    note_change(tx, job, state.value)
    return msgspec.structs.replace(job, state=state, next_at=next_at, why=why)


def change(tx: Transaction, job: Job) -> Job:
    """Store what a job is to do, when and where to. A name that is taken gets a number."""
    named = msgspec.structs.replace(job, name=_unique_name(tx, job))
    tx.run(
        """
        update jobs
        set name = :name, name_key = :key, prompt = :prompt, schedule = :schedule, targets = :targets, next_at = :next_at
        where id = :id
        """,
        {**_ROWS.encode(named), "key": named.name.casefold()},
    )
    note_change(tx, job, "changed")
    return named


def set_project(tx: Transaction, job: Job, project: ProjectId) -> None:
    tx.run("update jobs set project = :project where id = :id", {"id": job.id, "project": project})


def list_all(tx: Transaction) -> list[Job]:
    """All jobs of all people and profiles, for what happens to a chat once in its life."""
    return [_ROWS.decode(row) for row in tx.rows(f"{_SELECT} order by id")]


def move_chat(tx: Transaction, job: Job, targets: Iterable[Target], source: Source | None) -> None:
    """Set the targets and the source of a job whose chat has a new id."""
    tx.run(
        "update jobs set targets = :targets, source = :source where id = :id",
        {"id": job.id, "targets": codec.dumps(tuple(targets)), "source": source and sources.encode(source)},
    )


def remove(tx: Transaction, job: Job) -> None:
    """Remove a job with the list of its runs; their conversations stay."""
    tx.run("delete from jobs where id = :id", {"id": job.id})
    note_change(tx, job, "removed")


def change_owner(tx: Transaction, job: Job, owner: PrincipalId) -> None:
    """Transfer a job to another person. A name that they use already gets a number."""
    note_change(tx, job, "removed")
    heir = msgspec.structs.replace(job, owner=owner, project=None)
    name = job.name if job.state is JobState.DONE else _unique_name(tx, heir)
    tx.run(
        "update jobs set owner = :owner, project = null, name = :name, name_key = :key where id = :id",
        {"id": job.id, "owner": owner, "name": name, "key": name.casefold()},
    )
    tx.run("update job_runs set owner = :owner where job = :id", {"id": job.id, "owner": owner})
    note_change(tx, heir, "added")


def note_change(tx: Transaction, job: Job, note: str) -> None:
    changes.note(tx, ChangeKind.JOB, job.id, job, note=note)


def _unique_name(tx: Transaction, job: Job) -> str:
    base, number = sessions.split_title_number(sessions.clean_title(job.name))
    while True:
        name = sessions.number_title(base, number)
        taken = tx.row(
            """
            select 1 from jobs
            where profile = :profile and owner = :owner and name_key = :key and state <> 'done' and id <> :id
            """,
            {"profile": job.profile, "owner": job.owner, "key": name.casefold(), "id": job.id},
        )
        if taken is None:
            return name
        number += 1


def claim_run(tx: Transaction, job: Job, *, due_at: datetime) -> bool:
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
                "due_at": to_micros(due_at),
                "profile": job.profile,
                "owner": job.owner,
                "now": to_micros(tx.now),
            },
        )
    )


def finish_run(
    tx: Transaction,
    job: Job,
    outcome: RunOutcome,
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
            "due_at": to_micros(due_at),
            "outcome": outcome.value,
            "session": session,
            "turn": turn,
            "error": error and codec.dumps(error),
        },
    )


def trim_runs(tx: Transaction, *, before: datetime) -> None:
    """Remove old runs. Their due times never come again, because a job's next time only moves forward."""
    tx.run("delete from job_runs where at < :before", {"before": to_micros(before)})


def get_run(tx: Transaction, job: Job, *, due_at: datetime) -> JobRun:
    row = tx.row(
        f"{_SELECT_RUN} where r.job = :job and r.due_at = :due_at",
        {"job": job.id, "due_at": to_micros(due_at)},
    )
    if row is None:
        raise NotFound(f"{job.name!r} has no run of {due_at}")
    return _run_from_row(tx, row)


def list_runs(tx: Transaction, job: Job, *, limit: int = 20) -> list[JobRun]:
    """The last runs of a job, newest first."""
    rows = tx.rows(
        f"{_SELECT_RUN} where r.job = :job order by r.due_at desc limit :limit",
        {"job": job.id, "limit": limit},
    )
    return [_run_from_row(tx, row) for row in rows]


def list_recent_runs(tx: Transaction, viewer: Viewer, *, limit: int) -> list[JobRun]:
    """The last runs of a person's own jobs that have a conversation, newest first."""
    rows = tx.rows(
        f"""
        {_SELECT_RUN}
        join sessions s on s.id = r.session and s.deleted_at is null
        where r.profile = :profile and r.owner = :owner
        order by r.at desc limit :limit
        """,
        {"profile": viewer.profile, "owner": viewer.principal, "limit": limit},
    )
    return [_run_from_row(tx, row) for row in rows]


def find_session_for_delivery(
    tx: Transaction, viewer: Viewer, place: Target, *, receipt: str = ""
) -> SessionId | None:
    """The conversation of the last run of a person's own jobs that sent something to a chat; with `receipt`, of the run
    that sent the message of this id. Looks no further back than at the last two hundred runs."""
    there = (place.platform, place.account, place.chat)
    for run in list_recent_runs(tx, viewer, limit=_MAX_RUNS_SEARCHED):
        sent = [d for d in run.deliveries if (d.target.platform, d.target.account, d.target.chat) == there]
        if any(not receipt or receipt in d.receipts for d in sent):
            return run.session
    return None


def _run_from_row(tx: Transaction, row: Row) -> JobRun:
    run = _RUN_ROWS.decode(row, deliveries=())
    return (
        msgspec.structs.replace(run, deliveries=tuple(deliveries.list_for_turn(tx, run.turn)))
        if run.turn
        else run
    )
