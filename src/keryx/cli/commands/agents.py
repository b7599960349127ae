"""`keryx agents`: the configured agents, and a check of what an ACP agent can do."""

from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from keryx import config
from keryx.agents.acp.probe import PROBE_SECONDS, probe
from keryx.agents.agent_config import AgentKind
from keryx.cli import output
from keryx.cli.options import Json, parse_timeout
from keryx.core.durations import format_duration
from keryx.core.errors import Invalid, NotFound
from keryx.core.source import SourceRule

app = App(name="agents", help="The agents that can answer, and what they can do.")

_ABILITY_TEXTS = {
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


class AgentReport(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    command: tuple[str, ...] = ()
    default: bool = False
    profiles: tuple[str, ...] = ()
    rules: tuple[SourceRule, ...] = ()


@app.command(name="list")
def list_(*, json: Json = False) -> None:
    """List the agents. Nothing is started.

    For example:

        keryx agents list
    """
    settings = config.read()
    agents: list[AgentReport] = []
    for name in settings.agent_names:
        chosen = settings.agents.get(name)
        report = AgentReport(
            name=name,
            kind=AgentKind.PYTHON.value if ":" in name else name,
            default=name == settings.active_agent,
            profiles=tuple(p for p, profile in settings.profiles.items() if profile.agent == name),
        )
        if chosen:
            report = msgspec.structs.replace(
                report, kind=chosen.kind.value, command=chosen.command, rules=chosen.rules
            )
        agents.append(report)
    if json:
        output.write_json({"agents": agents})
        return
    for agent in agents:
        marks = ["default"] * agent.default + [f"profile {p}" for p in agent.profiles]
        marks += [str(rule) for rule in agent.rules]
        shown = " ".join(agent.command) or agent.kind
        noted = f" ({', '.join(marks)})" if marks else ""
        line = f"{agent.name}{noted} · {shown}"
        output.write(output.truncate(output.sanitize(line, one_line=True), output.terminal_width()))


@app.command
async def check(
    name: Annotated[str, Parameter(help="The name of an agent of the kind acp.")],
    /,
    *,
    timeout: Annotated[str, Parameter(help="How long to wait for the agent.")] = format_duration(
        timedelta(seconds=PROBE_SECONDS)
    ),
    json: Json = False,
) -> int:
    """Start an agent and show what it can do: its version, abilities, logins, models and modes. The exit code is 1 if
    it does not work. Nothing is asked of a model.

    For example:

        keryx agents check claude
        keryx agents check claude --timeout 1m
    """
    patience = parse_timeout(timeout)
    settings = config.read()
    if name not in settings.agent_names:
        raise NotFound(f"there is no agent {name!r}: `keryx agents list` shows them")
    chosen = settings.agents.get(name)
    if chosen is None or chosen.kind is not AgentKind.ACP:
        raise Invalid(f"{name!r} is part of Keryx: only agents of the kind acp can be checked")
    with TemporaryDirectory() as folder:
        found = await probe(name, chosen, folder=Path(folder), seconds=patience.total_seconds())
    if json:
        output.write_json(found)
    else:
        if can := found.abilities:
            flags = msgspec.structs.asdict(can)
            abilities = [text for flag, text in _ABILITY_TEXTS.items() if flags[flag]]
            for label, value in (
                ("agent", f"{can.name or found.name} {can.version}".strip()),
                ("protocol", str(can.protocol)),
                ("can", ", ".join(abilities) or "nothing beyond the least"),
                ("logins", ", ".join(f"{way.id} ({way.name})" for way in can.logins) or "none needed"),
                ("models", ", ".join(found.models) or "none to choose from"),
                ("modes", ", ".join(found.modes) or "none to choose from"),
            ):
                output.write(f"{label:<10} {output.sanitize(value, one_line=True)}")
        if found.noise:
            output.write(
                f"{'noise':<10} {output.format_count(found.noise, 'line')} of output that is no message"
            )
        if found.error:
            output.write(output.style_text(output.sanitize(found.error, one_line=True), "bad"))
        for row in found.log.splitlines()[-5:]:
            output.write("  " + output.style_text(output.truncate(row, output.terminal_width() - 2), "dim"))
    return int(bool(found.error))
