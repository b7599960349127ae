"""Which tools a turn is offered, and what happens when the model uses them: allowed, asked for, denied, cut."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from tests.agents.conversation import Tools, a_context

from keryx.agents import tools
from keryx.agents.tools import (
    LONGEST_OUTPUT,
    NOBODY_ANSWERED,
    NOT_ALLOWED,
    NoTools,
    Permission,
    PermissionRules,
    ToolFailed,
    ToolOutput,
    ToolSets,
    ToolSpec,
    decide_permission,
)
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.ports.agent import TurnContext
from keryx.core.questions import AskPerson, Question
from keryx.core.sessions import SessionSettings

ALLOW, ASK, DENY = Permission.ALLOW, Permission.ASK, Permission.DENY
RULES: PermissionRules = {
    "files_*": ASK,
    "files_read*": ALLOW,
    "gateway": {"files_*": DENY, "files_read_one": ASK},
    "*_all": DENY,
}


@pytest.mark.parametrize(
    ("tool", "surface", "given"),
    [
        ("files_write", "cli", ASK),
        ("files_read_one", "cli", ALLOW),
        ("files_read_one", "gateway", ASK),
        ("files_read", "gateway", DENY),
        ("mail_all", "web", DENY),
        ("mail_send", "web", ASK),
    ],
)
def test_the_longest_pattern_wins_and_a_surface_goes_first(
    tool: str, surface: str, given: Permission
) -> None:
    assert decide_permission(RULES, tool, surface, default=ASK) is given


def answering(answer: str | None) -> tuple[AskPerson, list[Question]]:
    asked: list[Question] = []

    async def ask(question: Question) -> str | None:
        asked.append(question)
        return answer

    return ask, asked


async def results(
    toolbox: tools.Toolbox, context: TurnContext, *calls: ToolCall, specs: Sequence[ToolSpec] | None = None
) -> list[ToolResult]:
    offered = await toolbox.specs(context) if specs is None else specs
    return [f.result async for f in tools.run_calls(toolbox, calls, offered, context)]


@pytest.mark.parametrize(
    ("answer", "output", "ran"),
    [
        ("allow", "look found x", True),
        ("always", "look found x", True),
        ("deny", NOT_ALLOWED, False),
        (None, NOBODY_ANSWERED, False),
    ],
)
async def test_a_tool_that_asks_runs_only_with_consent(answer: str | None, output: str, ran: bool) -> None:
    ask, asked = answering(answer)
    inner = Tools()
    toolbox = ToolSets({"test": inner}, rules={"look": ASK})
    context = msgspec.structs.replace(a_context(), ask=ask)
    (result,) = await results(toolbox, context, ToolCall("c1", "look", '{"q": "x"}'))
    assert (result.output, result.failed) == (output, not ran)
    assert bool(inner.called) is ran
    (question,) = asked
    assert (question.key, question.title) == ("c1", "May the agent use look?")
    assert (question.detail, question.tool, question.rules) == ('{"q": "x"}', "look", ("look",))
    assert [o.label for o in question.options] == ["Allow", "Always allow look in this conversation", "Deny"]


async def test_always_is_offered_for_what_the_question_shows() -> None:
    ask, asked = answering("deny")
    toolbox = ToolSets({"test": Tools()}, rules={"*": ASK})
    context = msgspec.structs.replace(a_context(), ask=ask, cwd="/home/ada")
    for input_ in ('{"command": "git log"}', '{"command": "git log; rm x"}', '{"path": "site/a.txt"}'):
        await results(toolbox, context, ToolCall("c1", "look", input_))
    assert [q.options[1].label for q in asked] == [
        "Always allow git commands in this conversation",
        "Always allow exactly this command in this conversation",
        "Always allow look in /home/ada/site in this conversation",
    ]
    # What is stored with the consent is what the label says.
    assert [q.rules[0] for q in asked] == ["look(git *)", "look(git log; rm x)", "look(/home/ada/site/)"]


async def test_nobody_is_asked_about_arguments_that_are_wrong_anyway() -> None:
    ask, asked = answering("allow")
    context = msgspec.structs.replace(a_context(), ask=ask)
    toolbox = ToolSets({"test": Tools()}, rules={"*": ASK})
    (result,) = await results(toolbox, context, ToolCall("c1", "look", "{nonsense"))
    assert result.failed and "not a JSON object" in result.output and not asked


async def test_a_denied_tool_is_not_offered_and_a_call_of_it_does_nothing() -> None:
    inner = Tools()
    toolbox = ToolSets({"test": inner}, rules={"send": DENY})
    specs = await toolbox.specs(a_context())
    assert "send" not in [s.name for s in specs] and "look" in [s.name for s in specs]
    denied = ToolSpec(name="send", permission=DENY)
    made = await results(toolbox, a_context(), ToolCall("c1", "send", "{}"), specs=[*specs, denied])
    assert made == [ToolResult("c1", "send", NOT_ALLOWED, failed=True)]
    assert inner.called == []


async def test_a_session_has_the_sets_that_it_has_switched_on() -> None:
    toolbox = ToolSets({"one": Tools(), "none": NoTools()}, rules={})
    assert await toolbox.specs(a_context(settings=SessionSettings(tools=("none",)))) == []
    assert await toolbox.specs(a_context(settings=SessionSettings(tools=("one",))))
    with pytest.raises(ToolFailed, match="There is no tool"):
        await ToolSets({}, rules={}).call("look", {}, a_context())


class Broken(NoTools):
    def warnings(self, context: TurnContext) -> Sequence[str]:
        return ["The tools of 'x' are missing."]


async def test_a_trouble_is_told_once_in_a_session() -> None:
    toolbox = ToolSets({"x": Broken()}, rules={})
    assert toolbox.warnings(a_context()) == ["The tools of 'x' are missing."]
    assert toolbox.warnings(a_context()) == []
    assert toolbox.warnings(a_context(settings=SessionSettings(tools=()))) == []


class Loud(NoTools):
    async def specs(self, context: TurnContext) -> Sequence[ToolSpec]:
        return [ToolSpec(name="loud")]

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> ToolOutput:
        return ToolOutput("x" * 10_000_000)


async def test_ten_megabytes_are_cut_with_a_note() -> None:
    (result,) = await results(Loud(), a_context(), ToolCall("c1", "loud", ""))
    assert len(result.output) < LONGEST_OUTPUT + 200
    assert result.output.endswith(
        "[Cut: the output has 10,000,000 characters, and the first 50,000 are kept.]"
    )
