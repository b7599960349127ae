"""Agents of others run in threads of their own: what they do to themselves, they do to no other chat."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest
from tests.engine.conftest import Begin
from tests.engine.world import World

from keryx.agents.python import ThreadedAgent
from keryx.core.errors import Unavailable
from keryx.core.messages import Mark
from keryx.core.ports.agent import Agent, AgentEvent, TextDelta, ToolCallEvent, TurnContext
from keryx.core.questions import Question
from keryx.core.turns import TurnState
from keryx.store.db import Engine

pytestmark = pytest.mark.engines(Engine.SQLITE)

SECONDS = 30
Enter = Callable[[Callable[[], Agent]], Awaitable[World]]


class Odd(BaseException):
    pass


class Unruly:
    """Does what the question says; `held` stands for work that blocks or does not end until the test is over."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self.reached = threading.Event()
        self.ended: list[str] = []
        self.leaked: list[asyncio.Task[None]] = []

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        word = context.turn_messages[-1].text
        yield TextDelta(f"{word}: ")
        match word:
            case "exit":
                raise SystemExit(3)
            case "interrupt":
                raise KeyboardInterrupt
            case "odd":
                raise Odd
            case "generator exit":
                raise GeneratorExit
            case "cancel":
                task = asyncio.current_task()
                assert task
                task.cancel()
                await asyncio.sleep(0)
            case "sleep":
                self.reached.set()
                self.held.wait(SECONDS)
            case "spin":
                self.reached.set()
                while not self.held.is_set():
                    pass
            case "stubborn":
                await self._ignore_cancel()
            case "wait":
                await self._wait()
            case "leak":
                self.leaked.append(asyncio.create_task(self._leave()))
                asyncio.get_running_loop().call_soon(self._raise_exit)
            case _:
                pass
        yield TextDelta("done")

    async def _leave(self) -> None:
        raise SystemExit(3)

    def _raise_exit(self) -> None:
        raise SystemExit(3)

    async def _wait(self) -> None:
        self.reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append("wait")

    async def _ignore_cancel(self) -> None:
        self.reached.set()
        while not self.held.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                self.ended.append("ignored")


@pytest.fixture
async def enter(begin: Begin) -> AsyncIterator[Enter]:
    async with AsyncExitStack() as stack:

        async def world(make: Callable[[], Agent]) -> World:
            agent = ThreadedAgent("the unruly agent", make)
            stack.push_async_callback(agent.close)
            await agent.load()
            return await begin(agent=agent)

        yield world


@pytest.fixture
def unruly() -> Iterator[Unruly]:
    made = Unruly()
    yield made
    made.held.set()


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("exit", "SystemExit"),
        ("interrupt", "KeyboardInterrupt"),
        ("odd", "Odd"),
        ("generator exit", "GeneratorExit"),
        ("cancel", "CancelledError"),
    ],
)
@pytest.mark.parametrize("threaded", [True, False])
async def test_what_would_end_the_node_ends_one_turn(
    begin: Begin, enter: Enter, unruly: Unruly, word: str, name: str, threaded: bool
) -> None:
    world = await enter(lambda: unruly) if threaded else await begin(agent=unruly)
    turn = await world.ask(word)
    assert turn.state is TurnState.FAILED
    assert turn.error == f"The agent failed ({name}). The log has the details; /retry asks again."
    assert (await world.ask("hello", chat="2", user="bob")).state is TurnState.DONE
    assert await world.transcript(turn.session) == [
        f"user: {word}",
        f"assistant: {word}:  [{Mark.FAILED}]",
        f"notice: {turn.error}",
    ]


@pytest.mark.parametrize("word", ["sleep", "spin", "stubborn"])
async def test_others_are_answered_while_one_turn_blocks_and_a_stop_ends_it_at_once(
    enter: Enter, unruly: Unruly, word: str
) -> None:
    world = await enter(lambda: unruly)
    first = await world.say(word)
    assert await asyncio.to_thread(unruly.reached.wait, SECONDS)
    for chat in ("2", "3"):
        assert (await world.ask("hello", chat=chat, user="bob")).state is TurnState.DONE
    await world.say("/stop")
    assert (await world.settle(first)).state is TurnState.CANCELLED
    unruly.held.set()
    assert (await world.ask("hello")).state is TurnState.DONE
    assert "assistant: hello: done" in (await world.transcript(first.session))[-1]
    assert not any("sleep: done" in line for line in await world.transcript(first.session))


async def test_a_stop_reaches_an_agent_that_waits(enter: Enter, unruly: Unruly) -> None:
    world = await enter(lambda: unruly)
    first = await world.say("wait")
    assert await asyncio.to_thread(unruly.reached.wait, SECONDS)
    await world.say("/stop")
    assert (await world.settle(first)).state is TurnState.CANCELLED
    await world.eventually(lambda: unruly.ended == ["wait"])


async def test_tasks_that_an_agent_leaves_end_nothing(enter: Enter, unruly: Unruly) -> None:
    world = await enter(lambda: unruly)
    assert (await world.ask("leak")).state is TurnState.DONE
    assert (await world.ask("hello")).state is TurnState.DONE
    assert isinstance(unruly.leaked[0].exception(), SystemExit)


async def test_the_context_can_be_used_from_the_thread(enter: Enter) -> None:
    home = threading.get_ident()
    heard: list[str] = []

    class Asker:
        async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
            assert threading.get_ident() != home
            heard.append((await context.history())[-1].text)
            heard.append(str(await context.fetch_new_messages()))
            question = Question(key="k", title="May I?", options=())
            heard.append(await context.ask(question) or "")
            with pytest.raises(Exception, match="there is no file"):
                await context.fetch("nothing")
            await context.clock.sleep(0)
            yield TextDelta("asked")

    world = await enter(Asker)
    first = await world.say("begin")
    await world.fake.wait_for(1)
    await world.say("certainly")
    assert (await world.settle(first)).state is TurnState.DONE
    assert heard == ["begin", "[]", "certainly"]


async def test_an_agent_that_does_not_load_fails_its_turns_with_the_reason(enter: Enter) -> None:
    def make() -> Agent:
        raise Unavailable("importing parrot failed: SystemExit")

    world = await enter(make)
    turn = await world.ask("hello")
    assert turn.error == "The agent cannot be used: importing parrot failed: SystemExit"


async def test_turns_wait_for_an_agent_that_loads_slowly(begin: Begin, unruly: Unruly) -> None:
    release = threading.Event()

    def make() -> Agent:
        release.wait(SECONDS)
        return unruly

    agent = ThreadedAgent("the slow agent", make)
    world = await begin(agent=agent)
    first = await world.say("hello")
    await world.running(first)
    release.set()
    assert (await world.settle(first)).state is TurnState.DONE
    await agent.close()


async def test_a_step_is_stored_before_the_agent_goes_on(enter: Enter) -> None:
    seen: list[int] = []

    class Stepper:
        async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
            yield TextDelta("a")
            yield ToolCallEvent(())
            seen.append(len(await context.history()))
            yield TextDelta("b")

    world = await enter(Stepper)
    assert (await world.ask("go")).state is TurnState.DONE
    assert seen == [2]
