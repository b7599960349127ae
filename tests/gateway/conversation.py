"""People who talk with Keryx over the wire of a platform, through a whole service."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

import msgspec
from tests.engine.world import AT_ONCE, OPERATORS, SECONDS, Pause, World

from keryx.core.access import EVERYBODY, AccessRule
from keryx.core.clock import Clock
from keryx.core.deliveries import Delivery, DeliveryState
from keryx.core.ids import SessionId, TurnId
from keryx.core.messages import Role
from keryx.core.ports.adapter import Adapter
from keryx.core.ports.agent import AgentEvent, TextDelta, TurnContext
from keryx.core.questions import Question
from keryx.engine.policy import map_reach
from keryx.engine.threaded_adapter import close_all
from keryx.engine.units import place
from keryx.store import deliveries, sessions, turns
from keryx.store.db import Database, Transaction
from keryx.testing import ScriptedAgent, ScriptStep

Scripts: TypeAlias = Mapping[str, Sequence[ScriptStep]]
# Makes the answer to a question without a script, from the texts of people so far. The last one is the question.
Answer: TypeAlias = Callable[[Sequence[str]], str]

EVERYONE = AccessRule(allow=(EVERYBODY,), groups=(EVERYBODY,))


def answer_last(said: Sequence[str]) -> str:
    return f"answer to {said[-1]}"


def repeat_last(said: Sequence[str]) -> str:
    return said[-1]


def repeat_all(said: Sequence[str]) -> str:
    return " | ".join(said)


async def ask_permission(context: TurnContext) -> None:
    """Ask the person, as a step of a script."""
    await context.ask(Question(key="1", title="May I look?"))


class ConversationAgent:
    """An agent that plays the script of a question, or answers it, and remembers what it was told."""

    def __init__(self, scripts: Scripts, answer: Answer) -> None:
        self._scripts = scripts
        self._answer = answer
        # One of each per run: the session and the turn, the question, and the question as a model is shown it.
        self.turns: list[tuple[SessionId, TurnId]] = []
        self.asked: list[str] = []
        self.exact: list[str] = []

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        said = [m for m in await context.history() if m.role is Role.USER]
        self.turns.append((context.session, context.turn))
        self.asked.append("\n".join(m.text for m in context.turn_messages if m.role is Role.USER))
        self.exact.append(said[-1].exact or said[-1].text)
        default = (TextDelta(self._answer([m.text for m in said])),)
        async for event in ScriptedAgent(self._scripts.get(said[-1].text, default)).run(context):
            yield event


class ChatFake(Protocol):
    """A fake platform that knows what a chat shows of Keryx."""

    def texts(self, chat: str, /) -> list[str]: ...


Fake = TypeVar("Fake", bound=ChatFake)


class Conversation(Generic[Fake]):
    """A world with one adapter, and the people on its platform."""

    def __init__(self, world: World, fake: Fake, adapter: Adapter, agent: ConversationAgent) -> None:
        self.world = world
        self.fake = fake
        self.agent = agent
        self._adapter = adapter

    async def reads(self, chat: str, *texts: str) -> None:
        """Wait until the chat shows exactly these messages of Keryx."""
        try:
            await self.until(lambda: self.fake.texts(chat) == list(texts))
        except TimeoutError:
            raise AssertionError(f"the chat shows {self.fake.texts(chat)}, not {texts}") from None

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition over the platform or the agent holds."""
        async with asyncio.timeout(SECONDS):
            while not condition():
                await asyncio.sleep(0.005)
                for node in self.world.nodes:
                    node.check()

    async def receives(self, count: int) -> None:
        """Wait until this many messages of people are stored."""

        def has_all(tx: Transaction) -> bool:
            return tx.rows("select count(*) from messages where role = 'user'") == [(count,)]

        await self.world.until(has_all)

    async def waits(self, state: DeliveryState, count: int = 1) -> list[Delivery]:
        """Wait until this many deliveries are in a state, and return them."""

        def load(tx: Transaction) -> list[Delivery]:
            return deliveries.list_recent(tx, OPERATORS, states=[state])

        await self.world.until(lambda tx: len(load(tx)) == count)
        return await self.world.read(load)

    async def count_lanes(self) -> int:
        def count(tx: Transaction) -> int:
            return int(tx.rows("select count(*) from lanes where session is not null")[0][0])

        return await self.world.read(count)

    async def count_pictures(self) -> int:
        """The messages of people that have a picture."""
        stored = await self.world.read(lambda tx: tx.rows("select parts from messages where role = 'user'"))
        return sum('"image"' in parts for (parts,) in stored)

    async def describe_places(self) -> list[str]:
        """What the agent is told about the place of each of its turns."""

        def load(tx: Transaction) -> list[place.PlaceFacts]:
            return [place.load(tx, sessions.get(tx, s), turns.get(tx, t)) for s, t in self.agent.turns]

        found = await self.world.read(load)
        return [place.describe(facts, [self._adapter], {}, salt=b"salt") for facts in found]


class Conversations:
    """Conversations on the store of a test, which end with the block."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._worlds: list[World] = []

    async def open(
        self,
        fake: Fake,
        adapter: Adapter,
        scripts: Scripts | None = None,
        *,
        access: AccessRule = EVERYONE,
        answer: Answer = answer_last,
    ) -> Conversation[Fake]:
        """Start a node that serves the adapter."""
        agent = ConversationAgent(scripts or {}, answer)
        policy = msgspec.structs.replace(
            AT_ONCE, reach=map_reach([adapter]), access={adapter.platform: access}
        )
        world = World(self._database, self._clock, agent=agent, adapters=[adapter], policy=policy)
        self._worlds.append(world)
        await world.start()
        return Conversation(world, fake, adapter, agent)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for world in self._worlds:
            await world.close()
            await close_all(world.serves)


async def check_deletion_while_waiting(
    open_chat: Callable[..., Awaitable[Conversation[Any]]],
    delete: Callable[[Any, Any], object],
    ann: str,
    ben: str,
) -> None:
    """A message that is deleted before its turn begins is not answered, and the model does not see it."""
    pause = Pause()
    chat = await open_chat({"slow": [pause, TextDelta("done")]})
    chat.fake.write(ann, "slow")
    await pause.reached()
    wrong = chat.fake.write(ann, "wrong chat")
    await chat.receives(2)
    delete(chat.fake, wrong)
    # Events come in order, so the deletion was received as well.
    chat.fake.write(ben, "hello")
    await chat.reads(ben, "hello")
    pause.go_on()
    chat.fake.write(ann, "and now?")
    await chat.reads(ann, "done", "slow | and now?")
