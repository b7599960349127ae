"""`keryx deliveries`: list, retry and discard deliveries."""

from typing import Annotated

from cyclopts import App, Parameter

from keryx.cli import output
from keryx.cli.options import Json, open_hub, report
from keryx.core.deliveries import UNSENT_STATES, DeliveryState
from keryx.core.ids import DeliveryId

app = App(name="deliveries", help="Answers on their way, and those that did not arrive.")

_DeliveryRef = Annotated[str, Parameter(help="The id of a delivery, as `keryx deliveries list` shows it.")]


@app.command(name="list")
async def list_(
    *,
    state: Annotated[
        list[DeliveryState] | None,
        Parameter(
            negative="", help="Only those in this state; may be repeated. Without it: all that are not sent."
        ),
    ] = None,
    limit: Annotated[int, Parameter(help="How many at most.")] = 50,
    json: Json = False,
) -> None:
    """List what waits, failed or is in doubt, the latest first.

    For example:

        keryx deliveries list
        keryx deliveries list --state dead --state unknown
    """
    async with open_hub() as access:
        found = await access.hub.deliveries.page(
            access.viewer, states=state or UNSENT_STATES, limit=max(1, limit)
        )
    output.write_list(
        "deliveries",
        found,
        json,
        heads=("id", "to", "state", "tries", "written", "error or text"),
        rows=(
            (
                d.id,
                str(d.target),
                d.state.value,
                str(d.attempts),
                output.format_time(d.created_at),
                d.error or d.text,
            )
            for d in found
        ),
        flexible=5,
        right=(3,),
        empty="There are none." if state else "Nothing waits.",
    )


@app.command
async def retry(delivery: _DeliveryRef, /, *, json: Json = False) -> None:
    """Send a delivery again that failed, died or is in doubt, or now one that waits for its next try.

    For example:

        keryx deliveries retry 01jd0abcdefghjkmnp
    """
    async with open_hub() as access:
        await access.hub.deliveries.decide(access.viewer, DeliveryId(delivery), DeliveryState.READY)
    report("It will be sent again.", json, delivery=delivery)


@app.command
async def discard(delivery: _DeliveryRef, /, *, json: Json = False) -> None:
    """Give a delivery up.

    For example:

        keryx deliveries discard 01jd0abcdefghjkmnp
    """
    async with open_hub() as access:
        await access.hub.deliveries.decide(access.viewer, DeliveryId(delivery), DeliveryState.DISCARDED)
    report("Discarded.", json, delivery=delivery)
