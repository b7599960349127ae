"""`keryx pairing`: approve, deny and revoke who may talk to a bot."""

from typing import Annotated

from cyclopts import App, Parameter

from keryx.cli import output
from keryx.cli.options import FLAG, Json, open_hub, report

app = App(name="pairing", help="Let people in who write to a bot, or take that back.")

_Platform = Annotated[str, Parameter(help="The platform, such as telegram.")]
_Person = Annotated[str, Parameter(help="The id of a person, as `keryx pairing list` shows it.")]


@app.command(name="list")
@app.default
async def list_(*, json: Json = False) -> None:
    """List who waits to be let in, and who was let in.

    For example:

        keryx pairing list
    """
    async with open_hub() as access:
        found = await access.hub.people.list_pairings(access.viewer)
    if json:
        output.write_json({"waiting": found.waiting, "let_in": found.granted})
        return
    waiting = [
        (p.platform, p.person, p.name, f"waits, until {output.format_time(p.expires_at)}")
        for p in found.waiting
    ]
    granted = [
        (
            g.platform,
            g.person,
            g.name,
            f"in since {output.format_time(g.at)}{', operator' if g.operator else ''}",
        )
        for g in found.granted
    ]
    if waiting or granted:
        output.write_table(("platform", "person", "name", "state"), waiting + granted, flexible=2)
    else:
        output.write("Nobody waits, and nobody was let in by pairing.")


@app.command
async def approve(
    platform: _Platform,
    code: Annotated[str, Parameter(help="The code that the person was told.")],
    /,
    *,
    operator: Annotated[bool, FLAG, Parameter(help="Give them the commands of operators too.")] = False,
    json: Json = False,
) -> None:
    """Let a person in by the code they were told. They are told that they are in.

    For example:

        keryx pairing approve telegram ABCD2347
        keryx pairing approve telegram ABCD2347 --operator
    """
    async with open_hub() as access:
        grant = await access.hub.people.approve(access.viewer, platform, code, operator=operator)
    rights = " as an operator" if grant.operator else ""
    where = f", in the profile {grant.profile}" if grant.profile != access.viewer.profile else ""
    who = grant.name or grant.person
    output.write_result(f"{who} may talk on {platform} now{rights}{where}.", grant, json)


@app.command
async def deny(platform: _Platform, person: _Person, /, *, json: Json = False) -> None:
    """Forget the request of a person. They are not told.

    For example:

        keryx pairing deny telegram 4711
    """
    async with open_hub() as access:
        await access.hub.people.deny(access.viewer, platform, person)
    report("Forgotten.", json, platform=platform, person=person)


@app.command
async def clear(
    platform: Annotated[str | None, Parameter(help="The platform; all of them if none is named.")] = None,
    /,
    *,
    json: Json = False,
) -> None:
    """Forget everybody who waits, so that others can ask. Their codes are worth nothing any more.

    For example:

        keryx pairing clear telegram
    """
    async with open_hub() as access:
        count = await access.hub.people.clear_pairings(access.viewer, platform)
    output.write_result(f"{count} forgotten.", {"forgotten": count}, json)


@app.command
async def revoke(platform: _Platform, person: _Person, /, *, json: Json = False) -> None:
    """Take back that a person may talk. What waits of theirs is not answered any more.

    For example:

        keryx pairing revoke telegram 4711
    """
    async with open_hub() as access:
        await access.hub.people.revoke(access.viewer, platform, person)
    report(f"{person} may no longer talk on {platform}.", json, platform=platform, person=person)
