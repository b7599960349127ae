"""`keryx people`: list, export, erase, link and unlink people."""

from typing import Annotated

from cyclopts import App, Parameter

from keryx.cli import output
from keryx.cli.options import Json, Yes, confirm, open_hub, report
from keryx.cli.output import STDIO, format_count
from keryx.core.errors import Invalid
from keryx.engine.hub.people import PersonHandle, PersonSummary

app = App(name="people", help="Who has talked, in which ways each is known, and all that is theirs.")

_OPERATOR = "operator"
_PersonRef = Annotated[str, Parameter(help="A person as PLATFORM:ID, such as telegram:4711.")]


@app.command(name="list")
@app.default
async def list_(*, json: Json = False) -> None:
    """List everybody who has talked.

    For example:

        keryx people list
    """
    async with open_hub() as access:
        found = await access.hub.people.list_all(access.viewer)
    output.write_list(
        "people",
        found,
        json,
        heads=("name", "known as", "sessions", "since"),
        rows=(
            (p.principal.name, _format_identities(p), str(p.sessions), output.format_time(p.principal.at))
            for p in found
        ),
        flexible=1,
        right=(2,),
        empty="Nobody has talked yet, but for the operator.",
    )


@app.command
async def show(who: _PersonRef, /, *, json: Json = False) -> None:
    """Show a person: every way in which they are known, and what was granted to them.

    For example:

        keryx people show telegram:4711
    """
    async with open_hub() as access:
        person = await access.hub.people.find(access.viewer, *parse_person(who))
    if json:
        output.write_json(person)
        return
    output.write_fields(
        [
            ("person", output.style_text(person.principal.name or "unnamed", "bold")),
            ("id", person.principal.id),
            ("known as", _format_identities(person)),
            ("let in", ", ".join(f"{g.platform} by {g.by}" for g in person.grants)),
            ("operator", ", ".join(g.platform for g in person.grants if g.operator)),
            ("chats", str(person.lanes)),
            ("sessions", str(person.sessions)),
            ("since", output.format_time(person.principal.at)),
        ]
    )


@app.command
async def export(
    who: _PersonRef,
    /,
    *,
    output_: Annotated[
        str,
        Parameter(
            name=["--output", "-o"], allow_leading_hyphen=True, help="The file to write, - for stdout."
        ),
    ] = STDIO,
    json: Json = False,
) -> None:
    """Write everything of a person as lines of JSON: who they are, their conversations, and what they said in
    conversations of others.

    For example:

        keryx people export telegram:4711 --output ann.jsonl
    """
    if json and output_ == STDIO:
        raise Invalid("--json tells about a file: give its name with --output")
    async with open_hub() as access:
        person = await access.hub.people.find(access.viewer, *parse_person(who))
        with output.open_writer(output_) as write:
            await access.hub.people.export(access.viewer, person.principal.id, write)
    if json:
        output.write_json({"person": who, "file": output_, "sessions": person.sessions})


@app.command
async def erase(who: _PersonRef, /, *, yes: Yes = False, json: Json = False) -> None:
    """Erase everything of a person for good: conversations, chats, grants, and what they said elsewhere.

    For example:

        keryx people erase telegram:4711 --yes
    """
    async with open_hub() as access:
        person = await access.hub.people.find(access.viewer, *parse_person(who))
        confirm(
            f"Erase {_format_identities(person)} with {format_count(person.sessions, 'session')} for good?",
            yes,
        )
        await access.hub.people.erase(access.viewer, person.principal.id)
        await access.hub.catch_up_index()
    report("Erased.", json, person=who)


@app.command
async def link(
    who: _PersonRef,
    other: Annotated[str, Parameter(help="The other, alike; or `operator` for whoever runs Keryx.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Let two people be one: they share their conversations. The operator sees every conversation.

    For example:

        keryx people link telegram:4711 matrix:@ann:example.org
        keryx people link telegram:4711 operator
    """
    async with open_hub() as access:
        second = None if other == _OPERATOR else parse_person(other)
        await access.hub.people.link(access.viewer, parse_person(who), second)
    report(f"{who} and {other} are one person now.", json, person=who)


@app.command
async def unlink(who: _PersonRef, /, *, json: Json = False) -> None:
    """Let one way in which a person is known stand alone, with the conversations that began there.

    For example:

        keryx people unlink telegram:4711
    """
    async with open_hub() as access:
        await access.hub.people.unlink(access.viewer, *parse_person(who))
    report(f"{who} stands alone now.", json, person=who)


def parse_person(text: str) -> PersonHandle:
    """Parse PLATFORM:ID."""
    platform, colon, person = text.partition(":")
    if not (platform and colon and person):
        raise Invalid(f"No such person: {text[:80]}. Write PLATFORM:ID, as `keryx people list` shows it")
    return platform, person


def _format_identities(person: PersonSummary) -> str:
    return ", ".join(f"{i.platform}:{i.person}" for i in person.principal.identities) or "nothing"
