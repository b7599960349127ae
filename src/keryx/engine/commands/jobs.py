"""The /jobs command: list and manage scheduled jobs from a chat."""

from keryx.core import schedules
from keryx.core.errors import Forbidden, Invalid, NotFound
from keryx.core.jobs import Job
from keryx.core.schedules import OnceRule
from keryx.core.source import ChatType
from keryx.engine.commands.call import CommandCall, CommandResult, quote_title
from keryx.engine.units import control, jobs
from keryx.engine.units.user_messages import find_author
from keryx.store import jobs as runs
from keryx.store import sessions

_MAX_LISTED = 10
_VERBS = ("add", "pause", "resume", "run", "runs", "continue", "remove")
_EXAMPLE = "/jobs add every 2h Check the news"


def manage(call: CommandCall) -> CommandResult:
    verb, _, rest = call.text.partition(" ")
    name = rest.strip()
    if verb in ("", "list"):
        if call.inbound.source.chat_type is not ChatType.DM:
            raise Forbidden("give /jobs in a direct chat: here others would read the answer")
        listed = runs.list_for_viewer(call.tx, call.viewer)
        lines = [jobs.render_line(job, runs.list_runs(call.tx, job, limit=1)) for job in listed]
        return CommandResult("\n".join(lines) or f"You have no jobs. {_EXAMPLE} makes one.")
    match verb.lower():
        case "add":
            return _add(call, name)
        case "pause":
            job = jobs.pause(call.tx, _find_job(call, name))
            return CommandResult(f"“{job.name}” waits until /jobs resume {job.name}.")
        case "resume":
            job = jobs.resume(call.tx, _find_job(call, name))
            return CommandResult(f"“{job.name}” goes on{_render_next_time('next', job)}.")
        case "run":
            job = _find_job(call, name)
            error = jobs.run_now(call.tx, job, policy=call.policy).error
            return CommandResult(
                error or f"“{job.name}” runs now. /jobs runs {job.name} says what becomes of it."
            )
        case "runs":
            return _list_runs(call, _find_job(call, name))
        case "continue":
            return _continue(call, name)
        case "remove":
            job = jobs.remove(call.tx, _find_job(call, name))
            return CommandResult(f"“{job.name}” is removed. The conversations of its runs stay.")
        case _:
            raise Invalid(f"/jobs knows no {verb[:20]!r}: write {', '.join(_VERBS)}, as in {_EXAMPLE}")


def _add(call: CommandCall, text: str) -> CommandResult:
    if not text:
        raise Invalid(f"say when and what: {_EXAMPLE}")
    schedule, prompt = schedules.parse_prefix(text, zone=call.policy.jobs.zone, now=call.now)
    reply = call.inbound.reply
    origin = jobs.JobOrigin(origin=reply, source=find_author(call.inbound))
    request = jobs.JobRequest(schedule="", prompt=prompt, to="origin" if reply else "")
    job = jobs.create(call.tx, call.viewer, schedule, request, origin, policy=call.policy)
    first = "" if isinstance(job.schedule.rule, OnceRule) else _render_next_time("first", job)
    where = "" if job.targets else " Read its answers in the conversations of its runs."
    return CommandResult(
        f"“{job.name}” runs {job.schedule}{first}.{where} /jobs remove {job.name} takes it back."
    )


def _render_next_time(word: str, job: Job) -> str:
    return f", {word} at {job.schedule.format_time(job.next_at)} {job.schedule.zone}" if job.next_at else ""


def _list_runs(call: CommandCall, job: Job) -> CommandResult:
    lines = [
        " · ".join(
            filter(
                None,
                (
                    job.schedule.format_time(run.due_at),
                    run.status,
                    run.delivery,
                    run.error,
                    run.session,
                ),
            )
        )
        for run in runs.list_runs(call.tx, job, limit=_MAX_LISTED)
    ]
    return CommandResult("\n".join(lines) or f"“{job.name}” has not run yet.")


def _continue(call: CommandCall, name: str) -> CommandResult:
    """Switch this chat to the session of a run: the last one of a job, or the last one that was sent here."""
    if name:
        job = _find_job(call, name)
        listed = runs.list_runs(call.tx, job, limit=_MAX_LISTED)
        run = next((r.session for r in listed if r.session), None)
        if run is None:
            raise NotFound(f"“{job.name}” has not run yet: /jobs run {job.name} does it now")
    else:
        run = runs.find_session_for_delivery(call.tx, call.viewer, call.current_lane.target)
        if run is None:
            raise NotFound("no job has sent anything here lately: name one, as in /jobs continue news")
    session = sessions.get(call.tx, run, viewer=call.viewer)
    control.switch(call.tx, call.current_lane, session, why="a scheduled run")
    return CommandResult(
        f"Now in {quote_title(session)}: {session.messages} messages. Say something.", session.id
    )


def _find_job(call: CommandCall, name: str) -> Job:
    if not name:
        raise NotFound("say which job: /jobs lists them")
    return runs.lock(call.tx, runs.find(call.tx, call.viewer, name))
