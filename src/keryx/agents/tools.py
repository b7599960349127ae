"""Tools that an agent can call: the toolbox interface, concurrent execution of calls, permission rules, and the tool sets of a session."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Protocol, TypeAlias

import msgspec

from keryx import metrics
from keryx.agents import permission_rules
from keryx.core import questions
from keryx.core.cache import LruCache
from keryx.core.errors import KeryxError
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.ports.agent import FileEvent, TurnContext
from keryx.core.questions import Question
from keryx.core.texts import Phrase

log = logging.getLogger(__name__)
# Characters of the output of a tool that are kept.
LONGEST_OUTPUT = 50_000
NOT_ALLOWED = (
    "The person did not allow this, so it was not done. Do not try it again; ask what to do instead."
)
NOBODY_ANSWERED = "This needs a permission and nobody answered, so it was not done."
_MOST_REMEMBERED = 1000


class ToolFailed(KeryxError):
    """A tool failed. The message goes to the model, not to the user."""


class ToolRefused(ToolFailed):
    """A person did not allow the call."""


class Permission(StrEnum):
    """What happens when the model wants to use a tool. A denied one is not offered."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    # The JSON schema of an object.
    parameters: Mapping[str, Any] = msgspec.field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    # It is safe to run it again after a crash.
    repeatable: bool = False
    permission: Permission = Permission.ALLOW


class ToolOutput(msgspec.Struct, frozen=True):
    """The output of a tool: text for the model, and files for the user."""

    text: str
    files: tuple[FileEvent, ...] = ()


class CompletedCall(msgspec.Struct, frozen=True):
    """The stored result of a call, and files for the user."""

    result: ToolResult
    files: tuple[FileEvent, ...] = ()


class Toolbox(Protocol):
    """The tools of a turn."""

    async def specs(self, context: TurnContext) -> Sequence[ToolSpec]: ...

    def warnings(self, context: TurnContext) -> Sequence[str]:
        """Return sentences for the user about tools that are not available, each once in a session."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> ToolOutput:
        """Run a tool. It has its own timeout and is cancelled with the turn. Raise `ToolFailed` with a sentence for
        the model."""
        ...


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
    """Run calls concurrently and yield each result as soon as it is there."""
    specs_by_name = {s.name: s for s in specs}
    # A task group may not span a yield, so each task is awaited or cancelled here.
    tasks = [asyncio.ensure_future(_run_call(toolbox, call, specs_by_name, context)) for call in calls]
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
    toolbox: Toolbox, call: ToolCall, specs: Mapping[str, ToolSpec], context: TurnContext
) -> CompletedCall:
    spec, outcome = specs.get(call.name), "cancelled"
    try:
        if spec is None:
            tools = ", ".join(specs) or "none"
            raise ToolFailed(f"There is no tool {call.name!r}. The tools are: {tools}.")
        try:
            arguments = msgspec.json.decode(call.input.strip() or "{}", type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as exc:
            raise ToolFailed(
                f"The arguments are not a JSON object ({exc}); nothing was done. Call the tool again with valid JSON."
            ) from exc
        await _check_permission(spec, call, arguments, context)
        output = await toolbox.call(call.name, arguments, context)
        outcome = "ok"
    except ToolFailed as exc:
        outcome = "refused" if isinstance(exc, ToolRefused) else "failed"
        return CompletedCall(ToolResult(call.id, call.name, truncate_output(str(exc)), failed=True))
    except Exception as exc:
        log.exception("tool %s of turn %s raised", call.name, context.turn)
        outcome = "failed"
        text = f"The tool failed ({type(exc).__name__})."
        return CompletedCall(ToolResult(call.id, call.name, text, failed=True))
    finally:
        # The model makes up unknown names, so they are counted together.
        metrics.TOOL_CALLS.add(spec.name if spec else metrics.OTHER, outcome)
    return CompletedCall(ToolResult(call.id, call.name, truncate_output(output.text)), output.files)


def truncate_output(text: str) -> str:
    """Shorten the output of a tool, with a note if it was cut."""
    if len(text) <= LONGEST_OUTPUT:
        return text
    return f"{text[:LONGEST_OUTPUT]}\n[Cut: the output has {len(text):,} characters, and the first {LONGEST_OUTPUT:,} are kept.]"


async def _check_permission(
    spec: ToolSpec, call: ToolCall, arguments: Mapping[str, Any], context: TurnContext
) -> None:
    """Raise `ToolFailed` if the call may not run. Asks the user if the permission says so."""
    if spec.permission is Permission.ALLOW:
        return
    if spec.permission is Permission.DENY:
        raise ToolRefused(NOT_ALLOWED)
    scope = permission_rules.find_scope(call.name, arguments, cwd=context.cwd)
    title = Phrase("question.may_use", tool=call.name)
    question = Question(
        key=call.id,
        title=str(title),
        phrase=title.store(),
        detail=call.input,
        tool=call.name,
        rules=scope.rules,
        options=questions.build_permission_options(scope.label),
    )
    answer = await context.ask(question)
    if answer is None:
        raise ToolRefused(NOBODY_ANSWERED)
    if not questions.find_consent(question, answer).allows:
        raise ToolRefused(NOT_ALLOWED)


# Permissions by patterns of tool names. A dict holds the patterns of the surface that is its key.
PermissionRules: TypeAlias = Mapping[str, Permission | dict[str, Permission]]


def decide_permission(rules: PermissionRules, tool: str, surface: str, *, default: Permission) -> Permission:
    """Return the permission of a tool on a surface. Rules of the surface take precedence over general ones, and longer
    patterns over shorter ones."""
    own = rules.get(surface)
    general = {p: rule for p, rule in rules.items() if isinstance(rule, Permission)}
    for table in (own if isinstance(own, dict) else {}, general):
        matching = [p for p in table if fnmatchcase(tool, p)]
        if matching:
            return table[max(matching, key=len)]
    return default


class ToolSets:
    """The tool sets that a session has switched on; by default all. A set without a name is always on."""

    def __init__(self, sets: Mapping[str, Toolbox], *, rules: PermissionRules) -> None:
        self._sets = sets
        self._rules = rules
        self._owners: dict[str, Toolbox] = {}
        self._shown_warnings: LruCache[tuple[str, str], None] = LruCache(_MOST_REMEMBERED)

    async def specs(self, context: TurnContext) -> Sequence[ToolSpec]:
        chosen = self._select_sets(context)
        offered: dict[str, ToolSpec] = {}
        for toolbox, specs in zip(
            chosen, await asyncio.gather(*(t.specs(context) for t in chosen)), strict=True
        ):
            for spec in specs:
                permission = decide_permission(
                    self._rules, spec.name, context.surface, default=spec.permission
                )
                if permission is not Permission.DENY and spec.name not in offered:
                    offered[spec.name] = msgspec.structs.replace(spec, permission=permission)
                    self._owners[spec.name] = toolbox
        return list(offered.values())

    def warnings(self, context: TurnContext) -> Sequence[str]:
        warnings = [text for toolbox in self._select_sets(context) for text in toolbox.warnings(context)]
        return [text for text in warnings if self._is_first_time(context.session, text)]

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

    def _is_first_time(self, session: str, text: str) -> bool:
        if (session, text) in self._shown_warnings:
            return False
        self._shown_warnings.put((session, text), None)
        return True
