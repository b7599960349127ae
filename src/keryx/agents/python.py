"""Loads an agent from `package.module:object`, runs it in threads of its own, and checks the events that it yields."""

import asyncio
import importlib
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial, reduce
from typing import Any, TypeAlias, cast

import msgspec

from keryx.agents import frameworks
from keryx.agents.frameworks import RunFunction
from keryx.core.clock import Clock
from keryx.core.errors import AgentFailed, Invalid, KeryxError, Unavailable
from keryx.core.messages import Message
from keryx.core.ports.agent import Agent, AgentEvent, TurnContext
from keryx.core.sessions import Session
from keryx.core.texts import Phrase
from keryx.plugin_thread import (
    PluginBlocked,
    PluginExit,
    PluginThread,
    bind_to_loop,
    guard_plugin,
    name_error,
)

log = logging.getLogger(__name__)

LOAD_SECONDS = 2.0
_BEGIN_SECONDS = 0.25
_MAX_THREADS = 8

SessionEndFunction: TypeAlias = Callable[[Session, Sequence[Message], str], Coroutine[Any, Any, None]]

_SIGNATURE_HELP = "write `async def agent(context): yield TextDelta(...)`"


class PythonAgent:
    """A user's own agent. A value that is not an event raises `AgentFailed`."""

    def __init__(self, path: str, run: RunFunction) -> None:
        self.path = path
        self._run = run

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        async with aclosing(self._run(context)) as events:
            async for event in events:
                if not isinstance(cast(object, event), AgentEvent):
                    kind = type(event).__name__
                    reason = f"{self.path} yielded a {kind}; it may yield the events of keryx.core.ports.agent, such as TextDelta."
                    raise AgentFailed(Phrase("agent.unusable", reason=reason))
                yield event


class ThreadedAgent:
    """An agent in threads of its own, so that it can neither block nor end the hub. All turns share one thread; while
    that is blocked, new turns begin in another one, up to a limit."""

    def __init__(self, name: str, make: Callable[[], Agent]) -> None:
        async def run() -> Agent:
            return make()

        self._name = name
        self._threads = [PluginThread(name)]
        self._loading = asyncio.create_task(self._threads[0].run(run))

    async def load(self) -> None:
        """Wait a while until the agent is loaded. Raise `Invalid` if its settings are wrong. An agent that fails or is
        slow is only logged: its turns fail with the reason, or wait for it."""
        await check_loading(self._name, self._loading)

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        with describe_unusable():
            agent = await self.wait_until_loaded()
        # A context for another thread: what it calls runs in the loop of the hub.
        hub = asyncio.get_running_loop()
        bound = msgspec.structs.replace(
            context,
            history=bind_to_loop(hub, context.history),
            fetch_new_messages=bind_to_loop(hub, context.fetch_new_messages),
            ask=bind_to_loop(hub, context.ask),
            fetch=bind_to_loop(hub, context.fetch),
            clock=_HubClock(hub, context.clock),
        )
        while True:
            thread, seconds = self._choose_thread()
            try:
                stream = thread.stream(lambda: agent.run(bound), begin_within=seconds)
                async with aclosing(stream) as events:
                    async for event in events:
                        yield event
                return
            except PluginBlocked as exc:
                log.info("the turn %s begins in another thread: %s", context.turn, exc)

    async def close(self) -> None:
        """Cancel what the agent still runs, and end its threads."""
        self._loading.cancel()
        await asyncio.gather(*(thread.stop() for thread in self._threads))

    async def wait_until_loaded(self) -> Agent:
        """Return the agent when it is loaded. Raise the error that prevents it."""
        return await asyncio.shield(self._loading)

    def _choose_thread(self) -> tuple[PluginThread, float | None]:
        """Return the thread for a new turn, and how long it may take to begin it: any time if all are blocked."""
        free = next((t for t in self._threads if not t.blocked), None)
        if free is None and len(self._threads) == _MAX_THREADS:
            return self._threads[0], None
        if free is None:
            free = PluginThread(f"{self._name} (thread {len(self._threads) + 1})")
            self._threads.append(free)
        return free, _BEGIN_SECONDS


async def check_loading(name: str, loading: "asyncio.Task[Any]") -> None:
    """Wait a while until an agent is loaded. Raise `Invalid` if its settings are wrong, and log other errors."""
    done, _ = await asyncio.wait({loading}, timeout=LOAD_SECONDS)
    error = loading.exception() if done else None
    if isinstance(error, Invalid):
        raise error
    if error is not None:
        log.error("%s cannot be used: %s", name, error, exc_info=error)
    elif not done:
        log.warning("%s is still loading after %.0f seconds; its turns wait", name, LOAD_SECONDS)


