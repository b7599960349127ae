"""What the tests of the Slack adapter share: an adapter, its Slack, and a context."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.fakes.slack import (
    APP_TOKEN,
    BOT_TOKEN,
    PERSON,
    SIGNING_SECRET,
    FakeSlack,
)

from keryx.core.deliveries import ReplyContext, Target
from keryx.core.errors import (
    Forbidden,
)
from keryx.core.ids import DeliveryId
from keryx.core.ports.adapter import (
    InboundMessage,
    MenuItem,
    OutgoingPart,
)
from keryx.surfaces.gateway.slack import (
    SlackAdapter,
    SlackSettings,
)
from keryx.surfaces.gateway.slack.web_api import FixedToken
from keryx.testing import RecordingAdapterContext

SECONDS = 60
DIRECT, CHANNEL, THREAD = "D0000001", "C0000001", "1690000000.000001"
RECIPIENT = ReplyContext(f"{PERSON} T0000001")


class Workspace:
    """An adapter, its Slack and a context; pauses are counted and take no time."""

    def __init__(self, slack: FakeSlack, *, token: str = BOT_TOKEN, **settings: Any) -> None:
        self.slack = slack
        self.pauses: list[float] = []
        self.adapter = SlackAdapter(
            SlackSettings(base_url=slack.api_url, **settings),
            token=FixedToken(token),
            app_token=APP_TOKEN,
            signing_secret=SIGNING_SECRET,
            sleep=self.pause,
        )
        self.context = RecordingAdapterContext(
            menu=[MenuItem("new", "Start afresh."), MenuItem("stop", "Stop.")]
        )

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0.001)

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
    text: str = "hello", *, chat: str = DIRECT, thread: str = "", key: str = "d1.0", **fields: Any
) -> OutgoingPart:
    context = RECIPIENT if thread and not chat.startswith("D") else None
    target = Target("slack", "", chat, thread, reply_to=fields.pop("reply_to", ""), reply_context=context)
    return OutgoingPart(delivery=DeliveryId("d1"), number=0, key=key, target=target, text=text, **fields)


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=SECONDS)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)
