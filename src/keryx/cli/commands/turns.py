"""`keryx turns` and `keryx why`: what runs and waits, and the trace of one message."""

from typing import Annotated

from cyclopts import Parameter

from keryx.cli import output
from keryx.cli.options import Json, find_terminal_language, open_hub
from keryx.core.messages import read_text
from keryx.core.texts import Reader
from keryx.core.turns import Turn, TurnState


async def turns(*, json: Json = False) -> None:
    """List the turns that run or wait now.

    For example:

        keryx turns
        keryx turns --json
    """
    async with open_hub() as access:
        found = await access.hub.list_active_turns(access.viewer)
    output.write_list(
        "turns",
        found,
        json,
        heads=("turn", "session", "state", "try", "since", "where"),
        rows=(
            (
                turn.id,
                turn.session,
                _describe_state(turn),
                str(turn.attempts),
                output.format_time(turn.started_at if turn.state is TurnState.RUNNING else turn.created_at),
                turn.worker or turn.surface,
            )
            for turn in found
        ),
        flexible=5,
        right=(3,),
        empty="Nothing runs and nothing waits.",
    )


def _describe_state(turn: Turn) -> str:
    if turn.hold:
        return f"waits until {output.format_time(turn.hold.until)} for {turn.hold.model}"
    return "stopping" if turn.cancelling else turn.state.value


async def why(
    message: Annotated[
        str,
        Parameter(
            help="The id of a message: session and number, such as 01jd0abcdefghjkmnp.3, or the id that its platform gave to it or to its answer"
        ),
    ],
    /,
    *,
    json: Json = False,
) -> None:
    """Tell the whole story of one message: received, by which lane and rule,
    queued, answered, delivered, with times and errors.

    The number stands beside each message in `keryx sessions show`. On Telegram a
    message of a person has the ids of its chat and its own, an answer its own.

        keryx why 01jd0abcdefghjkmnp.3
        keryx why 123456789.42
        keryx why '$abc'
    """
    async with open_hub() as access:
        trace = await access.hub.trace(access.viewer, message)
    if json:
        output.write_json(trace)
        return
    texts = access.hub.texts.speak(find_terminal_language(), "", Reader.OPERATOR)
    said = read_text(trace.message, texts) or trace.message.role.value
    output.write(output.style_text(output.truncate(said, output.terminal_width()), "bold"))
    for event in trace.events:
        moment = f"{event.at.astimezone():%d %b %H:%M:%S}"
        output.write(
            f"{output.style_text(moment, 'dim')}  {output.sanitize(texts.render(event.what), one_line=True)}"
        )
    conclusion = texts.say("trace.conclusion", outcome=trace.outcome)
    output.write(output.sanitize(conclusion, one_line=True))
