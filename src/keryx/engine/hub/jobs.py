"""Scheduled jobs as people manage them: list, add, pause, resume, run and remove."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from keryx.core.clock import Clock
from keryx.core.ids import TurnId
from keryx.core.jobs import Job, JobRun
from keryx.core.sessions import Viewer
from keryx.engine.policy import Policy
from keryx.engine.units import jobs as add
from keryx.engine.units.jobs import JobOrigin, JobRequest
from keryx.store import jobs, turns
from keryx.store.db.database import Database, Transaction

T = TypeVar("T")


class HubJobs:
    """`hub.jobs`."""

    def __init__(self, database: Database, clock: Clock, *, policy: Policy) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy

    async def list_all(self, viewer: Viewer, *, done: bool = False) -> list[Job]:
        """The jobs that a viewer may see, oldest first; with `done`, those that are over too."""
        return await self._database.read("jobs", lambda tx: jobs.list_for_viewer(tx, viewer, done=done))

    async def list_with_last_run(
        self, viewer: Viewer, *, done: bool = False
    ) -> list[tuple[Job, list[JobRun]]]:
        """The same, each with its last run if it has one."""
        return await self._database.read(
            "jobs",
            lambda tx: [
                (j, jobs.list_runs(tx, j, limit=1)) for j in jobs.list_for_viewer(tx, viewer, done=done)
            ],
        )

    async def get(self, viewer: Viewer, job: str, *, limit: int = 20) -> tuple[Job, list[JobRun]]:
        """A job by its id or name, and its last runs, newest first."""

        def work(tx: Transaction) -> tuple[Job, list[JobRun]]:
            found = jobs.find(tx, viewer, job)
            return found, jobs.list_runs(tx, found, limit=limit)

        return await self._database.read("job", work)

    async def add(self, viewer: Viewer, wanted: JobRequest, place: JobOrigin = JobOrigin()) -> Job:
        """Make a job. `Invalid` says what is wrong with its schedule, its prompt or its targets."""
        return await self._database.write(
            "job.add", lambda tx: add.add(tx, viewer, wanted, place, policy=self._policy)
        )

    async def add_from_turn(self, viewer: Viewer, turn: TurnId, wanted: JobRequest, *, alone: bool) -> Job:
        """Make a job for whoever asked for a running turn, who keeps the rights that they have."""

        def work(tx: Transaction) -> Job:
            asking = turns.get(tx, turn)
            place = JobOrigin(origin=asking.reply, source=turns.get_author(tx, turn), alone=alone)
            named = wanted if wanted.to or not asking.reply else msgspec.structs.replace(wanted, to="origin")
            return add.add(tx, viewer, named, place, policy=self._policy)

        return await self._database.write("job.add", work)

    async def pause(self, viewer: Viewer, job: str) -> Job:
        return await self._change("job.pause", viewer, job, add.pause)

    async def resume(self, viewer: Viewer, job: str) -> Job:
        return await self._change("job.resume", viewer, job, add.resume)

    async def run(self, viewer: Viewer, job: str) -> JobRun:
        """Begin a run now, beside those of the schedule; gives it."""

        def work(tx: Transaction, found: Job) -> JobRun:
            return add.run_now(tx, found, policy=self._policy)

        return await self._change("job.run", viewer, job, work)

    async def remove(self, viewer: Viewer, job: str) -> Job:
        """Remove a job; the conversations of its runs stay."""
        return await self._change("job.remove", viewer, job, add.remove)

    async def _change(self, label: str, viewer: Viewer, job: str, work: Callable[[Transaction, Job], T]) -> T:
        return await self._database.write(
            label, lambda tx: work(tx, jobs.lock(tx, jobs.find(tx, viewer, job)))
        )
