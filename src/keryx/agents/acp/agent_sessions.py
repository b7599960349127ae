"""Sessions of an agent: create, resume or load one, and read and set its model, mode and effort."""

import asyncio
from collections.abc import Iterator, Sequence

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
from keryx.core.usage import UsageTotals
from keryx.jsonrpc.errors import AUTH_REQUIRED, RpcError
from keryx.jsonrpc.values import Json, as_object, as_objects, as_text

MODEL, MODE, EFFORT = "model", "mode", "thought_level"
_SET_OPTION_SECONDS = 30.0
_QUIET_SECONDS = 0.25
_FIRST_UPDATE_SECONDS = 1.0
_DRAIN_SECONDS = 10.0


class AgentSession:
    """`turn` is the last one that was put to the agent from here. `known` are the ids of messages and tool calls that
    came before the running turn."""

    def __init__(self, id_: str, cwd: str) -> None:
        self.id = id_
        self.cwd = cwd
        self.turn: TurnId | None = None
        self.known_ids: set[str] = set()
        self.meter = UsageTotals()
        self.place_digest = ""
        self.title = ""
        self.reported_unknown: set[tuple[str, str]] = set()
        self._options: list[Json] = []
        self._modes: Json = {}
        self._models: Json = {}

    def update(self, told: Json) -> None:
        """Take over the settings from an answer or an update; what it does not speak of stays."""
        if isinstance(told.get("configOptions"), list):
            self._options = as_objects(told["configOptions"])
        if modes := as_object(told.get("modes")):
            self._modes = modes
        if models := as_object(told.get("models")):
            self._models = models
        if mode := as_text(told.get("currentModeId")):
            self._modes = {**self._modes, "currentModeId": mode}
        if title := as_text(told.get("title")):
            self.title = title

    def get_current(self, what: str) -> str:
        """The model or mode in force; empty if the agent does not tell."""
        if option := self._find_option(what):
            return as_text(option.get("currentValue"))
        if what == MODE:
            return as_text(self._modes.get("currentModeId"))
        return as_text(self._models.get("currentModelId")) if what == MODEL else ""

    def list_choices(self, what: str) -> list[str]:
        """What may be chosen, in the agent's order."""
        if option := self._find_option(what):
            return [as_text(o.get("value")) for o in _flatten_values(option)]
        if what == MODE:
            return [as_text(m.get("id")) for m in as_objects(self._modes.get("availableModes"))]
        if what == MODEL:
            return [as_text(m.get("modelId")) for m in as_objects(self._models.get("availableModels"))]
        return []

    async def select(self, connection: AgentConnection, what: str, wanted: str) -> bool:
        """Set the model, mode or effort unless it is set already. `False` if the agent does not offer it or refuses."""
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
        fitting = (o for o in self._options if what in (o.get("category"), o.get("id")))
        return next(fitting, None)


def _flatten_values(option: Json) -> Iterator[Json]:
    """The values of an option, those of groups included."""
    for entry in as_objects(option.get("options")):
        if "options" in entry:
            yield from as_objects(entry["options"])
        else:
            yield entry


class OpenResult(msgspec.Struct, frozen=True):
    """`fresh`: the agent knows nothing of the conversation yet. `warning` says why, where it should have known."""

    session: AgentSession
    is_new: bool = False
    warning: str = ""


async def open_session(
    connection: AgentConnection,
    abilities: AgentCapabilities,
    binding: Binding | None,
    *,
    cwd: str,
    folders: Sequence[str],
    seconds: float,
) -> OpenResult:
    """Resume if the agent can, else load, else begin a new session. Raises `Gone`, and `Fault` if a login is needed."""
    where: Json = {"cwd": cwd, "mcpServers": []}
    if folders and abilities.folders:
        where["additionalDirectories"] = list(folders)
    if binding is None:
        return OpenResult(await _create_session(connection, where, seconds), is_new=True)
    method = "session/resume" if abilities.resume else "session/load" if abilities.load else ""
    if not method:
        why = "it cannot go on with an earlier conversation"
    else:
        try:
            return OpenResult(await _resume_session(connection, method, binding, where, seconds))
        except RpcError as exc:
            if exc.code == AUTH_REQUIRED:
                raise
            why = str(exc)
    warning = f"The agent {connection.name} has lost this conversation and begins afresh: {why}."
    return OpenResult(await _create_session(connection, where, seconds), is_new=True, warning=warning)


async def _create_session(connection: AgentConnection, where: Json, seconds: float) -> AgentSession:
    answer = await connection.request("session/new", where, seconds=seconds)
    id_ = as_text(answer.get("sessionId"))
    if not id_:
        raise AgentUnavailable("it opened a session and gave no id for it")
    held = AgentSession(id_, str(where["cwd"]))
    held.update(answer)
    return held


async def _resume_session(
    connection: AgentConnection, method: str, binding: Binding, where: Json, seconds: float
) -> AgentSession:
    """Whatever the agent replays is dropped, until its answer has come and it has been quiet for a moment."""
    held = AgentSession(binding.id, binding.cwd)
    held.meter, held.place_digest = binding.meter, binding.place
    replay = _ReplayCollector(held)
    connection.listeners[held.id] = replay.collect
    try:
        answer = await connection.request(method, {**where, "sessionId": held.id}, seconds=seconds)
        held.update(answer)
        await replay.wait_until_quiet(
            first=_FIRST_UPDATE_SECONDS if method == "session/load" else _QUIET_SECONDS
        )
    finally:
        del connection.listeners[held.id]
    return held


class _ReplayCollector:
    """Takes what comes while a session is opened: settings are learned, the ids of old messages are remembered."""

    def __init__(self, held: AgentSession) -> None:
        self._session = held
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
        """Wait until nothing has come for a moment; longer for the first, if nothing has come at all."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _DRAIN_SECONDS
        while not self._closed and loop.time() < until:
            self._received.clear()
            try:
                async with asyncio.timeout(_QUIET_SECONDS if self._has_updates else first):
                    await self._received.wait()
            except TimeoutError:
                return
