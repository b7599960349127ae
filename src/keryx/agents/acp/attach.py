"""Attach: bring a conversation to the session of the agent that continues it, or to a new one with a warning."""

import asyncio
from collections.abc import Sequence

import msgspec

from keryx.agents.acp.abilities import Abilities
from keryx.agents.acp.connection import Connection
from keryx.agents.acp.held import Held
from keryx.agents.acp.rpc import LOGIN, Ended, Fault, Gone, Incoming, Json, Update, text
from keryx.core.bindings import Binding

_QUIET_SECONDS = 0.25
_FIRST_SECONDS = 1.0
_DRAIN_SECONDS = 10.0


class Attached(msgspec.Struct, frozen=True):
    """`fresh`: the agent knows nothing of the conversation yet. `warning` says why, where it should have known."""

    held: Held
    fresh: bool = False
    warning: str = ""


async def attach(
    connection: Connection,
    abilities: Abilities,
    binding: Binding | None,
    *,
    cwd: str,
    folders: Sequence[str],
    seconds: float,
) -> Attached:
    """Resume if the agent can, else load, else begin a new session. Raises `Gone`, and `Fault` if a login is needed."""
    where: Json = {"cwd": cwd, "mcpServers": []}
    if folders and abilities.folders:
        where["additionalDirectories"] = list(folders)
    if binding is None:
        return Attached(await _begin(connection, where, seconds), fresh=True)
    method = "session/resume" if abilities.resume else "session/load" if abilities.load else ""
    if not method:
        why = "it cannot go on with an earlier conversation"
    else:
        try:
            return Attached(await _go_on(connection, method, binding, where, seconds))
        except Fault as exc:
            if exc.code == LOGIN:
                raise
            why = exc.message
    warning = f"The agent {connection.name} has lost this conversation and begins afresh: {why}."
    return Attached(await _begin(connection, where, seconds), fresh=True, warning=warning)


async def _begin(connection: Connection, where: Json, seconds: float) -> Held:
    answer = await connection.request("session/new", where, seconds=seconds)
    id_ = text(answer.get("sessionId"))
    if not id_:
        raise Gone("it opened a session and gave no id for it")
    held = Held(id_, str(where["cwd"]))
    held.learn(answer)
    return held


async def _go_on(connection: Connection, method: str, binding: Binding, where: Json, seconds: float) -> Held:
    """Whatever the agent replays is dropped, until its answer has come and it has been quiet for a moment."""
    held = Held(binding.id, binding.cwd)
    held.meter, held.place = binding.meter, binding.place
    replay = _Replay(held)
    connection.listeners[held.id] = replay.take
    try:
        answer = await connection.request(method, {**where, "sessionId": held.id}, seconds=seconds)
        held.learn(answer)
        await replay.drained(first=_FIRST_SECONDS if method == "session/load" else _QUIET_SECONDS)
    finally:
        del connection.listeners[held.id]
    return held


class _Replay:
    """Takes what comes while a session is opened: settings are learned, the ids of old messages are remembered."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._moved = asyncio.Event()
        self._seen = False
        self._over = False

    async def take(self, item: Incoming) -> None:
        self._moved.set()
        if isinstance(item, Ended):
            self._over = True
        if isinstance(item, Update):
            self._seen = True
            self._held.learn(item.body)
            self._held.known |= {text(item.body.get(key)) for key in ("messageId", "toolCallId")} - {""}

    async def drained(self, *, first: float) -> None:
        """Wait until nothing has come for a moment; longer for the first, if nothing has come at all."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _DRAIN_SECONDS
        while not self._over and loop.time() < until:
            self._moved.clear()
            try:
                async with asyncio.timeout(_QUIET_SECONDS if self._seen else first):
                    await self._moved.wait()
            except TimeoutError:
                return
