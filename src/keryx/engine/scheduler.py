"""Scheduler: begins a run of each job when its time has come, once, whatever number of nodes looks at it.

A run is begun in one unit of work: its moment is claimed, its session made, its turn queued and the job moved on to its
next moment. From there it is a turn like any other."""

import logging
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from functools import partial

import anyio

from keryx.core import jobs as core
from keryx.core import schedules, titles
from keryx.core.access import Rules
from keryx.core.changes import Change, Kind
from keryx.core.errors import Forbidden, Invalid, KeryxError
from keryx.core.ids import ProjectId
from keryx.core.jobs import Job, JobState, Outcome
from keryx.core.messages import words
from keryx.core.ports import Clock
from keryx.core.sessions import JOB_SURFACE, Session, TitleBy, Viewer
from keryx.engine import access
from keryx.engine.alarm import signal_or_moment
from keryx.engine.asking import Question, ask
from keryx.engine.policy import Policy
from keryx.store import jobs, projects, runs, sessions
from keryx.store.database import Database, Transaction
from keryx.store.wake import Wake

log = logging.getLogger(__name__)

_AWAY = timedelta(seconds=0.5)
_LONGEST = 80


class Scheduler:
    """Sleeps until a job is due. The feed wakes it when jobs change."""

    def __init__(self, database: Database, clock: Clock, *, policy: Policy) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy
        self._changed = Wake()

    def look_again(self) -> None:
        """The clock was set, so that what is due may have changed."""
        self._changed.signal()

    async def run(self, changes: AsyncIterator[Change]) -> None:
        """Begin runs until cancelled. `changes` is the live feed."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._listen, changes)
            while True:
                seen = self._changed.count
                at = await self._begin_due()
                await signal_or_moment(self._changed, seen, self._clock, at)

    async def _listen(self, changes: AsyncIterator[Change]) -> None:
        async for change in changes:
            if change.kind is Kind.JOB:
                self._changed.signal()

    async def _begin_due(self) -> datetime | None:
        """Begin what is due; gives when to look again."""
        try:
            while True:
                at = await self._database.read("job.next", jobs.next_at)
                now = self._clock.now()
                if at is None or at > now:
                    return at
                await self._database.write("job.begin", partial(begin_due, policy=self._policy, now=now))
        except KeryxError as exc:
            log.warning("no job can begin now: %s", exc)
            return self._clock.now() + _AWAY


def begin_due(tx: Transaction, *, policy: Policy, now: datetime) -> None:
    """Begin the run of the job whose time came first, if one is due, and let it wait for its next moment."""
    job = jobs.due(tx, now=now)
    if job is None or job.next_at is None:
        return
    try:
        plan = schedules.due(job.schedule, at=job.next_at, now=now, window=policy.jobs.window)
    except Invalid as exc:
        # A zone that this machine does not know must not hold up the others.
        jobs.move(tx, job, JobState.PAUSED, next_at=None, now=now, why=str(exc))
        return
    state = JobState.ACTIVE if plan.following else JobState.DONE
    moved = jobs.move(tx, job, state, next_at=plan.following, now=now)
    if plan.run is not None:
        begin(tx, moved, due_at=plan.run, rules=policy.access, now=now)
    else:
        runs.begin(tx, job, due_at=job.next_at, now=now)


def begin(tx: Transaction, job: Job, *, due_at: datetime, rules: Rules, now: datetime) -> None:
    """Begin one run. A moment that has had its run gets no other. Whoever made the job must still be allowed to talk."""
    if not runs.begin(tx, job, due_at=due_at, now=now):
        return
    try:
        access.recheck(tx, job.source, rules)
    except Forbidden as exc:
        runs.settle(tx, job, Outcome.REFUSED, due_at=due_at, error=str(exc))
        jobs.move(tx, job, JobState.PAUSED, next_at=None, now=now, why=access.REVOKED)
        return
    _start(tx, job, due_at, now)


def bring_forward(tx: Transaction, *, now: datetime) -> None:
    """After the clock was set back: let no job wait for longer than its schedule says. Moments that come again had
    their run."""
    for job in jobs.later_than(tx, now):
        sooner = schedules.following(job.schedule, now)
        if sooner and job.next_at and sooner < job.next_at:
            jobs.move(tx, job, job.state, next_at=sooner, now=now)


def _start(tx: Transaction, job: Job, due_at: datetime, now: datetime) -> None:
    made = sessions.create(
        tx, profile=job.profile, owner=job.owner, surface=JOB_SURFACE, origin=job.source, now=now
    )
    session = sessions.get(tx, made)
    first, *others = job.targets or (None,)
    asked = Question(
        parts=words(job.prompt),
        asker=job.owner,
        surface=JOB_SURFACE,
        reply=first,
        also=tuple(t for t in others if t),
        source=job.source,
        exact=core.told(job),
    )
    receipt = ask(tx, session, asked, now=now)
    _file(tx, job, session, due_at, now)
    runs.settle(tx, job, Outcome.STARTED, due_at=due_at, session=session.id, turn=receipt.turn)
    jobs.note(tx, job, "started", now)


def _file(tx: Transaction, job: Job, session: Session, due_at: datetime, now: datetime) -> None:
    """Name a run by its job and its moment, and put it where the runs of its owner are."""
    title = f"{titles.capped(job.name, _LONGEST)} {job.schedule.shown(due_at)}"
    sessions.rename(tx, session, title, by=TitleBy.RULE, now=now)
    sessions.set_project(tx, session, _project(tx, job, now), now=now)


def _project(tx: Transaction, job: Job, now: datetime) -> ProjectId:
    if job.project:
        return job.project
    project = projects.ensure(tx, Viewer(job.profile, job.owner), core.PROJECT, now=now)
    jobs.set_project(tx, job, project)
    return project
