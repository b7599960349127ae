"""Loads an agent from `package.module:object` and checks the events that it yields."""

import importlib
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import reduce
from typing import Any, TypeAlias, cast

from keryx.core.errors import AgentFailed, Invalid
from keryx.core.ports.agent import Agent, AgentEvent, TurnContext

RunFunction: TypeAlias = Callable[[TurnContext], AsyncGenerator[AgentEvent, None]]

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
                    raise AgentFailed(
                        f"The agent {self.path} yielded a {kind}; it may yield the events of keryx.core.ports.agent, such as TextDelta."
                    )
                yield event


def load(path: str) -> Agent:
    """Load the agent at `package.module:object`. Raise `Invalid` with a sentence that says what to fix."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise Invalid(f"agent = {path!r} is not a path to an object: write package.module:object")
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as exc:
        if exc.name and (module == exc.name or module.startswith(f"{exc.name}.")):
            raise Invalid(
                f"agent = {path!r}: there is no module {exc.name!r}; install it, or put its folder on PYTHONPATH"
            ) from exc
        raise Invalid(
            f"agent = {path!r}: {module} needs the module {exc.name!r}, which is not installed"
        ) from exc
    except Exception as exc:
        raise Invalid(f"agent = {path!r}: importing {module} failed: {type(exc).__name__}: {exc}") from exc
    try:
        target = reduce(getattr, name.split("."), imported)
    except AttributeError as exc:
        raise Invalid(f"agent = {path!r}: {module} has no {name!r}") from exc
    return PythonAgent(path, _find_run(target, path))


def _find_run(target: object, path: str) -> RunFunction:
    if inspect.isclass(target):
        try:
            target = target()
        except Exception as exc:
            raise Invalid(
                f"agent = {path!r}: making a {target.__name__} failed: {type(exc).__name__}: {exc}"
            ) from exc
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
