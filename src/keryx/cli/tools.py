"""Tools: which the agent has, what they may do without asking, and whether their servers work."""

import asyncio
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from keryx import config
from keryx.agents import permissions
from keryx.agents.tools import Permission, Spec, ToolFailed
from keryx.cli import output
from keryx.cli.access import Json
from keryx.config import Settings
from keryx.core.errors import Invalid, NotFound
from keryx.engine.builtin import SPECS
from keryx.engine.clock import SystemClock
from keryx.engine.policy import BUILTIN_TOOLS

app = App(name="tools", help="The tools of the agent and the servers they come from.")

_SURFACES = ("gateway", "web", "acp", "cli", "api", "job")
_BUILTIN = "in Keryx itself"


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    permission: Permission
    repeatable: bool
    description: str


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A set of tools. `tools` is `None` for a server that was not asked; `log` is the end of what it wrote."""

    name: str
    place: str
    tools: list[Tool] | None = None
    error: str = ""
    log: str = ""


_Surface = Annotated[
    str,
    Parameter(help=f"Show what holds on this surface: {', '.join(_SURFACES)}. Without it: everywhere else."),
]


@app.command(name="list")
def list_(*, surface: _Surface = "", json: Json = False) -> None:
    """List the built-in tools and the configured servers. Nothing is started.

    For example:

        keryx tools list
        keryx tools list --surface gateway
    """
    chosen = config.read()
    servers = [Shown(name=s.name, place=s.place) for s in chosen.tools]
    _show([_builtin(chosen, surface), *servers], json)
    if servers and not json:
        output.note("`keryx tools check` starts the servers and lists their tools.")


@app.command
async def check(
    *names: Annotated[str, Parameter(help="Only these servers.")], surface: _Surface = "", json: Json = False
) -> int:
    """Start each server, list its tools, and say what is wrong. The exit code is 1 if one does not work.

    For example:

        keryx tools check
        keryx tools check files
    """
    chosen = config.read()
    wanted = [s for s in chosen.tools if not names or s.name in names]
    for name in names:
        if name not in [s.name for s in wanted]:
            raise NotFound(f"there are no tools {name!r}: `keryx tools list` shows the servers")
    found = await _checked(msgspec.structs.replace(chosen, tools=tuple(wanted)), surface) if wanted else []
    _show(found if names else [_builtin(chosen, surface), *found], json)
    return int(any(s.error for s in found))


async def _checked(chosen: Settings, surface: str) -> list[Shown]:
    try:
        from keryx.agents import servers  # noqa: PLC0415 an optional extra, and slow to import
    except ImportError as exc:
        raise Invalid(
            f"[[tools]] needs an extra ({exc.name} is missing): pip install 'keryx[tools]'"
        ) from exc

    async def one(tools: servers.ServerTools) -> Shown:
        name, place = tools.server.name, tools.server.place
        try:
            specs = [_tool(spec, chosen, surface) for spec in await tools.learn()]
        except ToolFailed as exc:
            return Shown(name=name, place=place, error=str(exc), log=tools.connection.written)
        return Shown(name=name, place=place, tools=specs)

    async with servers.opened(chosen.tools, clock=SystemClock(), logs=chosen.folder / "tools") as found:
        return await asyncio.gather(*map(one, found.values()))


def _builtin(chosen: Settings, surface: str) -> Shown:
    return Shown(name=BUILTIN_TOOLS, place=_BUILTIN, tools=[_tool(spec, chosen, surface) for spec in SPECS])


def _tool(spec: Spec, chosen: Settings, surface: str) -> Tool:
    given = permissions.decide(chosen.permissions, spec.name, surface, default=spec.permission)
    return Tool(name=spec.name, permission=given, repeatable=spec.repeatable, description=spec.description)


def _show(found: list[Shown], json: bool) -> None:
    if json:
        output.json({"tools": found})
        return
    for shown in found:
        output.write(output.styled(output.plain(f"{shown.name} · {shown.place}", one_line=True), "bold"))
        if shown.error:
            output.write("  " + output.styled(output.plain(shown.error, one_line=True), "bad"))
        for line in shown.log.splitlines()[-5:]:
            output.write("  " + output.styled(output.cut(line, output.width() - 2), "dim"))
        for tool in shown.tools or ():
            again = ", repeatable" if tool.repeatable else ""
            text = f"{tool.name} ({tool.permission}{again}) {tool.description}"
            output.write("  " + output.cut(text, output.width() - 2))
