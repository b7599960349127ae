"""Jobs: the operations on what runs by a schedule."""

import msgspec

from keryx.core.jobs import Job, Run
from keryx.engine.jobs import Place, Wanted
from keryx.surfaces.web import forms, show, wire
from keryx.surfaces.web.ask import Ask, Handler


async def jobs(ask: Ask) -> wire.Jobs:
    found = await ask.hub.jobs.board(ask.viewer, done=ask.query(forms.JobsQuery).done)
    return wire.Jobs(jobs=[_job(job, last[0] if last else None) for job, last in found])


async def add_job(ask: Ask) -> wire.Job:
    wanted = msgspec.convert(ask.body(forms.AddJob), Wanted, from_attributes=True)
    place = Place(accounts=ask.place.facts.accounts)
    return _job(await ask.hub.jobs.add(ask.viewer, wanted, place))


async def job(ask: Ask) -> wire.JobRuns:
    limit = ask.query(forms.RunsQuery).limit
    found, past = await ask.hub.jobs.show(ask.viewer, ask.path("job"), limit=limit)
    return wire.JobRuns(job=_job(found, past[0] if past else None), runs=list(map(_run, past)))


async def change_job(ask: Ask) -> wire.Job:
    verb = ask.hub.jobs.pause if ask.body(forms.JobChange).paused else ask.hub.jobs.resume
    return _job(await verb(ask.viewer, ask.path("job")))


async def remove_job(ask: Ask) -> None:
    await ask.hub.jobs.remove(ask.viewer, ask.path("job"))


async def run_job(ask: Ask) -> wire.Run:
    return _run(await ask.hub.jobs.run(ask.viewer, ask.path("job")))


def _job(found: Job, last: Run | None = None) -> wire.Job:
    return wire.Job(
        id=found.id,
        name=found.name,
        prompt=found.prompt,
        schedule=str(found.schedule),
        zone=found.schedule.zone,
        to=[str(t) for t in found.targets],
        state=found.state,
        owner=found.owner,
        created_at=found.created_at,
        next_at=found.next_at,
        why=found.why,
        last=_run(last) if last else None,
    )


def _run(found: Run) -> wire.Run:
    return wire.Run(
        due_at=found.due_at,
        at=found.at,
        status=found.status,
        delivery=found.delivery,
        session=found.session,
        turn=found.turn,
        error=found.error,
        deliveries=[show.delivery(d) for d in found.deliveries],
    )


HANDLERS: dict[str, Handler] = {
    handler.__name__: handler for handler in (jobs, add_job, job, change_job, remove_job, run_job)
}
