"""Sessions: listed, read, searched and changed."""

from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from keryx.cli import output, transcript
from keryx.cli.access import Json, Ref, hub, positive, since
from keryx.core.messages import Message
from keryx.core.sessions import Activity, Listed, Listing, Session

app = App(name="sessions", help="List, read, search and change conversations.")
for place in (
    "search:search",
    "revise:rename",
    "revise:fork",
    "revise:undo",
    "revise:redo",
    "revise:retry",
    "revise:stop",
    "revise:model",
    "shelf:pin",
    "shelf:unpin",
    "shelf:archive",
    "shelf:unarchive",
    "shelf:delete",
    "shelf:undelete",
    "shelf:end",
    "shelf:reopen",
    "shelf:move_to_project",
    "exchange:export",
    "exchange:import_",
    "maintenance:stats",
):
    app.command(f"keryx.cli.{place}", name=place.partition(":")[2].rstrip("_").replace("_", "-"))

_FLAG = Parameter(negative="", show_default=False)
_PAGE = 500


class Page(msgspec.Struct, frozen=True, kw_only=True):
    sessions: list[Listed]
    next: str | None


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    session: Session
    messages: list[Message]
    earlier: bool


@app.command(name="list")
async def list_(
    *,
    surface: Annotated[
        str | None, Parameter(help="Only those that began here: cli, gateway, web, acp, api, job.")
    ] = None,
    project: Annotated[str | None, Parameter(help="Only those of this project.")] = None,
    pinned: Annotated[bool, _FLAG, Parameter(help="Only pinned ones.")] = False,
    archived: Annotated[bool, _FLAG, Parameter(help="Only archived ones.")] = False,
    all_: Annotated[
        bool, _FLAG, Parameter(name="--all", help="Archived ones and scheduled runs too.")
    ] = False,
    state: Annotated[Activity | None, Parameter(help="Only those in this state.")] = None,
    cwd: Annotated[str | None, Parameter(help="Only those of this directory.")] = None,
    since_: Annotated[
        str | None, Parameter(name="--since", help="Only those active since: 12h, 7d or a date.")
    ] = None,
    limit: Annotated[int, Parameter(help="How many at most, up to 500.")] = 20,
    page: Annotated[str | None, Parameter(help="Go on after a page: the cursor it ended with.")] = None,
    json: Json = False,
) -> None:
    """List conversations, pinned ones first, then the latest.

    For example:

        keryx sessions list
        keryx sessions list --surface cli --since 7d
        keryx sessions list --state running --json
    """
    async with hub() as access:
        listing = Listing(
            surface=surface,
            project=(await access.hub.projects.find(access.viewer, project)).id if project else None,
            pinned=True if pinned else None,
            archived=None if all_ else archived,
            activity=state,
            cwd=cwd,
            since=since(since_) if since_ else None,
            jobs=all_,
            after=page,
            limit=positive(limit, "--limit"),
        )
        found, more = await access.hub.sessions(access.viewer, listing)
    if json:
        output.json(Page(sessions=found, next=more))
    elif found:
        _print_list(found, more)
    else:
        output.write("No conversations here. `keryx chat` starts one.")


@app.command
async def show(
    ref: Ref,
    /,
    *,
    limit: Annotated[int, Parameter(help="How many of the last messages.")] = 50,
    all_: Annotated[bool, _FLAG, Parameter(name="--all", help="Every message.")] = False,
    json: Json = False,
) -> None:
    """Show a conversation with everything in it, undone and interrupted messages marked.

    For example:

        keryx sessions show 01jd0abc
        keryx sessions show "trip to oslo" --all
    """
    async with hub() as access:
        session = await access.session(ref)
        snapshot = await access.hub.open(access.viewer, session.id, limit=positive(limit, "--limit"))
        messages, earlier = snapshot.messages, snapshot.earlier
        while all_ and earlier:
            before = await access.hub.open(access.viewer, session.id, limit=_PAGE, before=messages[0].seq)
            messages, earlier = [*before.messages, *messages], before.earlier
    if json:
        output.json(Shown(session=session, messages=messages, earlier=earlier))
        return
    output.write(transcript.heading(session))
    if earlier:
        output.write(output.styled("… earlier messages: --all shows them", "dim"))
    for message in messages:
        transcript.show(message)
    if snapshot.activity in (Activity.RUNNING, Activity.WAITING):
        output.write(output.styled(f"A turn is {snapshot.activity.value}.", "mark"))


def _print_list(found: list[Listed], more: str | None) -> None:
    rows = [
        (
            entry.session.id,
            ("★ " if entry.session.pinned else "") + (entry.session.title or "untitled"),
            entry.session.surface,
            str(entry.session.messages),
            output.when(entry.session.active_at),
            "" if entry.activity is Activity.IDLE else entry.activity.value,
        )
        for entry in found
    ]
    output.table(("id", "title", "from", "msgs", "last", "state"), rows, flexible=1, right=(3,))
    if more:
        output.write(output.styled(f"More: --page {more}", "dim"))
