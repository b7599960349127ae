"""`keryx lanes`: the chats people talk from, and the session each is in."""

from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from keryx.cli import output
from keryx.cli.options import Json, open_hub, parse_since, report
from keryx.core.lanes import Lane, LaneMove

app = App(name="lanes", help="The places people talk from, and the session each is in.")

_LaneKey = Annotated[str, Parameter(help="The key of a lane, as `keryx lanes list` shows it.")]


class LaneReport(msgspec.Struct, frozen=True, kw_only=True):
    lane: Lane
    moves: list[LaneMove]


@app.command(name="list")
async def list_(
    *,
    since_: Annotated[
        str | None, Parameter(name="--since", help="Only those active since: 30m, 12h, 7d or a date.")
    ] = None,
    limit: Annotated[int, Parameter(help="How many at most.")] = 50,
    json: Json = False,
) -> None:
    """List lanes, the latest first.

    For example:

        keryx lanes list --since 30m
    """
    async with open_hub() as access:
        moment = parse_since(since_) if since_ else None
        found = await access.hub.lanes.page(access.viewer, since=moment, limit=max(1, limit))
    output.write_list(
        "lanes",
        found,
        json,
        heads=("lane", "session", "last", "state"),
        rows=(
            (x.key, x.session or "-", output.format_time(x.active_at), "suspended" if x.suspended else "")
            for x in found
        ),
        flexible=0,
        empty="No lanes yet: each place that somebody talks from becomes one.",
    )


@app.command
async def show(key: _LaneKey, /, *, json: Json = False) -> None:
    """Show a lane: who talks there, and which sessions it had and why.

    For example:

        keryx lanes show agent:main:telegram:dm:42
    """
    async with open_hub() as access:
        lane, moves = await access.hub.lanes.get(access.viewer, key)
    if json:
        output.write_json(LaneReport(lane=lane, moves=moves))
        return
    source = lane.source
    output.write_fields(
        [
            ("lane", output.style_text(lane.key, "bold")),
            ("place", " ".join(x for x in (source.platform, source.chat_type.value, source.chat_name) if x)),
            ("person", source.user_name or source.user or ""),
            ("shared", "by several people" if lane.shared else ""),
            ("session", lane.session or "none until the next message"),
            ("last message", output.format_time(lane.active_at)),
            ("looked at again", output.format_time(lane.expires_at)),
            ("state", "suspended" if lane.suspended else ""),
            ("mirror", "shows what is said elsewhere" if lane.mirror else ""),
            ("instructions", lane.instructions),
        ]
    )
    for move in moves:
        output.write(
            f"  {output.format_time(move.at):>12}  {move.session or 'no session'}  {output.sanitize(move.why)}"
        )


@app.command
async def reset(key: _LaneKey, /, *, json: Json = False) -> None:
    """Let the next message in a lane start a new conversation.

    For example:

        keryx lanes reset agent:main:telegram:dm:42
    """
    async with open_hub() as access:
        await access.hub.lanes.reset(access.viewer, key)
    report("The next message starts a new conversation.", json, lane=key)


@app.command
async def suspend(key: _LaneKey, /, *, json: Json = False) -> None:
    """Suspend a lane: its next message starts afresh.

    For example:

        keryx lanes suspend agent:main:telegram:dm:42
    """
    async with open_hub() as access:
        await access.hub.lanes.suspend(access.viewer, key, True)
    report("Suspended: the next message starts afresh.", json, lane=key)


@app.command
async def free(key: _LaneKey, /, *, json: Json = False) -> None:
    """Free a suspended lane: it goes on with its session.

    For example:

        keryx lanes free agent:main:telegram:dm:42
    """
    async with open_hub() as access:
        await access.hub.lanes.suspend(access.viewer, key, False)
    report("Free: it goes on with its session.", json, lane=key)


@app.command
async def instruct(
    key: _LaneKey,
    text: Annotated[str, Parameter(help="What to tell; an empty text takes it away.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Set standing instructions: every conversation in a lane is told them, after a reset too.

    For example:

        keryx lanes instruct agent:main:telegram:dm:42 "Answer in Danish."
    """
    async with open_hub() as access:
        await access.hub.lanes.set_instructions(access.viewer, key, text)
    report(
        "Saved. It applies from the next message." if text else "No instructions any more.", json, lane=key
    )
