"""Desk: what an agent may ask of Keryx while its turn runs: permissions, files, terminals and forms."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from keryx.agents.acp import consent, elicitation
from keryx.agents.acp.connection import Connection, unknown
from keryx.agents.acp.roots import Roots
from keryx.agents.acp.rpc import CANCELLED, INTERNAL, PARAMS, Asked, Fault, Gone, Json, count, text
from keryx.agents.acp.terminals import Terminals
from keryx.core import modes
from keryx.core.modes import Mode
from keryx.core.ports import TurnContext

log = logging.getLogger(__name__)

MOST_AT_ONCE = 32
_SLOW = frozenset(
    {
        "session/request_permission",
        "elicitation/create",
        "terminal/wait_for_exit",
        "terminal/kill",
        "terminal/release",
    }
)

Serve = Callable[[Json], Awaitable[Json]]


class Desk:
    """Serves one turn. `known` gives what was told of a tool call. People are asked one thing at a time."""

    def __init__(
        self,
        connection: Connection,
        context: TurnContext,
        *,
        roots: Roots,
        terminals: Terminals,
        files: bool,
        terminal: bool,
        known: Callable[[str], Json],
    ) -> None:
        self._connection = connection
        self._context = context
        self._roots = roots
        self._terminals = terminals
        self._known = known
        self._asking = asyncio.Lock()
        self._asked = 0
        self._tasks: dict[asyncio.Task[None], Asked] = {}
        self._changes = modes.of(context.settings.mode) is not Mode.READ
        self._methods = self._offered(files=files, terminal=terminal)

    @property
    def waits(self) -> bool:
        """Whether somebody is asked something now."""
        return self._asking.locked()

    async def serve(self, asked: Asked) -> None:
        """Serve a request in its place; one that waits for a person or for a program is only begun, and refused when
        too many wait already."""
        if asked.method not in _SLOW:
            await self._serve(asked)
            return
        if len(self._tasks) >= MOST_AT_ONCE:
            await self._refuse(
                asked, Fault(INTERNAL, f"{MOST_AT_ONCE} requests wait already: ask again later")
            )
            return
        task = asyncio.create_task(self._serve(asked))
        self._tasks[task] = asked
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def close(self) -> None:
        """The turn is over: what still waits is answered as cancelled, and all terminals end."""
        left = dict(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        for asked in left.values():
            await drop(self._connection, asked)
        await self._terminals.close()

    def _offered(self, *, files: bool, terminal: bool) -> Mapping[str, Serve]:
        found: dict[str, Serve] = {
            "session/request_permission": self._permit,
            "elicitation/create": self._elicit,
        }
        if files:
            found |= {"fs/read_text_file": self._read, "fs/write_text_file": self._write}
        if terminal:
            found |= {
                "terminal/create": self._create,
                "terminal/output": self._output,
                "terminal/wait_for_exit": self._terminals.exited,
                "terminal/kill": self._terminals.kill,
                "terminal/release": self._terminals.release,
            }
        return found

    async def _serve(self, asked: Asked) -> None:
        method = self._methods.get(asked.method)
        if method is None:
            await self._refuse(asked, unknown(asked))
            return
        try:
            await self._connection.answer(asked, await method(asked.params))
        except Fault as exc:
            await self._refuse(asked, exc)
        except Gone as exc:
            log.info("%s is gone before it was answered: %s", self._connection.name, exc)
        except Exception as exc:
            log.exception("%s of the agent %s failed", asked.method[:80], self._connection.name)
            await self._refuse(asked, Fault(INTERNAL, f"Keryx failed ({type(exc).__name__})"))

    async def _refuse(self, asked: Asked, fault: Fault) -> None:
        try:
            await self._connection.refuse(asked, fault)
        except Gone as exc:
            log.info("%s is gone before it was refused: %s", self._connection.name, exc)

    async def _permit(self, params: Json) -> Json:
        call, options = consent.parts(params)
        whole = {
            **self._known(text(call.get("toolCallId"))),
            **{k: v for k, v in call.items() if v is not None},
        }
        async with self._asking:
            self._asked += 1
            question = consent.question(self._connection.name, whole, options, number=self._asked)
            return consent.CANCELLED if question is None else await consent.ask(self._context.ask, question)

    async def _elicit(self, params: Json) -> Json:
        async with self._asking:
            self._asked += 1
            return await elicitation.elicit(
                self._context.ask, params, agent=self._connection.name, number=self._asked
            )

    async def _read(self, params: Json) -> Json:
        limit = count(params.get("limit")) if params.get("limit") is not None else None
        read = partial(
            self._roots.read, text(params.get("path")), line=count(params.get("line")), limit=limit
        )
        return {"content": await asyncio.to_thread(read)}

    async def _write(self, params: Json) -> Json:
        self._check_changes()
        await asyncio.to_thread(self._roots.write, text(params.get("path")), text(params.get("content")))
        return {}

    async def _create(self, params: Json) -> Json:
        self._check_changes()
        return await self._terminals.create(params)

    async def _output(self, params: Json) -> Json:
        return self._terminals.output(params)

    def _check_changes(self) -> None:
        if not self._changes:
            raise Fault(PARAMS, "this conversation may read only")


async def drop(connection: Connection, asked: Asked) -> None:
    """Answer a request of a turn that is over."""
    try:
        if asked.method == "session/request_permission":
            await connection.answer(asked, consent.CANCELLED)
        elif asked.method == "elicitation/create":
            await connection.answer(asked, {"action": "cancel"})
        else:
            await connection.refuse(asked, Fault(CANCELLED, "the turn is over"))
    except Gone as exc:
        log.info("%s is gone before it was answered: %s", connection.name, exc)
