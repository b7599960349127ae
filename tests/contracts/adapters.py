"""The adapters that the contract is run over: those of the product, and those of the fake platform for the rest of the port."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.fakes.matrix import PERSON, FakeMatrix
from tests.fakes.platform import (
    CHALLENGE_TOKEN,
    AppendingAdapter,
    HookAdapter,
    Platform,
    PlatformAdapter,
    ReconcilingAdapter,
    SpoolingAdapter,
    WindowAdapter,
)
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.fakes.webhook import KEY, FakeWebhooks

from keryx.core.deliveries import LOCAL, Idempotency
from keryx.core.media import Attachment
from keryx.core.ports.adapter import Capabilities, WebhookRequest
from keryx.core.source import ChatType, Source
from keryx.surfaces.gateway.local_files import LocalAdapter
from keryx.surfaces.gateway.matrix import MatrixAdapter
from keryx.surfaces.gateway.matrix.homeserver import Homeserver
from keryx.surfaces.gateway.telegram import TelegramAdapter, TelegramSettings
from keryx.surfaces.gateway.webhook import WebhookAdapter, WebhookSettings
from keryx.testing import RecordingAdapter
from keryx.testing.contracts import AdapterHarness, Trait
from keryx.testing.wire import UNREACHABLE_URL

_ROOM = "!one:fake.test"
# What every platform with a network does.
_ONLINE = {Trait.RECEIVES, Trait.ORDERS, Trait.NETWORK, Trait.THROTTLES}
_POLLED = {*_ONLINE, Trait.REDELIVERS, Trait.RESUMES}


@dataclass(frozen=True, kw_only=True)
class AdapterCase:
    name: str
    open: Callable[[Path], AbstractAsyncContextManager[AdapterHarness]]

    def __str__(self) -> str:
        return self.name


@asynccontextmanager
async def _open_local(folder: Path) -> AsyncGenerator[AdapterHarness]:
    def texts(chat: str) -> list[str]:
        files = sorted((folder / chat).glob("*.md"))
        return [f.read_bytes().decode("utf-8", "surrogatepass") for f in files]

    def files(chat: str) -> list[bytes]:
        return [f.read_bytes() for f in sorted((folder / chat).iterdir()) if f.suffix != ".md"]

    yield AdapterHarness(adapter=LocalAdapter(folder), texts=texts, files=files)


@asynccontextmanager
async def _open_recording(folder: Path) -> AsyncGenerator[AdapterHarness]:
    capabilities = Capabilities(idempotency=Idempotency.NATIVE, typing=True, limit=50)
    adapter = RecordingAdapter(capabilities=capabilities, limit=50)
    yield AdapterHarness(
        adapter=adapter,
        texts=lambda chat: [p.text for p in adapter.sent_parts if p.target.chat == chat],
        count_typing=lambda: len(adapter.typing_targets),
    )


@asynccontextmanager
async def _open_platform(
    folder: Path, *, build: Callable[[str], PlatformAdapter], platform: Callable[[], Platform] = Platform
) -> AsyncGenerator[tuple[Platform, AdapterHarness]]:
    async with AsyncExitStack() as stack:
        fake = stack.enter_context(platform())
        adapter, unreachable = build(fake.url), build(UNREACHABLE_URL)
        stack.push_async_callback(adapter.close)
        stack.push_async_callback(unreachable.close)
        yield (
            fake,
            AdapterHarness(
                adapter=adapter,
                traits=frozenset({*_POLLED, Trait.EDITS, Trait.DELETES, Trait.REACTS}),
                texts=fake.texts,
                write=fake.say,
                edit=fake.edit,
                delete=fake.delete,
                react=fake.react,
                set_faults=fake.set_faults,
                unreachable=unreachable,
            ),
        )


@asynccontextmanager
async def _open_polled(folder: Path, *, native: bool) -> AsyncGenerator[AdapterHarness]:
    build, platform = partial(PlatformAdapter, native=native), partial(Platform, idempotent=native)
    async with _open_platform(folder, build=build, platform=platform) as (_, harness):
        yield harness


@asynccontextmanager
async def _open_appending(folder: Path) -> AsyncGenerator[AdapterHarness]:
    async with _open_platform(folder, build=AppendingAdapter) as (platform, harness):
        yield replace(harness, count_open=platform.count_open)


@asynccontextmanager
async def _open_reconciling(folder: Path) -> AsyncGenerator[AdapterHarness]:
    async with _open_platform(folder, build=ReconcilingAdapter) as (_, harness):
        yield harness


@asynccontextmanager
async def _open_window(folder: Path) -> AsyncGenerator[AdapterHarness]:
    async with _open_platform(folder, build=WindowAdapter) as (platform, harness):
        yield replace(harness, traits=harness.traits | {Trait.HOLDS}, close_reply_window=platform.closed.add)


@asynccontextmanager
async def _open_spooling(folder: Path) -> AsyncGenerator[AdapterHarness]:
    async with AsyncExitStack() as stack:
        platform, harness = await stack.enter_async_context(
            _open_platform(folder, build=SpoolingAdapter, platform=partial(Platform, forgets=True))
        )

        def restart() -> SpoolingAdapter:
            adapter = SpoolingAdapter(platform.url)
            stack.push_async_callback(adapter.close)
            return adapter

        traits = harness.traits - {Trait.REDELIVERS, Trait.RESUMES} | {Trait.KEEPS_STATE}
        yield replace(harness, traits=traits, restart=restart)


@asynccontextmanager
async def _open_hook(folder: Path) -> AsyncGenerator[AdapterHarness]:
    async with _open_platform(folder, build=HookAdapter) as (platform, harness):
        hook = harness.adapter.hook
        assert hook is not None
        query = {"token": CHALLENGE_TOKEN, "challenge": "1158201444"}
        yield replace(
            harness,
            traits=harness.traits - {Trait.RESUMES},
            post=lambda: platform.post_updates(hook.handle),
            count_reactions=lambda: len(platform.reactions),
            challenge=(WebhookRequest(method="GET", query=query, headers={}, body=b""), b"1158201444"),
        )


@asynccontextmanager
async def _open_telegram(folder: Path) -> AsyncGenerator[AdapterHarness]:
    async with AsyncExitStack() as stack:
        telegram = stack.enter_context(FakeTelegram())
        adapter = TelegramAdapter(TOKEN, TelegramSettings(base_url=telegram.url), sleep=_sleep_briefly)
        unreachable = TelegramAdapter(TOKEN, TelegramSettings(base_url=UNREACHABLE_URL), sleep=_sleep_briefly)
        stack.push_async_callback(adapter.close)
        stack.push_async_callback(unreachable.close)
        person = _TelegramPerson(telegram)

        def set_role(role: str) -> Source:
            telegram.members[-5, 7] = role or "restricted"
            return Source(platform="telegram", chat="-5", chat_type=ChatType.GROUP, user="7")

        yield AdapterHarness(
            adapter=adapter,
            traits=frozenset({*_POLLED, Trait.EDITS, Trait.REACTS, Trait.ATTACHES, Trait.MALFORMED}),
            chats=("7", "8"),
            texts=lambda chat: [b.text for b in telegram.bubbles if b.chat == int(chat) and not b.media],
            files=lambda chat: [
                telegram.uploads[b.id] for b in telegram.bubbles if b.media and b.chat == int(chat)
            ],
            count_typing=lambda: len(telegram.actions),
            write=person.write,
            edit=person.edit,
            react=person.react,
            attach=person.attach,
            set_role=set_role,
            buttons=lambda chat: [x for b in telegram.bubbles if b.chat == int(chat) for x in b.buttons],
            press=lambda chat, label: telegram.press(label, chat=int(chat)),
            send_malformed=person.send_malformed,
            set_faults=telegram.set_faults,
            unreachable=unreachable,
            secret=TOKEN.partition(":")[2],
        )


class _TelegramPerson:
    """What a person does on Telegram. Every message has a field that no version knows."""

    def __init__(self, telegram: FakeTelegram) -> None:
        self._telegram = telegram
        self._last = 0

    def write(self, chat: str, text: str) -> None:
        self._last = self._telegram.say(text, chat=int(chat), hologram={"depth": 3})

    def edit(self, chat: str, text: str) -> None:
        self._telegram.rewrite(text, message=self._last, chat=int(chat))

    def react(self, chat: str, emoji: str) -> None:
        self._telegram.react(emoji, message=self._last, chat=int(chat))

    def attach(self, chat: str, text: str, attachment: Attachment) -> None:
        self._telegram.files[attachment.name] = attachment.body
        document = {"file_id": attachment.name, "file_name": attachment.name, "mime_type": attachment.mime}
        self._telegram.say(None, chat=int(chat), caption=text, document=document)

    def send_malformed(self) -> None:
        self._telegram.push("message", {"message_id": "three", "chat": 5})
        self._telegram.push("message", {})
        self._telegram.push("message_reaction", {"chat": 5})
        self._telegram.push("poll", {"id": "1", "question": "?"})
        self._telegram.push("hologram", {"depth": 3})


@asynccontextmanager
async def _open_webhook(folder: Path, *, idempotent: bool) -> AsyncGenerator[AdapterHarness]:
    async with AsyncExitStack() as stack:
        hooks = stack.enter_context(FakeWebhooks(idempotent=idempotent))
        adapter = WebhookAdapter(WebhookSettings(url=hooks.url, idempotent=idempotent), secrets=[KEY])
        unreachable = WebhookAdapter(WebhookSettings(url=UNREACHABLE_URL), secrets=[KEY])
        stack.push_async_callback(adapter.close)
        stack.push_async_callback(unreachable.close)
        last = ""

        def write(chat: str, text: str) -> None:
            nonlocal last
            last = hooks.say(chat, text)

        def send_malformed() -> None:
            hooks.push(f"junk_{last}_1", b"{")
            hooks.push(f"junk_{last}_2", b'{"chat": 3}')
            hooks.push(f"junk_{last}_3", b'{"chat": "c1", "user": "ann"}')

        people = {Trait.EDITS, Trait.DELETES, Trait.REACTS, Trait.ALIASES, Trait.MALFORMED}
        yield AdapterHarness(
            adapter=adapter,
            traits=frozenset({*_ONLINE, Trait.REDELIVERS, *people}),
            texts=hooks.texts,
            write=write,
            edit=lambda chat, text: hooks.say(chat, text, edits=last),
            delete=lambda chat: hooks.say(chat, "", deletes=last),
            react=lambda chat, emoji: hooks.say(chat, "", reaction=emoji, reacts_to=last),
            write_as_alias=lambda chat, text, other: hooks.say(chat, text, alias=other),
            send_malformed=send_malformed,
            post=lambda: hooks.post(adapter.hook.handle),
            set_faults=hooks.set_faults,
            unreachable=unreachable,
            secret=KEY.decode(),
        )


@asynccontextmanager
async def _open_matrix(folder: Path) -> AsyncGenerator[AdapterHarness]:
    async with AsyncExitStack() as stack:
        matrix = stack.enter_context(FakeMatrix(anywhere=True))
        adapter = MatrixAdapter(Homeserver(matrix.url, matrix.token), matrix.user, sleep=_sleep_briefly)
        unreachable = MatrixAdapter(
            Homeserver(UNREACHABLE_URL, matrix.token), matrix.user, sleep=_sleep_briefly
        )
        stack.push_async_callback(adapter.close)
        stack.push_async_callback(unreachable.close)
        person = _MatrixPerson(matrix)

        def set_role(role: str) -> Source:
            matrix.open(_ROOM, PERSON)
            matrix.powers[_ROOM] = {PERSON: {"admin": 100, "moderator": 50}.get(role, 49)}
            return Source(platform="matrix", chat=_ROOM, chat_type=ChatType.GROUP, user=PERSON)

        people = {Trait.EDITS, Trait.DELETES, Trait.REACTS, Trait.ATTACHES, Trait.MALFORMED}
        yield AdapterHarness(
            adapter=adapter,
            traits=frozenset({*_POLLED, *people, Trait.OPENS_THREADS}),
            chats=(_ROOM, "!two:fake.test"),
            texts=lambda chat: [str(c["body"]) for c in matrix.shown(chat) if "url" not in c],
            files=lambda chat: [
                matrix.files[str(c["url"]).rpartition("/")[2]] for c in matrix.shown(chat) if "url" in c
            ],
            count_typing=lambda: len(matrix.typing),
            write=person.write,
            edit=person.edit,
            delete=person.delete,
            react=person.react,
            attach=person.attach,
            write_in_thread=person.write_in_thread,
            set_role=set_role,
            send_malformed=person.send_malformed,
            set_faults=matrix.set_faults,
            unreachable=unreachable,
            secret=matrix.token,
            cursor="s0",
        )


class _MatrixPerson:
    """What a person does on Matrix. Every event has a field that no version knows."""

    def __init__(self, matrix: FakeMatrix) -> None:
        self._matrix = matrix
        self._last = ""

    def write(self, chat: str, text: str) -> None:
        self._last = self._matrix.say(chat, text, hologram={"depth": 3})

    def write_in_thread(self, chat: str, text: str, message: str) -> None:
        relation = {"rel_type": "m.thread", "event_id": message}
        self._matrix.push(chat, {"msgtype": "m.text", "body": text, "m.relates_to": relation})

    def edit(self, chat: str, text: str) -> None:
        relation = {"rel_type": "m.replace", "event_id": self._last}
        new = {"msgtype": "m.text", "body": text}
        edit = {"msgtype": "m.text", "body": f"* {text}", "m.new_content": new, "m.relates_to": relation}
        self._matrix.push(chat, edit)

    def delete(self, chat: str) -> None:
        self._matrix.push(chat, {"redacts": self._last}, kind="m.room.redaction", redacts=self._last)

    def react(self, chat: str, emoji: str) -> None:
        relation = {"rel_type": "m.annotation", "event_id": self._last, "key": emoji}
        self._matrix.push(chat, {"m.relates_to": relation}, kind="m.reaction")

    def attach(self, chat: str, text: str, attachment: Attachment) -> None:
        self._matrix.files[attachment.name] = attachment.body
        content = {"msgtype": "m.file", "body": text, "filename": attachment.name}
        info = {"mimetype": attachment.mime, "size": len(attachment.body)}
        self._matrix.push(chat, {**content, "url": f"mxc://fake.test/{attachment.name}", "info": info})

    def send_malformed(self) -> None:
        broken: tuple[object, ...] = ({"msgtype": "m.text", "body": 3}, {}, list[str](), "words", None)
        for content in broken:
            self._matrix.push(_ROOM, content)
        self._matrix.push(_ROOM, {"msgtype": "m.text", "body": "x"}, event_id=["$odd"])
        self._matrix.push(_ROOM, {"depth": 3}, kind="org.example.hologram")
        self._matrix.push(_ROOM, {"m.relates_to": {"event_id": 3}}, kind="m.reaction")
        self._matrix.push(_ROOM, {}, kind="m.room.redaction")


async def _sleep_briefly(seconds: float) -> None:
    await asyncio.sleep(0)


CASES = (
    AdapterCase(name=LOCAL, open=_open_local),
    AdapterCase(name="recording", open=_open_recording),
    AdapterCase(name="platform", open=partial(_open_polled, native=False)),
    AdapterCase(name="native", open=partial(_open_polled, native=True)),
    AdapterCase(name="appending", open=_open_appending),
    AdapterCase(name="reconciling", open=_open_reconciling),
    AdapterCase(name="reply window", open=_open_window),
    AdapterCase(name="spooling", open=_open_spooling),
    AdapterCase(name="hook", open=_open_hook),
    AdapterCase(name="matrix", open=_open_matrix),
    AdapterCase(name="telegram", open=_open_telegram),
    AdapterCase(name="webhook", open=partial(_open_webhook, idempotent=False)),
    AdapterCase(name="idempotent webhook", open=partial(_open_webhook, idempotent=True)),
)
