"""Signal by signal-cli, for the contract suite. The output of signal-cli is the spool."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.fakes.signal import ANN, BEN, NUMBER, FakeSignalCli

from keryx.core.media import Attachment
from keryx.surfaces.gateway.signal import SignalAdapter, SignalSettings
from keryx.testing.contracts import AdapterHarness, Trait
from keryx.testing.wire import UNREACHABLE_URL


def build_adapter(url: str, folder: Path, *, spool: Path | None = None, **settings: Any) -> SignalAdapter:
    given = SignalSettings(account=NUMBER, url=url, spool=str(spool or ""), **settings)
    return SignalAdapter(given, folder=folder / "signal", sleep=sleep_briefly)


async def sleep_briefly(seconds: float) -> None:
    await asyncio.sleep(0.02)


@asynccontextmanager
async def open_harness(folder: Path, *, stream: bool = False) -> AsyncGenerator[AdapterHarness]:
    spool = folder / "received.jsonl"
    spool.touch()
    async with AsyncExitStack() as stack:
        fake = stack.enter_context(FakeSignalCli(stdout=spool))

        def build(url: str) -> SignalAdapter:
            adapter = build_adapter(url, folder, spool=spool, stream=stream)
            stack.push_async_callback(adapter.close)
            return adapter

        person = _Person(fake)
        yield AdapterHarness(
            adapter=build(fake.url),
            traits=frozenset(
                {
                    Trait.RECEIVES,
                    Trait.ORDERS,
                    Trait.KEEPS_STATE,
                    Trait.NETWORK,
                    Trait.THROTTLES,
                    Trait.EDITS,
                    Trait.DELETES,
                    Trait.REACTS,
                    Trait.ATTACHES,
                    Trait.ALIASES,
                    Trait.MALFORMED,
                }
            ),
            chats=(ANN, BEN),
            texts=fake.texts,
            files=fake.sent_files,
            count_typing=lambda: len(fake.typing),
            write=person.write,
            edit=lambda chat, text: fake.edit(chat, text, person.last),
            delete=lambda chat: fake.delete(chat, person.last),
            react=lambda chat, emoji: fake.react(chat, emoji, person.last),
            attach=person.attach,
            write_as_alias=lambda chat, text, other: fake.write(chat, text, number=other),
            send_malformed=person.send_malformed,
            set_faults=fake.set_faults,
            unreachable=build(UNREACHABLE_URL),
            restart=lambda: build(fake.url),
        )
        assert fake.problems == []


class _Person:
    """What a person does. Every message has a field that no version knows."""

    def __init__(self, fake: FakeSignalCli) -> None:
        self._fake = fake
        self.last = 0

    def write(self, chat: str, text: str) -> None:
        self.last = self._fake.write(chat, text, hologram={"depth": 3})

    def attach(self, chat: str, text: str, attachment: Attachment) -> None:
        file = self._fake.add_file(attachment.name, attachment.mime, attachment.body)
        self._fake.write(chat, text, attachments=[file])

    def send_malformed(self) -> None:
        broken: tuple[object, ...] = (
            b"{",
            b"[]",
            b"\xff\xfe",
            3,
            None,
            {"account": NUMBER},
            {"account": NUMBER, "exception": {"message": "x", "type": "InvalidMessageException"}},
            {"account": NUMBER, "envelope": {"timestamp": "late"}},
            {"account": NUMBER, "envelope": {"dataMessage": {"message": 3}}},
            {"account": NUMBER, "envelope": {"timestamp": 1, "typingMessage": {"action": "STARTED"}}},
            {"account": "+4999999999", "envelope": {"dataMessage": {"message": "for another account"}}},
        )
        for item in broken:
            self._fake.push(item)
