"""Shelf: where a conversation is kept: pinned, archived, in a project, ended, deleted and brought back."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from cyclopts import Parameter

from keryx.cli import transcript
from keryx.cli.access import Access, Json, Ref, Yes, confirm, done, hub
from keryx.core.ids import SessionId
from keryx.core.sessions import EndReason

_FLAG = Parameter(negative="", show_default=False)


async def pin(ref: Ref, /, *, json: Json = False) -> None:
    """Keep a conversation at the top of every list.

    For example:

        keryx sessions pin oslo
    """
    await _put(ref, "Pinned.", json, lambda a, id_: a.hub.pin(a.viewer, id_, True))


async def unpin(ref: Ref, /, *, json: Json = False) -> None:
    """Let a conversation take its place in the list again.

    For example:

        keryx sessions unpin oslo
    """
    await _put(ref, "Unpinned.", json, lambda a, id_: a.hub.pin(a.viewer, id_, False))


async def archive(ref: Ref, /, *, json: Json = False) -> None:
    """Take a conversation out of the list; it is kept and found.

    For example:

        keryx sessions archive oslo
    """
    await _put(ref, "Archived.", json, lambda a, id_: a.hub.archive(a.viewer, id_, True))


async def unarchive(ref: Ref, /, *, json: Json = False) -> None:
    """Bring a conversation back into the list.

    For example:

        keryx sessions unarchive oslo
    """
    await _put(ref, "Back from the archive.", json, lambda a, id_: a.hub.archive(a.viewer, id_, False))


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
    done(
        session.id,
        "Erased." if now else f"Deleted. `keryx sessions undelete {session.id}` brings it back.",
        json,
    )


async def undelete(
    session: Annotated[str, Parameter(help="The whole id of the session.")], /, *, json: Json = False
) -> None:
    """Bring back a deleted conversation before it is erased.

    For example:

        keryx sessions undelete 01jd0abcdefghjkmnp
    """
    async with hub() as access:
        await access.hub.undelete(access.viewer, SessionId(session))
    done(session, "It is back.", json)


async def end(ref: Ref, /, *, json: Json = False) -> None:
    """Mark a conversation as ended.

    For example:

        keryx sessions end oslo
    """
    await _put(ref, "Ended.", json, lambda a, id_: a.hub.end(a.viewer, id_, EndReason.PERSON))


async def reopen(ref: Ref, /, *, json: Json = False) -> None:
    """Open an ended conversation again.

    For example:

        keryx sessions reopen oslo
    """
    await _put(ref, "Open again.", json, lambda a, id_: a.hub.end(a.viewer, id_, None))


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
    await _put(
        ref,
        "In no project now." if project == "none" else f"Now in {project}.",
        json,
        lambda a, id_: a.hub.projects.assign(a.viewer, id_, None if project == "none" else project),
    )


async def _put(
    ref: str, told: str, json: bool, work: Callable[[Access, SessionId], Awaitable[object]]
) -> None:
    """Change the conversation that is meant, and tell."""
    async with hub() as access:
        id_ = await access.id(ref)
        await work(access, id_)
    done(id_, told, json)
