"""Scheduled jobs: create, pause, resume and remove them, and begin their runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from keryx.core import ids, schedules, sessions, text
from keryx.core import jobs as core
from keryx.core.access import AccessRules
from keryx.core.deliveries import Delivery, Target
from keryx.core.errors import Conflict, Forbidden, Invalid
from keryx.core.ids import OPERATOR, JobId
from keryx.core.jobs import Job, JobRun, JobState, RunOutcome
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import PlatformReach
from keryx.core.schedules import Schedule
from keryx.core.sessions import JOB_SURFACE, TitleBy, Viewer
from keryx.core.source import Source
from keryx.core.texts import Phrase, Texts
from keryx.engine.policy import Policy
from keryx.engine.units import access, targets
from keryx.engine.units.user_messages import UserMessage, submit
from keryx.store import deliveries, jobs, people, projects, viewer_state
from keryx.store import sessions as sessions_store
from keryx.store.db import Transaction

_MAX_PROMPT = 20_000
_MAX_TITLE = 80


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A new job as the user specifies it."""

    schedule: str
    prompt: str
    # Names targets; empty for none.
    to: str = ""
    # By default derived from the prompt.
    name: str = ""
    # By default that of the settings.
    zone: str = ""


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be different about a job. `None` leaves it as it is."""

    schedule: str | None = None
    prompt: str | None = None
    # Names targets; empty for none.
    to: str | None = None
    name: str | None = None
    zone: str | None = None
    paused: bool | None = None


class JobOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job is created."""

    # The target that the word "origin" means.
    origin: Target | None = None
    # Of the message that creates the job.
    source: Source | None = None
    # Only the user reads the chat.
    alone: bool = True
    # The connected platforms, for an operator who may send anywhere.
    accounts: Mapping[str, PlatformReach] | None = None


def add(tx: Transaction, viewer: Viewer, request: JobRequest, origin: JobOrigin, *, policy: Policy) -> Job:
    zone = request.zone or find_zone(tx, viewer, policy)
    schedule = schedules.parse(request.schedule, zone=zone, now=tx.now)
    return create(tx, viewer, schedule, request, origin, policy=policy)


def find_zone(tx: Transaction, viewer: Viewer, policy: Policy) -> str:
    """Return the time zone of a person's schedules: their own, or else that of the settings."""
    return viewer_state.get_zone(tx, viewer) or policy.jobs.zone or policy.zone


def create(
    tx: Transaction,
    viewer: Viewer,
    schedule: Schedule,
    request: JobRequest,
    origin: JobOrigin,
    *,
    policy: Policy,
) -> Job:
    """Create a job with a schedule that is parsed already."""
    prompt = _check_prompt(request.prompt)
    if jobs.count_open(tx, profile=viewer.profile, owner=viewer.principal) >= policy.jobs.most:
        raise Forbidden(
            f"there are {policy.jobs.most} jobs already: remove one first, or raise jobs.most",
            Phrase("job.too_many", count=policy.jobs.most),
        )
    job = Job(
        id=JobId(ids.new(tx.now)),
        profile=viewer.profile,
        owner=viewer.principal,
        name=sessions.clean_title(request.name) if request.name else sessions.derive_title(prompt),
        prompt=prompt,
        schedule=schedule,
        targets=_find_targets(tx, viewer, request.to, origin, policy=policy),
        source=origin.source,
        project=None,
        state=JobState.ACTIVE,
        why="",
        next_at=schedules.find_next(schedule, tx.now),
        created_at=tx.now,
    )
    return jobs.add(tx, job)


