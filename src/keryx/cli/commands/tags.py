"""`keryx tags`: words with a colour that conversations are marked with."""

from typing import Annotated

from cyclopts import App, Parameter

from keryx.cli import output
from keryx.cli.options import Json, Yes, confirm, open_hub
from keryx.core.sessions import TagColour

app = App(name="tags", help="Words with a colour, of which a conversation has any number.")

_Name = Annotated[str, Parameter(help="The name of a tag.")]
_Colour = Annotated[TagColour, Parameter(help="Its colour in lists.")]


@app.command(name="list")
async def list_(*, json: Json = False) -> None:
    """List tags.

    For example:

        keryx tags list
    """
    async with open_hub() as access:
        found = await access.hub.tags.list_all(access.viewer)
    output.write_list(
        "tags",
        found,
        json,
        heads=("name", "colour", "sessions", "made"),
        rows=((t.name, t.colour.value, str(t.sessions), output.format_time(t.created_at)) for t in found),
        flexible=0,
        right=(2,),
        empty="No tags yet. `keryx sessions tag SESSION NAME` puts one on a conversation.",
    )


@app.command
async def add(name: _Name, /, *, colour: _Colour | None = None, json: Json = False) -> None:
    """Make a tag. Without a colour, its name leads to one.

    For example:

        keryx tags add "to do" --colour orange
    """
    async with open_hub() as access:
        made = await access.hub.tags.add(access.viewer, name, colour=colour)
    output.write_result(f"Made {made.name}, {made.colour}.", made, json)


@app.command
async def rename(
    name: _Name, new: Annotated[str, Parameter(help="Its new name.")], /, *, json: Json = False
) -> None:
    """Give a tag another name.

    For example:

        keryx tags rename "to do" later
    """
    async with open_hub() as access:
        changed = await access.hub.tags.change(access.viewer, name, new_name=new, colour=None)
    output.write_result(f"Now called {changed.name}.", changed, json)


@app.command
async def colour(name: _Name, colour: _Colour, /, *, json: Json = False) -> None:
    """Give a tag another colour.

    For example:

        keryx tags colour later blue
    """
    async with open_hub() as access:
        changed = await access.hub.tags.change(access.viewer, name, new_name=None, colour=colour)
    output.write_result(f"{changed.name} is {changed.colour} now.", changed, json)


@app.command
async def remove(name: _Name, /, *, yes: Yes = False, json: Json = False) -> None:
    """Remove a tag; the conversations that have it stay.

    For example:

        keryx tags remove later --yes
    """
    confirm(f"Remove the tag {name}?", yes)
    async with open_hub() as access:
        removed = await access.hub.tags.remove(access.viewer, name)
    output.write_result(f"Removed {removed.name}.", removed, json)
