"""`keryx tools` and `keryx mcp`: the tools of the agent, their permissions, a check of their servers; and the tools that Keryx offers to other agents."""

import asyncio
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from keryx import __version__, config
from keryx.agents import tools
from keryx.agents.tools import Permission, ToolFailed, ToolSpec
from keryx.cli import output
from keryx.cli.options import Json, open_hub
from keryx.config import Settings
from keryx.core.errors import Invalid, NotFound, format_install_command
from keryx.engine.builtin_tools import SPECS
from keryx.engine.policy import BUILTIN_TOOLS
from keryx.timing import SystemClock

app = App(name="tools", help="The tools of the agent and the servers they come from.")

_SURFACES = ("gateway", "web", "acp", "cli", "api", "job")
_BUILTIN_LABEL = "in Keryx itself"


class ToolReport(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    permission: Permission
    repeatable: bool
    description: str


class ToolSetReport(msgspec.Struct, frozen=True, kw_only=True):
    """A set of tools. `tools` is `None` for a server that was not asked; `log` is the end of what it wrote."""

    name: str
    place: str
    tools: list[ToolReport] | None = None
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
    servers = [ToolSetReport(name=s.name, place=s.address) for s in chosen.tools]
    _print_tool_sets([_report_builtin(chosen, surface), *servers], json)
    if servers and not json:
        output.hint("`keryx tools check` starts the servers and lists their tools.")


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
    found = (
        await _check_servers(msgspec.structs.replace(chosen, tools=tuple(wanted)), surface) if wanted else []
    )
    _print_tool_sets(found if names else [_report_builtin(chosen, surface), *found], json)
    return int(any(s.error for s in found))


async def mcp() -> None:
    """Let another agent search and read your conversations, over MCP on stdin and stdout.

    The agent starts this by itself. It offers `search_conversations` and
    `read_conversation` over every surface, in the profile that is set, and
    changes nothing. It ends when the agent hangs up. docs/how-to/tools.md
    shows how agents are told of it.

        keryx mcp
    """
    with _require_extra("keryx mcp"):
        from keryx.surfaces.mcp_server import serve  # noqa: PLC0415 an optional extra, and slow to import
    if sys.stdin.isatty():
        output.warn("keryx: this speaks a protocol for agents; `keryx chat` is for people. Ctrl-D leaves.")
    # Reads of stdin cannot be cancelled. Nothing is written, so the process can end at any time.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    async with open_hub() as access:
        await serve(access.hub, access.viewer, version=__version__)


@contextmanager
def _require_extra(user: str) -> Generator[None]:
    """Name the extra to install if an import fails."""
    try:
        yield
    except ImportError as exc:
        raise Invalid(
            f"{user} needs an extra ({exc.name} is missing): run `{format_install_command('tools')}`"
        ) from exc


async def _check_servers(chosen: Settings, surface: str) -> list[ToolSetReport]:
    with _require_extra("[[tools]]"):
        from keryx.agents.mcp import McpToolbox, open_toolboxes  # noqa: PLC0415 an optional extra, and slow to import

    async def one(tools: McpToolbox) -> ToolSetReport:
        name, place = tools.server.name, tools.server.address
        try:
            specs = [_report_tool(spec, chosen, surface) for spec in await tools.refresh()]
        except ToolFailed as exc:
            return ToolSetReport(name=name, place=place, error=str(exc), log=tools.client.log_tail)
        return ToolSetReport(name=name, place=place, tools=specs)

    async with open_toolboxes(chosen.tools, clock=SystemClock(), logs=chosen.folder / "tools") as found:
        return await asyncio.gather(*map(one, found.values()))


def _report_builtin(chosen: Settings, surface: str) -> ToolSetReport:
    return ToolSetReport(
        name=BUILTIN_TOOLS,
        place=_BUILTIN_LABEL,
        tools=[_report_tool(spec, chosen, surface) for spec in SPECS],
    )


def _report_tool(spec: ToolSpec, chosen: Settings, surface: str) -> ToolReport:
    given = tools.decide_permission(chosen.permissions, spec.name, surface, default=spec.permission)
    return ToolReport(
        name=spec.name, permission=given, repeatable=spec.repeatable, description=spec.description
    )


def _print_tool_sets(found: list[ToolSetReport], json: bool) -> None:
    if json:
        output.write_json({"tools": found})
        return
    for shown in found:
        output.write(
            output.style_text(output.sanitize(f"{shown.name} · {shown.place}", one_line=True), "bold")
        )
        if shown.error:
            output.write("  " + output.style_text(output.sanitize(shown.error, one_line=True), "bad"))
        for line in shown.log.splitlines()[-5:]:
            output.write("  " + output.style_text(output.truncate(line, output.terminal_width() - 2), "dim"))
        for tool in shown.tools or ():
            again = ", repeatable" if tool.repeatable else ""
            text = f"{tool.name} ({tool.permission}{again}) {tool.description}"
            output.write("  " + output.truncate(text, output.terminal_width() - 2))
