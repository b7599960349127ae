"""What the tests of the Feishu adapter share: an adapter, its Feishu, and a context."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.fakes.feishu import (
    APP_ID,
    APP_SECRET,
    DIRECT,
    ENCRYPT_KEY,
    VERIFICATION_TOKEN,
    FakeFeishu,
)

from keryx.core.deliveries import Target
from keryx.core.errors import Forbidden
from keryx.core.ids import DeliveryId
from keryx.core.ports.adapter import InboundMessage, OutgoingPart
from keryx.surfaces.gateway.feishu import FeishuAdapter, FeishuSettings, build_decryptor
from keryx.testing import RecordingAdapterContext

SECONDS = 60


class Tenant:
    """An adapter, its Feishu and a context; pauses are counted and take no time."""

    def __init__(self, feishu: FakeFeishu, *, secret: str = APP_SECRET, **settings: Any) -> None:
        self.feishu = feishu
        self.pauses: list[float] = []
        self.now = datetime.now(UTC)
        options: dict[str, Any] = {"app_id": APP_ID, "base_url": feishu.url, **settings}
        self.adapter = FeishuAdapter(
            secret,
            FeishuSettings(**options),
            decrypt=build_decryptor(ENCRYPT_KEY),
            encrypt_key=ENCRYPT_KEY,
            verification_token=VERIFICATION_TOKEN,
            sleep=self.pause,
            now=lambda: self.now,
        )
        self.context = RecordingAdapterContext()

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        # A heartbeat of two minutes does not come while a test runs.
        await asyncio.sleep(0.001 if seconds < 100 else SECONDS)

    def advance(self, time: timedelta) -> None:
        self.now += time

    async def hear(
        self, count: int = 1, *, then: Callable[[], object] = lambda: True
    ) -> list[InboundMessage]:
        """Listen until there are this many messages, and until a condition holds."""
        task = asyncio.create_task(self.adapter.listen(self.context))
        try:
            events = await self.context.wait_for(count, seconds=SECONDS)
            await until(then)
            return events
        finally:
            await cancel(task)

    async def fail(self) -> str:
        """Listen until the adapter gives up; return what it says."""
        async with asyncio.timeout(SECONDS):
            with pytest.raises(Forbidden) as caught:
                await self.adapter.listen(self.context)
        return str(caught.value)

    async def send(self, text: str = "hello", **fields: Any) -> str:
        return await self.adapter.send(build(text, **fields))


def build(
    text: str = "hello",
    *,
    chat: str = DIRECT,
    thread: str = "",
    reply_to: str = "",
    key: str = "d1.0",
    number: int = 0,
    **fields: Any,
) -> OutgoingPart:
    target = Target("feishu", APP_ID, chat, thread, reply_to=reply_to)
    return OutgoingPart(delivery=DeliveryId("d1"), number=number, key=key, target=target, text=text, **fields)


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=SECONDS)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)
