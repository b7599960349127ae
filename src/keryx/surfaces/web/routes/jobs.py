"""Routes of jobs: prompts that run by a schedule."""

import msgspec

from keryx.core.jobs import Job, JobRun
from keryx.core.texts import ERROR_AREAS
from keryx.engine.units.jobs import JobChange, JobOrigin, JobRequest
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest

router = ApiRouter()


@router.get("/api/jobs", summary="What runs by a schedule.")
async def jobs(request: ApiRequest, query: request_schema.JobsQuery) -> schema.Jobs:
    pairs = await request.hub.jobs.list_with_last_run(request.viewer, done=query.done)
    return schema.Jobs(jobs=[_present_job(request, job, last[0] if last else None) for job, last in pairs])


@router.post("/api/jobs", summary="Let the agent do something by a schedule.", status=201)
async def add_job(request: ApiRequest, body: request_schema.AddJobForm) -> schema.JobSchema:
    job_request = msgspec.convert(body, JobRequest, from_attributes=True)
    origin = JobOrigin(accounts=request.services.installation.accounts)
    return _present_job(request, await request.hub.jobs.add(request.viewer, job_request, origin))


@router.get("/api/schedule", summary="What a schedule means, and when it is due next.")
async def preview_schedule(
    request: ApiRequest, query: request_schema.ScheduleQuery
) -> schema.SchedulePreview:
    schedule, times = await request.hub.jobs.preview(request.viewer, query.schedule, zone=query.zone)
    return schema.SchedulePreview(
        schedule=str(schedule),
        meaning=request.texts.render(schedule.describe()),
        zone=schedule.zone,
        next=times,
    )


@router.get("/api/jobs/{job}", summary="A job and its last runs.")
async def job(request: ApiRequest, query: request_schema.RunsQuery) -> schema.JobRuns:
    value, runs = await request.hub.jobs.get(request.viewer, request.path_param("job"), limit=query.limit)
    return schema.JobRuns(
        job=_present_job(request, value, runs[0] if runs else None),
        runs=[_present_run(request, run) for run in runs],
    )


@router.patch("/api/jobs/{job}", summary="Change a job, pause it, or let it go on.")
async def change_job(request: ApiRequest, body: request_schema.JobChangeForm) -> schema.JobSchema:
    wanted = msgspec.convert(body, JobChange, from_attributes=True)
    origin = JobOrigin(accounts=request.services.installation.accounts)
    changed = await request.hub.jobs.change(request.viewer, request.path_param("job"), wanted, origin)
    return _present_job(request, changed)


@router.delete("/api/jobs/{job}", summary="Remove a job; the conversations of its runs stay.")
async def remove_job(request: ApiRequest) -> None:
    await request.hub.jobs.remove(request.viewer, request.path_param("job"))


@router.post("/api/jobs/{job}/run", summary="Run a job now, beside its schedule.", status=201)
async def run_job(request: ApiRequest) -> schema.Run:
    return _present_run(request, await request.hub.jobs.run(request.viewer, request.path_param("job")))


def _present_job(request: ApiRequest, job: Job, last: JobRun | None = None) -> schema.JobSchema:
    return schema.JobSchema(
        id=job.id,
        name=job.name,
        prompt=job.prompt,
        schedule=request.texts.render(job.schedule.describe()),
        written=job.schedule.write(),
        zone=job.schedule.zone,
        to=[str(t) for t in job.targets],
        state=job.state,
        owner=job.owner,
        created_at=job.created_at,
        next_at=job.next_at,
        why=request.texts.render_stored(job.why, *ERROR_AREAS),
        last=_present_run(request, last) if last else None,
    )


def _present_run(request: ApiRequest, run: JobRun) -> schema.Run:
    return schema.Run(
        due_at=run.due_at,
        at=run.at,
        status=run.status,
        delivery=run.delivery,
        session=run.session,
        turn=run.turn,
        error=request.texts.render_stored(run.error, *ERROR_AREAS) if run.error else run.error,
        deliveries=[presenters.delivery(d, request.texts) for d in run.deliveries],
    )
