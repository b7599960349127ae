"""The /jobs command: list and manage scheduled jobs from a chat."""

from collections.abc import Callable

from keryx.core import schedules
from keryx.core.errors import Forbidden, Invalid, NotFound
from keryx.core.ids import SessionId
from keryx.core.jobs import Job, JobRun
from keryx.core.schedules import OnceRule
from keryx.core.source import ChatType
from keryx.engine.commands.call import CommandCall, CommandHandler, CommandResult, quote_title
from keryx.engine.units import control, jobs
from keryx.engine.units.user_messages import find_author
from keryx.store import jobs as runs
from keryx.store import sessions

_MAX_LISTED = 10
_EXAMPLE = "/jobs add every 2h Check the news"


def _jobs(call: CommandCall) -> CommandResult:
    verb, _, rest = call.text.partition(" ")
    if verb in ("", "list"):
        return _list(call)
    if verb.lower() not in _VERBS:
        raise Invalid(f"/jobs knows no {verb[:20]!r}: write {', '.join(_VERBS)}, as in {_EXAMPLE}")
    return _VERBS[verb.lower()](call, rest.strip())


def _list(call: CommandCall) -> CommandResult:
    if call.inbound.source.chat_type is not ChatType.DM:
        raise Forbidden("give /jobs in a direct chat: here others would read the answer")
    found = runs.list_for_viewer(call.tx, call.viewer)
    lines = [jobs.render_line(job, runs.list_runs(call.tx, job, limit=1)) for job in found]
    return CommandResult("\n".join(lines) or f"You have no jobs. {_EXAMPLE} makes one.")


def _add(call: CommandCall, text: str) -> CommandResult:
    if not text:
        raise Invalid(f"say when and what: {_EXAMPLE}")
    schedule, prompt = schedules.parse_prefix(text, zone=call.policy.jobs.zone, now=call.now)
    reply = call.inbound.reply
    place = jobs.JobOrigin(origin=reply, source=find_author(call.inbound))
    wanted = jobs.JobRequest(schedule="", prompt=prompt, to="origin" if reply else "")
    job = jobs.create(call.tx, call.viewer, schedule, wanted, place, policy=call.policy)
    first = "" if isinstance(job.schedule.rule, OnceRule) else _render_next_time("first", job)
    where = "" if job.targets else " Read its answers in the conversations of its runs."
    return CommandResult(
        f"“{job.name}” runs {job.schedule}{first}.{where} /jobs remove {job.name} takes it back."
    )


def _render_next_time(word: str, job: Job) -> str:
    return f", {word} at {job.schedule.format_time(job.next_at)} {job.schedule.zone}" if job.next_at else ""


def _pause(call: CommandCall, name: str) -> CommandResult:
    job = jobs.pause(call.tx, _find_job(call, name))
    return CommandResult(f"“{job.name}” waits until /jobs resume {job.name}.")


def _resume(call: CommandCall, name: str) -> CommandResult:
    job = jobs.resume(call.tx, _find_job(call, name))
    return CommandResult(f"“{job.name}” goes on{_render_next_time('next', job)}.")


def _run(call: CommandCall, name: str) -> CommandResult:
    job = _find_job(call, name)
    begun = jobs.run_now(call.tx, job, policy=call.policy)
    return CommandResult(
        begun.error or f"“{job.name}” runs now. /jobs runs {job.name} says what becomes of it."
    )


def _remove(call: CommandCall, name: str) -> CommandResult:
    job = jobs.remove(call.tx, _find_job(call, name))
    return CommandResult(f"“{job.name}” is removed. The conversations of its runs stay.")


def _runs(call: CommandCall, name: str) -> CommandResult:
    job = _find_job(call, name)
    found = runs.list_runs(call.tx, job, limit=_MAX_LISTED)
    return CommandResult(
        "\n".join(_render_run(job, run) for run in found) or f"“{job.name}” has not run yet."
    )


def _render_run(job: Job, run: JobRun) -> str:
    parts = [
        job.schedule.format_time(run.due_at),
        run.status,
        run.delivery,
        run.error or "",
        run.session or "",
    ]
    return " · ".join(filter(None, parts))


def _continue(call: CommandCall, name: str) -> CommandResult:
    """Let this chat go on with the conversation of a run: the last one of a job, or the last one that was sent here."""
    wanted = _find_last_run(call, name) if name else _find_last_run_here(call)
    session = sessions.get(call.tx, wanted, viewer=call.viewer)
    control.switch(call.tx, call.current_lane, session, why="a scheduled run")
    return CommandResult(
        f"Now in {quote_title(session)}: {session.messages} messages. Say something.", session.id
    )


def _find_last_run(call: CommandCall, name: str) -> SessionId:
    job = _find_job(call, name)
    found = [r.session for r in runs.list_runs(call.tx, job, limit=_MAX_LISTED) if r.session]
    if not found:
        raise NotFound(f"“{job.name}” has not run yet: /jobs run {job.name} does it now")
    return found[0]


def _find_last_run_here(call: CommandCall) -> SessionId:
    here = runs.find_session_for_delivery(call.tx, call.viewer, call.current_lane.target)
    if here is None:
        raise NotFound("no job has sent anything here lately: name one, as in /jobs continue news")
    return here


def _find_job(call: CommandCall, name: str) -> Job:
    if not name:
        raise NotFound("say which job: /jobs lists them")
    return runs.lock(call.tx, runs.find(call.tx, call.viewer, name))


_VERBS: dict[str, Callable[[CommandCall, str], CommandResult]] = {
    "add": _add,
    "pause": _pause,
    "resume": _resume,
    "run": _run,
    "runs": _runs,
    "continue": _continue,
    "remove": _remove,
}
HANDLERS: dict[str, CommandHandler] = {"jobs": _jobs}
