"""`keryx jobs`: prompts that run by a schedule."""

from typing import Annotated

from cyclopts import App, Parameter

from keryx.cli import output
from keryx.cli.options import (
    FLAG,
    Json,
    Yes,
    check_positive,
    confirm,
    load_base,
    open_hub,
    warn_without_node,
)
from keryx.core.jobs import Job, JobRun
from keryx.engine.units.jobs import JobOrigin, JobRequest

app = App(name="jobs", help="Prompts that run by a schedule.")

_JobRef = Annotated[str, Parameter(help="A job: its name, its id, or the beginning of either.")]
_Limit = Annotated[int, Parameter(help="How many runs at most.")]


@app.command(name="list")
async def list_(
    *,
    all: Annotated[bool, FLAG, Parameter(help="Those that are over too.")] = False,
    json: Json = False,
) -> None:
    """List jobs, and when each runs next.

    For example:

        keryx jobs list
        keryx jobs list --all --json
    """
    async with open_hub() as access:
        found = await access.hub.jobs.list_all(access.viewer, done=all)
    output.write_list(
        "jobs",
        found,
        json,
        heads=("id", "name", "schedule", "state", "next", "to"),
        rows=(
            (j.id, j.name, str(j.schedule), j.state.value, _format_next(j), _format_targets(j)) for j in found
        ),
        flexible=1,
        empty='No jobs now. `keryx jobs add "every 2h" "Check the news"` makes one'
        + ("." if all else "; `keryx jobs list --all` shows those that are over."),
    )
    for job in found:
        if job.why and not json:
            output.write(f"{job.name} is {job.state.value}: {job.why}")


@app.command
async def show(job: _JobRef, /, *, limit: _Limit = 5, json: Json = False) -> None:
    """Show a job and its last runs.

    For example:

        keryx jobs show news
    """
    async with open_hub() as access:
        found, past = await access.hub.jobs.get(access.viewer, job, limit=check_positive(limit, "--limit"))
    if json:
        output.write_json({"job": found, "runs": list(map(_report_run, past))})
        return
    output.write_fields(
        (
            ("name", found.name),
            ("id", found.id),
            ("schedule", str(found.schedule)),
            ("state", f"{found.state.value}{f': {found.why}' if found.why else ''}"),
            ("next", _format_next(found)),
            ("to", _format_targets(found)),
            ("owner", found.owner),
            ("prompt", found.prompt),
        )
    )
    _print_runs(past)


@app.command
async def add(
    schedule: Annotated[
        str,
        Parameter(help='30m (once), "every 2h", "0 9 * * mon-fri", @daily, or 2030-01-31T09:00.'),
    ],
    prompt: Annotated[str, Parameter(help="What the agent is to do then.")],
    /,
    *,
    to: Annotated[
        str,
        Parameter(
            help="Where answers are sent: local, PLATFORM for its home, PLATFORM:CHAT[:THREAD], or several"
            " with commas. Without it they are kept in the conversation of each run."
        ),
    ] = "",
    name: Annotated[str, Parameter(help="A short name; without it, one is made from the prompt.")] = "",
    zone: Annotated[str, Parameter(help="The time zone of the schedule, such as Europe/Berlin.")] = "",
    json: Json = False,
) -> None:
    """Let the agent do something by a schedule.

    For example:

        keryx jobs add "every 2h" "Check the news" --to telegram
        keryx jobs add "0 9 * * mon-fri" "Plan my day" --zone Europe/Oslo
        keryx jobs add 30m "Remind me of the tea" --to local:tea
    """
    app = load_base()
    origin = JobOrigin(accounts=app.reachable_platforms if to else None)
    async with app.hub() as hub:
        job = await hub.jobs.add(
            app.viewer, JobRequest(schedule=schedule, prompt=prompt, to=to, name=name, zone=zone), origin
        )
        nodes = await hub.list_nodes()
    output.write_result(f"{job.name} runs {job.schedule}, next {_format_next(job)}.", job, json)
    if not nodes:
        output.warn("keryx: jobs run while a node does, and none runs now: start `keryx serve`")


@app.command
async def pause(job: _JobRef, /, *, json: Json = False) -> None:
    """Let a job rest until it is resumed.

    For example:

        keryx jobs pause news
    """
    async with open_hub() as access:
        found = await access.hub.jobs.pause(access.viewer, job)
    output.write_result(f"{found.name} rests.", found, json)


@app.command
async def resume(job: _JobRef, /, *, json: Json = False) -> None:
    """Let a paused job go on with its next time.

    For example:

        keryx jobs resume news
    """
    async with open_hub() as access:
        found = await access.hub.jobs.resume(access.viewer, job)
    output.write_result(f"{found.name} goes on, next {_format_next(found)}.", found, json)


@app.command
async def run(job: _JobRef, /, *, json: Json = False) -> None:
    """Run a job now, beside its schedule.

    For example:

        keryx jobs run news
    """
    async with open_hub() as access:
        begun = await access.hub.jobs.run(access.viewer, job)
        nodes = await access.hub.list_nodes()
    output.write_result(
        _format_error(begun) or f"It runs: keryx sessions show {begun.session}", _report_run(begun), json
    )
    warn_without_node(nodes)


@app.command
async def runs(job: _JobRef, /, *, limit: _Limit = 20, json: Json = False) -> None:
    """List what became of each time of a job, the latest first.

    For example:

        keryx jobs runs news --limit 5
    """
    async with open_hub() as access:
        _, past = await access.hub.jobs.get(access.viewer, job, limit=check_positive(limit, "--limit"))
    if json:
        output.write_json({"runs": list(map(_report_run, past))})
    else:
        _print_runs(past)


@app.command
async def remove(job: _JobRef, /, *, yes: Yes = False, json: Json = False) -> None:
    """Remove a job; the conversations of its runs stay.

    For example:

        keryx jobs remove news --yes
    """
    async with open_hub() as access:
        found, _ = await access.hub.jobs.get(access.viewer, job, limit=1)
        confirm(f"Remove {found.name}? The conversations of its runs stay.", yes)
        await access.hub.jobs.remove(access.viewer, found.id)
    output.write_result(f"Removed {found.name}.", found, json)


def _format_next(job: Job) -> str:
    """Return when a job runs next, in its own zone, which need not be that of the terminal."""
    return f"{job.schedule.format_time(job.next_at)} {job.schedule.zone}" if job.next_at else ""


def _format_targets(job: Job) -> str:
    return ", ".join(map(str, job.targets))


def _report_run(run: JobRun) -> dict[str, object]:
    """Build the JSON form of a run, with the state of each delivery."""
    return {
        "due_at": run.due_at,
        "at": run.at,
        "status": run.status,
        "delivery": run.delivery,
        "session": run.session,
        "turn": run.turn,
        "error": run.error,
        "deliveries": [
            {"id": d.id, "to": str(d.target), "state": d.state, "error": d.error} for d in run.deliveries
        ],
    }


def _format_error(run: JobRun) -> str:
    return output.adapt_hints(run.error or "", run.session)


def _print_runs(past: list[JobRun]) -> None:
    if not past:
        output.write("It has not run yet.")
        return
    rows = [
        (output.format_time(r.due_at), r.status, r.delivery, r.session or "", _format_error(r)) for r in past
    ]
    output.write_table(("due", "run", "delivery", "session", "error"), rows, flexible=4)
