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
from keryx.jsonrpc import RpcError

PROBE_SECONDS = 5.0


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    # `None` if the agent did not answer `initialize`.
    abilities: AgentCapabilities | None = None
    models: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    # What is wrong, and what the user can do about it.
    error: str = ""
    # Lines of its output that are not JSON-RPC messages.
    noise: int = 0
    # The end of its standard error, if there is an error.
    log: str = ""


async def probe(
    name: str, config: AgentConfig, *, folder: Path, seconds: float = PROBE_SECONDS
) -> ProbeResult:
    """Start the agent, read its capabilities, open a session to read its models and modes, and stop it. Failures of the
    agent are returned, not raised."""
    try:
        process = await agent_process.start(name, config, cwd=str(folder), started_at=0)
    except AgentFailed as exc:
        return ProbeResult(name=name, error=str(exc))
    reader = asyncio.create_task(process.connection.run())
    try:
        with anyio.move_on_after(seconds):
            await agent_process.initialize_process(process, config, seconds=seconds)
            opened = await open_session(
                process.connection, process.capabilities, None, cwd=str(folder), folders=(), seconds=seconds
            )
            return msgspec.structs.replace(
                _build_result(name, process),
                models=tuple(opened.session.list_choices(MODEL)),
                modes=tuple(opened.session.list_choices(MODE)),
            )
        return _build_result(name, process, error=f"The agent {name} did not answer within {seconds:g} s.")
    except (RpcError, AgentUnavailable) as exc:
        return _build_result(
            name, process, error=str(agent_process.build_failure(name, config, process, exc, check=True))
        )
    finally:
        await process.connection.process.stop()
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader


def _build_result(name: str, process: AgentProcess, *, error: str = "") -> ProbeResult:
    return ProbeResult(
        name=name,
        abilities=process.capabilities if process.capabilities.protocol else None,
        error=error,
        noise=process.connection.invalid_lines,
        log=process.connection.process.stderr_tail if error else "",
    )
