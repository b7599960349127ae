"""Scheduled jobs as people manage them: list, add, pause, resume, run and remove."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import msgspec

from keryx.core import schedules
from keryx.core.ids import TurnId
from keryx.core.jobs import Job, JobRun
from keryx.core.schedules import Schedule
from keryx.core.sessions import Viewer
from keryx.engine.hub.verbs import HubPart, bind_read, bind_write, read_unit, write_unit
from keryx.engine.policy import Policy
from keryx.engine.units import jobs as job_units
from keryx.engine.units.jobs import JobChange, JobOrigin, JobRequest
from keryx.store import jobs, turns
from keryx.store.db import Database, Transaction

T = TypeVar("T")


def _on_job(function: Callable[[Transaction, Job], T]) -> Callable[[Transaction, Viewer, str], T]:
    """Adapt a function of a job to take a viewer and an id or name instead. The job is locked."""
    return lambda tx, viewer, job: function(tx, jobs.lock(tx, jobs.find(tx, viewer, job)))


class HubJobs(HubPart):
    def __init__(self, database: Database, *, policy: Policy) -> None:
        super().__init__(database)
        self._policy = policy

    list_all = bind_read("jobs", jobs.list_for_viewer)
    pause = bind_write("job.pause", _on_job(job_units.pause))
    resume = bind_write("job.resume", _on_job(job_units.resume))
    # The conversations of its runs stay.
    remove = bind_write("job.remove", _on_job(job_units.remove))

    @read_unit("jobs")
    def list_with_last_run(
        self, tx: Transaction, viewer: Viewer, *, done: bool = False
    ) -> list[tuple[Job, list[JobRun]]]:
        """Return the jobs of `list_all`, each with its last run if it has one."""
        listed = jobs.list_for_viewer(tx, viewer, done=done)
        return [(job, jobs.list_runs(tx, job, limit=1)) for job in listed]

    @read_unit("job")
    def get(self, tx: Transaction, viewer: Viewer, job: str, *, limit: int = 20) -> tuple[Job, list[JobRun]]:
        """Return a job by its id or name, and its last runs, newest first."""
        row = jobs.find(tx, viewer, job)
        return row, jobs.list_runs(tx, row, limit=limit)

    @read_unit("job.preview")
    def preview(
        self, tx: Transaction, viewer: Viewer, text: str, *, zone: str = "", count: int = 5
    ) -> tuple[Schedule, list[datetime]]:
        """Return what a schedule means, and its next due times. Raise `Invalid` for a wrong one."""
        schedule = schedules.parse(
            text, zone=zone or job_units.find_zone(tx, viewer, self._policy), now=tx.now
        )
        times: list[datetime] = []
        due = schedules.find_next(schedule, tx.now)
        while due is not None and len(times) < count:
            times.append(due)
            due = schedules.find_next(schedule, due)
        return schedule, times

    @write_unit("job.add")
    def add(
        self, tx: Transaction, viewer: Viewer, request: JobRequest, origin: JobOrigin = JobOrigin()
    ) -> Job:
        """Create a job. Raise `Invalid` for a wrong schedule, prompt or target."""
        return job_units.add(tx, viewer, request, origin, policy=self._policy)

    @write_unit("job.add")
    def add_from_turn(
        self, tx: Transaction, viewer: Viewer, turn: TurnId, request: JobRequest, *, alone: bool
    ) -> Job:
        """Create a job for the author of a running turn, with their rights."""
        reply = turns.get(tx, turn).reply
        origin = JobOrigin(origin=reply, source=turns.get_author(tx, turn), alone=alone)
        if reply and not request.to:
            request = msgspec.structs.replace(request, to="origin")
        return job_units.add(tx, viewer, request, origin, policy=self._policy)

    @write_unit("job.change")
    def change(
        self, tx: Transaction, viewer: Viewer, job: str, wanted: JobChange, origin: JobOrigin = JobOrigin()
    ) -> Job:
        """Change a job, pause it, or let it go on. Raise `Invalid` for a wrong schedule, prompt or target."""
        row = jobs.lock(tx, jobs.find(tx, viewer, job))
        return job_units.change(tx, viewer, row, wanted, origin, policy=self._policy)

    @write_unit("job.run")
    def run(self, tx: Transaction, viewer: Viewer, job: str) -> JobRun:
        """Begin a run now, in addition to those of the schedule."""
        row = jobs.lock(tx, jobs.find(tx, viewer, job))
        return job_units.run_now(tx, row, policy=self._policy)
