"""Scheduled jobs: create, pause, resume and remove them, and begin their runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from keryx.core import ids, schedules, sessions, text
from keryx.core import jobs as core
from keryx.core.access import AccessRules
from keryx.core.deliveries import Target
from keryx.core.errors import Conflict, Forbidden, Invalid
from keryx.core.ids import OPERATOR, JobId, ProjectId
from keryx.core.jobs import Job, JobRun, JobState, RunOutcome
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import PlatformReach
from keryx.core.schedules import Schedule
from keryx.core.sessions import JOB_SURFACE, Session, TitleBy, Viewer
from keryx.core.source import Source
from keryx.engine.policy import Policy
from keryx.engine.units import access, targets
from keryx.engine.units.user_messages import UserMessage, submit
from keryx.store import jobs, projects
from keryx.store import sessions as sessions_store
from keryx.store.db.database import Transaction

_MAX_PROMPT = 20_000
_MAX_TITLE = 80


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A job as somebody asks for it. `to` names targets, empty for none; without a `name` it gets one from its prompt,
    without a `zone` that of the settings."""

    schedule: str
    prompt: str
    to: str = ""
    name: str = ""
    zone: str = ""


class JobOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job is asked for: `origin` is where `origin` leads, `source` the message that asks. `alone`: nobody listens
    in. `accounts` are the connected platforms with who sends there, for an operator who may send anywhere."""

    origin: Target | None = None
    source: Source | None = None
    alone: bool = True
    accounts: Mapping[str, PlatformReach] | None = None


def add(tx: Transaction, viewer: Viewer, wanted: JobRequest, place: JobOrigin, *, policy: Policy) -> Job:
    zone = wanted.zone or policy.jobs.zone
    schedule = schedules.parse(wanted.schedule, zone=zone, now=tx.now)
    return create(tx, viewer, schedule, wanted, place, policy=policy)


def create(
    tx: Transaction,
    viewer: Viewer,
    schedule: Schedule,
    wanted: JobRequest,
    place: JobOrigin,
    *,
    policy: Policy,
) -> Job:
    """Make a job of a schedule that was read already."""
    prompt = wanted.prompt.strip()
    if not prompt:
        raise Invalid("a job needs a prompt: say what the agent is to do")
    if len(prompt) > _MAX_PROMPT:
        raise Invalid(f"that is too long: a prompt has at most {_MAX_PROMPT} characters")
    if jobs.count_open(tx, profile=viewer.profile, owner=viewer.principal) >= policy.jobs.most:
        raise Forbidden(f"there are {policy.jobs.most} jobs already: remove one first, or raise jobs.most")
    job = Job(
        id=JobId(ids.new(tx.now)),
        profile=viewer.profile,
        owner=viewer.principal,
        name=sessions.clean_title(wanted.name) if wanted.name else sessions.derive_title(prompt),
        prompt=prompt,
        schedule=schedule,
        targets=tuple(t.without_reply for t in _resolve_targets(tx, viewer, wanted.to, place, policy.reach)),
        source=place.source,
        project=None,
        state=JobState.ACTIVE,
        why="",
        next_at=schedules.find_next(schedule, tx.now),
        created_at=tx.now,
    )
    return jobs.add(tx, job)


def render_line(job: Job, last: Sequence[JobRun] = ()) -> str:
    """A job in one line: its name, schedule, next moment, where its answers go, and what became of its last run."""
    when = f"next {job.schedule.format_time(job.next_at)}" if job.next_at else job.why or job.state.value
    to = ", ".join(map(str, job.targets)) or "nowhere: read it in its conversation"
    past = f" · last run {last[0].status}{f' ({said})' if (said := last[0].delivery) else ''}" if last else ""
    return f"{job.name} · {job.schedule} · {when} · to {to}{past} · {job.id}"


def pause(tx: Transaction, job: Job) -> Job:
    """Let a job wait until it is resumed."""
    _check_not_done(job)
    return jobs.set_state(tx, job, JobState.PAUSED, next_at=None)


def resume(tx: Transaction, job: Job) -> Job:
    """Let a job go on with its next moment from now on; what came meanwhile is not made up for."""
    _check_not_done(job)
    following = job.next_at or schedules.find_next(job.schedule, tx.now)
    if following is None:
        raise Conflict(f"the time of {job.name!r} has passed: run it now, or make a new job")
    return jobs.set_state(tx, job, JobState.ACTIVE, next_at=following)


def run_now(tx: Transaction, job: Job, *, policy: Policy) -> JobRun:
    """Begin a run now."""
    begin_run(tx, job, due_at=tx.now, rules=policy.access)
    return jobs.get_run(tx, job, due_at=tx.now)


def remove(tx: Transaction, job: Job) -> Job:
    jobs.remove(tx, job)
    return job


def _resolve_targets(
    tx: Transaction, viewer: Viewer, where: str, place: JobOrigin, reach: Mapping[str, PlatformReach]
) -> list[Target]:
    """Where answers are sent, each a place that exists. An operator with the list of accounts may name any chat."""
    if not where:
        return []
    if viewer.principal == OPERATOR and place.accounts is not None:
        return targets.resolve(
            tx, where, profile=viewer.profile, origin=place.origin, accounts=place.accounts
        )
    return targets.resolve_for_viewer(tx, viewer, where, origin=place.origin, reach=reach, alone=place.alone)


def _check_not_done(job: Job) -> None:
    if job.state is JobState.DONE:
        raise Conflict(f"{job.name!r} is over: make a new job")


def begin_due_run(tx: Transaction, *, policy: Policy) -> None:
    """Begin the run of the job whose time came first, if one is due, and let it wait for its next moment."""
    job = jobs.find_due(tx)
    if job is None or job.next_at is None:
        return
    try:
        plan = schedules.find_due(job.schedule, at=job.next_at, now=tx.now, window=policy.jobs.window)
    except Invalid as exc:
        # A zone that this machine does not know must not hold up the others.
        jobs.set_state(tx, job, JobState.PAUSED, next_at=None, why=str(exc))
        return
    state = JobState.ACTIVE if plan.following else JobState.DONE
    moved = jobs.set_state(tx, job, state, next_at=plan.following)
    if plan.run is not None:
        begin_run(tx, moved, due_at=plan.run, rules=policy.access)
    else:
        jobs.claim_run(tx, job, due_at=job.next_at)


def begin_run(tx: Transaction, job: Job, *, due_at: datetime, rules: AccessRules) -> None:
    """Begin one run. A moment that has had its run gets no other. Whoever made the job must still be allowed to talk."""
    if not jobs.claim_run(tx, job, due_at=due_at):
        return
    try:
        access.recheck(tx, job.source, rules)
    except Forbidden as exc:
        jobs.finish_run(tx, job, RunOutcome.REFUSED, due_at=due_at, error=str(exc))
        jobs.set_state(tx, job, JobState.PAUSED, next_at=None, why=access.REVOKED_NOTICE)
        return
    _start_session(tx, job, due_at)


def bring_forward(tx: Transaction) -> None:
    """After the clock was set back: let no job wait for longer than its schedule says. Moments that come again had
    their run."""
    for job in jobs.list_due_after(tx, tx.now):
        sooner = schedules.find_next(job.schedule, tx.now)
        if sooner and job.next_at and sooner < job.next_at:
            jobs.set_state(tx, job, job.state, next_at=sooner)


def _start_session(tx: Transaction, job: Job, due_at: datetime) -> None:
    made = sessions_store.create(
        tx, profile=job.profile, owner=job.owner, surface=JOB_SURFACE, origin=job.source
    )
    session = sessions_store.get(tx, made)
    first, *others = job.targets or (None,)
    asked = UserMessage(
        parts=text_parts(job.prompt),
        asker=job.owner,
        surface=JOB_SURFACE,
        reply=first,
        also=tuple(t for t in others if t),
        source=job.source,
        exact=core.build_prompt(job),
    )
    receipt = submit(tx, session, asked)
    _label_session(tx, job, session, due_at)
    jobs.finish_run(tx, job, RunOutcome.STARTED, due_at=due_at, session=session.id, turn=receipt.turn)
    jobs.note_change(tx, job, "started")


def _label_session(tx: Transaction, job: Job, session: Session, due_at: datetime) -> None:
    """Name a run by its job and its moment, and put it where the runs of its owner are."""
    title = f"{text.truncate(job.name, _MAX_TITLE)} {job.schedule.format_time(due_at)}"
    sessions_store.rename(tx, session, title, by=TitleBy.RULE)
    sessions_store.set_project(tx, session, _ensure_project(tx, job))


def _ensure_project(tx: Transaction, job: Job) -> ProjectId:
    if job.project:
        return job.project
    project = projects.ensure(tx, Viewer(job.profile, job.owner), core.PROJECT_NAME)
    jobs.set_project(tx, job, project)
    return project
