"""Tools: what an agent may call, and how the calls of one step are run: all at once, answered in order.

A tool that fails tells the model so and the turn goes on; only the toolbox itself may end a turn.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from keryx.core.errors import KeryxError
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.ports import TurnContext

log = logging.getLogger(__name__)


class ToolFailed(KeryxError):
    """A tool could not do what it was asked to. The model is told, not the person."""


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the model is told of it. `parameters` is the JSON schema of an object. `repeatable`: running it
    twice does no harm, so it is run again after a crash."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = msgspec.field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    repeatable: bool = False


class Toolbox(Protocol):
    """The tools of a turn. `call` is given an object that was valid JSON, is cancelled with the turn, keeps its
    own time limit, and raises `ToolFailed` with a sentence for the model."""

    async def specs(self, context: TurnContext) -> Sequence[Spec]: ...

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> str: ...


class NoTools:
    async def specs(self, context: TurnContext) -> Sequence[Spec]:
        return ()

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> str:
        raise ToolFailed(f"There is no tool {name!r}.")


async def run(
    toolbox: Toolbox, calls: Sequence[ToolCall], specs: Sequence[Spec], context: TurnContext
) -> AsyncGenerator[ToolResult, None]:
    """Run calls at the same time, and give their results in the order of the calls, each as soon as it can be."""
    known = [s.name for s in specs]
    # No task group: it may not span a yield. Each task is awaited or cancelled here, whatever the caller does.
    tasks = [asyncio.ensure_future(_result(toolbox, call, known, context)) for call in calls]
    try:
        for task in tasks:
            yield await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _result(toolbox: Toolbox, call: ToolCall, known: Sequence[str], context: TurnContext) -> ToolResult:
    try:
        if call.name not in known:
            tools = ", ".join(known) or "none"
            raise ToolFailed(f"There is no tool {call.name!r}. The tools are: {tools}.")
        output = await toolbox.call(call.name, _arguments(call), context)
    except ToolFailed as exc:
        return ToolResult(call.id, call.name, str(exc), failed=True)
    except Exception as exc:
        log.exception("tool %s of turn %s raised", call.name, context.turn)
        return ToolResult(call.id, call.name, f"The tool failed ({type(exc).__name__}).", failed=True)
    return ToolResult(call.id, call.name, output)


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        return msgspec.json.decode(call.input.strip() or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as exc:
        raise ToolFailed(
            f"The arguments are not a JSON object ({exc}); nothing was done. Call the tool again with valid JSON."
        ) from exc
