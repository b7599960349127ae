"""Tools that an agent can call: the toolbox interface, concurrent execution of calls, permission rules, and the tool sets of a session."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeAlias

import msgspec

from keryx.core import questions
from keryx.core.cache import LruCache
from keryx.core.errors import KeryxError
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.ports.agent import FileEvent, TurnContext
from keryx.core.questions import Question

log = logging.getLogger(__name__)
LONGEST_OUTPUT = 50_000
NOT_ALLOWED = (
    "The person did not allow this, so it was not done. Do not try it again; ask what to do instead."
)
NOBODY_ANSWERED = "This needs a permission and nobody answered, so it was not done."
_MOST_REMEMBERED = 1000
"""How many characters of a tool's output are kept."""


class ToolFailed(KeryxError):
    """A tool could not do what it was asked to. The model is told, not the person."""


class Permission(StrEnum):
    """What happens when the model wants to use a tool. A denied one is not offered to it at all."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the model is told of it. `parameters` is the JSON schema of an object. `repeatable`: running it
    twice does no harm, so it is run again after a crash."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = msgspec.field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    repeatable: bool = False
    permission: Permission = Permission.ALLOW


class ToolOutput(msgspec.Struct, frozen=True):
    """What a tool gave: a text for the model, and pictures, sounds and files for the person."""

    text: str
    files: tuple[FileEvent, ...] = ()


class CompletedCall(msgspec.Struct, frozen=True):
    """A call that is over, as it is stored, with what it has for the person."""

    result: ToolResult
    files: tuple[FileEvent, ...] = ()


class Toolbox(Protocol):
    """The tools of a turn. `call` is given an object that was valid JSON, is cancelled with the turn, keeps its
    own time limit, and raises `ToolFailed` with a sentence for the model. `troubles` are sentences for the person
    about tools that cannot be offered now, each told once in a session."""

    async def specs(self, context: TurnContext) -> Sequence[ToolSpec]: ...

    def warnings(self, context: TurnContext) -> Sequence[str]: ...

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> ToolOutput: ...


class NoTools:
    async def specs(self, context: TurnContext) -> Sequence[ToolSpec]:
        return ()

    def warnings(self, context: TurnContext) -> Sequence[str]:
        return ()

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> ToolOutput:
        raise ToolFailed(f"There is no tool {name!r}.")


async def run_calls(
    toolbox: Toolbox, calls: Sequence[ToolCall], specs: Sequence[ToolSpec], context: TurnContext
) -> AsyncGenerator[CompletedCall, None]:
    """Run calls at the same time, and give each result when it is there, so that none is lost with a slower one."""
    known = {s.name: s for s in specs}
    # No task group: it may not span a yield. Each task is awaited or cancelled here, whatever the caller does.
    tasks = [asyncio.ensure_future(_run_call(toolbox, call, known, context)) for call in calls]
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


async def _run_call(
    toolbox: Toolbox, call: ToolCall, known: Mapping[str, ToolSpec], context: TurnContext
) -> CompletedCall:
    try:
        spec = known.get(call.name)
        if spec is None:
            tools = ", ".join(known) or "none"
            raise ToolFailed(f"There is no tool {call.name!r}. The tools are: {tools}.")
        arguments = _parse_arguments(call)
        await _check_permission(spec, call, context)
        output = await toolbox.call(call.name, arguments, context)
    except ToolFailed as exc:
        return CompletedCall(ToolResult(call.id, call.name, truncate_output(str(exc)), failed=True))
    except Exception as exc:
        log.exception("tool %s of turn %s raised", call.name, context.turn)
        text = f"The tool failed ({type(exc).__name__})."
        return CompletedCall(ToolResult(call.id, call.name, text, failed=True))
    return CompletedCall(ToolResult(call.id, call.name, truncate_output(output.text)), output.files)


def truncate_output(text: str) -> str:
    """A text of a tool as far as it is kept, with a note where it was cut."""
    if len(text) <= LONGEST_OUTPUT:
        return text
    return f"{text[:LONGEST_OUTPUT]}\n[Cut: the output has {len(text):,} characters, and the first {LONGEST_OUTPUT:,} are kept.]"


async def _check_permission(spec: ToolSpec, call: ToolCall, context: TurnContext) -> None:
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
    if not questions.find_consent(question, answer).allows:
        raise ToolFailed(NOT_ALLOWED)


def _parse_arguments(call: ToolCall) -> dict[str, Any]:
    try:
        return msgspec.json.decode(call.input.strip() or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as exc:
        raise ToolFailed(
            f"The arguments are not a JSON object ({exc}); nothing was done. Call the tool again with valid JSON."
        ) from exc


PermissionRules: TypeAlias = Mapping[str, Permission | dict[str, Permission]]
"""Patterns of tool names with what they get; a table in place of it holds the patterns of one surface."""


def decide_permission(rules: PermissionRules, tool: str, surface: str, *, default: Permission) -> Permission:
    """What a tool gets on a surface: the surface's rules go before the general ones, and of those that fit
    the longest pattern wins. Without one the default stands."""
    own = rules.get(surface)
    general = {p: given for p, given in rules.items() if isinstance(given, Permission)}
    for table in (own if isinstance(own, dict) else {}, general):
        fitting = [p for p in table if fnmatchcase(tool, p)]
        if fitting:
            return table[max(fitting, key=len)]
    return default


class ToolSets:
    """Offers the sets that a session has switched on, all of them unless it has chosen. A set without a name is
    always on."""

    def __init__(self, sets: Mapping[str, Toolbox], *, rules: PermissionRules) -> None:
        self._sets = sets
        self._rules = rules
        self._owners: dict[str, Toolbox] = {}
        self._warned: LruCache[tuple[str, str], None] = LruCache(_MOST_REMEMBERED)

    async def specs(self, context: TurnContext) -> Sequence[ToolSpec]:
        chosen = self._select_sets(context)
        offered: dict[str, ToolSpec] = {}
        for toolbox, specs in zip(
            chosen, await asyncio.gather(*(t.specs(context) for t in chosen)), strict=True
        ):
            for spec in specs:
                given = self._apply_rules(spec, context)
                if given.permission is not Permission.DENY and given.name not in offered:
                    offered[given.name] = given
                    self._owners[given.name] = toolbox
        return list(offered.values())

    def warnings(self, context: TurnContext) -> Sequence[str]:
        found = [text for toolbox in self._select_sets(context) for text in toolbox.warnings(context)]
        return [text for text in found if self._is_first_time(context.session, text)]

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> ToolOutput:
        owner = self._owners.get(name)
        if owner is None:
            raise ToolFailed(f"There is no tool {name!r}.")
        return await owner.call(name, arguments, context)

    def _select_sets(self, context: TurnContext) -> list[Toolbox]:
        wanted = context.settings.tools
        return [
            toolbox for name, toolbox in self._sets.items() if wanted is None or not name or name in wanted
        ]

    def _apply_rules(self, spec: ToolSpec, context: TurnContext) -> ToolSpec:
        given = decide_permission(self._rules, spec.name, context.surface, default=spec.permission)
        return msgspec.structs.replace(spec, permission=given)

    def _is_first_time(self, session: str, text: str) -> bool:
        if (session, text) in self._warned:
            return False
        self._warned.put((session, text), None)
        return True
