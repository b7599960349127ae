"""Tools: what an agent may call, and how the calls of one step are run: all at once, each answered when it is done.

A tool that fails tells the model so and the turn goes on; only the toolbox itself may end a turn.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from keryx.core import questions
from keryx.core.errors import KeryxError
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.ports import Attached, TurnContext
from keryx.core.questions import Question

log = logging.getLogger(__name__)

LONGEST_OUTPUT = 50_000
"""How many characters of a tool's output are kept."""

NOT_ALLOWED = (
    "The person did not allow this, so it was not done. Do not try it again; ask what to do instead."
)
NOBODY_ANSWERED = "This needs a permission and nobody answered, so it was not done."


class ToolFailed(KeryxError):
    """A tool could not do what it was asked to. The model is told, not the person."""


class Permission(StrEnum):
    """What happens when the model wants to use a tool. A denied one is not offered to it at all."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the model is told of it. `parameters` is the JSON schema of an object. `repeatable`: running it
    twice does no harm, so it is run again after a crash."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = msgspec.field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    repeatable: bool = False
    permission: Permission = Permission.ALLOW


class Output(msgspec.Struct, frozen=True):
    """What a tool gave: a text for the model, and pictures, sounds and files for the person."""

    text: str
    attached: tuple[Attached, ...] = ()


class Finished(msgspec.Struct, frozen=True):
    """A call that is over, as it is stored, with what it has for the person."""

    result: ToolResult
    attached: tuple[Attached, ...] = ()


class Toolbox(Protocol):
    """The tools of a turn. `call` is given an object that was valid JSON, is cancelled with the turn, keeps its
    own time limit, and raises `ToolFailed` with a sentence for the model. `troubles` are sentences for the person
    about tools that cannot be offered now, each told once in a session."""

    async def specs(self, context: TurnContext) -> Sequence[Spec]: ...

    def troubles(self, context: TurnContext) -> Sequence[str]: ...

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> Output: ...


class NoTools:
    async def specs(self, context: TurnContext) -> Sequence[Spec]:
        return ()

    def troubles(self, context: TurnContext) -> Sequence[str]:
        return ()

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> Output:
        raise ToolFailed(f"There is no tool {name!r}.")


async def run(
    toolbox: Toolbox, calls: Sequence[ToolCall], specs: Sequence[Spec], context: TurnContext
) -> AsyncGenerator[Finished, None]:
    """Run calls at the same time, and give each result when it is there, so that none is lost with a slower one."""
    known = {s.name: s for s in specs}
    # No task group: it may not span a yield. Each task is awaited or cancelled here, whatever the caller does.
    tasks = [asyncio.ensure_future(_result(toolbox, call, known, context)) for call in calls]
    waiting = set(tasks)
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=tasks.index):
                yield task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _result(
    toolbox: Toolbox, call: ToolCall, known: Mapping[str, Spec], context: TurnContext
) -> Finished:
    try:
        spec = known.get(call.name)
        if spec is None:
            tools = ", ".join(known) or "none"
            raise ToolFailed(f"There is no tool {call.name!r}. The tools are: {tools}.")
        arguments = _arguments(call)
        await _permit(spec, call, context)
        output = await toolbox.call(call.name, arguments, context)
    except ToolFailed as exc:
        return Finished(ToolResult(call.id, call.name, capped(str(exc)), failed=True))
    except Exception as exc:
        log.exception("tool %s of turn %s raised", call.name, context.turn)
        text = f"The tool failed ({type(exc).__name__})."
        return Finished(ToolResult(call.id, call.name, text, failed=True))
    return Finished(ToolResult(call.id, call.name, capped(output.text)), output.attached)


def capped(text: str) -> str:
    """A text of a tool as far as it is kept, with a note where it was cut."""
    if len(text) <= LONGEST_OUTPUT:
        return text
    return f"{text[:LONGEST_OUTPUT]}\n[Cut: the output has {len(text):,} characters, and the first {LONGEST_OUTPUT:,} are kept.]"


async def _permit(spec: Spec, call: ToolCall, context: TurnContext) -> None:
    """Return if the call may be run; a person is asked where that is the rule."""
    if spec.permission is Permission.ALLOW:
        return
    if spec.permission is Permission.DENY:
        raise ToolFailed(NOT_ALLOWED)
    question = Question(
        key=call.id, title=f"May the agent use {call.name}?", detail=call.input, tool=call.name
    )
    answer = await context.ask(question)
    if answer is None:
        raise ToolFailed(NOBODY_ANSWERED)
    if not questions.consent(question, answer).allows:
        raise ToolFailed(NOT_ALLOWED)


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        return msgspec.json.decode(call.input.strip() or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as exc:
        raise ToolFailed(
            f"The arguments are not a JSON object ({exc}); nothing was done. Call the tool again with valid JSON."
        ) from exc
