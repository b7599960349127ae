"""Starts an agent once to find out what it can do and whether it works, then stops it."""

import asyncio
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec

from keryx.agents.acp import agent_process
from keryx.agents.acp.agent_process import AgentProcess
from keryx.agents.acp.agent_sessions import MODE, MODEL, open_session
from keryx.agents.acp.capabilities import AgentCapabilities
from keryx.agents.acp.connection import AgentUnavailable
from keryx.agents.agent_config import AgentConfig
from keryx.core.errors import AgentFailed
from keryx.jsonrpc.errors import RpcError

PROBE_SECONDS = 5.0


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """`error` says what is wrong and what to do; `abilities` is `None` if not even the first answer came. `noise` counts
    lines on its output that were no message; `log` is the end of its standard error."""

    name: str
    abilities: AgentCapabilities | None = None
    models: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    error: str = ""
    noise: int = 0
    log: str = ""


async def probe(
    name: str, configured: AgentConfig, *, folder: Path, seconds: float = PROBE_SECONDS
) -> ProbeResult:
    """Start the agent, ask what it can do, open a session to see its models and modes, and end it. Never raises for
    what the agent does."""
    try:
        line = await agent_process.start(name, configured, cwd=str(folder), began=0)
    except AgentFailed as exc:
        return ProbeResult(name=name, error=str(exc))
    reader = asyncio.create_task(line.connection.run())
    try:
        with anyio.move_on_after(seconds):
            return await _run_probe(name, configured, line, folder, seconds)
        return _build_result(name, line, error=f"The agent {name} did not answer within {seconds:g} s.")
    finally:
        await line.connection.process.stop()
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader


async def _run_probe(
    name: str, configured: AgentConfig, line: AgentProcess, folder: Path, seconds: float
) -> ProbeResult:
    try:
        await agent_process.initialize_process(line, configured, seconds=seconds)
        found = await open_session(
            line.connection, line.capabilities, None, cwd=str(folder), folders=(), seconds=seconds
        )
    except (RpcError, AgentUnavailable) as exc:
        return _build_result(name, line, error=str(agent_process.build_failure(name, configured, line, exc)))
    held = found.session
    return msgspec.structs.replace(
        _build_result(name, line),
        models=tuple(held.list_choices(MODEL)),
        modes=tuple(held.list_choices(MODE)),
    )


def _build_result(name: str, line: AgentProcess, *, error: str = "") -> ProbeResult:
    return ProbeResult(
        name=name,
        abilities=line.capabilities if line.capabilities.protocol else None,
        error=error,
        noise=line.connection.invalid_lines,
        log=line.connection.process.stderr_tail if error else "",
    )