@contextmanager
def describe_unusable() -> Generator[None]:
    """Raise `AgentFailed` for what prevents an agent from being loaded."""
    try:
        yield
    except KeryxError as exc:
        raise AgentFailed(Phrase("agent.unusable", reason=exc.text)) from exc


class _HubClock:
    """The clock of the hub, for another thread."""

    def __init__(self, hub: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.now = clock.now
        self.monotonic = clock.monotonic
        self.sleep = bind_to_loop(hub, clock.sleep)


@asynccontextmanager
async def open_agent(path: str) -> AsyncGenerator[Agent]:
    """Open the agent at `package.module:object` in threads of its own. Raise `Invalid` if there is no such agent."""
    agent = ThreadedAgent(f"the agent {path}", partial(load, path))
    try:
        await agent.load()
        yield agent
    finally:
        await agent.close()


@asynccontextmanager
async def open_end_hook(path: str) -> AsyncGenerator[SessionEndFunction]:
    """Open the function at `package.module:object` that is called when a session has ended, in a thread of its own. Raise
    `Invalid` if there is none, and `Unavailable` if its module fails."""
    thread = PluginThread(f"the hook {path}")

    async def find() -> SessionEndFunction:
        target = _import_object(path, "session_end.hooks")
        if not inspect.iscoroutinefunction(target):
            raise Invalid(
                f"session_end.hooks: {path!r} is not an async function: write `async def hook(session, messages, reason): ...`"
            )
        return cast(SessionEndFunction, target)

    try:
        hook = await thread.run(find)

        async def call(session: Session, messages: Sequence[Message], reason: str) -> None:
            await thread.run(lambda: hook(session, messages, reason))

        yield call
    finally:
        await thread.stop()


def load(path: str) -> Agent:
    """Load the agent at `package.module:object`. Raise `Invalid` with a sentence that says what to fix, and `Unavailable`
    if its own code fails."""
    return PythonAgent(path, _find_run(_import_object(path, "agent"), path))


def _import_object(path: str, setting: str) -> object:
    """Import the object that a setting names."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise Invalid(f"{setting} = {path!r} is not a path to an object: write package.module:object")
    try:
        with guard_plugin():
            imported = importlib.import_module(module)
    except ModuleNotFoundError as exc:
        if exc.name and (module == exc.name or module.startswith(f"{exc.name}.")):
            raise Invalid(
                f"{setting} = {path!r}: there is no module {exc.name!r}; install it, or put its folder on PYTHONPATH"
            ) from exc
        raise Invalid(
            f"{setting} = {path!r}: {module} needs the module {exc.name!r}, which is not installed"
        ) from exc
    except Exception as exc:
        raise Unavailable(f"{setting} = {path!r}: importing {module} failed: {_describe_error(exc)}") from exc
    try:
        return reduce(getattr, name.split("."), imported)
    except AttributeError as exc:
        raise Invalid(f"{setting} = {path!r}: {module} has no {name!r}") from exc


def _find_run(target: object, path: str) -> RunFunction:
    if inspect.isclass(target):
        kind = target.__name__
        try:
            with guard_plugin():
                target = target()
        except Exception as exc:
            raise Unavailable(f"agent = {path!r}: making a {kind} failed: {_describe_error(exc)}") from exc
    if found := frameworks.find_run(target):
        return found
    method = getattr(target, "run", None)
    run: Any = method if callable(method) else target
    if not callable(run):
        raise Invalid(
            f"agent = {path!r} is a {type(target).__name__}, which cannot be called: {_SIGNATURE_HELP}"
        )
    if not (inspect.isasyncgenfunction(run) or inspect.isasyncgenfunction(type(run).__call__)):
        raise Invalid(f"agent = {path!r} is not an async generator function: {_SIGNATURE_HELP}")
    try:
        inspect.signature(run).bind(None)
    except TypeError as exc:
        raise Invalid(
            f"agent = {path!r} must take one argument, the turn's context: {_SIGNATURE_HELP}"
        ) from exc
    return cast(RunFunction, run)


def _describe_error(error: Exception) -> str:
    return name_error(error) if isinstance(error, PluginExit) else f"{type(error).__name__}: {error}"
