"""One process of an agent with its open sessions: start, initialise, log in, choose its folder, and turn its failures into sentences for the user."""

import shutil
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio.to_thread
import msgspec

from keryx import secrets
from keryx.agents.acp import capabilities, child_process
from keryx.agents.acp.agent_sessions import AgentSession
from keryx.agents.acp.capabilities import AgentCapabilities, LoginMethod
from keryx.agents.acp.connection import AgentConnection, AgentUnavailable
from keryx.agents.agent_config import AgentConfig
from keryx.core.errors import AgentFailed, Invalid
from keryx.core.sessions import Binding
from keryx.jsonrpc.errors import AUTH_REQUIRED, RpcError

_LOGIN_TIMEOUT_SECONDS = 60.0


class AgentTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """`start` is for the first answer of a process, `open` for a session, `cancel` for the end of a cancelled turn."""

    start: timedelta = timedelta(seconds=60)
    open: timedelta = timedelta(seconds=120)
    cancel: timedelta = timedelta(seconds=10)


DEFAULT_TIMEOUTS = AgentTimeouts()


class AgentProcess:
    """`busy` are the agent's sessions at work; `doomed`: it takes no new ones and ends with the last of them."""

    def __init__(self, connection: AgentConnection, *, began: float) -> None:
        self.connection = connection
        self.capabilities = AgentCapabilities(protocol=0)
        self.sessions: dict[str, AgentSession] = {}
        self.running_turns = 0
        self.stopping = False
        self.used_at = began

    @property
    def usable(self) -> bool:
        return not self.stopping and not self.connection.closed.is_set()


async def start(name: str, configured: AgentConfig, *, cwd: str, began: float) -> AgentProcess:
    """Start the program. Raises `AgentFailed` if it cannot be started."""
    program = configured.command[0]
    env = child_process.build_environment(
        await anyio.to_thread.run_sync(partial(_read_secrets, name, configured))
    )
    if shutil.which(program, path=env.get("PATH")) is None:
        raise AgentFailed(f"The agent {name} cannot be started: there is no program {program!r} here.")
    try:
        running = await child_process.start(configured.command, env=env, cwd=cwd)
    except OSError as exc:
        raise AgentFailed(f"The agent {name} cannot be started: {exc.strerror} ({exc.filename}).") from exc
    return AgentProcess(AgentConnection(running, name=name), began=began)


async def initialize_process(line: AgentProcess, configured: AgentConfig, *, seconds: float) -> None:
    """Begin the protocol, and log in if a way to is configured. The line's reader must run."""
    connection = line.connection
    line.capabilities = await capabilities.initialize(
        connection, files=configured.files, terminal=configured.terminal, seconds=seconds
    )
    if configured.login:
        await connection.request(
            "authenticate", {"methodId": configured.login}, seconds=_LOGIN_TIMEOUT_SECONDS
        )


def build_failure(
    name: str, configured: AgentConfig, line: AgentProcess | None, error: RpcError | AgentUnavailable
) -> AgentFailed:
    """What a person is told of an agent that does not work."""
    if isinstance(error, RpcError) and error.code == AUTH_REQUIRED:
        return AgentFailed(format_login_help(name, configured, line.capabilities.logins if line else ()))
    if isinstance(error, RpcError):
        return AgentFailed(f"The agent {name} refused: {str(error).rstrip('.')}. /retry asks again.")
    return AgentFailed(f"The agent {name} does not work: {str(error).rstrip('.')}. /retry asks again.")


def format_login_help(name: str, configured: AgentConfig, logins: Sequence[LoginMethod]) -> str:
    """How to log in, by what the agent says of itself."""
    ways = [_format_login_method(configured, login) for login in logins]
    told = f" Ways to: {'; '.join(ways)}." if ways else ""
    return f"The agent {name} needs a login.{told} Log in on the machine that runs Keryx, then ask again with /retry."


def _format_login_method(configured: AgentConfig, login: LoginMethod) -> str:
    if login.command:
        return f"{login.name}: run `{' '.join((*configured.command, *login.command))}`"
    note = f" ({login.description})" if login.description else ""
    return f"{login.name}{note}: set login = {login.id!r} for this agent"


def _read_secrets(name: str, configured: AgentConfig) -> dict[str, str]:
    try:
        return {key: secrets.read(ref, f"{key} of the agent {name}") for key, ref in configured.env.items()}
    except Invalid as exc:
        raise AgentFailed(str(exc)) from exc


def find_folder(stored: Binding | None, cwd: str) -> str:
    """The folder that a conversation began in while it is there, else the one that it would begin in now."""
    return stored.cwd if stored and Path(stored.cwd).is_dir() else cwd


def prepare_folder(configured: AgentConfig, given: str, own: Path) -> str:
    """Where a conversation works: the configured folder, else that of its session, else one of its own, made here."""
    if configured.cwd:
        return str(Path(configured.cwd).expanduser())
    if given and Path(given).is_dir():
        return given
    own.mkdir(parents=True, exist_ok=True, mode=0o700)
    return str(own)
