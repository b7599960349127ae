"""Held: a session of an agent that is open in a process, with its settings as the agent last told them."""

from collections.abc import Iterator

from keryx.agents.acp.connection import Connection
from keryx.agents.acp.rpc import Fault, Json, table, tables, text
from keryx.core.bindings import Meter
from keryx.core.ids import TurnId

MODEL, MODE, EFFORT = "model", "mode", "thought_level"
_SECONDS = 30.0


class Held:
    """`turn` is the last one that was put to the agent from here. `known` are the ids of messages and tool calls that
    came before the running turn."""

    def __init__(self, id_: str, cwd: str) -> None:
        self.id = id_
        self.cwd = cwd
        self.turn: TurnId | None = None
        self.known: set[str] = set()
        self.meter = Meter()
        self.place = ""
        self.title = ""
        self.missed: set[tuple[str, str]] = set()
        self._options: list[Json] = []
        self._modes: Json = {}
        self._models: Json = {}

    def learn(self, told: Json) -> None:
        """Take over the settings from an answer or an update; what it does not speak of stays."""
        if isinstance(told.get("configOptions"), list):
            self._options = tables(told["configOptions"])
        if modes := table(told.get("modes")):
            self._modes = modes
        if models := table(told.get("models")):
            self._models = models
        if mode := text(told.get("currentModeId")):
            self._modes = {**self._modes, "currentModeId": mode}
        if title := text(told.get("title")):
            self.title = title

    def current(self, what: str) -> str:
        """The model or mode in force; empty if the agent does not tell."""
        if option := self._option(what):
            return text(option.get("currentValue"))
        if what == MODE:
            return text(self._modes.get("currentModeId"))
        return text(self._models.get("currentModelId")) if what == MODEL else ""

    def choices(self, what: str) -> list[str]:
        """What may be chosen, in the agent's order."""
        if option := self._option(what):
            return [text(o.get("value")) for o in _values(option)]
        if what == MODE:
            return [text(m.get("id")) for m in tables(self._modes.get("availableModes"))]
        if what == MODEL:
            return [text(m.get("modelId")) for m in tables(self._models.get("availableModels"))]
        return []

    async def choose(self, connection: Connection, what: str, wanted: str) -> bool:
        """Set the model, mode or effort unless it is set already. `False` if the agent does not offer it or refuses."""
        if wanted == self.current(what):
            return True
        if wanted not in self.choices(what):
            return False
        option = self._option(what)
        if option:
            method, params = "session/set_config_option", {"configId": option.get("id"), "value": wanted}
        elif what == MODE:
            method, params = "session/set_mode", {"modeId": wanted}
        else:
            method, params = "session/set_model", {"modelId": wanted}
        try:
            answer = await connection.request(method, {"sessionId": self.id, **params}, seconds=_SECONDS)
        except Fault:
            return False
        self._set(what, wanted)
        self.learn(answer)
        return True

    def _set(self, what: str, value: str) -> None:
        if option := self._option(what):
            option["currentValue"] = value
        elif what == MODE:
            self._modes = {**self._modes, "currentModeId": value}
        else:
            self._models = {**self._models, "currentModelId": value}

    def _option(self, what: str) -> Json | None:
        fitting = (o for o in self._options if what in (o.get("category"), o.get("id")))
        return next(fitting, None)


def _values(option: Json) -> Iterator[Json]:
    """The values of an option, those of groups included."""
    for entry in tables(option.get("options")):
        if "options" in entry:
            yield from tables(entry["options"])
        else:
            yield entry
