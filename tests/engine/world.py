"""A world for tests of the engine: nodes on one store, a clock that the test moves, an agent and platforms."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import count
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import msgspec
from tests.builders import Store

from keryx.agents.echo import EchoAgent
from keryx.core.access import EVERYBODY, AccessRule
from keryx.core.clock import Clock
from keryx.core.deliveries import Delivery, DeliveryState, Target
from keryx.core.errors import Unavailable
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, PrincipalId, SessionId, TurnId
from keryx.core.media import Attachment
from keryx.core.messages import Message, Role, ToolResult, text_parts
from keryx.core.ports.adapter import Adapter, InboundMessage, Receipt
from keryx.core.ports.agent import Agent, AgentEvent, SpeechHints, TurnContext
from keryx.core.sessions import Viewer
from keryx.core.source import Source
from keryx.core.turns import Turn, TurnLimits
from keryx.engine.hub import Hub
from keryx.engine.hub.views import MessageRange, SessionSnapshot
from keryx.engine.loops.sweeps import NO_HOOKS, SessionFinalizer
from keryx.engine.policy import Policy
from keryx.engine.service import Service
from keryx.store import deliveries, turns
from keryx.store.db import Database, DatabaseWrapper, Transaction, Work
from keryx.testing import FakeClock, RecordingAdapter, ScriptedAgent, ScriptStep

P = ParamSpec("P")
T = TypeVar("T")

SECONDS = 60
FAKE = "fake"
ECHO = EchoAgent()
OPERATORS = Viewer(DEFAULT_PROFILE, OPERATOR)
OPEN: dict[str, AccessRule] = dict.fromkeys(
    (FAKE, "telegram", "whatsapp"), AccessRule(allow=(EVERYBODY,), bots=True, observe=True)
)
AT_ONCE = Policy(limits=TurnLimits(settle=timedelta(0), await_files=timedelta(0)), access=OPEN)


def viewer(user: str) -> Viewer:
    return Viewer(DEFAULT_PROFILE, PrincipalId(user))


_events = count(1)


def inbound(text: str, *, chat: str = "1", user: str = "ann", **fields: Any) -> InboundMessage:
    """One message of a person in a direct chat of the fake platform, to be answered there."""
    number = str(next(_events))
    plain = InboundMessage(
        event=number,
        source=Source(platform=FAKE, chat=chat, user=user, user_name=user, message=number),
        parts=text_parts(text),
        surface="gateway",
        reply=Target(FAKE, chat=chat),
        principal=PrincipalId(user),
    )
    return msgspec.structs.replace(plain, **fields)


async def hear(sound: Attachment, hints: SpeechHints = SpeechHints()) -> str:
    """What every sound says."""
    return f"a sound of {len(sound.body)} bytes"


class Wire(DatabaseWrapper):
    """A database that can be cut, as by the death of the process that holds it: nothing comes through any more."""

    def __init__(self, inner: Database) -> None:
        super().__init__(inner)
        self.dead = False
        # How many units run.
        self.units = 0

    def cut(self) -> None:
        self.dead = True

    async def write(self, label: str, work: Work[T], *, key: str = "") -> T:
        self._check()

        def work_alive(tx: Transaction) -> T:
            """A write that waited in the thread dies with its node."""
            self._check()
            return work(tx)

        self.units += 1
        try:
            return await self._inner.write(label, work_alive, key=key)
        finally:
            self.units -= 1

    async def read(self, label: str, work: Work[T]) -> T:
        self._check()
        self.units += 1
        try:
            return await self._inner.read(label, work)
        finally:
            self.units -= 1

    async def __aenter__(self) -> Self:
        """The test has opened the store, and closes it."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def _check(self) -> None:
        if self.dead:
            raise Unavailable("this process is dead")


