"""Node: the whole engine at work over a store, with an adapter that sends nowhere."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from bench import fill
from bench.stage import OPEN
from keryx.agents.echo import EchoAgent
from keryx.core import prompt
from keryx.core.deliveries import Idempotency, Target
from keryx.core.ports.adapter import AdapterContext, Capabilities, OutgoingPart, RenderedPart
from keryx.core.ports.agent import Agent
from keryx.core.turns import Turn
from keryx.engine.hub import Hub
from keryx.engine.policy import Policy
from keryx.engine.service import Service
from keryx.engine.units.turn_writes import TurnInput
from keryx.store.db import Database
from keryx.timing import SystemClock


class NullAdapter:
    """Takes every part at once, and tells who waits for its chat."""

    platform = fill.PLATFORM
    account = fill.ACCOUNT
    hook = None
    capabilities = Capabilities(idempotency=Idempotency.NATIVE)

    def __init__(self) -> None:
        self.sent = 0
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._awaited = 0
        self._reached = asyncio.Event()

    async def listen(self, context: AdapterContext) -> None:
        await asyncio.Event().wait()

    async def typing(self, target: Target) -> None:
        """Nobody looks."""

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return [RenderedPart(text)]

    async def send(self, part: OutgoingPart) -> str:
        self.sent += 1
        if self.sent == self._awaited:
            self._reached.set()
        waiting = self._waiting.pop(part.target.chat, None)
        if waiting is not None:
            waiting.set_result(None)
        return str(self.sent)

    async def reached(self, count: int) -> None:
        """Wait until this many parts have been sent in all."""
        if self.sent < count:
            self._awaited = count
            self._reached.clear()
            await self._reached.wait()

    def answer(self, chat: int) -> asyncio.Future[None]:
        """Done when something is sent to a chat."""
        waiting = self._waiting[str(chat)] = asyncio.get_running_loop().create_future()
        return waiting


@asynccontextmanager
async def node(
    database: Database,
    agent: Agent | None = None,
    policy: Policy = OPEN,
    adapter: NullAdapter | None = None,
) -> AsyncGenerator[tuple[Hub, NullAdapter]]:
    """At work while the block runs. Without an agent it echoes."""
    answering = agent or EchoAgent()
    adapter = adapter or NullAdapter()
    service = Service(
        database,
        SystemClock(),
        policy=policy,
        choose=lambda reading: answering,
        place=_place,
        adapters=[adapter],
    )
    async with service.running() as hub:
        yield hub, adapter


def _place(reading: TurnInput, turn: Turn) -> str:
    place = prompt.Place(platform=fill.PLATFORM, chat_type="dm", connected=(fill.PLATFORM,))
    return prompt.build_context(place, salt=b"bench", redact=False)
