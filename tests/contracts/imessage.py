"""iMessage through `imsg` and through BlueBubbles, for the contract suite."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.fakes.imessage import ANN, BEN, PASSWORD, SECRET, FakeBlueBubbles, FakeImsg, MessagesFake, Row

from keryx.core.media import Attachment
from keryx.core.ports.adapter import WebhookRequest
from keryx.surfaces.gateway.imessage import (
    BlueBubblesAdapter,
    IMessageSettings,
    IMessageTransport,
    ImsgAdapter,
    Sleep,
)
from keryx.testing.contracts import AdapterHarness, Trait
from keryx.testing.wire import UNREACHABLE_URL

# The position of an account that has listened before.
START = "0"
_TRAITS = {
    Trait.RECEIVES,
    Trait.ORDERS,
    Trait.RESUMES,
    Trait.NETWORK,
    Trait.REDELIVERS,
    Trait.REACTS,
    Trait.ATTACHES,
    Trait.MALFORMED,
}


async def sleep_briefly(seconds: float) -> None:
    await asyncio.sleep(0.001)


def build_imsg(command: list[str], **settings: Any) -> ImsgAdapter:
    return ImsgAdapter(IMessageSettings(command=tuple(command), **settings), sleep=sleep_briefly)


def build_bluebubbles(
    base_url: str, *, password: str = PASSWORD, sleep: Sleep = sleep_briefly, **settings: Any
) -> BlueBubblesAdapter:
    return BlueBubblesAdapter(
        IMessageSettings(transport=IMessageTransport.BLUEBUBBLES, base_url=base_url, **settings),
        password=password,
        secret=SECRET,
        sleep=sleep,
    )


class Person:
    """What a person does. Every message has a field that no version knows."""

    def __init__(self, fake: MessagesFake) -> None:
        self._fake = fake
        self.last: Row | None = None

    def write(self, chat: str, text: str) -> None:
        self.last = self._fake.write(chat, text)

    def attach(self, chat: str, text: str, file: Attachment) -> None:
        self._fake.attach(chat, text, file.name, file.mime, file.body)

    def react(self, chat: str, emoji: str) -> None:
        assert self.last
        self._fake.tap(chat, emoji, self.last)

    def edit(self, chat: str, text: str) -> None:
        assert self.last
        self._fake.edit(self.last, text)

    def delete(self, chat: str) -> None:
        assert self.last
        self._fake.retract(self.last)

    def send_malformed(self) -> None:
        broken: tuple[Any, ...] = (
            {"id": "words", "originalROWID": "words", "guid": 5},
            {"guid": "no row"},
            {"id": 3, "originalROWID": 3, "guid": "A", "text": ["list"], "attachments": 7},
            [],
            "words",
        )
        for payload in broken:
            self._fake.write(ANN, "broken", raw=payload)


@asynccontextmanager
async def open_imsg(folder: Path, *, ssh: bool = False) -> AsyncGenerator[AdapterHarness]:
    async with AsyncExitStack() as stack:
        fake = stack.enter_context(FakeImsg(folder))
        adapter = build_imsg(fake.ssh_command if ssh else fake.command)
        unreachable = build_imsg([str(folder / "nothing"), "mac", "imsg", "rpc"])
        stack.push_async_callback(adapter.close)
        stack.push_async_callback(unreachable.close)
        person = Person(fake)
        yield AdapterHarness(
            adapter=adapter,
            traits=frozenset(_TRAITS),
            chats=(ANN, BEN),
            cursor=START,
            texts=fake.texts,
            files=fake.sent_files,
            count_typing=lambda: len(fake.typed),
            write=person.write,
            react=person.react,
            attach=person.attach,
            send_malformed=person.send_malformed,
            set_faults=fake.set_faults,
            unreachable=unreachable,
        )
        assert fake.problems == []


@asynccontextmanager
async def open_bluebubbles() -> AsyncGenerator[AdapterHarness]:
    async with AsyncExitStack() as stack:
        fake = stack.enter_context(FakeBlueBubbles())
        adapter, unreachable = build_bluebubbles(fake.url), build_bluebubbles(UNREACHABLE_URL)
        stack.push_async_callback(adapter.close)
        stack.push_async_callback(unreachable.close)
        person = Person(fake)
        hook = adapter.hook
        assert hook is not None

        async def post() -> None:
            """Post whatever happens, as the server does."""
            request = WebhookRequest(path=SECRET, headers={}, body=b'{"type": "updated-message", "data": {}}')
            while True:
                await hook.handle(request)
                await asyncio.sleep(0.002)

        yield AdapterHarness(
            adapter=adapter,
            traits=frozenset(_TRAITS | {Trait.EDITS, Trait.DELETES}),
            chats=(ANN, BEN),
            cursor=START,
            texts=fake.texts,
            files=fake.sent_files,
            count_typing=lambda: len(fake.typed),
            write=person.write,
            edit=person.edit,
            delete=person.delete,
            react=person.react,
            attach=person.attach,
            send_malformed=person.send_malformed,
            post=post,
            set_faults=fake.set_faults,
            unreachable=unreachable,
            secret=PASSWORD,
        )
        assert fake.problems == []
