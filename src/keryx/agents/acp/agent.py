"""Agent: any program that speaks the Agent Client Protocol, as the agent of a conversation."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from keryx.agents.acp import line as lines
from keryx.agents.acp import prompt
from keryx.agents.acp.attach import Attached, attach
from keryx.agents.acp.conversation import Conversation
from keryx.agents.acp.desk import Desk
from keryx.agents.acp.held import EFFORT, MODE, MODEL, Held
from keryx.agents.acp.line import Line
from keryx.agents.acp.patience import USUAL, Patience
from keryx.agents.acp.replay import Replay
from keryx.agents.acp.roots import Roots
from keryx.agents.acp.rpc import Fault, Gone
from keryx.agents.acp.telling import Telling
from keryx.agents.acp.terminals import Terminals
from keryx.agents.configured import Configured
from keryx.core.bindings import Binding
from keryx.core.ids import SessionId
from keryx.core.messages import Message
from keryx.core.ports import WARNING, Bound, Clock, Event, Noted, TurnContext
from keryx.core.turns import Usage


class AcpAgent:
    """Runs turns in processes of the configured program: one for each session, or one for all. Nothing is started
    before a turn needs it, and everything has ended when the block ends."""

    def __init__(
        self, name: str, configured: Configured, *, work: Path, clock: Clock, patience: Patience = USUAL
    ) -> None:
        self.name = name
        self._configured = configured
        self._work = work
        self._clock = clock
        self._patience = patience
        self._group: TaskGroup | None = None
        self._lines: dict[str, Line] = {}
        self._starting: dict[str, asyncio.Lock] = {}
        self._settling: dict[SessionId, asyncio.Event] = {}
        self._titles: dict[SessionId, str] = {}

    async def __aenter__(self) -> Self:
        self._group = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._group is not None
        group, self._group = self._group, None
        group.cancel_scope.cancel()
        # What ended the block is no failure of the group, and must not come out as one.
        await group.__aexit__(None, None, None)

    async def run(self, context: TurnContext) -> AsyncGenerator[Event, None]:
        while settling := self._settling.get(context.session):
            await settling.wait()
        line: Line | None = None
        try:
            cwd = lines.folder(self._configured, context.cwd, self._work / context.session)
            line = await self._line(context.session, cwd)
            line.turns += 1
            async with aclosing(self._turn(line, context, cwd)) as events:
                async for event in events:
                    yield event
        except (Fault, Gone) as exc:
            raise lines.failure(self.name, self._configured, line, exc) from exc
        finally:
            if line:
                line.turns -= 1
                line.used_at = self._clock.monotonic()
                if line.doomed and not line.turns:
                    self._later(line)

    async def title(self, context: TurnContext, answer: str) -> tuple[str, Usage] | None:
        """The title that the agent gave to its session, if it gave one."""
        found = self._titles.pop(context.session, "")
        return (found, Usage()) if found else None

    async def _turn(self, line: Line, context: TurnContext, cwd: str) -> AsyncGenerator[Event, None]:
        stored = context.bindings.get(self.name)
        attached = await self._attached(line, context, stored, cwd)
        held = attached.held
        if attached.warning:
            yield Noted(attached.warning, WARNING)
        known = None if attached.fresh else stored
        past = await context.history()
        asked = await prompt.first(context, past, line.abilities, known, place=held.place)
        held.place, held.turn = prompt.digest(context.place), context.turn
        yield Bound(self._binding(held, context, past))
        for told in await self._set(line, held, context, stored):
            yield Noted(told)
        while asked:
            async with aclosing(self._prompted(line, held, context, past, asked)) as events:
                async for event in events:
                    yield event
            steered = await context.steer()
            asked = await prompt.asked(context, line.abilities, steered) if steered else []
        yield Bound(self._binding(held, context, past))
        if held.title:
            self._titles[context.session] = held.title

    async def _prompted(
        self,
        line: Line,
        held: Held,
        context: TurnContext,
        past: Sequence[Message],
        asked: list[prompt.Json],
    ) -> AsyncGenerator[Event, None]:
        roots = Roots([held.cwd, *self._folders])
        terminals = Terminals(roots, lines.environment(self.name, self._configured), held.cwd)
        telling = Telling(
            self.name,
            held,
            replay=Replay(held.known, past, context.turn),
            terminal=terminals.shown,
        )
        desk = Desk(
            line.connection,
            context,
            roots=roots,
            terminals=terminals,
            files=self._configured.files,
            terminal=self._configured.terminal,
            known=telling.steps.known,
        )
        talk = Conversation(
            line.connection,
            held.id,
            telling=telling,
            desk=desk,
            clock=self._clock,
            stall=self._configured.stall,
        )
        ended = False
        try:
            async with aclosing(talk.events(asked)) as events:
                async for event in events:
                    yield event
            ended = True
        finally:
            if ended or not talk.open:
                await talk.close()
            elif self._group:
                settled = self._settling[context.session] = asyncio.Event()
                self._group.start_soon(self._settle, line, talk, context.session, settled)

    async def _settle(
        self, line: Line, talk: Conversation, session: SessionId, settled: asyncio.Event
    ) -> None:
        """Bring an agent that was left in the middle to rest; one that does not react is killed, and started again when
        it is needed. Other turns in the same process are let to their end first."""
        try:
            if not await talk.settle(self._patience.cancel.total_seconds()):
                line.doomed = True
                if not line.turns:
                    await line.connection.process.end()
        finally:
            self._settling.pop(session, None)
            settled.set()

    async def _attached(self, line: Line, context: TurnContext, stored: Binding | None, cwd: str) -> Attached:
        """The session that continues this conversation. One that somebody else has driven since is opened anew."""
        held = line.held.get(stored.id) if stored else None
        if held and stored and held.turn == stored.turn:
            return Attached(held)
        where = lines.kept(stored, cwd)
        found = await attach(
            line.connection,
            line.abilities,
            stored,
            cwd=where,
            folders=self._folders,
            seconds=self._patience.open.total_seconds(),
        )
        line.held[found.held.id] = found.held
        return found

    async def _set(self, line: Line, held: Held, context: TurnContext, stored: Binding | None) -> list[str]:
        """Set what is wanted and not in force; gives a sentence for each wish that the agent does not know."""
        wishes = (
            (MODEL, context.settings.model or self._configured.model, stored.model if stored else ""),
            (MODE, self._configured.mode, stored.mode if stored else ""),
            (EFFORT, context.settings.effort, ""),
        )
        told: list[str] = []
        for what, asked, before in wishes:
            wanted = asked or before
            if not wanted or await held.choose(line.connection, what, wanted) or not asked:
                continue
            if (what, wanted) not in held.missed:
                held.missed.add((what, wanted))
                offered = ", ".join(held.choices(what)[:20]) or "none to choose from"
                told.append(
                    f"The agent {self.name} has no {what.replace('_', ' ')} {wanted!r}. It has: {offered}."
                )
        return told

    def _binding(self, held: Held, context: TurnContext, past: Sequence[Message]) -> Binding:
        return Binding(
            agent=self.name,
            id=held.id,
            cwd=held.cwd,
            turn=context.turn,
            seq=max((m.seq for m in past), default=0),
            place=held.place,
            model=held.current(MODEL),
            mode=held.current(MODE),
            meter=held.meter,
        )

    @property
    def _folders(self) -> list[str]:
        return [str(Path(folder).expanduser()) for folder in self._configured.folders]

    async def _line(self, session: SessionId, cwd: str) -> Line:
        """A process for the session, started if there is none."""
        key = "" if self._configured.shared else str(session)
        async with self._starting.setdefault(key, asyncio.Lock()):
            found = self._lines.get(key)
            if found and found.usable:
                return found
            self._make_room()
            return await self._start(key, cwd)

    def _make_room(self) -> None:
        """End the process that was idle for longest when there are as many as may be."""
        idle = sorted(
            (entry for entry in self._lines.values() if not entry.turns), key=lambda entry: entry.used_at
        )
        if idle and len(self._lines) >= self._configured.processes:
            idle[0].doomed = True
            self._later(idle[0])

    async def _start(self, key: str, cwd: str) -> Line:
        line = await lines.opened(self.name, self._configured, cwd=cwd, began=self._clock.monotonic())
        if self._group is None:
            await line.connection.process.end()
            raise Gone("Keryx is ending")
        self._lines[key] = line
        self._group.start_soon(self._live, key, line)
        try:
            await lines.greet(line, self._configured, seconds=self._patience.start.total_seconds())
        except BaseException:
            line.doomed = True
            self._later(line)
            raise
        return line

    async def _live(self, key: str, line: Line) -> None:
        """Hold a process until it ends, by itself or because nobody needs it."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._rest, line)
                await line.connection.run()
                group.cancel_scope.cancel()
        finally:
            if self._lines.get(key) is line:
                del self._lines[key]
                self._titles.pop(SessionId(key), None)
            await line.connection.process.end()

    async def _rest(self, line: Line) -> None:
        idle = self._configured.idle.total_seconds()
        while True:
            await self._clock.sleep(max(1.0, line.used_at + idle - self._clock.monotonic()))
            if not line.turns and self._clock.monotonic() - line.used_at >= idle:
                line.doomed = True
                await line.connection.process.end()
                return

    def _later(self, line: Line) -> None:
        if self._group:
            self._group.start_soon(line.connection.process.end)
