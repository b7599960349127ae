"""WhatsApp on both platforms of Meta, for the contract suite."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.fakes.whatsapp import (
    APP_SECRET,
    CREATOR,
    KEY,
    NUMBER,
    TOKEN,
    VERIFY_TOKEN,
    FakeWhatsAppAgent,
    FakeWhatsAppCloud,
)

from keryx.core.media import Attachment
from keryx.core.ports.adapter import WebhookRequest
from keryx.surfaces.gateway.whatsapp import WhatsAppAgentAdapter, WhatsAppCloudAdapter
from keryx.surfaces.gateway.whatsapp.graph_api import Sleep
from keryx.surfaces.gateway.whatsapp.whatsapp_settings import WhatsAppMode, WhatsAppSettings
from keryx.testing.contracts import AdapterHarness, Trait
from keryx.testing.wire import UNREACHABLE_URL

_ONLINE = {Trait.RECEIVES, Trait.ORDERS, Trait.NETWORK, Trait.THROTTLES, Trait.REDELIVERS}
_PEOPLE = {Trait.REACTS, Trait.ATTACHES, Trait.MALFORMED}
ANN = "US.13491208655302741918"
BEN = "DE.99887766554433221100"


def build_cloud(base_url: str, **settings: Any) -> WhatsAppCloudAdapter:
    return WhatsAppCloudAdapter(
        TOKEN,
        WhatsAppSettings(base_url=base_url, phone_number_id=NUMBER, **settings),
        app_secret=APP_SECRET,
        verify_token=VERIFY_TOKEN,
        sleep=sleep_briefly,
    )


def build_agent(base_url: str, *, sleep: Sleep | None = None, **settings: Any) -> WhatsAppAgentAdapter:
    given: dict[str, Any] = {"per_minute": 0, "polls_per_minute": 0, **settings}
    return WhatsAppAgentAdapter(
        KEY,
        WhatsAppSettings(mode=WhatsAppMode.AGENT, base_url=base_url, **given),
        sleep=sleep or sleep_briefly,
    )


async def sleep_briefly(seconds: float) -> None:
    await asyncio.sleep(0.001)


@asynccontextmanager
async def open_cloud() -> AsyncGenerator[AdapterHarness]:
    async with AsyncExitStack() as stack:
        fake = stack.enter_context(FakeWhatsAppCloud())
        adapter, unreachable = build_cloud(fake.url), build_cloud(UNREACHABLE_URL)
        stack.push_async_callback(adapter.close)
        stack.push_async_callback(unreachable.close)
        person = _CloudPerson(fake)
        query = {"hub.mode": "subscribe", "hub.verify_token": VERIFY_TOKEN, "hub.challenge": "1158201444"}
        people = {*_PEOPLE, Trait.EDITS, Trait.DELETES, Trait.ALIASES, Trait.HOLDS}
        yield AdapterHarness(
            adapter=adapter,
            traits=frozenset(_ONLINE | people),
            chats=(ANN, BEN),
            texts=fake.texts,
            files=fake.sent_files,
            count_typing=lambda: len(fake.reads),
            count_reactions=lambda: sum(b.type == "reaction" for b in fake.bubbles),
            buttons=lambda chat: [x for b in fake.bubbles if b.chat == chat for x in b.buttons],
            press=fake.press,
            write=person.write,
            edit=lambda chat, text: fake.edit(chat, text, person.last),
            delete=lambda chat: fake.revoke(chat, person.last),
            react=lambda chat, emoji: fake.react(chat, emoji, person.last),
            attach=person.attach,
            write_as_alias=lambda chat, text, other: fake.write(chat, text, phone=other),
            send_malformed=person.send_malformed,
            close_reply_window=fake.closed.add,
            challenge=(WebhookRequest(method="GET", query=query, headers={}, body=b""), b"1158201444"),
            post=lambda: fake.post(adapter.hook.handle),
            set_faults=fake.set_faults,
            unreachable=unreachable,
            secret=TOKEN,
        )


class _CloudPerson:
    """What a person does. Every message has a field that no version knows."""

    def __init__(self, fake: FakeWhatsAppCloud) -> None:
        self._fake = fake
        self._count = 0
        self.last = ""

    def write(self, chat: str, text: str) -> None:
        self.last = self._fake.write(chat, text, hologram={"depth": 3})

    def attach(self, chat: str, text: str, attachment: Attachment) -> None:
        media = self._fake.add_file(attachment.name, attachment.mime, attachment.body)
        document = {**media, "caption": text, "filename": attachment.name}
        self._fake.write(chat, None, type="document", document=document)

    def send_malformed(self) -> None:
        self._count += 1
        self._fake.push_raw(f"junk{self._count}", b"{")
        self._fake.push_raw(f"list{self._count}", b"[]")
        self._fake.push(3, f"number{self._count}")
        broken = {"id": 5}, "words", None, {"id": "wamid.X", "type": "text", "from": "1", "text": {"body": 3}}
        self._fake.push({"messages": broken, "statuses": [dict[str, Any]()]}, f"broken{self._count}")
        self._fake.push(
            {"messages": [{"id": "wamid.Y", "type": "text", "text": {"body": "x"}}]}, f"nobody{self._count}"
        )
        self._fake.push({"messages": [{"id": "wamid.Z"}]}, f"other{self._count}", number="42")


@asynccontextmanager
async def open_agent() -> AsyncGenerator[AdapterHarness]:
    async with AsyncExitStack() as stack:
        fake = stack.enter_context(FakeWhatsAppAgent(people=(CREATOR, "user:510")))
        adapter, unreachable = build_agent(fake.url), build_agent(UNREACHABLE_URL)
        stack.push_async_callback(adapter.close)
        stack.push_async_callback(unreachable.close)
        person = _AgentCreator(fake)
        yield AdapterHarness(
            adapter=adapter,
            traits=frozenset(_ONLINE | _PEOPLE | {Trait.RESUMES}),
            chats=(CREATOR, "user:510"),
            texts=fake.texts,
            files=fake.sent_files,
            count_typing=lambda: len(fake.reads),
            write=person.write,
            react=person.react,
            attach=person.attach,
            send_malformed=person.send_malformed,
            set_faults=fake.set_faults,
            unreachable=unreachable,
            secret=KEY,
        )


class _AgentCreator:
    def __init__(self, fake: FakeWhatsAppAgent) -> None:
        self._fake = fake
        self._last = ""

    def write(self, chat: str, text: str) -> None:
        self._last = self._fake.write(chat, text, hologram={"depth": 3})

    def react(self, chat: str, emoji: str) -> None:
        self._fake.write(chat, None, type="reaction", reaction={"message_id": self._last, "emoji": emoji})

    def attach(self, chat: str, text: str, attachment: Attachment) -> None:
        media = self._fake.add_file(attachment.name, attachment.mime, attachment.body)
        document = {**media, "caption": text, "filename": attachment.name}
        self._fake.write(chat, None, type="document", document=document)

    def send_malformed(self) -> None:
        for broken in ({"id": 5}, "words", None, {"id": "wamid.X", "type": "text"}):
            self._fake.push("messages", broken)
        self._fake.push("statuses", {"id": "wamid.OUT1", "status": "read"})
        self._fake.push("statuses", 3)
