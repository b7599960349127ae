"""Sessions of an agent: create, resume or load one, and read and set its model, mode and effort."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import msgspec

from keryx.agents.acp.capabilities import AgentCapabilities
from keryx.agents.acp.connection import (
    AgentConnection,
    AgentMessage,
    AgentUnavailable,
    ConnectionClosed,
    SessionUpdate,
)
from keryx.core.ids import TurnId
from keryx.core.sessions import Binding
from keryx.core.texts import Phrase
from keryx.core.usage import CostMeter
from keryx.jsonrpc import AUTH_REQUIRED, METHOD_NOT_FOUND, Json, RpcError, as_object, as_objects, as_text

MODEL, MODE, EFFORT = "model", "mode", "thought_level"
_SET_OPTION_SECONDS = 30.0
_QUIET_SECONDS = 0.25
_FIRST_UPDATE_SECONDS = 1.0
_DRAIN_SECONDS = 10.0


class AgentSession:
    def __init__(self, id_: str, cwd: str) -> None:
        self.id = id_
        self.cwd = cwd
        # The last turn that this process sent to the agent.
        self.turn: TurnId | None = None
        # Ids of messages and tool calls from before the running turn.
        self.known_ids: set[str] = set()
        self.meter = CostMeter()
        # Tokens of cancelled prompts, which are counted with the next prompt.
        self.uncounted = Counter[str]()
        self.place_digest = ""
        self.title = ""
        # A program keeps it for people too.
        self.kept = False
        # The agent was told to let go of it.
        self.closed = False
        self.reported_unknown: set[tuple[str, str]] = set()
        self._options: list[Json] = []
        self._modes: Json = {}
        self._models: Json = {}

    def update(self, fields: Json) -> None:
        """Take over the settings that a response or an update contains."""
        if isinstance(fields.get("configOptions"), list):
            self._options = as_objects(fields["configOptions"])
        if modes := as_object(fields.get("modes")):
            self._modes = modes
        if models := as_object(fields.get("models")):
            self._models = models
        if mode := as_text(fields.get("currentModeId")):
            self._modes = {**self._modes, "currentModeId": mode}
        if title := as_text(fields.get("title")):
            self.title = title

    def get_current(self, what: str) -> str:
        """Return the current model, mode or effort; empty if the agent does not report it."""
        if option := self._find_option(what):
            return as_text(option.get("currentValue"))
        if what == MODE:
            return as_text(self._modes.get("currentModeId"))
        return as_text(self._models.get("currentModelId")) if what == MODEL else ""

    def list_choices(self, what: str) -> list[str]:
        """Return the values on offer, in the order of the agent."""
        if option := self._find_option(what):
            # Values may be in groups.
            entries = as_objects(option.get("options"))
            values = [v for e in entries for v in (as_objects(e["options"]) if "options" in e else [e])]
            return [as_text(value.get("value")) for value in values]
        if what == MODE:
            return [as_text(m.get("id")) for m in as_objects(self._modes.get("availableModes"))]
        if what == MODEL:
            return [as_text(m.get("modelId")) for m in as_objects(self._models.get("availableModels"))]
        return []

    async def select(self, connection: AgentConnection, what: str, wanted: str) -> bool:
        """Set the model, mode or effort unless it is set already. Return `False` if the agent does not offer it or refuses."""
        if wanted == self.get_current(what):
            return True
        if wanted not in self.list_choices(what):
            return False
        option = self._find_option(what)
        if option:
            method, params = "session/set_config_option", {"configId": option.get("id"), "value": wanted}
        elif what == MODE:
            method, params = "session/set_mode", {"modeId": wanted}
        else:
            method, params = "session/set_model", {"modelId": wanted}
        try:
            answer = await connection.request(
                method, {"sessionId": self.id, **params}, seconds=_SET_OPTION_SECONDS
            )
        except RpcError:
            return False
        self._set_current(what, wanted)
        self.update(answer)
        return True

    def _set_current(self, what: str, value: str) -> None:
        if option := self._find_option(what):
            option["currentValue"] = value
        elif what == MODE:
            self._modes = {**self._modes, "currentModeId": value}
        else:
            self._models = {**self._models, "currentModelId": value}

    def _find_option(self, what: str) -> Json | None:
        return next((o for o in self._options if what in (o.get("category"), o.get("id"))), None)


class OpenResult(msgspec.Struct, frozen=True):
    session: AgentSession
    # The agent does not know the conversation yet.
    is_new: bool = False
    # Why it does not, although it had a session for it.
    warning: str = ""


async def open_session(
    connection: AgentConnection,
    capabilities: AgentCapabilities,
    binding: Binding | None,
    *,
    cwd: str,
    folders: Sequence[str],
    seconds: float,
) -> OpenResult:
    """Resume the session if the agent can, else load it, else create a new one, unless a program keeps it for people too.
    Raise `AgentUnavailable`, and `RpcError` if a login is needed."""
    where: Json = {"cwd": cwd, "mcpServers": []}
    if folders and capabilities.folders:
        where["additionalDirectories"] = list(folders)
    if binding is None:
        return OpenResult(await _create_session(connection, where, seconds), is_new=True)
    offered = (("session/resume", capabilities.resume), ("session/load", capabilities.load))
    why: str = Phrase("agent.cannot_resume")
    for method in [name for name, able in offered if able]:
        try:
            return OpenResult(await _resume_session(connection, method, binding, where, seconds))
        except RpcError as exc:
            if exc.code == AUTH_REQUIRED:
                raise
            why = str(exc)
            # Some agents offer to resume, and can only load.
            if exc.code != METHOD_NOT_FOUND:
                break
    if binding.kept:
        raise AgentUnavailable(Phrase("agent.kept_elsewhere", reason=why))
    warning = Phrase("agent.lost", name=connection.name, reason=why)
    return OpenResult(await _create_session(connection, where, seconds), is_new=True, warning=warning)


async def _create_session(connection: AgentConnection, where: Json, seconds: float) -> AgentSession:
    answer = await connection.request("session/new", where, seconds=seconds)
    id_ = as_text(answer.get("sessionId"))
    if not id_:
        raise AgentUnavailable(Phrase("agent.no_session_id"))
    session = AgentSession(id_, str(where["cwd"]))
    session.update(answer)
    return session


async def _resume_session(
    connection: AgentConnection, method: str, binding: Binding, where: Json, seconds: float
) -> AgentSession:
    """Resume or load a session, and ignore the replayed messages until the agent has responded and stays quiet."""
    session = AgentSession(binding.id, binding.cwd)
    session.meter, session.place_digest = binding.meter, binding.place
    replay = _ReplayCollector(session)
    connection.listeners[session.id] = replay.collect
    try:
        answer = await connection.request(method, {**where, "sessionId": session.id}, seconds=seconds)
        session.update(answer)
        await replay.wait_until_quiet(
            first=_FIRST_UPDATE_SECONDS if method == "session/load" else _QUIET_SECONDS
        )
    finally:
        del connection.listeners[session.id]
    return session


class _ReplayCollector:
    """Listens while a session is opened: takes over its settings and the ids of old messages."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._received = asyncio.Event()
        self._has_updates = False
        self._closed = False

    async def collect(self, item: AgentMessage) -> None:
        self._received.set()
        if isinstance(item, ConnectionClosed):
            self._closed = True
        if isinstance(item, SessionUpdate):
            self._has_updates = True
            self._session.update(item.fields)
            self._session.known_ids |= {
                as_text(item.fields.get(key)) for key in ("messageId", "toolCallId")
            } - {""}

    async def wait_until_quiet(self, *, first: float) -> None:
        """Wait until no update has arrived for a moment, and up to `first` seconds for the first one."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _DRAIN_SECONDS
        while not self._closed and loop.time() < until:
            self._received.clear()
            try:
                async with asyncio.timeout(_QUIET_SECONDS if self._has_updates else first):
                    await self._received.wait()
            except TimeoutError:
                return
