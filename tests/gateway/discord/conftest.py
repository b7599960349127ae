"""A bot on the fake Discord, whose pauses take no time."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.fakes.discord import BOT_ID, TOKEN, FakeDiscord

from keryx.core.deliveries import ReplyContext, Target
from keryx.core.errors import Forbidden
from keryx.core.ids import DeliveryId
from keryx.core.messages import Text
from keryx.core.ports.adapter import InboundMessage, MenuItem, OutgoingPart
from keryx.surfaces.gateway.discord import DiscordAdapter, DiscordSettings
from keryx.testing import RecordingAdapterContext

SECONDS = 60
MENU = (
    MenuItem("new", "Start afresh."),
    MenuItem("undo-reset", "x" * 300),
    MenuItem("steer", "Steer.", "text"),
)


class Bot:
    """An adapter, its platform and a context. `later` moves the clocks of both, `skew` that of the adapter alone."""

    def __init__(
        self, discord: FakeDiscord, *, token: str = TOKEN, stranger: bool = False, **settings: Any
    ) -> None:
        self.discord = discord
        self.pauses: list[float] = []
        self.skew = timedelta(0)
        # Ends the pause before the next heartbeat.
        self.beat = asyncio.Event()
        self.settings = DiscordSettings(base_url=discord.api_url, **settings)
        self._adapters: list[DiscordAdapter] = []
        self.adapter = self.build(token)
        self.context = RecordingAdapterContext(menu=MENU, stranger=lambda source: stranger)

    @property
    def later(self) -> timedelta:
        return self.discord.later

    @later.setter
    def later(self, later: timedelta) -> None:
        self.discord.later = later

    def build(self, token: str = TOKEN) -> DiscordAdapter:
        adapter = DiscordAdapter(
            token, self.settings, sleep=self.pause, now=lambda: datetime.now(UTC) + self.later + self.skew
        )
        self._adapters.append(adapter)
        return adapter

    async def close(self) -> None:
        for adapter in self._adapters:
            await adapter.close()

    async def pause(self, seconds: float) -> None:
        """Count a pause. One before a heartbeat ends with `beat`."""
        if seconds == self.discord.heartbeat:
            await self.beat.wait()
            self.beat.clear()
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    @asynccontextmanager
    async def listening(
        self, context: RecordingAdapterContext | None = None
    ) -> AsyncGenerator[RecordingAdapterContext]:
        """Listen while the block runs, which begins when the bot is connected."""
        context, before = context or self.context, self.discord.identifies + self.discord.resumes
        task = asyncio.create_task(self.adapter.listen(context))
        try:
            await self.until(lambda: task.done() or self._is_connected(context, before))
            yield context
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})

    def _is_connected(self, context: RecordingAdapterContext, before: int) -> bool:
        return context.cursor is not None and self.discord.identifies + self.discord.resumes > before

    async def hear(self, count: int = 1) -> list[InboundMessage]:
        """Listen until this many messages are received in all."""
        async with self.listening():
            return await self.wait(count)

    async def wait(self, count: int) -> list[InboundMessage]:
        """Return the messages as soon as this many are received in all."""
        return await self.context.wait_for(count, seconds=SECONDS)

    async def fail(self) -> str:
        """Listen until the adapter gives up; return what it says."""
        async with asyncio.timeout(SECONDS):
            with pytest.raises(Forbidden) as caught:
                await self.adapter.listen(self.context)
        return str(caught.value)

    def restart(self) -> None:
        """Replace the adapter, as after the end of the process, with what was stored."""
        cursor = self.context.events[-1].cursor if self.context.events else self.context.cursor
        state = self.context.state
        self.adapter = self.build()
        self.context = RecordingAdapterContext(cursor, menu=MENU)
        self.context.state.update(state)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while True:
                if condition():
                    return
                await asyncio.sleep(0.002)

    async def send(self, said: str = "hello", *, chat: str = "7001", **fields: Any) -> str:
        context: ReplyContext | None = fields.pop("context", None)
        target = Target(
            "discord", BOT_ID, chat, fields.pop("thread", ""), fields.pop("reply_to", ""), context
        )
        [part] = self.adapter.parts(said)
        whole = OutgoingPart(delivery=DeliveryId("d"), number=0, key="d.0", target=target, text=part.text)
        return await self.adapter.send(msgspec.structs.replace(whole, **fields))


def read_position(cursor: str | None) -> dict[str, Any]:
    return json.loads(cursor or "{}")


def texts(events: Sequence[InboundMessage]) -> list[str]:
    """Return the texts of messages. The engine recognises a repeated event by its id, so it counts once."""
    distinct = {event.event: event for event in events}
    return ["".join(part.text for part in e.parts if isinstance(part, Text)) for e in distinct.values()]


@pytest.fixture
async def discord() -> AsyncIterator[FakeDiscord]:
    with FakeDiscord() as running:
        running.add_channel("7001", guild=None)
        yield running


@pytest.fixture
async def bot(discord: FakeDiscord) -> AsyncIterator[Bot]:
    made = Bot(discord)
    yield made
    await made.close()
