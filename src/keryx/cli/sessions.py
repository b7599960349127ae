"""Sessions: listed, read, searched and changed."""

import sys
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from keryx.cli import output, transcript
from keryx.cli.access import Json, Ref, Yes, hub, since
from keryx.core.errors import Conflict, Invalid
from keryx.core.ids import SessionId
from keryx.core.messages import Message
from keryx.core.sessions import Activity, EndReason, Listing, Session
from keryx.engine.hub import Listed

app = App(name="sessions", help="List, read, search and change conversations.")
for place in ("exchange:export", "exchange:import_", "maintenance:stats"):
    app.command(f"keryx.cli.{place}", name=place.partition(":")[2].rstrip("_"))

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
            project=(await access.hub.project(access.viewer, project)).id if project else None,
            pinned=True if pinned else None,
            archived=None if all_ else archived,
            activity=state,
            cwd=cwd,
            since=since(since_) if since_ else None,
            jobs=all_,
            after=page,
            limit=_positive(limit, "--limit"),
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
        snapshot = await access.hub.open(access.viewer, session.id, limit=_positive(limit, "--limit"))
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


@app.command
async def rename(
    ref: Ref, title: Annotated[str, Parameter(help="The new title.")], /, *, json: Json = False
) -> None:
    """Give a conversation a title. It is never overwritten by an automatic one.

    For example:

        keryx sessions rename 01jd0abc "Trip to Oslo"
    """
    async with hub() as access:
        id_ = await access.id(ref)
        given = await access.hub.rename(access.viewer, id_, title)
    _done(id_, f"Now called “{given}”.", json)


@app.command
async def fork(
    ref: Ref,
    /,
    *,
    at: Annotated[int | None, Parameter(help="The number of the last message to copy.")] = None,
    title: Annotated[str | None, Parameter(help="The title of the copy.")] = None,
    json: Json = False,
) -> None:
    """Copy a conversation, up to its last complete turn or up to a message; the copy goes its own way.

    For example:

        keryx sessions fork oslo --at 12 --title "Oslo by train"
    """
    async with hub() as access:
        child = await access.hub.fork(
            access.viewer, await access.id(ref), surface="cli", through=at, title=title
        )
    _done(
        child.id,
        f"Copied to {child.id}, called “{child.title}”. `keryx chat --resume {child.id}` goes on there.",
        json,
    )


@app.command
async def undo(
    ref: Ref,
    /,
    *,
    turns: Annotated[int, Parameter(name=["--turns", "-n"], help="How many turns.")] = 1,
    json: Json = False,
) -> None:
    """Take back the last turns. Nothing is lost: `redo` brings them back.

    For example:

        keryx sessions undo oslo
        keryx sessions undo oslo -n 3
    """
    async with hub() as access:
        id_ = await access.id(ref)
        text = await access.hub.undo(access.viewer, id_, turns)
    _done(id_, f"Undone. The question was: {output.cut(text, 200)}", json)


@app.command
async def redo(ref: Ref, /, *, json: Json = False) -> None:
    """Bring back what the last undo took.

    For example:

        keryx sessions redo oslo
    """
    async with hub() as access:
        id_ = await access.id(ref)
        count = await access.hub.redo(access.viewer, id_)
    _done(id_, f"{transcript.count(count, 'message')} back.", json)


@app.command
async def retry(ref: Ref, /, *, json: Json = False) -> None:
    """Ask the last question again.

    For example:

        keryx sessions retry oslo
    """
    async with hub() as access:
        id_ = await access.id(ref)
        receipt = await access.hub.retry(access.viewer, id_, surface="cli")
        alone = not await access.hub.nodes()
    _done(id_, f"Asked again as turn {receipt.turn}.", json)
    if alone:
        output.warn("keryx: it waits in the queue: no node runs now, `keryx serve` will answer it")


@app.command
async def pin(ref: Ref, /, *, json: Json = False) -> None:
    """Keep a conversation at the top of every list.

    For example:

        keryx sessions pin oslo
    """
    async with hub() as access:
        id_ = await access.id(ref)
        await access.hub.pin(access.viewer, id_, True)
    _done(id_, "Pinned.", json)


@app.command
async def unpin(ref: Ref, /, *, json: Json = False) -> None:
    """Let a conversation take its place in the list again.

    For example:

        keryx sessions unpin oslo
    """
    async with hub() as access:
        id_ = await access.id(ref)
        await access.hub.pin(access.viewer, id_, False)
    _done(id_, "Unpinned.", json)


