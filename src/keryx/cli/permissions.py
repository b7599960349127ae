"""Permissions: what agents may always do, or never, because somebody said so, and the taking back of it."""

from typing import Annotated

from cyclopts import App, Parameter

from keryx.cli import output
from keryx.cli.access import Json, hub
from keryx.core.questions import Lasting

app = App(name="permissions", help="What was allowed or denied for good in a conversation.")

_Session = Annotated[str, Parameter(help="A session by id, unique prefix or title.")]


@app.command(name="list")
async def list_(
    *,
    session: Annotated[str | None, Parameter(help="Those of this session only.")] = None,
    json: Json = False,
) -> None:
    """List what was answered with “always”, the newest first.

    For example:

        keryx permissions list
        keryx permissions list --session "trip to oslo"
    """
    async with hub() as access:
        chosen = await access.id(session) if session else None
        found = await access.hub.questions.lasting(access.viewer, chosen)
    if json:
        output.json({"permissions": found})
    elif found:
        _print_list(found)
    else:
        output.write("Nothing was allowed or denied for good.")


@app.command
async def forget(
    session: _Session,
    tool: Annotated[
        str, Parameter(help="The tool, as `keryx permissions list` shows it; `all` for every one.")
    ],
    /,
    *,
    json: Json = False,
) -> None:
    """Take a permission back: the agent asks again, from its next call on.

    For example:

        keryx permissions forget "trip to oslo" run_in_terminal
        keryx permissions forget "trip to oslo" all
    """
    async with hub() as access:
        gone = await access.hub.questions.forget(access.viewer, await access.id(session), tool)
    output.answer(f"The agent asks again for {', '.join(gone)}.", {"forgotten": gone}, json)


def _print_list(found: list[Lasting]) -> None:
    rows = [(p.tool, p.word, output.when(p.given_at), p.session, p.title) for p in found]
    output.table(("tool", "always", "since", "session", "title"), rows, flexible=4)
