"""Revise: a conversation is renamed, copied, taken back, asked again, stopped, and given a model."""

from typing import Annotated

import msgspec
from cyclopts import Parameter

from keryx.cli import output, transcript
from keryx.cli.access import Json, Ref, done, hub, warn_if_alone

_FLAG = Parameter(negative="", show_default=False)


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
    done(id_, f"Now called “{given}”.", json)


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
    done(
        child.id,
        f"Copied to {child.id}, called “{child.title}”. `keryx chat --resume {child.id}` goes on there.",
        json,
    )


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
    done(id_, f"Undone. The question was: {output.cut(text, 200)}", json)


async def redo(ref: Ref, /, *, json: Json = False) -> None:
    """Bring back what the last undo took.

    For example:

        keryx sessions redo oslo
    """
    async with hub() as access:
        id_ = await access.id(ref)
        count = await access.hub.redo(access.viewer, id_)
    done(id_, f"{transcript.count(count, 'message')} back.", json)


async def retry(ref: Ref, /, *, json: Json = False) -> None:
    """Ask the last question again.

    For example:

        keryx sessions retry oslo
    """
    async with hub() as access:
        id_ = await access.id(ref)
        receipt = await access.hub.retry(access.viewer, id_, surface="cli")
        nodes = await access.hub.nodes()
    done(id_, f"Asked again as turn {receipt.turn}.", json)
    warn_if_alone(nodes)


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
    done(id_, "Stopping." if turn else "Nothing is running.", json)


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
    output.answer(
        f"Model: {settings.model or 'default'}.", {"session": session.id, "model": settings.model}, json
    )
