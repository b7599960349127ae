"""`keryx keys`: keys with which programs call the HTTP API."""

from typing import Annotated

from cyclopts import App, Parameter

from keryx.cli import output
from keryx.cli.commands.people import parse_person
from keryx.cli.options import Json, Yes, confirm, open_hub, report
from keryx.core.errors import NotFound

app = App(name="keys", help="Keys with which programs call the HTTP API, one for each program or device.")

_Person = Annotated[
    str | None,
    Parameter(help="Whose rights it has, as PLATFORM:ID; without it, the operator's, who sees everything."),
]


@app.command(name="list")
@app.default
async def list_(*, json: Json = False) -> None:
    """List the keys.

    For example:

        keryx keys list
    """
    async with open_hub() as access:
        found = await access.hub.api_keys.list_all(access.viewer)
    output.write_list(
        "keys",
        found,
        json,
        heads=("name", "id", "rights of", "may speak", "made", "last used"),
        rows=(
            (
                key.name,
                key.id,
                key.person or key.principal,
                "yes" if key.may_speak else "asks first",
                output.format_time(key.created_at),
                output.format_time(key.seen_at) if key.seen_at else "never",
            )
            for key in found
        ),
        flexible=0,
        empty="No keys yet. `keryx keys add NAME` makes one.",
    )


@app.command
async def add(
    name: Annotated[str, Parameter(help="What gets the key, such as open-webui or laptop.")],
    /,
    *,
    person: _Person = None,
    may_speak: Annotated[
        bool,
        Parameter(
            negative="",
            help="Let it say something in a conversation by a tool of MCP without a question to that person.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Make a key, and print it. It is not stored: it cannot be printed again.

    For example:

        keryx keys add open-webui
        keryx keys add phone --person telegram:4711
        keryx keys add assistant --may-speak
    """
    async with open_hub() as access:
        who = parse_person(person) if person else None
        key, secret = await access.hub.api_keys.add(access.viewer, name, person=who, may_speak=may_speak)
    if json:
        output.write_json({"key": key, "secret": secret})
        return
    output.warn(f"Made {key.name}, with the rights of {key.person or key.principal}. Keep it now:")
    output.write(secret)


@app.command
async def revoke(
    key: Annotated[str, Parameter(help="The id or the name of a key.")],
    /,
    *,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Revoke a key. What has it is refused from then on.

    For example:

        keryx keys revoke open-webui --yes
    """
    async with open_hub() as access:
        found = await access.hub.api_keys.list_all(access.viewer)
        same = [known for known in found if key in (known.id, known.name)]
        if not same:
            raise NotFound(f"there is no key {key[:80]!r}: `keryx keys list` shows them")
        count = output.format_count(len(same), "key")
        confirm(f"Revoke {count} called {key}?", yes)
        for known in same:
            await access.hub.api_keys.revoke(access.viewer, known.id)
    report("Revoked." if len(same) == 1 else f"Revoked {count}.", json, key=key)
