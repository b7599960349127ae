"""Jobs: made, looked at, paused, run and removed, from any surface."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from keryx.core import ids, schedules, titles
from keryx.core.deliveries import Target
from keryx.core.errors import Conflict, Forbidden, Invalid
from keryx.core.ids import OPERATOR, JobId, TurnId
from keryx.core.jobs import Job, JobState, Run
from keryx.core.ports import Clock
from keryx.core.schedules import Schedule
from keryx.core.sessions import Viewer
from keryx.core.shapes import Reach
from keryx.core.source import Source
from keryx.engine import homes, posts, scheduler
from keryx.engine.policy import Policy
from keryx.store import jobs, runs, turns
from keryx.store.database import Database, Transaction

T = TypeVar("T")
_LONGEST = 20_000


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A job as somebody asks for it. `to` names targets, empty for none; without a `name` it gets one from its prompt,
    without a `zone` that of the settings."""

    schedule: str
    prompt: str
    to: str = ""
    name: str = ""
    zone: str = ""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job is asked for: `origin` is where `origin` leads, `source` the message that asks. `alone`: nobody listens
    in. `accounts` are the connected platforms with who sends there, for an operator who may send anywhere."""

    origin: Target | None = None
    source: Source | None = None
    alone: bool = True
    accounts: Mapping[str, Reach] | None = None


class Jobs:
    """`hub.jobs`."""

    def __init__(self, database: Database, clock: Clock, *, policy: Policy) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy

    async def every(self, viewer: Viewer, *, done: bool = False) -> list[Job]:
        """The jobs that a viewer may see, oldest first; with `done`, those that are over too."""
        return await self._database.read("jobs", lambda tx: jobs.every(tx, viewer, done=done))

    async def board(self, viewer: Viewer, *, done: bool = False) -> list[tuple[Job, list[Run]]]:
        """The same, each with its last run if it has one."""
        return await self._database.read(
            "jobs",
            lambda tx: [(j, runs.of_job(tx, j, limit=1)) for j in jobs.every(tx, viewer, done=done)],
        )

    async def show(self, viewer: Viewer, job: str, *, limit: int = 20) -> tuple[Job, list[Run]]:
        """A job by its id or name, and its last runs, newest first."""

        def work(tx: Transaction) -> tuple[Job, list[Run]]:
            found = jobs.find(tx, viewer, job)
            return found, runs.of_job(tx, found, limit=limit)

        return await self._database.read("job", work)

    async def add(self, viewer: Viewer, wanted: Wanted, place: Place = Place()) -> Job:
        """Make a job. `Invalid` says what is wrong with its schedule, its prompt or its targets."""
        now = self._clock.now()
        return await self._database.write(
            "job.add", lambda tx: add(tx, viewer, wanted, place, policy=self._policy, now=now)
        )

    async def add_from(self, viewer: Viewer, turn: TurnId, wanted: Wanted, *, alone: bool) -> Job:
        """Make a job for whoever asked for a running turn, who keeps the rights that they have."""
        now = self._clock.now()

        def work(tx: Transaction) -> Job:
            asking = turns.get(tx, turn)
            place = Place(origin=asking.reply, source=turns.author(tx, turn), alone=alone)
            named = wanted if wanted.to or not asking.reply else msgspec.structs.replace(wanted, to="origin")
            return add(tx, viewer, named, place, policy=self._policy, now=now)

        return await self._database.write("job.add", work)

    async def pause(self, viewer: Viewer, job: str) -> Job:
        return await self._change("job.pause", viewer, job, pause)

    async def resume(self, viewer: Viewer, job: str) -> Job:
        return await self._change("job.resume", viewer, job, resume)

    async def run(self, viewer: Viewer, job: str) -> Run:
        """Begin a run now, beside those of the schedule; gives it."""

        def work(tx: Transaction, found: Job, now: datetime) -> Run:
            return run(tx, found, policy=self._policy, now=now)

        return await self._change("job.run", viewer, job, work)

    async def remove(self, viewer: Viewer, job: str) -> Job:
        """Remove a job; the conversations of its runs stay."""
        return await self._change("job.remove", viewer, job, remove)

    async def _change(
        self, label: str, viewer: Viewer, job: str, work: Callable[[Transaction, Job, datetime], T]
    ) -> T:
        now = self._clock.now()
        return await self._database.write(
            label, lambda tx: work(tx, jobs.lock(tx, jobs.find(tx, viewer, job)), now)
        )


def add(
    tx: Transaction, viewer: Viewer, wanted: Wanted, place: Place, *, policy: Policy, now: datetime
) -> Job:
    zone = wanted.zone or policy.jobs.zone
    schedule = schedules.parse(wanted.schedule, zone=zone, now=now)
    return put(tx, viewer, schedule, wanted, place, policy=policy, now=now)


def put(
    tx: Transaction,
    viewer: Viewer,
    schedule: Schedule,
    wanted: Wanted,
    place: Place,
    *,
    policy: Policy,
    now: datetime,
) -> Job:
    """Make a job of a schedule that was read already."""
    prompt = wanted.prompt.strip()
    if not prompt:
        raise Invalid("a job needs a prompt: say what the agent is to do")
    if len(prompt) > _LONGEST:
        raise Invalid(f"that is too long: a prompt has at most {_LONGEST} characters")
    if jobs.count(tx, profile=viewer.profile, owner=viewer.principal) >= policy.jobs.most:
        raise Forbidden(f"there are {policy.jobs.most} jobs already: remove one first, or raise jobs.most")
    job = Job(
        id=JobId(ids.new(now)),
        profile=viewer.profile,
        owner=viewer.principal,
        name=titles.clean(wanted.name) if wanted.name else titles.automatic(prompt),
        prompt=prompt,
        schedule=schedule,
        targets=tuple(t.place for t in _targets(tx, viewer, wanted.to, place, policy.reach)),
        source=place.source,
        project=None,
        state=JobState.ACTIVE,
        why="",
        next_at=schedules.following(schedule, now),
        created_at=now,
    )
    return jobs.add(tx, job)


def line(job: Job, last: Sequence[Run] = ()) -> str:
    """A job in one line: its name, schedule, next moment, where its answers go, and what became of its last run."""
    when = f"next {job.schedule.shown(job.next_at)}" if job.next_at else job.why or job.state.value
    to = ", ".join(map(str, job.targets)) or "nowhere: read it in its conversation"
    past = f" · last run {last[0].status}{f' ({said})' if (said := last[0].delivery) else ''}" if last else ""
    return f"{job.name} · {job.schedule} · {when} · to {to}{past} · {job.id}"


def pause(tx: Transaction, job: Job, now: datetime) -> Job:
    """Let a job wait until it is resumed."""
    _check_current(job)
    return jobs.move(tx, job, JobState.PAUSED, next_at=None, now=now)


def resume(tx: Transaction, job: Job, now: datetime) -> Job:
    """Let a job go on with its next moment from now on; what came meanwhile is not made up for."""
    _check_current(job)
    following = job.next_at or schedules.following(job.schedule, now)
    if following is None:
        raise Conflict(f"the time of {job.name!r} has passed: run it now, or make a new job")
    return jobs.move(tx, job, JobState.ACTIVE, next_at=following, now=now)


def run(tx: Transaction, job: Job, *, policy: Policy, now: datetime) -> Run:
    """Begin a run now."""
    scheduler.begin(tx, job, due_at=now, rules=policy.access, now=now)
    return runs.get(tx, job, due_at=now)


def remove(tx: Transaction, job: Job, now: datetime) -> Job:
    jobs.remove(tx, job, now=now)
    return job


def _targets(
    tx: Transaction, viewer: Viewer, where: str, place: Place, reach: Mapping[str, Reach]
) -> list[Target]:
    """Where answers are sent, each a place that exists. An operator with the list of accounts may name any chat."""
    if not where:
        return []
    if viewer.principal == OPERATOR and place.accounts is not None:
        return homes.resolve(tx, where, profile=viewer.profile, origin=place.origin, accounts=place.accounts)
    return posts.targets(tx, viewer, where, origin=place.origin, reach=reach, alone=place.alone)


def _check_current(job: Job) -> None:
    if job.state is JobState.DONE:
        raise Conflict(f"{job.name!r} is over: make a new job")
