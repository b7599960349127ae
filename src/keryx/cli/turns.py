"""Turns: what runs and waits now, and the story of one message."""

from typing import Annotated

from cyclopts import Parameter

from keryx.cli import output
from keryx.cli.access import Json, hub
from keryx.core.turns import Turn, TurnState


async def turns(*, json: Json = False) -> None:
    """List the turns that run or wait now.

    For example:

        keryx turns
        keryx turns --json
    """
    async with hub() as access:
        found = await access.hub.active(access.viewer)
    if json:
        output.json({"turns": found})
    elif found:
        output.table(
            ("turn", "session", "state", "try", "since", "where"), map(_row, found), flexible=5, right=(3,)
        )
    else:
        output.write("Nothing runs and nothing waits.")


async def why(
    message: Annotated[
        str, Parameter(help="The id of a message: session and number, such as 01jd0abcdefghjkmnp.3")
    ],
    /,
    *,
    json: Json = False,
) -> None:
    """Tell the whole story of one message: received, routed, queued, answered,
    delivered, with times and errors.

    The number stands beside each message in `keryx sessions show`.

        keryx why 01jd0abcdefghjkmnp.3
    """
    async with hub() as access:
        story = await access.hub.why(access.viewer, message)
    if json:
        output.json(story)
        return
    output.write(
        output.styled(output.cut(story.message.text or story.message.role.value, output.width()), "bold")
    )
    for event in story.events:
        moment = f"{event.at.astimezone():%d %b %H:%M:%S}"
        output.write(f"{output.styled(moment, 'dim')}  {output.plain(event.what, one_line=True)}")
    output.write(f"So: {output.plain(story.outcome, one_line=True)}.")


def _row(turn: Turn) -> tuple[str, ...]:
    running = turn.state is TurnState.RUNNING
    state = "stopping" if turn.cancelling else turn.state.value
    since = turn.started_at if running else turn.created_at
    return turn.id, turn.session, state, str(turn.attempts), output.when(since), turn.worker or turn.surface
