"""Line: one process of an agent with the sessions that are open in it."""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio.to_thread

from keryx import secrets
from keryx.agents.acp import abilities as about
from keryx.agents.acp import process
from keryx.agents.acp.abilities import Abilities, Login
from keryx.agents.acp.connection import Connection
from keryx.agents.acp.held import Held
from keryx.agents.acp.rpc import LOGIN, Fault, Gone
from keryx.agents.configured import Configured
from keryx.core.bindings import Binding
from keryx.core.errors import AgentFailed, Invalid

_LOGIN_SECONDS = 60.0


class Line:
    """`busy` are the agent's sessions at work; `doomed`: it takes no new ones and ends with the last of them."""

    def __init__(self, connection: Connection, *, began: float) -> None:
        self.connection = connection
        self.abilities = Abilities(protocol=0)
        self.held: dict[str, Held] = {}
        self.turns = 0
        self.doomed = False
        self.used_at = began

    @property
    def usable(self) -> bool:
        return not self.doomed and not self.connection.over.is_set()


async def opened(name: str, configured: Configured, *, cwd: str, began: float) -> Line:
    """Start the program. Raises `AgentFailed` if it cannot be started."""
    program = configured.command[0]
    env = process.environment(await anyio.to_thread.run_sync(partial(_secrets, name, configured)))
    if shutil.which(program, path=env.get("PATH")) is None:
        raise AgentFailed(f"The agent {name} cannot be started: there is no program {program!r} here.")
    try:
        running = await process.start(configured.command, env=env, cwd=cwd)
    except OSError as exc:
        raise AgentFailed(f"The agent {name} cannot be started: {exc.strerror} ({exc.filename}).") from exc
    return Line(Connection(running, name=name), began=began)


async def greet(line: Line, configured: Configured, *, seconds: float) -> None:
    """Begin the protocol, and log in if a way to is configured. The line's reader must run."""
    connection = line.connection
    line.abilities = await about.learn(
        connection, files=configured.files, terminal=configured.terminal, seconds=seconds
    )
    if configured.login:
        await connection.request("authenticate", {"methodId": configured.login}, seconds=_LOGIN_SECONDS)


def environment(name: str, configured: Configured) -> dict[str, str]:
    """What a command that the agent has run finds in its environment: nothing that was given to the agent alone."""
    return process.environment({})


def failure(name: str, configured: Configured, line: Line | None, error: Fault | Gone) -> AgentFailed:
    """What a person is told of an agent that does not work."""
    if isinstance(error, Fault) and error.code == LOGIN:
        return AgentFailed(login_text(name, configured, line.abilities.logins if line else ()))
    if isinstance(error, Fault):
        return AgentFailed(f"The agent {name} refused: {error.message.rstrip('.')}. /retry asks again.")
    return AgentFailed(f"The agent {name} does not work: {str(error).rstrip('.')}. /retry asks again.")


def login_text(name: str, configured: Configured, logins: Sequence[Login]) -> str:
    """How to log in, by what the agent says of itself."""
    ways = [_way(configured, login) for login in logins]
    told = f" Ways to: {'; '.join(ways)}." if ways else ""
    return f"The agent {name} needs a login.{told} Log in on the machine that runs Keryx, then ask again with /retry."


def _way(configured: Configured, login: Login) -> str:
    if login.command:
        return f"{login.name}: run `{' '.join((*configured.command, *login.command))}`"
    note = f" ({login.description})" if login.description else ""
    return f"{login.name}{note}: set login = {login.id!r} for this agent"


def _secrets(name: str, configured: Configured) -> dict[str, str]:
    try:
        return {key: secrets.read(ref, f"{key} of the agent {name}") for key, ref in configured.env.items()}
    except Invalid as exc:
        raise AgentFailed(str(exc)) from exc


def kept(stored: Binding | None, cwd: str) -> str:
    """The folder that a conversation began in while it is there, else the one that it would begin in now."""
    return stored.cwd if stored and Path(stored.cwd).is_dir() else cwd


def folder(configured: Configured, given: str, own: Path) -> str:
    """Where a conversation works: the configured folder, else that of its session, else one of its own, made here."""
    if configured.cwd:
        return str(Path(configured.cwd).expanduser())
    if given and Path(given).is_dir():
        return given
    own.mkdir(parents=True, exist_ok=True, mode=0o700)
    return str(own)
