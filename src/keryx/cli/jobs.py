"""Jobs: prompts that run by a schedule."""

from typing import Annotated

from cyclopts import App, Parameter

from keryx.cli import output
from keryx.cli.access import Access, Json, Yes, base, confirm, hub, positive, warn_if_alone
from keryx.core.jobs import Job, Run
from keryx.engine.jobs import Place, Wanted

app = App(name="jobs", help="Prompts that run by a schedule.")

_Ref = Annotated[str, Parameter(help="A job: its name, its id, or the beginning of either.")]
_Limit = Annotated[int, Parameter(help="How many runs at most.")]


@app.command(name="list")
async def list_(
    *,
    all: Annotated[bool, Parameter(negative="", show_default=False, help="Those that are over too.")] = False,
    json: Json = False,
) -> None:
    """List jobs, and when each runs next.

    For example:

        keryx jobs list
        keryx jobs list --all --json
    """
    async with hub() as access:
        found = await access.hub.jobs.every(access.viewer, done=all)
    if json:
        output.json({"jobs": found})
    elif found:
        rows = [(j.id, j.name, str(j.schedule), j.state.value, output.when(j.next_at), _to(j)) for j in found]
        output.table(("id", "name", "schedule", "state", "next", "to"), rows, flexible=1)
    else:
        output.write('No jobs yet. `keryx jobs add "every 2h" "Check the news"` makes one.')


@app.command
async def show(job: _Ref, /, *, limit: _Limit = 5, json: Json = False) -> None:
    """Show a job and its last runs.

    For example:

        keryx jobs show news
    """
    async with hub() as access:
        found, past = await access.hub.jobs.show(access.viewer, job, limit=positive(limit, "--limit"))
    if json:
        output.json({"job": found, "runs": list(map(_run, past))})
        return
    output.fields(
        (
            ("name", found.name),
            ("id", found.id),
            ("schedule", str(found.schedule)),
            ("state", f"{found.state.value}{f': {found.why}' if found.why else ''}"),
            ("next", output.when(found.next_at)),
            ("to", _to(found)),
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
    below = base()
    place = Place(accounts=below.accounts if to else None)
    async with below.hub() as found:
        job = await found.jobs.add(
            below.viewer, Wanted(schedule=schedule, prompt=prompt, to=to, name=name, zone=zone), place
        )
        nodes = await found.nodes()
    output.answer(f"{job.name} runs {job.schedule}, next {output.when(job.next_at)}.", job, json)
    if not nodes:
        output.warn("keryx: jobs run while a node does, and none runs now: start `keryx serve`")


@app.command
async def pause(job: _Ref, /, *, json: Json = False) -> None:
    """Let a job rest until it is resumed.

    For example:

        keryx jobs pause news
    """
    async with hub() as access:
        found = await access.hub.jobs.pause(access.viewer, job)
    output.answer(f"{found.name} rests.", found, json)


@app.command
async def resume(job: _Ref, /, *, json: Json = False) -> None:
    """Let a paused job go on with its next time.

    For example:

        keryx jobs resume news
    """
    async with hub() as access:
        found = await access.hub.jobs.resume(access.viewer, job)
    output.answer(f"{found.name} goes on, next {output.when(found.next_at)}.", found, json)


@app.command
async def run(job: _Ref, /, *, json: Json = False) -> None:
    """Run a job now, beside its schedule.

    For example:

        keryx jobs run news
    """
    async with hub() as access:
        begun = await access.hub.jobs.run(access.viewer, job)
        nodes = await access.hub.nodes()
    output.answer(begun.error or f"It runs: keryx sessions show {begun.session}", _run(begun), json)
    warn_if_alone(nodes)


@app.command
async def runs(job: _Ref, /, *, limit: _Limit = 20, json: Json = False) -> None:
    """List what became of each time of a job, the latest first.

    For example:

        keryx jobs runs news --limit 5
    """
    async with hub() as access:
        _, past = await access.hub.jobs.show(access.viewer, job, limit=positive(limit, "--limit"))
    if json:
        output.json({"runs": list(map(_run, past))})
    else:
        _print_runs(past)


@app.command
async def remove(job: _Ref, /, *, yes: Yes = False, json: Json = False) -> None:
    """Remove a job; the conversations of its runs stay.

    For example:

        keryx jobs remove news --yes
    """
    async with hub() as access:
        found = await _found(access, job)
        confirm(f"Remove {found.name}? The conversations of its runs stay.", yes)
        await access.hub.jobs.remove(access.viewer, found.id)
    output.answer(f"Removed {found.name}.", found, json)


async def _found(access: Access, job: str) -> Job:
    return (await access.hub.jobs.show(access.viewer, job, limit=1))[0]


def _to(job: Job) -> str:
    return ", ".join(map(str, job.targets))


def _run(run: Run) -> dict[str, object]:
    """A run for programs: its state in a word, and each delivery with its own."""
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


def _print_runs(past: list[Run]) -> None:
    if not past:
        output.write("It has not run yet.")
        return
    rows = [(output.when(r.due_at), r.status, r.delivery, r.session or "", r.error or "") for r in past]
    output.table(("due", "run", "delivery", "session", "error"), rows, flexible=4)