def change(
    tx: Transaction, viewer: Viewer, job: Job, wanted: JobChange, origin: JobOrigin, *, policy: Policy
) -> Job:
    """Change a job. A new schedule or zone counts from now; a job that is paused stays paused unless told otherwise."""
    _check_not_done(job)
    changed = job
    if wanted.prompt is not None:
        changed = msgspec.structs.replace(changed, prompt=_check_prompt(wanted.prompt))
    if wanted.name:
        changed = msgspec.structs.replace(changed, name=sessions.clean_title(wanted.name))
    if wanted.to is not None and wanted.to != ", ".join(map(str, job.targets)):
        places = _find_targets(tx, viewer, wanted.to, origin, policy=policy)
        changed = msgspec.structs.replace(changed, targets=places)
    before = (job.schedule.write(), job.schedule.zone)
    written, zone = wanted.schedule or before[0], wanted.zone or before[1]
    # Intervals count from when they were written.
    if (written, zone) != before:
        schedule = schedules.parse(written, zone=zone, now=tx.now)
        next_at = schedules.find_next(schedule, tx.now) if job.state is JobState.ACTIVE else None
        changed = msgspec.structs.replace(changed, schedule=schedule, next_at=next_at)
    if changed != job:
        changed = jobs.change(tx, changed)
    if wanted.paused is None:
        return changed
    return pause(tx, changed) if wanted.paused else resume(tx, changed)


def render_line(job: Job, last: Sequence[JobRun], texts: Texts) -> str:
    """Render a job as one line: name, schedule, next time, targets, and the status of its last run."""
    to = ", ".join(map(str, job.targets))
    parts = [
        job.name,
        texts.render(job.schedule.describe()),
        texts.say("job.next", time=job.schedule.format_time(job.next_at), zone=job.schedule.zone)
        if job.next_at
        else texts.say(f"state.{job.state.value}") + (f": {job.why}" if job.why else ""),
        texts.say("job.to", targets=to) if to else texts.say("job.to_nowhere"),
        *(texts.say("job.last_run", status=render_status(run, texts)) for run in last[:1]),
        job.id,
    ]
    return " · ".join(parts)


def render_status(run: JobRun, texts: Texts) -> str:
    """Render the state of a run, and of its deliveries if there are any."""
    sent = ", ".join(texts.say(f"state.{state}") for state in run.delivery_states)
    status = texts.say(f"state.{run.status}")
    return f"{status} ({sent})" if sent else status


def pause(tx: Transaction, job: Job) -> Job:
    """Suspend a job until it is resumed."""
    _check_not_done(job)
    return jobs.set_state(tx, job, JobState.PAUSED, next_at=None)


def resume(tx: Transaction, job: Job) -> Job:
    """Continue a job with the next time of its schedule. Missed runs are not made up for."""
    _check_not_done(job)
    next_at = job.next_at or schedules.find_next(job.schedule, tx.now)
    if next_at is None:
        raise Conflict(Phrase("job.time_passed", name=job.name))
    return jobs.set_state(tx, job, JobState.ACTIVE, next_at=next_at)


def run_now(tx: Transaction, job: Job, *, policy: Policy) -> JobRun:
    """Begin a run now."""
    begin_run(tx, job, due_at=tx.now, rules=policy.access)
    return jobs.get_run(tx, job, due_at=tx.now)


def remove(tx: Transaction, job: Job) -> Job:
    jobs.remove(tx, job)
    return job


def pause_for_gone_target(tx: Transaction, delivery: Delivery, reason: str, *, policy: Policy) -> None:
    """Pause the job whose answer could not be delivered because its chat is gone, and send the answer to the fallback
    target of the settings instead. Do nothing for a delivery that is not the answer of a job."""
    if delivery.session is None or delivery.turn is None:
        return
    job = jobs.find_for_turn(tx, delivery.session, delivery.turn)
    if job is None or delivery.target.key not in {target.key for target in job.targets}:
        return
    texts = tx.texts.speak(people.get_language(tx, delivery.turn))
    why, to = texts.say("job.at_target", target=str(delivery.target), reason=reason), policy.jobs.fallback
    try:
        fallback = targets.resolve(tx, to, profile=job.profile, accounts=policy.reach or None) if to else []
    except Invalid as exc:
        fallback, why = [], f"{why}; jobs.fallback: {texts.render(exc.text)}"
    if job.state is JobState.ACTIVE:
        jobs.set_state(tx, job, JobState.PAUSED, next_at=None, why=why)
    text = texts.say("job.target_gone", name=job.name, why=why, text=delivery.text)
    for target in fallback:
        if target.key != delivery.target.key:
            deliveries.enqueue(tx, target, text, of=delivery, media=delivery.media)


