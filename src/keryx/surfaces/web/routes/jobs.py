"""Routes of jobs: prompts that run by a schedule."""

import msgspec

from keryx.core.jobs import Job, JobRun
from keryx.engine.units.jobs import JobOrigin, JobRequest
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.request import ApiRequest, Handler


async def jobs(ask: ApiRequest) -> schema.Jobs:
    found = await ask.hub.jobs.list_with_last_run(ask.viewer, done=ask.query(request_schema.JobsQuery).done)
    return schema.Jobs(jobs=[_present_job(job, last[0] if last else None) for job, last in found])


async def add_job(ask: ApiRequest) -> schema.Job:
    wanted = msgspec.convert(ask.body(request_schema.AddJob), JobRequest, from_attributes=True)
    place = JobOrigin(accounts=ask.services.installation.accounts)
    return _present_job(await ask.hub.jobs.add(ask.viewer, wanted, place))


async def job(ask: ApiRequest) -> schema.JobRuns:
    limit = ask.query(request_schema.RunsQuery).limit
    found, past = await ask.hub.jobs.get(ask.viewer, ask.path_param("job"), limit=limit)
    return schema.JobRuns(
        job=_present_job(found, past[0] if past else None), runs=list(map(_present_run, past))
    )


async def change_job(ask: ApiRequest) -> schema.Job:
    verb = ask.hub.jobs.pause if ask.body(request_schema.JobChange).paused else ask.hub.jobs.resume
    return _present_job(await verb(ask.viewer, ask.path_param("job")))


async def remove_job(ask: ApiRequest) -> None:
    await ask.hub.jobs.remove(ask.viewer, ask.path_param("job"))


async def run_job(ask: ApiRequest) -> schema.Run:
    return _present_run(await ask.hub.jobs.run(ask.viewer, ask.path_param("job")))


def _present_job(found: Job, last: JobRun | None = None) -> schema.Job:
    return schema.Job(
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
        last=_present_run(last) if last else None,
    )


def _present_run(found: JobRun) -> schema.Run:
    return schema.Run(
        due_at=found.due_at,
        at=found.at,
        status=found.status,
        delivery=found.delivery,
        session=found.session,
        turn=found.turn,
        error=found.error,
        deliveries=[presenters.delivery(d) for d in found.deliveries],
    )


HANDLERS: dict[str, Handler] = {
    handler.__name__: handler for handler in (jobs, add_job, job, change_job, remove_job, run_job)
}
