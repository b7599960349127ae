"""A Python agent in a process of its own: started when it is needed, started again when it has ended or does not answer."""

import asyncio
import itertools
import logging
import math
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial

from keryx import child_process
from keryx.agents import agent_wire
from keryx.agents.agent_wire import AgentCrashed
from keryx.agents.python import check_loading, describe_unusable
from keryx.child_process import ChildProcess, LineLimit
from keryx.core.errors import Invalid, Unavailable
from keryx.core.ports.agent import Agent, AgentEvent, TurnContext
from keryx.core.text import truncate
from keryx.jsonrpc import Json, RpcError
from keryx.jsonrpc.frames import read_frames
from keryx.jsonrpc.peer import IncomingRequest, Peer, serve

log = logging.getLogger(__name__)

# A process that does not answer for this long is ended: code that keeps the interpreter lock has blocked it.
_ANSWER_SECONDS = 10.0
# An agent waits until its last event was taken. More than these mean that something else speaks for it.
_MAX_EVENTS = 16
# What goes to the log of the hub.
_MAX_LOG_CHARS = 10_000
_MAX_LOGGER_CHARS = 100
_MAX_LOG_RECORDS = 1_000


class _Turn:
    """A running turn: the events that its agent has yielded, each with the future that lets it go on."""

    def __init__(self, context: TurnContext) -> None:
        self.context = context
        self.events: asyncio.Queue[tuple[AgentEvent, asyncio.Future[None]] | None] = asyncio.Queue()


class PythonProcess:
    """One process of an agent."""

    def __init__(self, path: str, child: ChildProcess, log_limit: LineLimit, *, max_frame_bytes: int) -> None:
        self._path = path
        self._child = child
        self._max_frame_bytes = max_frame_bytes
        self._peer = Peer(child.write, sends_cancel=True)
        self._turns: dict[int, _Turn] = {}
        self._numbers = itertools.count(1)
        self._log_limit = log_limit
        self._reading = asyncio.create_task(self._read())
        self.loading = asyncio.create_task(self._load())
        # A process that ends before anything waits for it is not an error of this task.
        self.loading.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def ended(self) -> bool:
        return self._reading.done()

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        number, turn = next(self._numbers), _Turn(context)
        self._turns[number] = turn
        params = {"run": number, "context": agent_wire.encode_context(context)}
        running = asyncio.create_task(self._request(agent_wire.RUN, params))
        running.add_done_callback(lambda _: turn.events.put_nowait(None))
        try:
            while (offered := await turn.events.get()) is not None:
                event, wanted = offered
                yield event
                wanted.set_result(None)
            agent_wire.unwrap(running.result())
        finally:
            del self._turns[number]
            if not running.done():
                running.cancel()
                with suppress(asyncio.CancelledError, AgentCrashed):
                    await running

    async def check(self) -> bool:
        """Return whether the process answers."""
        try:
            await self._request(agent_wire.PING, {}, seconds=_ANSWER_SECONDS)
        except (TimeoutError, AgentCrashed):
            return False
        return True

    async def stop(self) -> None:
        """End the process. What still runs in it fails."""
        await self._child.stop()
        self.loading.cancel()
        await asyncio.wait({self._reading, self.loading})

    async def handle_request(self, request: IncomingRequest) -> object:
        turn = self._turns.get(agent_wire.decode(request.params.get("run"), int))
        if turn is None:
            raise Invalid("this turn has ended")
        if request.method != agent_wire.EVENT:
            return await agent_wire.answer_call(turn.context, request.method, request.params)
        if turn.events.qsize() >= _MAX_EVENTS:
            raise Invalid("events come faster than they are taken: wait for the answer to each")
        wanted = asyncio.get_running_loop().create_future()
        turn.events.put_nowait((agent_wire.decode_event(request.params), wanted))
        await wanted
        return {}

    async def handle_notification(self, method: str, params: Json) -> None:
        if method != agent_wire.LOG or not self._log_limit.allows_line():
            return
        name = agent_wire.decode(params.get("logger"), str)[:_MAX_LOGGER_CHARS]
        message = truncate(str(params.get("message")), _MAX_LOG_CHARS)
        level = max(logging.DEBUG, min(agent_wire.decode(params.get("level"), int), logging.CRITICAL))
        logging.getLogger(name).log(level, "%s", message, extra={"agent": self._path})

    async def _load(self) -> None:
        agent_wire.unwrap(await self._request(agent_wire.LOAD, {"path": sys.path}))

    async def _request(self, method: str, params: Json, *, seconds: float = math.inf) -> Json:
        """Raise `AgentCrashed` if the process ends before it has answered."""
        try:
            return await self._peer.request(method, params, seconds=seconds)
        except (BrokenPipeError, RpcError) as exc:
            raise AgentCrashed(
                type(exc).__name__, f"the process of the agent {self._path} failed: {exc}"
            ) from exc

    async def _read(self) -> None:
        frames = read_frames(self._child.chunks(), limit=self._max_frame_bytes)
        try:
            await serve(self._peer, frames, self)
        except* BrokenPipeError:
            log.info("the process of the agent %s closed its input", self._path)
        finally:
            await self._child.stop()
            code = await self._child.wait()
            self._peer.fail_pending(
                lambda: AgentCrashed(
                    f"exit code {code}",
                    f"the process of the agent {self._path} ended with the exit code {code}",
                )
            )


