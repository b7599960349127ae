"""Runs any program that speaks the Agent Client Protocol as an agent: turns in its processes, one per session or one shared by all. Stops idle ones."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from keryx import child_process
from keryx.agents.acp import agent_process, prompt_run
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
from keryx.core.texts import Phrase
from keryx.core.usage import Usage
from keryx.jsonrpc import Json, RpcError

# Of those that an agent offers.
_MAX_MODELS = 200


class AcpAgent:
    """Use it as a context manager: processes start when a turn needs them, and all have ended after the block."""

    def __init__(
        self,
        name: str,
        config: AgentConfig,
        *,
        work_folder: Path,
        clock: Clock,
        timeouts: AgentTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self.name = name
        self._config = config
        self._work_folder = work_folder
        self._clock = clock
        self._timeouts = timeouts
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
        # An exception that ends the block is not one of the group: do not wrap it in an exception group.
        await group.__aexit__(None, None, None)

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        while cancelling := self._cancelling.get(context.session):
            await cancelling.wait()
        process: AgentProcess | None = None
        try:
            cwd = agent_process.prepare_folder(self._config, context.cwd, self._work_folder / context.session)
            process = await self._get_process(context, cwd)
            process.running_turns += 1
            async with aclosing(self._run_turn(process, context, cwd)) as events:
                async for event in events:
                    yield event
        except (RpcError, AgentUnavailable) as exc:
            raise agent_process.build_failure(self.name, self._config, process, exc) from exc
        finally:
            if process:
                process.running_turns -= 1
                process.used_at = self._clock.monotonic()
                if process.stopping and not process.running_turns:
                    self._stop_soon(process)

    async def title(self, context: TurnContext, answer: str) -> tuple[str, Usage] | None:
        """Return the title that the agent gave to its session, if any."""
        title = self._titles.pop(context.session, "")
        return (title, Usage()) if title else None

    async def _run_turn(
        self, process: AgentProcess, context: TurnContext, cwd: str
    ) -> AsyncGenerator[AgentEvent, None]:
        stored = context.bindings.get(self.name)
        opened = await self._open_session(process, context, stored, cwd)
        session = opened.session
        session.kept = stored.kept if stored else False
        if opened.warning:
            yield NoticeEvent(opened.warning, WARNING_KIND)
        history = await context.history()
        blocks = await prompt_run.build_prompt(
            context,
            history,
            process.capabilities,
            None if opened.is_new else stored,
            place_digest=session.place_digest,
        )
        session.place_digest, session.turn = prompt_run.digest_place(context.place), context.turn
        yield BindingEvent(self._build_binding(session, context, history))
        for notice in await self._apply_settings(process, session, context, stored):
            yield NoticeEvent(notice)
        try:
            while blocks:
                async with aclosing(self._run_prompt(process, session, context, history, blocks)) as events:
                    async for event in events:
                        yield event
                new = await context.fetch_new_messages()
                blocks = await prompt_run.build_blocks(context, process.capabilities, new) if new else []
        except RpcError:
            await self._release_session(process, session)
            raise
        await self._release_session(process, session)
        yield BindingEvent(self._build_binding(session, context, history))
        if session.title:
            self._titles[context.session] = session.title

    async def _run_prompt(
        self,
        process: AgentProcess,
        session: AgentSession,
        context: TurnContext,
        history: Sequence[Message],
        blocks: list[Json],
    ) -> AsyncGenerator[AgentEvent, None]:
        folders = AllowedFolders([session.cwd, *self._folders])
        # Commands see no variable that was configured for the agent alone.
        terminals = Terminals(folders, child_process.build_environment({}), session.cwd)
        translator = UpdateTranslator(
            self.name,
            session,
            replay=ReplayFilter(session.known_ids, history, context.turn),
            read_terminal=terminals.get_output,
        )
        services = ClientServices(
            process.connection,
            context,
            folders=folders,
            terminals=terminals,
            files=self._config.files,
            terminal=self._config.terminal,
            find_tool_call=translator.tool_calls.find,
        )
        run = PromptRun(
            process.connection,
            session.id,
            translator=translator,
            services=services,
            clock=self._clock,
            stall_after=self._config.stall,
        )
        completed = False
        try:
            async with aclosing(run.events(blocks)) as events:
                async for event in events:
                    yield event
            completed = True
        finally:
            if completed or not run.open:
                await run.close()
            elif self._group:
                done = self._cancelling[context.session] = asyncio.Event()
                self._group.start_soon(self._cancel_prompt, process, run, session, context.session, done)

    async def _cancel_prompt(
        self,
        process: AgentProcess,
        run: PromptRun,
        session: AgentSession,
        conversation: SessionId,
        done: asyncio.Event,
    ) -> None:
        """Cancel a prompt whose turn was left early. If the agent does not react, its process is stopped as soon as no
        other turn runs in it; the next turn starts a new one."""
        try:
            if await run.cancel(self._timeouts.cancel.total_seconds()):
                await self._release_session(process, session)
            else:
                process.stopping = True
            if process.stopping and not process.running_turns:
                await process.connection.process.stop()
        finally:
            self._cancelling.pop(conversation, None)
            done.set()

    async def _release_session(self, process: AgentProcess, session: AgentSession) -> None:
        """Let go of a session that people use in a terminal, too: a program may refuse one that another process has open. An
        agent that does not close it is stopped."""
        if not session.kept:
            return
        if self._config.locks_sessions and not self._config.shared:
            process.stopping = True
            await process.connection.process.stop()
        elif process.capabilities.close:
            session.closed = True
            try:
                seconds = self._timeouts.cancel.total_seconds()
                await process.connection.request("session/close", {"sessionId": session.id}, seconds=seconds)
            except (RpcError, AgentUnavailable):
                process.stopping = True

    async def _open_session(
        self, process: AgentProcess, context: TurnContext, stored: Binding | None, cwd: str
    ) -> OpenResult:
        """Return the agent's session for this conversation. One that another process has used since is opened again."""
        session = process.sessions.get(stored.id) if stored else None
        if session and stored and session.turn == stored.turn and not session.closed:
            return OpenResult(session)
        opened = await open_session(
            process.connection,
            process.capabilities,
            stored,
            cwd=agent_process.find_folder(stored, cwd),
            folders=self._folders,
            seconds=self._timeouts.open.total_seconds(),
        )
        process.sessions[opened.session.id] = opened.session
        return opened

    async def _apply_settings(
        self, process: AgentProcess, session: AgentSession, context: TurnContext, stored: Binding | None
    ) -> list[str]:
        """Apply the wanted model, mode and effort; return a sentence for each value that the agent does not offer."""
        settings = (
            (MODEL, context.settings.model or self._config.model, stored.model if stored else ""),
            (MODE, self._config.mode, stored.mode if stored else ""),
            (EFFORT, context.settings.effort, ""),
        )
        notices: list[str] = []
        for what, requested, before in settings:
            wanted = requested or before
            if not wanted or await session.select(process.connection, what, wanted) or not requested:
                continue
            if (what, wanted) not in session.reported_unknown:
                session.reported_unknown.add((what, wanted))
                offered = ", ".join(session.list_choices(what)[:20]) or Phrase("agent.none_offered")
                setting, value = what.replace("_", " "), repr(wanted)
                notices.append(
                    Phrase("agent.no_choice", name=self.name, what=setting, wanted=value, choices=offered)
                )
        return notices

    def _build_binding(
        self, session: AgentSession, context: TurnContext, history: Sequence[Message]
    ) -> Binding:
        return Binding(
            agent=self.name,
            id=session.id,
            cwd=session.cwd,
            turn=context.turn,
            seq=max((m.seq for m in history), default=0),
            place=session.place_digest,
            model=session.get_current(MODEL),
            models=tuple(session.list_choices(MODEL)[:_MAX_MODELS]),
            mode=session.get_current(MODE),
            meter=session.meter,
            kept=session.kept,
        )

    @property
    def _folders(self) -> list[str]:
        return [str(Path(folder).expanduser()) for folder in self._config.folders]

    async def _get_process(self, context: TurnContext, cwd: str) -> AgentProcess:
        """Return the process for the session; start it if there is none, or if a program has written to the session since:
        agents keep what they have read."""
        key = "" if self._config.shared else str(context.session)
        stored = context.bindings.get(self.name)
        async with self._start_locks.setdefault(key, asyncio.Lock()):
            process = self._processes.get(key)
            if process and process.usable and not _is_stale(process, stored):
                return process
            if process and process.usable and not process.running_turns:
                process.stopping = True
                await process.connection.process.stop()
            self._evict_idle()
            return await self._start_process(key, cwd)

    def _evict_idle(self) -> None:
        """Stop the process that was idle for longest if the maximum number runs."""
        idle = sorted(
            (entry for entry in self._processes.values() if not entry.running_turns),
            key=lambda entry: entry.used_at,
        )
        if idle and len(self._processes) >= self._config.processes:
            idle[0].stopping = True
            self._stop_soon(idle[0])

    async def _start_process(self, key: str, cwd: str) -> AgentProcess:
        process = await agent_process.start(
            self.name, self._config, cwd=cwd, started_at=self._clock.monotonic()
        )
        if self._group is None:
            await process.connection.process.stop()
            raise AgentUnavailable(Phrase("agent.keryx_ends"))
        self._processes[key] = process
        self._group.start_soon(self._supervise, key, process)
        try:
            await agent_process.initialize_process(
                process, self._config, seconds=self._timeouts.start.total_seconds()
            )
        except BaseException:
            process.stopping = True
            self._stop_soon(process)
            raise
        return process

    async def _supervise(self, key: str, process: AgentProcess) -> None:
        """Read from a process until it ends, by itself or because it is idle."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._stop_when_idle, process)
                await process.connection.run()
                group.cancel_scope.cancel()
        finally:
            if self._processes.get(key) is process:
                del self._processes[key]
                self._titles.pop(SessionId(key), None)
            await process.connection.process.stop()

    async def _stop_when_idle(self, process: AgentProcess) -> None:
        idle = self._config.idle.total_seconds()
        while True:
            await self._clock.sleep(max(1.0, process.used_at + idle - self._clock.monotonic()))
            if not process.running_turns and self._clock.monotonic() - process.used_at >= idle:
                process.stopping = True
                await process.connection.process.stop()
                return

    def _stop_soon(self, process: AgentProcess) -> None:
        if self._group:
            self._group.start_soon(process.connection.process.stop)


def _is_stale(process: AgentProcess, stored: Binding | None) -> bool:
    """Whether a process has opened a session that another program has written to since."""
    if stored is None or not stored.kept or process.running_turns:
        return False
    session = process.sessions.get(stored.id)
    return session is not None and session.turn is not None and session.turn != stored.turn
