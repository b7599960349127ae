"""The command on jobs: what runs by a schedule, made and managed from a chat."""

from collections.abc import Callable

from keryx.core import schedules
from keryx.core.errors import Forbidden, Invalid, NotFound
from keryx.core.ids import SessionId
from keryx.core.jobs import Job, Run
from keryx.core.schedules import Once
from keryx.core.source import ChatType
from keryx.engine import control, jobs
from keryx.engine.asking import author
from keryx.engine.commands.call import Call, Done, label
from keryx.engine.commands.call import Run as Command
from keryx.store import jobs as job_store
from keryx.store import runs, sessions

_SHOWN = 10
_EXAMPLE = "/jobs add every 2h Check the news"


def _jobs(call: Call) -> Done:
    verb, _, rest = call.text.partition(" ")
    if verb in ("", "list"):
        return _list(call)
    if verb.lower() not in _VERBS:
        raise Invalid(f"/jobs knows no {verb[:20]!r}: write {', '.join(_VERBS)}, as in {_EXAMPLE}")
    return _VERBS[verb.lower()](call, rest.strip())


def _list(call: Call) -> Done:
    if call.inbound.source.chat_type is not ChatType.DM:
        raise Forbidden("give /jobs in a direct chat: here others would read the answer")
    found = job_store.every(call.tx, call.viewer)
    lines = [jobs.line(job, runs.of_job(call.tx, job, limit=1)) for job in found]
    return Done("\n".join(lines) or f"You have no jobs. {_EXAMPLE} makes one.")


def _add(call: Call, text: str) -> Done:
    if not text:
        raise Invalid(f"say when and what: {_EXAMPLE}")
    schedule, prompt = schedules.split(text, zone=call.policy.jobs.zone, now=call.now)
    reply = call.inbound.reply
    place = jobs.Place(origin=reply, source=author(call.inbound))
    wanted = jobs.Wanted(schedule="", prompt=prompt, to="origin" if reply else "")
    job = jobs.put(call.tx, call.viewer, schedule, wanted, place, policy=call.policy, now=call.now)
    first = "" if isinstance(job.schedule.rule, Once) else _at("first", job)
    where = "" if job.targets else " Read its answers in the conversations of its runs."
    return Done(f"“{job.name}” runs {job.schedule}{first}.{where} /jobs remove {job.name} takes it back.")


def _at(word: str, job: Job) -> str:
    return f", {word} at {job.schedule.shown(job.next_at)} {job.schedule.zone}" if job.next_at else ""


def _pause(call: Call, name: str) -> Done:
    job = jobs.pause(call.tx, _named(call, name), call.now)
    return Done(f"“{job.name}” waits until /jobs resume {job.name}.")


def _resume(call: Call, name: str) -> Done:
    job = jobs.resume(call.tx, _named(call, name), call.now)
    return Done(f"“{job.name}” goes on{_at('next', job)}.")


def _run(call: Call, name: str) -> Done:
    job = _named(call, name)
    begun = jobs.run(call.tx, job, policy=call.policy, now=call.now)
    return Done(begun.error or f"“{job.name}” runs now. /jobs runs {job.name} says what becomes of it.")


def _remove(call: Call, name: str) -> Done:
    job = jobs.remove(call.tx, _named(call, name), call.now)
    return Done(f"“{job.name}” is removed. The conversations of its runs stay.")


def _runs(call: Call, name: str) -> Done:
    job = _named(call, name)
    found = runs.of_job(call.tx, job, limit=_SHOWN)
    return Done("\n".join(_told(job, run) for run in found) or f"“{job.name}” has not run yet.")


def _told(job: Job, run: Run) -> str:
    parts = [job.schedule.shown(run.due_at), run.status, run.delivery, run.error or "", run.session or ""]
    return " · ".join(filter(None, parts))


def _continue(call: Call, name: str) -> Done:
    """Let this chat go on with the conversation of a run: the last one of a job, or the last one that was sent here."""
    wanted = _last_of(call, name) if name else _last_here(call)
    session = sessions.get(call.tx, wanted, viewer=call.viewer)
    control.switch(call.tx, call.place, session, why="a scheduled run", now=call.now)
    return Done(f"Now in {label(session)}: {session.messages} messages. Say something.", session.id)


def _last_of(call: Call, name: str) -> SessionId:
    job = _named(call, name)
    found = [r.session for r in runs.of_job(call.tx, job, limit=_SHOWN) if r.session]
    if not found:
        raise NotFound(f"“{job.name}” has not run yet: /jobs run {job.name} does it now")
    return found[0]


def _last_here(call: Call) -> SessionId:
    here = runs.sent_to(call.tx, call.viewer, call.place.target)
    if here is None:
        raise NotFound("no job has sent anything here lately: name one, as in /jobs continue news")
    return here


def _named(call: Call, name: str) -> Job:
    if not name:
        raise NotFound("say which job: /jobs lists them")
    return job_store.lock(call.tx, job_store.find(call.tx, call.viewer, name))


_VERBS: dict[str, Callable[[Call, str], Done]] = {
    "add": _add,
    "pause": _pause,
    "resume": _resume,
    "run": _run,
    "runs": _runs,
    "continue": _continue,
    "remove": _remove,
}
RUN: dict[str, Command] = {"jobs": _jobs}
