"""The agent port over ACP: runs turns in processes of the configured program, one per session or one shared by all, and stops idle ones."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from keryx.agents.acp import agent_process, child_process, prompt_run
from keryx.agents.acp.agent_process import DEFAULT_TIMEOUTS, AgentProcess, AgentTimeouts
from keryx.agents.acp.agent_sessions import EFFORT, MODE, MODEL, AgentSession, OpenResult, open_session
from keryx.agents.acp.client_services import AllowedFolders, ClientServices, Terminals
from keryx.agents.acp.connection import AgentUnavailable
from keryx.agents.acp.prompt_run import PromptRun
from keryx.agents.acp.update_translator import ReplayFilter, UpdateTranslator
from keryx.agents.agent_config import AgentConfig
from keryx.core.clock import Clock
from keryx.core.ids import SessionId
from keryx.core.messages import Message
from keryx.core.ports.agent import WARNING_KIND, AgentEvent, BindingEvent, NoticeEvent, TurnContext
from keryx.core.sessions import Binding
from keryx.core.usage import Usage
from keryx.jsonrpc.errors import RpcError
from keryx.jsonrpc.values import Json


class AcpAgent:
    """Runs turns in processes of the configured program: one for each session, or one for all. Nothing is started
    before a turn needs it, and everything has ended when the block ends."""

    def __init__(
        self,
        name: str,
        configured: AgentConfig,
        *,
        work: Path,
        clock: Clock,
        patience: AgentTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self.name = name
        self._config = configured
        self._work_folder = work
        self._clock = clock
        self._timeouts = patience
        self._group: TaskGroup | None = None
        self._processes: dict[str, AgentProcess] = {}
        self._start_locks: dict[str, asyncio.Lock] = {}
        self._cancelling: dict[SessionId, asyncio.Event] = {}
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

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        while settling := self._cancelling.get(context.session):
            await settling.wait()
        line: AgentProcess | None = None
        try:
            cwd = agent_process.prepare_folder(self._config, context.cwd, self._work_folder / context.session)
            line = await self._get_process(context.session, cwd)
            line.running_turns += 1
            async with aclosing(self._run_turn(line, context, cwd)) as events:
                async for event in events:
                    yield event
        except (RpcError, AgentUnavailable) as exc:
            raise agent_process.build_failure(self.name, self._config, line, exc) from exc
        finally:
            if line:
                line.running_turns -= 1
                line.used_at = self._clock.monotonic()
                if line.stopping and not line.running_turns:
                    self._stop_soon(line)

    async def title(self, context: TurnContext, answer: str) -> tuple[str, Usage] | None:
        """The title that the agent gave to its session, if it gave one."""
        found = self._titles.pop(context.session, "")
        return (found, Usage()) if found else None

    async def _run_turn(
        self, line: AgentProcess, context: TurnContext, cwd: str
    ) -> AsyncGenerator[AgentEvent, None]:
        stored = context.bindings.get(self.name)
        attached = await self._open_session(line, context, stored, cwd)
        held = attached.session
        if attached.warning:
            yield NoticeEvent(attached.warning, WARNING_KIND)
        known = None if attached.is_new else stored
        past = await context.history()
        asked = await prompt_run.build_prompt(
            context, past, line.capabilities, known, place=held.place_digest
        )
        held.place_digest, held.turn = prompt_run.digest_place(context.place), context.turn
        yield BindingEvent(self._build_binding(held, context, past))
        for told in await self._apply_settings(line, held, context, stored):
            yield NoticeEvent(told)
        while asked:
            async with aclosing(self._run_prompt(line, held, context, past, asked)) as events:
                async for event in events:
                    yield event
            steered = await context.fetch_new_messages()
            asked = await prompt_run.build_blocks(context, line.capabilities, steered) if steered else []
        yield BindingEvent(self._build_binding(held, context, past))
        if held.title:
            self._titles[context.session] = held.title

    async def _run_prompt(
        self,
        line: AgentProcess,
        held: AgentSession,
        context: TurnContext,
        past: Sequence[Message],
        asked: list[Json],
    ) -> AsyncGenerator[AgentEvent, None]:
        roots = AllowedFolders([held.cwd, *self._folders])
        # Commands see no variable that was configured for the agent alone.
        terminals = Terminals(roots, child_process.build_environment({}), held.cwd)
        telling = UpdateTranslator(
            self.name,
            held,
            replay=ReplayFilter(held.known_ids, past, context.turn),
            terminal=terminals.get_output,
        )
        desk = ClientServices(
            line.connection,
            context,
            roots=roots,
            terminals=terminals,
            files=self._config.files,
            terminal=self._config.terminal,
            known=telling.tool_calls.find,
        )
        talk = PromptRun(
            line.connection,
            held.id,
            telling=telling,
            desk=desk,
            clock=self._clock,
            stall=self._config.stall,
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
                settled = self._cancelling[context.session] = asyncio.Event()
                self._group.start_soon(self._cancel_prompt, line, talk, context.session, settled)

    async def _cancel_prompt(
        self, line: AgentProcess, talk: PromptRun, session: SessionId, settled: asyncio.Event
    ) -> None:
        """Bring an agent that was left in the middle to rest; one that does not react is killed, and started again when
        it is needed. Other turns in the same process are let to their end first."""
        try:
            if not await talk.cancel(self._timeouts.cancel.total_seconds()):
                line.stopping = True
                if not line.running_turns:
                    await line.connection.process.stop()
        finally:
            self._cancelling.pop(session, None)
            settled.set()

    async def _open_session(
        self, line: AgentProcess, context: TurnContext, stored: Binding | None, cwd: str
    ) -> OpenResult:
        """The session that continues this conversation. One that somebody else has driven since is opened anew."""
        held = line.sessions.get(stored.id) if stored else None
        if held and stored and held.turn == stored.turn:
            return OpenResult(held)
        where = agent_process.find_folder(stored, cwd)
        found = await open_session(
            line.connection,
            line.capabilities,
            stored,
            cwd=where,
            folders=self._folders,
            seconds=self._timeouts.open.total_seconds(),
        )
        line.sessions[found.session.id] = found.session
        return found

    async def _apply_settings(
        self, line: AgentProcess, held: AgentSession, context: TurnContext, stored: Binding | None
    ) -> list[str]:
        """Set what is wanted and not in force; gives a sentence for each wish that the agent does not know."""
        wishes = (
            (MODEL, context.settings.model or self._config.model, stored.model if stored else ""),
            (MODE, self._config.mode, stored.mode if stored else ""),
            (EFFORT, context.settings.effort, ""),
        )
        told: list[str] = []
        for what, asked, before in wishes:
            wanted = asked or before
            if not wanted or await held.select(line.connection, what, wanted) or not asked:
                continue
            if (what, wanted) not in held.reported_unknown:
                held.reported_unknown.add((what, wanted))
                offered = ", ".join(held.list_choices(what)[:20]) or "none to choose from"
                told.append(
                    f"The agent {self.name} has no {what.replace('_', ' ')} {wanted!r}. It has: {offered}."
                )
        return told

    def _build_binding(self, held: AgentSession, context: TurnContext, past: Sequence[Message]) -> Binding:
        return Binding(
            agent=self.name,
            id=held.id,
            cwd=held.cwd,
            turn=context.turn,
            seq=max((m.seq for m in past), default=0),
            place=held.place_digest,
            model=held.get_current(MODEL),
            mode=held.get_current(MODE),
            meter=held.meter,
        )

    @property
    def _folders(self) -> list[str]:
        return [str(Path(folder).expanduser()) for folder in self._config.folders]

    async def _get_process(self, session: SessionId, cwd: str) -> AgentProcess:
        """A process for the session, started if there is none."""
        key = "" if self._config.shared else str(session)
        async with self._start_locks.setdefault(key, asyncio.Lock()):
            found = self._processes.get(key)
            if found and found.usable:
                return found
            self._evict_idle()
            return await self._start_process(key, cwd)

    def _evict_idle(self) -> None:
        """End the process that was idle for longest when there are as many as may be."""
        idle = sorted(
            (entry for entry in self._processes.values() if not entry.running_turns),
            key=lambda entry: entry.used_at,
        )
        if idle and len(self._processes) >= self._config.processes:
            idle[0].stopping = True
            self._stop_soon(idle[0])

    async def _start_process(self, key: str, cwd: str) -> AgentProcess:
        line = await agent_process.start(self.name, self._config, cwd=cwd, began=self._clock.monotonic())
        if self._group is None:
            await line.connection.process.stop()
            raise AgentUnavailable("Keryx is ending")
        self._processes[key] = line
        self._group.start_soon(self._supervise, key, line)
        try:
            await agent_process.initialize_process(
                line, self._config, seconds=self._timeouts.start.total_seconds()
            )
        except BaseException:
            line.stopping = True
            self._stop_soon(line)
            raise
        return line

    async def _supervise(self, key: str, line: AgentProcess) -> None:
        """Hold a process until it ends, by itself or because nobody needs it."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._stop_when_idle, line)
                await line.connection.run()
                group.cancel_scope.cancel()
        finally:
            if self._processes.get(key) is line:
                del self._processes[key]
                self._titles.pop(SessionId(key), None)
            await line.connection.process.stop()

    async def _stop_when_idle(self, line: AgentProcess) -> None:
        idle = self._config.idle.total_seconds()
        while True:
            await self._clock.sleep(max(1.0, line.used_at + idle - self._clock.monotonic()))
            if not line.running_turns and self._clock.monotonic() - line.used_at >= idle:
                line.stopping = True
                await line.connection.process.stop()
                return

    def _stop_soon(self, line: AgentProcess) -> None:
        if self._group:
            self._group.start_soon(line.connection.process.stop)
