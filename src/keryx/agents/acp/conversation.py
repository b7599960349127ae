"""Conversation: one prompt to an agent, from the question to the answer, with everything that happens in between."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from datetime import timedelta

import anyio

from keryx.agents.acp.connection import Connection
from keryx.agents.acp.desk import Desk, drop
from keryx.agents.acp.inbox import Inbox
from keryx.agents.acp.rpc import Answered, Asked, Ended, Gone, Incoming, Json, Stalled, Update, table, text
from keryx.agents.acp.telling import Telling
from keryx.core.errors import AgentFailed
from keryx.core.ports import WARNING, Clock, Event, Noted
from keryx.core.turns import ENDINGS

log = logging.getLogger(__name__)

_ENDINGS = {
    "max_tokens": "The answer ends here: the agent has reached its limit of tokens.",
    "max_turn_requests": "The answer ends here: the agent has reached its limit of steps.",
    "cancelled": "The agent stopped before it was done.",
}


class Conversation:
    """`events` puts a prompt and gives what comes of it; it may be left at any time, and then `settle` must follow."""

    def __init__(
        self,
        connection: Connection,
        session: str,
        *,
        telling: Telling,
        desk: Desk,
        clock: Clock,
        stall: timedelta,
    ) -> None:
        self._connection = connection
        self._session = session
        self._telling = telling
        self._desk = desk
        self._clock = clock
        self._stall = stall
        self._inbox = Inbox()
        self._beats = 0
        self._spoken = False
        self.open = False
        connection.listeners[session] = self._inbox.put

    async def events(self, prompt: list[Json]) -> AsyncGenerator[Event, None]:
        """Everything up to the end of the answer. Raises `Gone`, `Fault`, and `AgentFailed` for a refusal to answer."""
        watch = asyncio.create_task(self._watch())
        dropped = self._connection.process.dropped
        self.open = True
        try:
            await self._connection.begin(
                self._session, "session/prompt", {"sessionId": self._session, "prompt": prompt}
            )
            while self.open:
                for event in await self._next():
                    self._spoken = True
                    yield event
        finally:
            watch.cancel()
        if left_out := self._connection.process.dropped - dropped:
            yield Noted(f"{left_out} messages of the agent were too long and are left out.")

    async def close(self) -> None:
        """The answer is complete: nothing more is listened to."""
        self._forget()
        await self._desk.close()

    async def settle(self, seconds: float) -> bool:
        """Cancel a prompt that is still open and wait for its end; `False` if the agent does not react."""
        over = asyncio.Event()

        async def take(item: Incoming) -> None:
            if isinstance(item, Asked):
                await drop(self._connection, item)
            elif isinstance(item, Answered | Ended):
                over.set()

        left = self._inbox.close()
        self._connection.listeners[self._session] = take
        try:
            with anyio.move_on_after(seconds):
                await self._connection.notify("session/cancel", {"sessionId": self._session})
                for item in left:
                    await take(item)
                await self._desk.close()
                await over.wait()
        except Gone as exc:
            log.info("%s: %s", self._connection.name, exc)
        finally:
            self._forget()
        return over.is_set() and not self._connection.over.is_set()

    def _forget(self) -> None:
        self._inbox.close()
        self._connection.listeners.pop(self._session, None)

    async def _next(self) -> list[Event]:
        item = await self._inbox.take()
        match item:
            case Update(body):
                self._beats += 1
                return self._telling.take(body)
            case Asked():
                self._beats += 1
                return await self._asked(item)
            case Stalled():
                minutes = self._stall.total_seconds() / 60
                told = f"The agent {self._connection.name} has said nothing for {minutes:g} minutes. /stop ends the turn."
                return [Noted(told, WARNING)]
            case Answered(result, fault):
                self.open = False
                if fault:
                    raise fault
                return self._ended(result)
            case Ended(why):
                self.open = False
                raise Gone(why)

    async def _asked(self, item: Asked) -> list[Event]:
        """A tool that a person is asked about is stored before the question is put."""
        events: list[Event] = []
        if item.method == "session/request_permission":
            events = self._telling.steps.take(table(item.params.get("toolCall")), asks=True)
        await self._desk.serve(item)
        return events

    def _ended(self, result: Json) -> list[Event]:
        events = [*self._telling.steps.close(), *self._telling.spent(table(result.get("usage")))]
        reason = text(result.get("stopReason"))
        if reason == "refusal":
            told = f"The agent {self._connection.name} declined to answer this."
            if not self._spoken:
                raise AgentFailed(told)
            return [*events, Noted(told)]
        kind = reason if reason in ENDINGS else ""
        return [*events, Noted(_ENDINGS[reason], kind)] if reason in _ENDINGS else events

    async def _watch(self) -> None:
        """Tell once for each silence; while a person is asked something, silence is to be expected."""
        told = -1
        while True:
            seen = self._beats
            await self._clock.sleep(self._stall.total_seconds())
            if seen == self._beats and seen != told and not self._desk.waits:
                told = seen
                await self._inbox.put(Stalled())