class Pause:
    """A step of a script that waits until the test lets it go on."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._open = asyncio.Event()

    async def __call__(self, context: TurnContext) -> None:
        self._reached.set()
        await self._open.wait()

    async def reached(self) -> None:
        async with asyncio.timeout(SECONDS):
            await self._reached.wait()

    def go_on(self) -> None:
        self._open.set()


class Scenes:
    """An agent that plays the script named by the first word of the question, and echoes any other question."""

    def __init__(self, scenes: Mapping[str, Sequence[ScriptStep]]) -> None:
        self._scenes = {name: ScriptedAgent(script) for name, script in scenes.items()}
        self.asked: list[str] = []

    def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        mine = [m.text for m in context.turn_messages if m.role is Role.USER]
        self.asked.append("\n".join(mine))
        first = mine[0].split()[0] if mine and mine[0].split() else ""
        return self._scenes.get(first, ECHO).run(context)


class Node:
    """One process: a service of its own on the shared store. `crash` ends it as `kill -9` does."""

    def __init__(self, service: Service, wire: Wire, task: asyncio.Task[None]) -> None:
        self.service = service
        self.hub: Hub = service.hub
        self.task = task
        self._wire = wire
        self._ended = False

    @property
    def busy(self) -> bool:
        return self._wire.units > 0

    @property
    def dead(self) -> bool:
        return self._wire.dead

    def die(self) -> None:
        """Nothing is written from here on; `crash` clears away what is left."""
        self._wire.cut()
        self._ended = True

    async def crash(self) -> None:
        """Nothing is written from here on, nothing is handed back, nobody is told."""
        self.die()
        # A process that is killed waits for nothing: the second cancel ends the wait for what it is sending.
        while not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task}, timeout=0.01)
        # How a process that was killed fails is of no interest to anybody.
        if not self.task.cancelled():
            self.task.exception()

    async def stop(self) -> None:
        """End in good order: running turns are handed back."""
        if self._ended:
            return
        self._ended = True
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task

    def check(self) -> None:
        """Raise what ended this node by itself."""
        if self.task.done() and not self._ended:
            self.task.result()
            raise AssertionError("the node has ended by itself")


class World:
    """What a test needs around it: one node at first, more on demand, all on one store and one clock."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        agent: Agent | None = None,
        adapters: Sequence[Adapter] | None = None,
        policy: Policy = AT_ONCE,
        hooks: Mapping[str, SessionFinalizer] = NO_HOOKS,
    ) -> None:
        database.clock = clock
        self.database = database
        self.clock = clock
        self.fake = RecordingAdapter(FAKE)
        self.agent: Agent = agent or ECHO
        self.policy = policy
        self.serves: Sequence[Adapter] = [self.fake] if adapters is None else adapters
        self._hooks = hooks
        self._numbers = count(1)
        self.nodes: list[Node] = []

    @property
    def node(self) -> Node:
        return self.nodes[-1]

    @property
    def hub(self) -> Hub:
        return self.node.hub

    async def start(self, database: Database | None = None, *, everything: bool = True) -> Node:
        """Another node, with a worker id of its own; the newest one is the one that `hub` speaks to."""
        wire = Wire(database or self.database)
        service = Service(
            wire,
            self.clock,
            policy=self.policy,
            choose=lambda reading: self.agent,
            place=lambda reading, turn: "a test",
            adapters=self.serves,
            hooks=self._hooks,
            transcribe=hear,
            kind=f"serve{next(self._numbers)}",
            everything=everything,
        )
        ready = asyncio.Event()
        task = asyncio.create_task(_serve(service, ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        node = Node(service, wire, task)
        node.check()
        self.nodes.append(node)
        return node

    async def crash(self) -> None:
        await self.node.crash()

    async def restart(self) -> None:
        """Crash, and start again when the leases of the dead process have run out."""
        await self.crash()
        self.advance(self.policy.limits.lease + timedelta(seconds=1))
        await self.start()

    async def close(self) -> None:
        for node in self.nodes:
            await node.stop()

    def advance(self, by: timedelta | float) -> None:
        assert isinstance(self.clock, FakeClock)
        self.clock.advance(by)

    async def say(self, text: str, *, chat: str = "1", user: str = "ann", **fields: Any) -> Receipt:
        """A process that dies meanwhile is started again, and hears it once more, as from any platform."""
        said = inbound(text, chat=chat, user=user, **fields)
        try:
            return await self.hub.receive(said)
        except Unavailable:
            if not self.node.dead:
                raise
        await self.restart()
        return await self.hub.receive(said)

    async def ask(self, text: str, *, chat: str = "1", user: str = "ann", **fields: Any) -> Turn:
        """Say something and wait until its turn is over."""
        return await self.settle(await self.say(text, chat=chat, user=user, **fields))

    async def command(self, text: str, *, chat: str = "1", user: str = "ann", **fields: Any) -> str:
        """Give a command; gives its reply."""
        receipt = await self.say(text, chat=chat, user=user, **fields)
        assert receipt.reply is not None
        return receipt.reply

    async def settle(self, receipt: Receipt | Turn | TurnId) -> Turn:
        """Wait until a turn is over."""
        turn = _turn_id(receipt)
        await self.until(lambda tx: turns.get(tx, turn).state.finished)
        return await self.turn(turn)

    async def running(self, receipt: Receipt | TurnId) -> Turn:
        """Wait until a turn runs."""
        turn = _turn_id(receipt)
        await self.until(lambda tx: turns.get(tx, turn).lease is not None)
        return await self.turn(turn)

    async def turn(self, receipt: Receipt | TurnId) -> Turn:
        return await self.read(turns.get, _turn_id(receipt))

    async def until(self, condition: Callable[[Transaction], bool]) -> None:
        """Wait until a condition over the store holds."""
        async with asyncio.timeout(SECONDS):
            while True:
                seen = self.database.wake.count
                if await self.database.read("test.until", condition):
                    return
                for node in self.nodes:
                    node.check()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.25):
                        await self.database.wake.wait(seen)

    async def eventually(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition that needs no store holds."""
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110 anything may change it
                await asyncio.sleep(0.001)

    async def flow(self, task: Awaitable[T], *, step: float = 1.0) -> T:
        """Let time pass, a step at a time, until something is done."""
        waited = asyncio.ensure_future(task)
        async with asyncio.timeout(SECONDS):
            while not waited.done():
                self.advance(step)
                await self._rest()
        return await waited

    async def _rest(self) -> None:
        """Let the nodes do what is due now. What happens outside of this process takes longer."""
        if not all(isinstance(adapter, RecordingAdapter) for adapter in self.serves):
            await asyncio.sleep(0.005)
            return
        # Longer than conditions wait between two looks.
        await asyncio.sleep(0.0015)
        while any(node.busy for node in self.nodes):  # noqa: ASYNC110 units end in threads
            await asyncio.sleep(0.0005)

    async def drafted(self, receipt: Receipt, text: str) -> None:
        """Wait until a running turn has shown this much."""
        assert receipt.session
        async with asyncio.timeout(SECONDS):
            while True:
                seen = self.database.wake.count
                if "".join(p.text for p in (await self.open(receipt.session)).draft) == text:
                    return
                await self.database.wake.wait(seen)

    async def sent(self, count: int = 1) -> list[str]:
        """Wait for this many parts on the fake platform; gives the texts of all."""
        await self.fake.wait_for(count, seconds=SECONDS)
        return self.fake.texts

    async def delivered(self, count: int) -> list[Delivery]:
        """Wait until this many deliveries have been recorded as sent; gives all, oldest first."""
        await self.until(lambda tx: len(_sent(tx)) >= count)
        return (await self.read(deliveries.list_recent, OPERATORS))[::-1]

    async def open(self, session: SessionId | None) -> SessionSnapshot:
        assert session is not None
        return await self.hub.open(OPERATORS, session, MessageRange(limit=500))

    async def transcript(self, session: SessionId | None) -> list[str]:
        """A session as a person reads it, a line per message with its marks."""
        assert session is not None
        return [line(m) for m in (await self.open(session)).messages]

    def at(self, now: datetime) -> Store:
        """The store of this world, at another time."""
        return Store(self.database, now=now)

    async def read(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self.database.read("test", lambda tx: work(tx, *args, **kwargs))

    async def write(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self.database.write("test", lambda tx: work(tx, *args, **kwargs))


def line(message: Message) -> str:
    calls = "".join(f"<{c.name}>" for c in message.calls)
    results = "".join(f"<{p.output}>" for p in message.parts if isinstance(p, ToolResult))
    marks = [m for m in (message.mark, "undone" if message.undone else None) if m]
    return f"{message.role}: {message.text}{calls}{results}" + "".join(f" [{m}]" for m in marks)


def _turn_id(receipt: Receipt | Turn | TurnId) -> TurnId:
    match receipt:
        case Receipt():
            assert receipt.turn is not None
            return receipt.turn
        case Turn():
            return receipt.id
        case _:
            return receipt


def _sent(tx: Transaction) -> list[Delivery]:
    return deliveries.list_recent(tx, OPERATORS, states=[DeliveryState.SENT])


async def _serve(service: Service, ready: asyncio.Event) -> None:
    async with service.running():
        ready.set()
        await asyncio.Event().wait()
