"""Probe: ask an agent once what it is and can do, and end it again."""

import asyncio
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec

from keryx.agents.acp import line as lines
from keryx.agents.acp.abilities import Abilities
from keryx.agents.acp.attach import attach
from keryx.agents.acp.held import MODE, MODEL
from keryx.agents.acp.line import Line
from keryx.agents.acp.rpc import LOGIN, Fault, Gone
from keryx.agents.configured import Configured
from keryx.core.errors import AgentFailed

SECONDS = 5.0


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """`error` says what is wrong and what to do; `abilities` is `None` if not even the first answer came. `noise` counts
    lines on its output that were no message; `log` is the end of its standard error."""

    name: str
    abilities: Abilities | None = None
    models: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    error: str = ""
    noise: int = 0
    log: str = ""


async def probe(name: str, configured: Configured, *, folder: Path, seconds: float = SECONDS) -> Probed:
    """Start the agent, ask what it can do, open a session to see its models and modes, and end it. Never raises for
    what the agent does."""
    try:
        line = await lines.opened(name, configured, cwd=str(folder), began=0)
    except AgentFailed as exc:
        return Probed(name=name, error=str(exc))
    reader = asyncio.create_task(line.connection.run())
    try:
        with anyio.move_on_after(seconds):
            return await _asked(name, configured, line, folder, seconds)
        return _told(name, line, error=f"The agent {name} did not answer within {seconds:g} s.")
    finally:
        await line.connection.process.end()
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader


async def _asked(name: str, configured: Configured, line: Line, folder: Path, seconds: float) -> Probed:
    try:
        await lines.greet(line, configured, seconds=seconds)
        found = await attach(
            line.connection, line.abilities, None, cwd=str(folder), folders=(), seconds=seconds
        )
    except (Fault, Gone) as exc:
        if isinstance(exc, Fault) and exc.code == LOGIN:
            return _told(name, line, error=lines.login_text(name, configured, line.abilities.logins))
        return _told(name, line, error=str(lines.failure(name, configured, line, exc)))
    held = found.held
    return msgspec.structs.replace(
        _told(name, line), models=tuple(held.choices(MODEL)), modes=tuple(held.choices(MODE))
    )


def _told(name: str, line: Line, *, error: str = "") -> Probed:
    return Probed(
        name=name,
        abilities=line.abilities if line.abilities.protocol else None,
        error=error,
        noise=line.connection.noise,
        log=line.connection.process.tail if error else "",
    )
