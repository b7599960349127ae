"""`keryx relay`: the instances for which this Keryx holds the bots, and the connection of this one to its connector."""

from typing import Annotated

from cyclopts import App, Parameter

from keryx.cli import output
from keryx.cli.options import Json, Yes, confirm, load_settings, open_hub, report
from keryx.cli.output import format_count, format_size, format_time
from keryx.core.errors import Invalid
from keryx.core.ports.adapter import LinkState
from keryx.core.ports.relay import RelayOverview, RelayRule

app = App(name="relay", help="One Keryx holds the bots, the Keryx of each person answers.")

_Name = Annotated[str, Parameter(help="The name of an instance, as `keryx relay list` shows it.")]
_Platform = Annotated[str, Parameter(help="The platform, such as telegram.")]
_Account = Annotated[
    str, Parameter(help="The account, as `keryx gateway status` shows it; all of the platform without it.")
]
_Chats = Annotated[
    list[str] | None, Parameter(name="--chat", negative="", help="The id of a chat; may be repeated.")
]
_People = Annotated[
    list[str] | None, Parameter(name="--user", negative="", help="The id of a person; may be repeated.")
]


@app.command
async def add(
    name: Annotated[str, Parameter(help="A name of your choice, such as anna.")],
    /,
    *,
    platform: _Platform = "",
    account: _Account = "",
    chat: _Chats = None,
    user: _People = None,
    json: Json = False,
) -> None:
    """Let the Keryx of a person take the chats that you name. Its key is
    shown once.

    For example:

        keryx relay add anna --platform telegram --user 4711
        keryx relay add team --platform slack --chat C0123456
    """
    settings = load_settings()
    rules = _build_rules(platform, account, chat, user) if platform or account or chat or user else []
    async with open_hub() as access:
        key = await access.hub.relay.add(access.viewer, name, rules)
    if not settings.relay.listen:
        output.warn(
            'keryx: instances cannot connect yet: set listen = "127.0.0.1:7338" in [relay], and restart `keryx serve`'
        )
    text = f"{name} is added. Its key, which is shown only now:\n\n{key}\n\nGive it to that Keryx as KERYX_RELAY_KEY."
    output.write_result(text, {"name": name, "key": key}, json)


@app.command(name="list")
@app.default
async def list_(*, json: Json = False) -> None:
    """List the instances, how they are connected, and what waits for them.

    For example:

        keryx relay list
    """
    async with open_hub() as access:
        found = await access.hub.relay.list_all(access.viewer)
    output.write_list(
        "instances",
        found,
        json,
        heads=("name", "state", "waiting", "dropped", "chats"),
        rows=(
            (
                x.name,
                _describe_state(x),
                f"{x.waiting} ({format_size(x.waiting_bytes)})" if x.waiting else "0",
                str(x.dropped),
                "; ".join(map(str, x.rules)) or "none",
            )
            for x in found
        ),
        flexible=4,
        right=(2, 3),
        empty="There are no instances: `keryx relay add NAME --platform telegram --user ID` adds one.",
    )


@app.command
async def status(*, json: Json = False) -> None:
    """Show the relay from both sides: the instances of this Keryx, and its own
    connection if it is an instance itself.

    For example:

        keryx relay status
    """
    settings = load_settings()
    async with open_hub() as access:
        found = await access.hub.relay.list_all(access.viewer)
        links = [c for c in await access.hub.platform_statuses() if "the relay at" in c.detail]
    if json:
        output.write_json(
            {
                "listen": settings.relay.listen,
                "url": settings.relay.url,
                "instances": found,
                "accounts": links,
            }
        )
        return
    if not settings.relay.listen and not settings.relay.url:
        output.write(
            output.wrap("This Keryx is neither the connector of a relay nor an instance: see [relay].")
        )
    if settings.relay.url:
        output.write_fields([("connector", settings.relay.url)])
        for link in links:
            detail = "" if link.link is LinkState.CONNECTED else f", {link.detail}"
            output.write(
                output.sanitize(f"{link.platform} {link.account}: {link.link.value}{detail}", one_line=True)
            )
        if not links:
            output.write(output.wrap("No account is connected through it now: see `keryx gateway status`."))
    if settings.relay.listen:
        output.write_fields([("listens at", settings.relay.listen)])
        for x in found:
            output.write(f"{x.name}: {_describe_state(x)}, {format_count(x.waiting, 'event')} waiting")
            if x.evicted_at is not None:
                output.write(
                    output.wrap(
                        f"  A second connection with the key of {x.name} ended the first at {format_time(x.evicted_at)}:"
                        " if that was not you, run `keryx relay renew`."
                    )
                )


@app.command
async def assign(
    name: _Name,
    /,
    *,
    platform: _Platform,
    account: _Account = "",
    chat: _Chats = None,
    user: _People = None,
    json: Json = False,
) -> None:
    """Let further chats belong to an instance.

    For example:

        keryx relay assign anna --platform matrix --user @anna:example.org
    """
    rules = _build_rules(platform, account, chat, user)
    async with open_hub() as access:
        await access.hub.relay.assign(access.viewer, name, rules)
    report(f"{name} takes {'; '.join(map(str, rules))} from now on.", json, name=name)


@app.command
async def release(
    name: _Name,
    /,
    *,
    platform: _Platform,
    account: _Account = "",
    chat: _Chats = None,
    user: _People = None,
    json: Json = False,
) -> None:
    """Take chats back, so that this Keryx answers them itself. What waits
    for the instance stays in its queue.

    For example:

        keryx relay release anna --platform telegram --user 4711
    """
    rules = _build_rules(platform, account, chat, user)
    async with open_hub() as access:
        for rule in rules:
            await access.hub.relay.release(access.viewer, name, rule)
    report(f"{name} does not take {'; '.join(map(str, rules))} any more.", json, name=name)


@app.command
async def renew(name: _Name, /, *, json: Json = False) -> None:
    """Make a new key for an instance. The old one is worth nothing from
    now on, and a connection with it is closed. What waits stays.

    For example:

        keryx relay renew anna
    """
    async with open_hub() as access:
        key = await access.hub.relay.renew(access.viewer, name)
    output.write_result(
        f"The new key of {name}, which is shown only now:\n\n{key}", {"name": name, "key": key}, json
    )


@app.command
async def revoke(name: _Name, /, *, yes: Yes = False, json: Json = False) -> None:
    """Remove an instance. Its key is worth nothing from now on, its
    connection is closed, and people are told that what waits was not taken.

    For example:

        keryx relay revoke anna --yes
    """
    confirm(f"Remove the instance {name}, with what waits for it?", yes)
    async with open_hub() as access:
        waited = await access.hub.relay.revoke(access.viewer, name)
    text = f"{name} is removed." + (f" {format_count(waited, 'event')} waited for it." if waited else "")
    output.write_result(text, {"name": name, "dropped": waited}, json)


def _build_rules(
    platform: str, account: str, chats: list[str] | None, people: list[str] | None
) -> list[RelayRule]:
    """Return a rule for each chat and each person, or one for the whole account or platform."""
    if not platform:
        raise Invalid("name the platform of these chats, as in --platform telegram")
    rules = [RelayRule(platform=platform, account=account, chat=chat) for chat in chats or ()]
    rules += [RelayRule(platform=platform, account=account, person=person) for person in people or ()]
    return rules or [RelayRule(platform=platform, account=account)]


def _describe_state(instance: RelayOverview) -> str:
    if instance.connected_at is not None:
        return f"connected since {format_time(instance.connected_at)}"
    return f"away since {format_time(instance.left_at)}"