def _check_prompt(text: str) -> str:
    prompt = text.strip()
    if not prompt:
        raise Invalid(Phrase("job.prompt_missing"))
    if len(prompt) > _MAX_PROMPT:
        raise Invalid(Phrase("job.prompt_long", limit=_MAX_PROMPT))
    return prompt


def _find_targets(
    tx: Transaction, viewer: Viewer, to: str, origin: JobOrigin, *, policy: Policy
) -> tuple[Target, ...]:
    if not to:
        return ()
    if viewer.principal == OPERATOR and origin.accounts is not None:
        # An operator who knows the accounts may name any chat.
        places = targets.resolve(
            tx, to, profile=viewer.profile, origin=origin.origin, accounts=origin.accounts
        )
    else:
        places = targets.resolve_for_viewer(
            tx, viewer, to, origin=origin.origin, reach=policy.reach, alone=origin.alone
        )
    return tuple(target.without_reply for target in places)


def _check_not_done(job: Job) -> None:
    if job.state is JobState.DONE:
        raise Conflict(Phrase("job.over", name=job.name))


def begin_due_run(tx: Transaction, *, policy: Policy) -> None:
    """Begin the run of the job that is due first, if there is one, and schedule its next run."""
    job = jobs.find_due(tx)
    if job is None or job.next_at is None:
        return
    try:
        plan = schedules.find_due(job.schedule, at=job.next_at, now=tx.now, window=policy.jobs.window)
    except Invalid as exc:
        # A time zone that this machine does not know must not block other jobs.
        jobs.set_state(tx, job, JobState.PAUSED, next_at=None, why=tx.texts.speak().render(exc.text))
        return
    state = JobState.ACTIVE if plan.following else JobState.DONE
    moved = jobs.set_state(tx, job, state, next_at=plan.following)
    if plan.run is not None:
        begin_run(tx, moved, due_at=plan.run, rules=policy.access)
    else:
        jobs.claim_run(tx, job, due_at=job.next_at)


def begin_run(tx: Transaction, job: Job, *, due_at: datetime, rules: AccessRules) -> None:
    """Begin one run, unless it was begun before. Pause the job if its author has lost the right to talk."""
    if not jobs.claim_run(tx, job, due_at=due_at):
        return
    try:
        access.recheck(tx, job.source, rules)
    except Forbidden as exc:
        jobs.finish_run(tx, job, RunOutcome.REFUSED, due_at=due_at, error=tx.texts.speak().render(exc.text))
        jobs.set_state(
            tx, job, JobState.PAUSED, next_at=None, why=tx.texts.speak().render(access.REVOKED_NOTICE)
        )
        return
    id_ = sessions_store.create(
        tx, profile=job.profile, owner=job.owner, surface=JOB_SURFACE, origin=job.source
    )
    session = sessions_store.get(tx, id_)
    first, *others = job.targets or (None,)
    message = UserMessage(
        parts=text_parts(job.prompt),
        asker=job.owner,
        surface=JOB_SURFACE,
        reply=first,
        also=tuple(t for t in others if t),
        source=job.source,
        exact=core.build_prompt(job),
    )
    receipt = submit(tx, session, message)
    # Set the title of a run to its job and time, and put it into the project of the owner's runs.
    title = f"{text.truncate(job.name, _MAX_TITLE)} {job.schedule.format_time(due_at)}"
    sessions_store.rename(tx, session, title, by=TitleBy.RULE)
    project = job.project
    if project is None:
        project = projects.ensure(tx, Viewer(job.profile, job.owner), core.PROJECT_NAME)
        jobs.set_project(tx, job, project)
    sessions_store.set_project(tx, session, project)
    jobs.finish_run(tx, job, RunOutcome.STARTED, due_at=due_at, session=session.id, turn=receipt.turn)
    jobs.note_change(tx, job, "started")


def bring_forward(tx: Transaction) -> None:
    """Recompute the next runs after the clock was set back, so that no job waits for longer than its schedule says.
    Times that come again have had their run."""
    for job in jobs.list_due_after(tx, tx.now):
        sooner = schedules.find_next(job.schedule, tx.now)
        if sooner and job.next_at and sooner < job.next_at:
            jobs.set_state(tx, job, job.state, next_at=sooner)
