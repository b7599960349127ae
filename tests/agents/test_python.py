"""Bring your own agent: the example runs, and each slip is one clear sentence."""

import importlib
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.agents.conversation import a_context, asked, collect, spoken

from keryx.agents.python import load
from keryx.core.errors import AgentFailed, Invalid, Unavailable
from keryx.core.ports.agent import AgentEvent, TextDelta, ToolCallEvent, ToolResultEvent, TurnContext

HERE = __name__


async def talker(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
    yield TextDelta(f"turn {context.turn}")


class Talker:
    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        yield TextDelta("from a class")


talker_object = Talker()
number = 3


class Needy:
    def __init__(self, what: str) -> None: ...


class Leaver:
    def __init__(self) -> None:
        raise SystemExit(3)


def plain(context: TurnContext) -> str:
    return "text"


async def coroutine(context: TurnContext) -> str:
    return "text"


async def lonely() -> AsyncGenerator[AgentEvent, None]:
    yield TextDelta("nobody asked")


async def sloppy(context: TurnContext) -> AsyncGenerator[object, None]:
    yield "text"


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "own", sys.modules[HERE])


async def test_the_example_counts_words() -> None:
    agent = load("examples.own_agent:agent")
    events = await collect(agent, a_context(asked("three short words")))
    assert spoken(events) == "Let me count. You sent 3 words."
    assert [type(e) for e in events] == [TextDelta, ToolCallEvent, ToolResultEvent, TextDelta]
    with pytest.raises(AgentFailed, match="nothing to count"):
        await collect(agent, a_context(asked(" ")))


@pytest.mark.parametrize("name", ["talker", "Talker", "talker_object"])
async def test_a_function_a_class_and_an_object_are_agents(name: str) -> None:
    assert spoken(await collect(load(f"own:{name}"), a_context()))


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("own", "'own' is not a path to an object: write package.module:object"),
        (":x", "is not a path to an object"),
        ("no_such_package.sub:x", "there is no module 'no_such_package'"),
        ("own:nothing", "own has no 'nothing'"),
        ("own:number", "is a int, which cannot be called"),
        ("own:plain", "is not an async generator function"),
        ("own:coroutine", "is not an async generator function"),
        ("own:lonely", "must take one argument"),
    ],
)
def test_what_is_no_agent_is_refused_with_a_sentence(path: str, sentence: str) -> None:
    with pytest.raises(Invalid, match=sentence) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_class_that_cannot_be_made_says_why() -> None:
    with pytest.raises(Unavailable, match="making a Needy failed: TypeError"):
        load("own:Needy")
    with pytest.raises(Unavailable, match="making a Leaver failed: SystemExit"):
        load("own:Leaver")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import no_such_thing", "needs the module 'no_such_thing', which is not installed"),
        ("1 / 0", "importing broken_agent failed: ZeroDivisionError"),
        ("def (", "importing broken_agent failed: SyntaxError"),
        ("raise SystemExit(3)", "importing broken_agent failed: SystemExit"),
        ("raise KeyboardInterrupt", "importing broken_agent failed: KeyboardInterrupt"),
    ],
)
def test_a_module_that_does_not_import_says_why(
    source: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_agent.py").write_text(source)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "broken_agent", raising=False)
    importlib.invalidate_caches()
    with pytest.raises((Invalid, Unavailable), match=sentence):
        load("broken_agent:agent")


async def test_what_is_no_event_fails_the_turn_with_a_sentence() -> None:
    with pytest.raises(AgentFailed, match="own:sloppy yielded a str; it may yield the events of"):
        await collect(load("own:sloppy"), a_context())