@app.command
async def archive(ref: Ref, /, *, json: Json = False) -> None:
    """Take a conversation out of the list; it is kept and found.

    For example:

        keryx sessions archive oslo
    """
    async with hub() as access:
        id_ = await access.id(ref)
        await access.hub.archive(access.viewer, id_, True)
    _done(id_, "Archived.", json)


@app.command
async def unarchive(ref: Ref, /, *, json: Json = False) -> None:
    """Bring a conversation back into the list.

    For example:

        keryx sessions unarchive oslo
    """
    async with hub() as access:
        id_ = await access.id(ref)
        await access.hub.archive(access.viewer, id_, False)
    _done(id_, "Back from the archive.", json)


@app.command
async def delete(
    ref: Ref,
    /,
    *,
    now: Annotated[bool, _FLAG, Parameter(help="Erase it at once and for good.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete a conversation: hidden now, erased after a grace period.

    For example:

        keryx sessions delete oslo
        keryx sessions delete 01jd0abc --now --yes
    """
    async with hub() as access:
        session = await access.session(ref)
        how = "for good" if now else "(it can be brought back for a while)"
        confirm(
            f"Delete “{session.title or session.id}”, {transcript.count(session.messages, 'message')}, {how}?",
            yes,
        )
        await access.hub.delete(access.viewer, session.id, erase=now)
    _done(
        session.id,
        "Erased." if now else f"Deleted. `keryx sessions undelete {session.id}` brings it back.",
        json,
    )


@app.command
async def undelete(
    session: Annotated[str, Parameter(help="The whole id of the session.")], /, *, json: Json = False
) -> None:
    """Bring back a deleted conversation before it is erased.

    For example:

        keryx sessions undelete 01jd0abcdefghjkmnp
    """
    async with hub() as access:
        await access.hub.undelete(access.viewer, SessionId(session))
    _done(session, "It is back.", json)


@app.command
async def end(ref: Ref, /, *, json: Json = False) -> None:
    """Mark a conversation as ended.

    For example:

        keryx sessions end oslo
    """
    async with hub() as access:
        id_ = await access.id(ref)
        await access.hub.end(access.viewer, id_, EndReason.PERSON)
    _done(id_, "Ended.", json)


@app.command
async def reopen(ref: Ref, /, *, json: Json = False) -> None:
    """Open an ended conversation again.

    For example:

        keryx sessions reopen oslo
    """
    async with hub() as access:
        id_ = await access.id(ref)
        await access.hub.end(access.viewer, id_, None)
    _done(id_, "Open again.", json)


@app.command
async def stop(
    ref: Ref,
    /,
    *,
    queue: Annotated[bool, _FLAG, Parameter(help="Drop what waits too.")] = False,
    json: Json = False,
) -> None:
    """Stop the running turn; what was said so far stays.

    For example:

        keryx sessions stop oslo --queue
    """
    async with hub() as access:
        id_ = await access.id(ref)
        turn = await access.hub.stop(access.viewer, id_, queue=queue)
    _done(id_, "Stopping." if turn else "Nothing is running.", json)


@app.command
async def model(
    ref: Ref,
    name: Annotated[str | None, Parameter(help="A model, or `default`.")] = None,
    /,
    *,
    json: Json = False,
) -> None:
    """Show or set the model of a conversation.

    For example:

        keryx sessions model oslo
        keryx sessions model oslo gpt-5
        keryx sessions model oslo default
    """
    async with hub() as access:
        session = await access.session(ref)
        settings = session.settings
        if name is not None:
            settings = msgspec.structs.replace(settings, model=None if name == "default" else name)
            await access.hub.configure(access.viewer, session.id, settings)
    if json:
        output.json({"session": session.id, "model": settings.model})
    else:
        output.write(f"Model: {output.plain(settings.model or 'default')}.")


@app.command(name="move-to-project")
async def move_to_project(
    ref: Ref,
    project: Annotated[str, Parameter(help="The project, or `none`.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Put a conversation into a project, or into none.

    For example:

        keryx sessions move-to-project oslo travel
        keryx sessions move-to-project oslo none
    """
    async with hub() as access:
        id_ = await access.id(ref)
        await access.hub.assign_project(access.viewer, id_, None if project == "none" else project)
    _done(id_, "In no project now." if project == "none" else f"Now in {project}.", json)


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


def _done(session: str, text: str, json: bool) -> None:
    if json:
        output.json({"session": session, "result": text})
    else:
        output.write(output.plain(text))


def confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise Invalid("this needs a yes: add --yes where nobody can be asked")
    output.write(f"{output.plain(question)} [y/N] ", end="")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Conflict("nothing was done")


def _positive(number: int, name: str) -> int:
    if number < 1:
        raise Invalid(f"{name} needs a number above zero")
    return number
