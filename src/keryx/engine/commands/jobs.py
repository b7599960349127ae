"""The /jobs command: list and manage scheduled jobs from a chat."""

from keryx.core import schedules
from keryx.core.errors import Forbidden, Invalid, NotFound
from keryx.core.jobs import Job
from keryx.core.schedules import OnceRule
from keryx.core.source import ChatType
from keryx.core.texts import Phrase
from keryx.engine.commands.call import CommandCall, CommandResult, format_choices, quote_title
from keryx.engine.units import control, jobs
from keryx.engine.units.user_messages import find_author
from keryx.store import jobs as runs
from keryx.store import sessions

_MAX_LISTED = 10
_VERBS = ("add", "pause", "resume", "run", "runs", "continue", "remove")
_EXAMPLE = Phrase("job.example")


def manage(call: CommandCall) -> CommandResult:
    verb, _, rest = call.text.partition(" ")
    name = rest.strip()
    if verb in ("", "list"):
        if call.inbound.source.chat_type is not ChatType.DM:
            raise Forbidden(Phrase("command.direct_only", name="jobs"))
        listed = runs.list_for_viewer(call.tx, call.viewer)
        lines = [jobs.render_line(job, runs.list_runs(call.tx, job, limit=1), call.texts) for job in listed]
        return CommandResult("\n".join(lines) or call.say("job.none", example=_EXAMPLE))
    match verb.lower():
        case "add":
            return _add(call, name)
        case "pause":
            job = jobs.pause(call.tx, _find_job(call, name))
            return CommandResult(call.say("job.paused", name=job.name))
        case "resume":
            job = jobs.resume(call.tx, _find_job(call, name))
            return CommandResult(_render_with_time(call, "job.resumed", "job.resumed_next", job))
        case "run":
            job = _find_job(call, name)
            error = jobs.run_now(call.tx, job, policy=call.policy).error
            return CommandResult(error or call.say("job.running", name=job.name))
        case "runs":
            return _list_runs(call, _find_job(call, name))
        case "continue":
            return _continue(call, name)
        case "remove":
            job = jobs.remove(call.tx, _find_job(call, name))
            return CommandResult(call.say("job.removed", name=job.name))
        case _:
            raise Invalid(
                Phrase(
                    "job.unknown_verb",
                    verb=repr(verb[:20]),
                    choices=format_choices(_VERBS),
                    example=_EXAMPLE,
                )
            )


def _add(call: CommandCall, text: str) -> CommandResult:
    if not text:
        raise Invalid(Phrase("job.syntax", example=_EXAMPLE))
    zone = jobs.find_zone(call.tx, call.viewer, call.policy)
    schedule, prompt = schedules.parse_prefix(text, zone=zone, now=call.now)
    reply = call.inbound.reply
    origin = jobs.JobOrigin(origin=reply, source=find_author(call.inbound))
    request = jobs.JobRequest(schedule="", prompt=prompt, to="origin" if reply else "")
    job = jobs.create(call.tx, call.viewer, schedule, request, origin, policy=call.policy)
    once = isinstance(job.schedule.rule, OnceRule)
    lines = [_render_with_time(call, "job.added", "job.added" if once else "job.added_first", job)]
    if not job.targets:
        lines.append(call.say("job.read_there"))
    return CommandResult(" ".join([*lines, call.say("job.remove_hint", name=job.name)]))


def _render_with_time(call: CommandCall, plain: str, timed: str, job: Job) -> str:
    """Return one of two texts about a job: the second has its next time."""
    if job.next_at is None:
        return call.say(plain, name=job.name, schedule=job.schedule.describe())
    return call.say(
        timed,
        name=job.name,
        schedule=job.schedule.describe(),
        time=job.schedule.format_time(job.next_at),
        zone=job.schedule.zone,
    )


def _list_runs(call: CommandCall, job: Job) -> CommandResult:
    lines = [
        " · ".join(
            filter(
                None,
                (
                    job.schedule.format_time(run.due_at),
                    jobs.render_status(run, call.texts),
                    run.error,
                    run.session,
                ),
            )
        )
        for run in runs.list_runs(call.tx, job, limit=_MAX_LISTED)
    ]
    return CommandResult("\n".join(lines) or call.say("job.no_runs", name=job.name))


def _continue(call: CommandCall, name: str) -> CommandResult:
    """Switch this chat to the session of a run: the last one of a job, or the last one that was sent here."""
    if name:
        job = _find_job(call, name)
        listed = runs.list_runs(call.tx, job, limit=_MAX_LISTED)
        run = next((r.session for r in listed if r.session), None)
        if run is None:
            raise NotFound(Phrase("job.no_run_to_continue", name=job.name))
    else:
        run = runs.find_session_for_delivery(call.tx, call.viewer, call.current_lane.target)
        if run is None:
            raise NotFound(Phrase("job.none_here"))
    session = sessions.get(call.tx, run, viewer=call.viewer)
    control.switch(call.tx, call.current_lane, session, why=Phrase("move.job"))
    reply = call.say("job.continued", session=quote_title(session), count=session.messages)
    return CommandResult(reply, session.id)


def _find_job(call: CommandCall, name: str) -> Job:
    if not name:
        raise NotFound(Phrase("job.name_missing"))
    return runs.lock(call.tx, runs.find(call.tx, call.viewer, name))