class ProcessAgent:
    """An agent in a process of its own, so that it can neither end nor slow down this one. `file_bytes` is the length of the
    largest file that is kept."""

    def __init__(self, path: str, *, file_bytes: int = 0) -> None:
        self._path = path
        self._max_frame_bytes = agent_wire.compute_frame_limit(file_bytes)
        self._process: PythonProcess | None = None
        self._starting = asyncio.Lock()

    async def load(self) -> None:
        """Start the process and wait a while until the agent is loaded. Raise `Invalid` if its settings are wrong. An
        agent that fails or is slow is only logged: its turns fail with the reason, or wait for it."""
        await check_loading(f"the agent {self._path}", (await self._start()).loading)

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        process = await self._find_process()
        with describe_unusable():
            await asyncio.shield(process.loading)
        async for event in process.run(context):
            yield event

    async def close(self) -> None:
        if self._process:
            await self._process.stop()

    async def _find_process(self) -> PythonProcess:
        """Return a process that answers. One that has ended, failed to load or does not answer is replaced."""
        async with self._starting:
            process = self._process
            if process and not process.ended:
                failed = process.loading.done() and process.loading.exception() is not None
                if not failed and (not process.loading.done() or await process.check()):
                    return process
                if not failed:
                    log.error("the process of the agent %s does not answer: it is started again", self._path)
                await process.stop()
            return await self._start()

    async def _start(self) -> PythonProcess:
        command = [sys.executable, "-m", "keryx.agents.python_main", self._path]
        limit = LineLimit(f"the agent {self._path}", _MAX_LOG_RECORDS)
        try:
            child = await child_process.start(
                command, env=os.environ, cwd=os.getcwd(), on_error_line=partial(_print_line, limit)
            )
        except OSError as exc:
            raise Unavailable(f"the process of the agent {self._path} cannot be started: {exc}") from exc
        self._process = PythonProcess(self._path, child, limit, max_frame_bytes=self._max_frame_bytes)
        return self._process


def _print_line(limit: LineLimit, line: str) -> bool:
    """Print what an agent has printed, within the limit of its log. Return whether there may be more."""
    if limit.allows_line():
        print(truncate(line, _MAX_LOG_CHARS), file=sys.__stderr__)
    return not limit.is_reached


@asynccontextmanager
async def open_agent(path: str, *, file_bytes: int = 0) -> AsyncGenerator[Agent]:
    """Open the agent at `package.module:object` in a process of its own. Raise `Invalid` if there is no such agent."""
    agent = ProcessAgent(path, file_bytes=file_bytes)
    try:
        await agent.load()
        yield agent
    finally:
        await agent.close()
