"""Agents: which there are, and what an outside one can do."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from keryx import config
from keryx.agents.acp.abilities import Abilities
from keryx.agents.acp.probe import Probed, probe
from keryx.agents.configured import Kind
from keryx.cli import output
from keryx.cli.access import Json
from keryx.config import Settings
from keryx.core.errors import Invalid, NotFound
from keryx.core.profiles import Where

app = App(name="agents", help="The agents that can answer, and what they can do.")

_YES = {
    "resume": "go on without a replay",
    "load": "go on with a replay",
    "list": "list its sessions",
    "fork": "fork a session",
    "close": "close a session",
    "folders": "several folders",
    "images": "pictures",
    "audio": "sounds",
    "embedded": "files in a prompt",
}


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    command: tuple[str, ...] = ()
    default: bool = False
    profiles: tuple[str, ...] = ()
    rules: tuple[Where, ...] = ()


@app.command(name="list")
def list_(*, json: Json = False) -> None:
    """List the agents. Nothing is started.

    For example:

        keryx agents list
    """
    found = _listed(config.read())
    if json:
        output.json({"agents": found})
        return
    for agent in found:
        marks = ["default"] * agent.default + [f"profile {p}" for p in agent.profiles]
        marks += [str(rule) for rule in agent.rules]
        shown = " ".join(agent.command) or agent.kind
        noted = f" ({', '.join(marks)})" if marks else ""
        line = f"{agent.name}{noted} · {shown}"
        output.write(output.cut(output.plain(line, one_line=True), output.width()))


@app.command
async def check(
    name: Annotated[str, Parameter(help="The name of an agent of the kind acp.")], *, json: Json = False
) -> int:
    """Start an agent and show what it can do: its version, abilities, logins, models and modes. The exit code is 1 if
    it does not work. Nothing is asked of a model.

    For example:

        keryx agents check claude
        keryx agents check claude --json
    """
    settings = config.read()
    if name not in settings.agent_names:
        raise NotFound(f"there is no agent {name!r}: `keryx agents list` shows them")
    chosen = settings.agents.get(name)
    if chosen is None or chosen.kind is not Kind.ACP:
        raise Invalid(f"{name!r} is part of Keryx: only agents of the kind acp can be checked")
    with TemporaryDirectory() as folder:
        found = await probe(name, chosen, folder=Path(folder))
    if json:
        output.json(found)
    else:
        _show(found)
    return int(bool(found.error))


def _listed(settings: Settings) -> list[Listed]:
    def kind(name: str) -> str:
        chosen = settings.agents.get(name)
        return chosen.kind.value if chosen else Kind.PYTHON.value if ":" in name else name

    return [
        Listed(
            name=name,
            kind=kind(name),
            command=settings.agents[name].command if name in settings.agents else (),
            default=name == settings.brain,
            profiles=tuple(p for p, profile in settings.profiles.items() if profile.agent == name),
            rules=settings.agents[name].rules if name in settings.agents else (),
        )
        for name in settings.agent_names
    ]


def _show(found: Probed) -> None:
    if found.abilities:
        for label, value in _rows(found, found.abilities):
            output.write(f"{label:<10} {output.plain(value, one_line=True)}")
    if found.noise:
        output.write(f"{'noise':<10} {found.noise} lines on its output are no message")
    if found.error:
        output.write(output.styled(output.plain(found.error, one_line=True), "bad"))
    for row in found.log.splitlines()[-5:]:
        output.write("  " + output.styled(output.cut(row, output.width() - 2), "dim"))


def _rows(found: Probed, can: Abilities) -> list[tuple[str, str]]:
    flags = msgspec.structs.asdict(can)
    return [
        ("agent", f"{can.name or found.name} {can.version}".strip()),
        ("protocol", str(can.protocol)),
        ("can", ", ".join(text for flag, text in _YES.items() if flags[flag]) or "nothing beyond the least"),
        ("logins", ", ".join(f"{way.id} ({way.name})" for way in can.logins) or "none needed"),
        ("models", ", ".join(found.models) or "none to choose from"),
        ("modes", ", ".join(found.modes) or "none to choose from"),
    ]
