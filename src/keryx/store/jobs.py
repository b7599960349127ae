"""Jobs: prompts with the moment at which each is due next."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from keryx.core import source as sources
from keryx.core import titles, wire
from keryx.core.changes import Kind
from keryx.core.deliveries import Target
from keryx.core.errors import Ambiguous, NotFound
from keryx.core.ids import PrincipalId, ProfileId, ProjectId
from keryx.core.jobs import Job, JobState
from keryx.core.schedules import Schedule
from keryx.core.sessions import Viewer
from keryx.core.source import Source
from keryx.store import changes
from keryx.store.database import Row, Transaction, maybe_micros, maybe_moment, micros, moment

_SELECT = """
select id, profile, owner, name, prompt, schedule, targets, source, project, state, why, next_at, created_at
from jobs
"""
_SHORTEST_PREFIX = 4


def add(tx: Transaction, job: Job) -> Job:
    """Store a new job; gives it with the name that it got: of two with one name, the later one has a number."""
    named = msgspec.structs.replace(job, name=_free(tx, job))
    tx.run(
        """
        insert into jobs
          (id, profile, owner, name, name_key, prompt, schedule, targets, source, project, state, next_at, created_at)
        values
          (:id, :profile, :owner, :name, :key, :prompt, :schedule, :targets, :source, :project, :state, :next_at, :now)
        """,
        {
            "id": job.id,
            "profile": job.profile,
            "owner": job.owner,
            "name": named.name,
            "key": named.name.casefold(),
            "prompt": wire.dumps(job.prompt),
            "schedule": wire.dumps(job.schedule),
            "targets": wire.dumps(job.targets),
            "source": job.source and sources.encode(job.source),
            "project": job.project,
            "state": job.state.value,
            "next_at": maybe_micros(job.next_at),
            "now": micros(job.created_at),
        },
    )
    note(tx, job, "added", job.created_at)
    return named


def every(tx: Transaction, viewer: Viewer, *, done: bool = False) -> list[Job]:
    """The jobs that a viewer may see, oldest first; with `done`, those that are over too."""
    mine = "" if viewer.owner is None else "and owner = :owner"
    open_ones = "" if done else "and state <> 'done'"
    rows = tx.rows(
        f"{_SELECT} where profile = :profile {mine} {open_ones} order by created_at, id",
        {"profile": viewer.profile, "owner": viewer.owner},
    )
    return [_job(row) for row in rows]


def of_owner(tx: Transaction, *, profile: ProfileId, owner: PrincipalId) -> list[Job]:
    """Every job of one person, those that are over too, oldest first."""
    rows = tx.rows(
        f"{_SELECT} where profile = :profile and owner = :owner order by created_at, id",
        {"profile": profile, "owner": owner},
    )
    return [_job(row) for row in rows]


def count(tx: Transaction, *, profile: ProfileId, owner: PrincipalId) -> int:
    """How many jobs of a person are not over."""
    row = tx.row(
        "select count(*) from jobs where profile = :profile and owner = :owner and state <> 'done'",
        {"profile": profile, "owner": owner},
    )
    return int(row[0]) if row else 0


def find(tx: Transaction, viewer: Viewer, text: str) -> Job:
    """The job that a viewer means by an id, a name, or the unique beginning of either."""
    wanted = text.strip().casefold()
    found = every(tx, viewer, done=True)
    current = [job for job in found if job.state is not JobState.DONE]
    for fitting in (_by_id(found, wanted), _by_name(current, wanted), _by_beginning(current, wanted)):
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise Ambiguous(f"{text[:80]!r} fits {len(fitting)} jobs: give an id, or more of the name")
    raise NotFound(f"there is no job {text[:80]!r}: /jobs or `keryx jobs list` shows them")


def lock(tx: Transaction, job: Job) -> Job:
    """A job as it is now, held until the end of the transaction."""
    row = tx.row(f"{_SELECT} where id = :id{tx.for_update}", {"id": job.id})
    if row is None:
        raise NotFound(f"there is no job {job.id!r} any more")
    return _job(row)


def due(tx: Transaction, *, now: datetime) -> Job | None:
    """The job whose time came first, locked until the end of the transaction; `None` if none is due."""
    row = tx.row(
        f"{_SELECT} where state = 'active' and next_at <= :now order by next_at limit 1{tx.for_update}",
        {"now": micros(now)},
    )
    return None if row is None else _job(row)


def next_at(tx: Transaction) -> datetime | None:
    """When a job is due next."""
    row = tx.row("select min(next_at) from jobs where state = 'active'")
    return maybe_moment(row[0]) if row else None


def later_than(tx: Transaction, moment: datetime) -> list[Job]:
    """The jobs that wait for a time after a moment."""
    rows = tx.rows(
        f"{_SELECT} where state = 'active' and next_at > :moment order by id{tx.for_update}",
        {"moment": micros(moment)},
    )
    return [_job(row) for row in rows]


def move(
    tx: Transaction, job: Job, state: JobState, *, next_at: datetime | None, now: datetime, why: str = ""
) -> Job:
    """Set what a job does and when it is due next."""
    tx.run(
        "update jobs set state = :state, next_at = :next_at, why = :why where id = :id",
        {"id": job.id, "state": state.value, "next_at": maybe_micros(next_at), "why": why},
    )
    note(tx, job, state.value, now)
    return msgspec.structs.replace(job, state=state, next_at=next_at, why=why)


def set_project(tx: Transaction, job: Job, project: ProjectId) -> None:
    tx.run("update jobs set project = :project where id = :id", {"id": job.id, "project": project})


def everybodys(tx: Transaction) -> list[Job]:
    """All jobs of all people and profiles, for what happens to a chat once in its life."""
    return [_job(row) for row in tx.rows(f"{_SELECT} order by id")]


def move_chat(tx: Transaction, job: Job, targets: Iterable[Target], source: Source | None) -> None:
    """Let a job go on under the new id of a chat."""
    tx.run(
        "update jobs set targets = :targets, source = :source where id = :id",
        {"id": job.id, "targets": wire.dumps(tuple(targets)), "source": source and sources.encode(source)},
    )


def remove(tx: Transaction, job: Job, *, now: datetime) -> None:
    """Remove a job with the list of its runs; their conversations stay."""
    tx.run("delete from jobs where id = :id", {"id": job.id})
    note(tx, job, "removed", now)


def give(tx: Transaction, job: Job, owner: PrincipalId, *, now: datetime) -> None:
    """Let a job belong to another person. A name that they use already gets a number."""
    note(tx, job, "removed", now)
    heir = msgspec.structs.replace(job, owner=owner, project=None)
    name = job.name if job.state is JobState.DONE else _free(tx, heir)
    tx.run(
        "update jobs set owner = :owner, project = null, name = :name, name_key = :key where id = :id",
        {"id": job.id, "owner": owner, "name": name, "key": name.casefold()},
    )
    tx.run("update job_runs set owner = :owner where job = :id", {"id": job.id, "owner": owner})
    note(tx, heir, "added", now)


def note(tx: Transaction, job: Job, note: str, now: datetime) -> None:
    changes.note(tx, Kind.JOB, job.id, profile=job.profile, owner=job.owner, at=now, note=note)


def _by_id(jobs: Iterable[Job], wanted: str) -> list[Job]:
    return [
        j for j in jobs if j.id == wanted or (len(wanted) >= _SHORTEST_PREFIX and j.id.startswith(wanted))
    ]


def _by_name(jobs: Iterable[Job], wanted: str) -> list[Job]:
    return [j for j in jobs if j.name.casefold() == wanted]


def _by_beginning(jobs: Iterable[Job], wanted: str) -> list[Job]:
    return [j for j in jobs if wanted and j.name.casefold().startswith(wanted)]


def _free(tx: Transaction, job: Job) -> str:
    base, number = titles.base(titles.clean(job.name))
    while _taken(tx, job, name := titles.numbered(base, number)):
        number += 1
    return name


def _taken(tx: Transaction, job: Job, name: str) -> bool:
    row = tx.row(
        """
        select 1 from jobs
        where profile = :profile and owner = :owner and name_key = :key and state <> 'done' and id <> :id
        """,
        {"profile": job.profile, "owner": job.owner, "key": name.casefold(), "id": job.id},
    )
    return row is not None


def _job(row: Row) -> Job:
    (
        id_, profile, owner, name, prompt, schedule, targets, source, project, state, why, next_at_, created_at,
    ) = row  # fmt: skip
    return Job(
        id=id_,
        profile=profile,
        owner=owner,
        name=name,
        prompt=wire.loads(prompt, str),
        schedule=wire.loads(schedule, Schedule),
        targets=wire.loads(targets, tuple[Target, ...]),
        source=sources.decode(source) if source else None,
        project=project,
        state=JobState(state),
        why=why,
        next_at=maybe_moment(next_at_),
        created_at=moment(created_at),
    )
