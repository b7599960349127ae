"""Conversations over the wire of Telegram, as a person reads them in the chat."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence

import msgspec
import pytest
from tests.engine.world import AT_ONCE, SECONDS, Pause, World
from tests.fakes.telegram import TOKEN, Bubble, FakeTelegram

from keryx.core.access import EVERYBODY, AccessRule
from keryx.core.messages import Mark, Message, Role, ToolCall, ToolResult
from keryx.core.ports.agent import AgentEvent, TextDelta, ToolCallEvent, ToolResultEvent, TurnContext
from keryx.core.questions import Question
from keryx.engine.policy import Policy
from keryx.store import messages
from keryx.store.db import Database, Transaction
from keryx.surfaces.gateway.telegram import TelegramAdapter, TelegramSettings
from keryx.testing import FakeClock, ScriptedAgent
from keryx.testing.fakes import ScriptStep


class Reader:
    """An agent that plays the script of a question and remembers what it was shown."""

    def __init__(self, scripts: dict[str, Sequence[ScriptStep]]) -> None:
        self._scripts = scripts
        self.views: list[list[str]] = []

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        history = [m for m in await context.history() if m.role is Role.USER]
        self.views.append([m.text for m in history])
        asked = "\n".join(m.text for m in context.turn_messages if m.role is Role.USER)
        script = self._scripts.get(asked, (TextDelta(f"answer to {asked}"),))
        async for event in ScriptedAgent(script).run(context):
            yield event


class Chat:
    """A person in a chat with a bot of Keryx, over the wire."""

    def __init__(self, world: World, telegram: FakeTelegram, agent: Reader) -> None:
        self.world = world
        self.telegram = telegram
        self.agent = agent

    async def reads(self, *texts: str, chat: int = 7) -> None:
        """Wait until the chat shows exactly these messages of the bot."""
        try:
            await self._until(lambda: self.telegram.texts(chat) == list(texts))
        except TimeoutError:
            raise AssertionError(f"the chat shows {self.telegram.texts(chat)}, not {texts}") from None

    async def shows(self, condition: Callable[[list[Bubble]], bool]) -> None:
        await self._until(lambda: condition(self.telegram.bubbles))

    async def stored(self) -> list[Message]:
        def load(tx: Transaction) -> list[Message]:
            return messages.list_latest(tx, tx.rows("select id from sessions order by id")[-1][0], limit=99)

        return await self.world.read(load)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition():
                await asyncio.sleep(0.005)
                for node in self.world.nodes:
                    node.check()


OPEN_TO_ALL = AccessRule(allow=(EVERYBODY,))
Open = Callable[..., Awaitable[Chat]]


@pytest.fixture
async def open_chat(database: Database, clock: FakeClock) -> AsyncIterator[Open]:
    with FakeTelegram() as telegram:
        worlds: list[World] = []
        adapter = TelegramAdapter(TOKEN, TelegramSettings(base_url=telegram.url))

        async def make(
            scripts: dict[str, Sequence[ScriptStep]],
            *,
            policy: Policy = AT_ONCE,
            rule: AccessRule = OPEN_TO_ALL,
        ) -> Chat:
            agent = Reader(scripts)
            access = {"telegram": rule}
            world = World(
                database,
                clock,
                agent=agent,
                adapters=[adapter],
                policy=msgspec.structs.replace(policy, access=access),
            )
            worlds.append(world)
            await world.start()
            return Chat(world, telegram, agent)

        yield make
        for world in worlds:
            await world.close()
        await adapter.close()


async def test_what_was_taken_from_the_queue_is_never_shown_to_the_model(open_chat: Open) -> None:
    pause = Pause()
    chat = await open_chat({"first": [pause, TextDelta("done")]})
    chat.telegram.say("first")
    await pause.reached()
    for text in ("book the flight", "to Rome", "/queue clear"):
        chat.telegram.say(text)
    await chat.reads("Removed 2 queued messages.")
    pause.go_on()
    await chat.reads("Removed 2 queued messages.", "done")
    chat.telegram.say("next")
    await chat.reads("Removed 2 queued messages.", "done", "answer to next")
    assert chat.agent.views == [["first"], ["first", "next"]]
    marks = {m.text: m.mark for m in await chat.stored() if m.role is Role.USER}
    assert marks == {
        "first": None,
        "book the flight": Mark.WITHDRAWN,
        "to Rome": Mark.WITHDRAWN,
        "next": None,
    }


async def test_after_a_question_the_answer_is_a_new_message_below_it(open_chat: Open) -> None:
    async def ask(context: TurnContext) -> None:
        await context.ask(Question(key="1", title="May I look?"))

    chat = await open_chat({"find it": [TextDelta("One moment."), ask, TextDelta("In the attic.")]})
    chat.telegram.say("find it")
    await chat.shows(lambda bubbles: bool(bubbles and bubbles[-1].buttons))
    assert [b.text.splitlines()[0] for b in chat.telegram.bubbles] == ["One moment.", "May I look?"]
    chat.telegram.press("Allow")
    await chat.shows(lambda bubbles: bubbles[-1].text == "In the attic.")
    assert len(chat.telegram.bubbles) == 3 and not chat.telegram.bubbles[0].edits


async def test_after_long_work_the_progress_goes_and_the_answer_is_new(
    open_chat: Open, clock: FakeClock
) -> None:
    pause = Pause()
    call = ToolCallEvent((ToolCall("1", "search", "{}"),))
    result = ToolResultEvent(ToolResult("1", "search", "x"))
    chat = await open_chat(
        {"find it": [TextDelta("Let me look."), call, pause, result, TextDelta("In the attic.")]}
    )
    chat.telegram.say("find it")
    await pause.reached()
    await chat.reads("Let me look.")
    await chat.world.flow(chat.reads("Let me look.", "working: search …"), step=0.5)
    typed = len(chat.telegram.actions)
    await chat.world.flow(chat.reads("Let me look.", "still working: search, 1 min"), step=1)
    assert len(chat.telegram.actions) > typed
    clock.advance(60)
    pause.go_on()
    await chat.world.flow(chat.reads("Let me look.", "In the attic."), step=0.5)
    assert all(not b.edits for b in chat.telegram.bubbles)
