"""`keryx projects`: named groups of conversations."""

from typing import Annotated

from cyclopts import App, Parameter

from keryx.cli import output
from keryx.cli.options import Json, SessionRef, Yes, confirm, open_hub

app = App(name="projects", help="Named groups of conversations.")

_Name = Annotated[str, Parameter(help="The name of a project.")]
_Colour = Annotated[str, Parameter(help="A colour for lists, such as teal or #0a7.")]


@app.command(name="list")
async def list_(*, json: Json = False) -> None:
    """List projects.

    For example:

        keryx projects list
    """
    async with open_hub() as access:
        found = await access.hub.projects.list_all(access.viewer)
    output.write_list(
        "projects",
        found,
        json,
        heads=("name", "colour", "sessions", "made"),
        rows=((p.name, p.colour, str(p.sessions), output.format_time(p.created_at)) for p in found),
        flexible=0,
        right=(2,),
        empty="No projects yet. `keryx projects add NAME` makes one.",
    )


@app.command
async def add(name: _Name, /, *, colour: _Colour = "", json: Json = False) -> None:
    """Make a project.

    For example:

        keryx projects add travel --colour teal
    """
    async with open_hub() as access:
        project = await access.hub.projects.add(access.viewer, name, colour=colour)
    output.write_result(f"Made {project.name}.", project, json)


@app.command
async def rename(
    name: _Name, new: Annotated[str, Parameter(help="Its new name.")], /, *, json: Json = False
) -> None:
    """Give a project another name.

    For example:

        keryx projects rename travel journeys
    """
    async with open_hub() as access:
        project = await access.hub.projects.change(access.viewer, name, new_name=new, colour=None)
    output.write_result(f"Now called {project.name}.", project, json)


@app.command
async def colour(name: _Name, colour: _Colour, /, *, json: Json = False) -> None:
    """Give a project a colour.

    For example:

        keryx projects colour travel "#0a7"
    """
    async with open_hub() as access:
        project = await access.hub.projects.change(access.viewer, name, new_name=None, colour=colour)
    output.write_result(f"{project.name} is {project.colour or 'without a colour'} now.", project, json)


@app.command
async def instruct(
    name: _Name,
    text: Annotated[str, Parameter(help="What to tell; an empty text takes it away.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Set standing instructions: every conversation of a project is told them.

    For example:

        keryx projects instruct travel "Prices in euros."
    """
    async with open_hub() as access:
        project = await access.hub.projects.set_instructions(access.viewer, name, text)
    output.write_result(
        "Saved. It applies from the next message." if text else "No instructions any more.", project, json
    )


@app.command
async def remove(name: _Name, /, *, yes: Yes = False, json: Json = False) -> None:
    """Remove a project; its conversations stay.

    For example:

        keryx projects remove travel --yes
    """
    async with open_hub() as access:
        project = await access.hub.projects.find(access.viewer, name)
        confirm(f"Remove {project.name}? Its {output.format_count(project.sessions, 'session')} stay.", yes)
        await access.hub.projects.remove(access.viewer, name)
    output.write_result(f"Removed {project.name}.", project, json)


@app.command
async def assign(ref: SessionRef, project: _Name, /, *, json: Json = False) -> None:
    """Put a conversation into a project; `none` takes it out.

    For example:

        keryx projects assign oslo travel
    """
    async with open_hub() as access:
        id_ = await access.find_id(ref)
        await access.hub.projects.assign(access.viewer, id_, None if project == "none" else project)
    output.write_result(
        "In no project now." if project == "none" else f"Now in {project}.",
        {"session": id_, "project": None if project == "none" else project},
        json,
    )
