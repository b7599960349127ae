"""One process of an agent with its open sessions: start, initialise, log in, choose its folder, and turn its failures into sentences for the user."""

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio.to_thread
import msgspec

from keryx import child_process, secrets
from keryx.agents import quota_resets
from keryx.agents.acp import capabilities
from keryx.agents.acp.agent_sessions import AgentSession
from keryx.agents.acp.capabilities import AgentCapabilities, LoginMethod
from keryx.agents.acp.connection import AgentConnection, AgentUnavailable
from keryx.agents.agent_config import AgentConfig
from keryx.core.errors import AgentFailed, Invalid, QuotaReached
from keryx.core.sessions import Binding
from keryx.core.texts import Phrase, explain_os_error
from keryx.jsonrpc import AUTH_REQUIRED, RpcError

_LOGIN_TIMEOUT_SECONDS = 60.0


class AgentTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    # Until a new process answers `initialize`.
    start: timedelta = timedelta(seconds=60)
    # Until a session is open.
    open: timedelta = timedelta(seconds=120)
    # Until a cancelled prompt has ended; then the process is killed.
    cancel: timedelta = timedelta(seconds=10)


DEFAULT_TIMEOUTS = AgentTimeouts()


class AgentProcess:
    def __init__(self, connection: AgentConnection, *, started_at: float) -> None:
        self.connection = connection
        self.capabilities = AgentCapabilities(protocol=0)
        self.sessions: dict[str, AgentSession] = {}
        self.running_turns = 0
        # It takes no new turns, and is stopped when the last one has ended.
        self.stopping = False
        # The monotonic time at which its last turn ended.
        self.used_at = started_at

    @property
    def usable(self) -> bool:
        return not self.stopping and not self.connection.closed.is_set()


async def start(name: str, config: AgentConfig, *, cwd: str, started_at: float) -> AgentProcess:
    """Start the program. Raise `AgentFailed` if that is not possible."""

    def read_secrets() -> dict[str, str]:
        return {
            key: secrets.read(ref, Phrase("secret.of_agent", key=key, name=name))
            for key, ref in config.env.items()
        }

    program = config.command[0]
    try:
        env = child_process.build_environment(await anyio.to_thread.run_sync(read_secrets))
    except Invalid as exc:
        raise AgentFailed(Phrase("agent.not_started", name=name, reason=exc.text)) from exc
    if shutil.which(program, path=env.get("PATH")) is None:
        raise AgentFailed(Phrase("agent.no_program", name=name, program=repr(program)))
    try:
        process = await child_process.start(config.command, env=env, cwd=cwd)
    except OSError as exc:
        reason = Phrase("reason.detailed", reason=explain_os_error(exc), detail=str(exc.filename))
        raise AgentFailed(Phrase("agent.not_started", name=name, reason=reason)) from exc
    return AgentProcess(AgentConnection(process, name=name), started_at=started_at)


async def initialize_process(process: AgentProcess, config: AgentConfig, *, seconds: float) -> None:
    """Start the protocol, and log in if a method is configured. `connection.run` must be running."""
    connection = process.connection
    process.capabilities = await capabilities.initialize(
        connection, files=config.files, terminal=config.terminal, seconds=seconds
    )
    if config.login:
        await connection.request("authenticate", {"methodId": config.login}, seconds=_LOGIN_TIMEOUT_SECONDS)


def build_failure(
    name: str,
    config: AgentConfig,
    process: AgentProcess | None,
    error: RpcError | AgentUnavailable,
    *,
    check: bool = False,
) -> AgentFailed:
    """Describe the failure to the user: of a turn, which can be asked again, or of a `check`."""
    if isinstance(error, RpcError) and error.code == AUTH_REQUIRED:
        return AgentFailed(format_login_help(name, config, process.capabilities.logins if process else ()))
    now = datetime.now().astimezone()
    if quota_resets.is_limit(str(error)) and (until := quota_resets.find_reset(now=now, text=str(error))):
        return build_limit_error(name, until)
    reason = error.text if isinstance(error, AgentUnavailable) else str(error).rstrip(".")
    if isinstance(error, RpcError):
        key = "agent.refused_check" if check else "agent.refused"
    else:
        key = "agent.broken_check" if check else "agent.broken"
    return AgentFailed(Phrase(key, name=name, reason=reason))


def build_limit_error(name: str, until: datetime) -> QuotaReached:
    text = Phrase("agent.limit", name=name, time=f"{until.astimezone(UTC):%Y-%m-%d %H:%M} UTC")
    return QuotaReached(text, until=until.astimezone(UTC), model=name)


def format_login_help(name: str, config: AgentConfig, logins: Sequence[LoginMethod]) -> Phrase:
    """Explain how to log in, with the methods that the agent offers."""
    methods: list[str] = []
    for login in logins:
        if login.command:
            methods.append(f"{login.name}: `{' '.join((*config.command, *login.command))}`")
        else:
            note = f" ({login.description})" if login.description else ""
            methods.append(f"{login.name}{note}: `login = {login.id!r}`")
    ways = "; ".join(methods)
    return Phrase("agent.login_ways", name=name, ways=ways) if ways else Phrase("agent.login", name=name)


def find_folder(stored: Binding | None, cwd: str) -> str:
    """Return the original folder of the conversation if it still exists, else `cwd`."""
    return stored.cwd if stored and stored.cwd and Path(stored.cwd).is_dir() else cwd


def prepare_folder(config: AgentConfig, session_cwd: str, own: Path) -> str:
    """Return the folder of a conversation: the configured one, else that of its session, else its own, created here."""
    if config.cwd:
        return str(Path(config.cwd).expanduser())
    if session_cwd and Path(session_cwd).is_dir():
        return session_cwd
    own.mkdir(parents=True, exist_ok=True, mode=0o700)
    return str(own)
