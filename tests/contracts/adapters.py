"""The adapters that the contract is run over.

A new adapter adds one `Case` to `CASES`: a context manager that starts a fake of the platform, makes the adapter and
yields a `Setting`. Only `adapter` and `seen` are needed; each further field that is given switches on the tests that
need it, and a field left out skips them. The fake must be able to play the `Faults`, and should add a field that
nobody knows to everything it says. A platform that posts to us instead of being polled gives `post`.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.matrix import PERSON, FakeMatrix
from tests.fakes.platform import Platform, PlatformAdapter
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.fakes.webhook import KEY, FakeWebhooks

from keryx.core.deliveries import LOCAL, Idempotency
from keryx.core.media import Attachment
from keryx.core.ports.adapter import Adapter, Capabilities
from keryx.core.source import ChatType, Source
from keryx.surfaces.gateway.local_files import LocalAdapter
from keryx.surfaces.gateway.matrix.adapter import MatrixAdapter
from keryx.surfaces.gateway.matrix.homeserver import Homeserver
from keryx.surfaces.gateway.telegram import TelegramAdapter, TelegramSettings
from keryx.surfaces.gateway.webhook import WebhookAdapter, WebhookSettings
from keryx.testing import RecordingAdapter
from keryx.testing.fault_injection import PlatformFaults


@dataclass(frozen=True, kw_only=True)
class Setting:
    """An adapter with its platform.

    Out: `seen` gives the texts that a person sees in a chat, in order;
    `files` the bytes of the files there; `typed` how often typing was shown. `unreachable` is an adapter of the same
    kind whose platform does not listen.
    In: `say` lets a person write, `edit` change their last message, `attach` send a file with a text, `alias` write
    while the platform tells another id of theirs; `rank` gives somebody a role, or none, and gives where; `pressable` gives the labels of the buttons in a chat, `press` presses one; `junk` lets the platform send something broken; `post` hands over what waits, for platforms that post to us.
    `spoil` sets the faults of the wire. `secret` must be in no error and no log. `start` is the position of an account
    that has listened before, for platforms on which one that has not hears nothing of what was said earlier.
    """

    adapter: Adapter
    seen: Callable[[str], list[str]]
    chats: tuple[str, str] = ("c1", "c2")
    files: Callable[[str], list[bytes]] | None = None
    typed: Callable[[], int] | None = None
    say: Callable[[str, str], None] | None = None
    edit: Callable[[str, str], None] | None = None
    attach: Callable[[str, str, Attachment], None] | None = None
    alias: Callable[[str, str, str], None] | None = None
    rank: Callable[[str], Source] | None = None
    pressable: Callable[[str], list[str]] | None = None
    press: Callable[[str, str], None] | None = None
    junk: Callable[[], None] | None = None
    post: Callable[[], Awaitable[None]] | None = None
    spoil: Callable[[PlatformFaults], None] | None = None
    unreachable: Adapter | None = None
    secret: str = ""
    start: str | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    make: Callable[[Path], AbstractAsyncContextManager[Setting]]

    def __str__(self) -> str:
        return self.name


@asynccontextmanager
async def _local(folder: Path) -> AsyncGenerator[Setting]:
    def seen(chat: str) -> list[str]:
        files = sorted((folder / chat).glob("*.md"))
        return [f.read_bytes().decode("utf-8", "surrogatepass") for f in files]

    def files(chat: str) -> list[bytes]:
        return [f.read_bytes() for f in sorted((folder / chat).iterdir()) if f.suffix != ".md"]

    yield Setting(adapter=LocalAdapter(folder), seen=seen, files=files)


@asynccontextmanager
async def _recording(folder: Path) -> AsyncGenerator[Setting]:
    adapter = RecordingAdapter(capabilities=Capabilities(idempotency=Idempotency.NATIVE), limit=50)
    yield Setting(
        adapter=adapter,
        seen=lambda chat: [p.text for p in adapter.sent_parts if p.target.chat == chat],
        typed=lambda: len(adapter.typing_targets),
    )


@asynccontextmanager
async def _platform(folder: Path, *, native: bool) -> AsyncGenerator[Setting]:
    with Platform(idempotent=native) as platform:
        adapter = PlatformAdapter(platform.url, native=native)
        nowhere = PlatformAdapter(NOWHERE)

        def spoil(faults: PlatformFaults) -> None:
            platform.faults = faults

        try:
            yield Setting(
                adapter=adapter, seen=platform.texts, say=platform.say, spoil=spoil, unreachable=nowhere
            )
        finally:
            await adapter.close()
            await nowhere.close()


NOWHERE = "http://127.0.0.1:9"
"""The discard port, on which nobody listens."""


@asynccontextmanager
async def _telegram(folder: Path) -> AsyncGenerator[Setting]:
    with FakeTelegram() as telegram:
        adapter = TelegramAdapter(TOKEN, TelegramSettings(base_url=telegram.url), sleep=_soon)
        nowhere = TelegramAdapter(TOKEN, TelegramSettings(base_url=NOWHERE), sleep=_soon)
        said = _Said(telegram)

        def spoil(faults: PlatformFaults) -> None:
            telegram.faults = faults

        def rank(role: str) -> Source:
            telegram.members[-5, 7] = role or "restricted"
            return Source(platform="telegram", chat="-5", chat_type=ChatType.GROUP, user="7")

        def files(chat: str) -> list[bytes]:
            return [telegram.uploads[b.id] for b in telegram.bubbles if b.media and b.chat == int(chat)]

        try:
            yield Setting(
                adapter=adapter,
                chats=("7", "8"),
                seen=lambda chat: [b.text for b in telegram.bubbles if b.chat == int(chat) and not b.media],
                files=files,
                typed=lambda: len(telegram.actions),
                say=said.say,
                edit=said.edit,
                attach=said.attach,
                rank=rank,
                pressable=lambda chat: [
                    x for b in telegram.bubbles if b.chat == int(chat) for x in b.buttons
                ],
                press=lambda chat, label: telegram.press(label, chat=int(chat)),
                junk=said.junk,
                spoil=spoil,
                unreachable=nowhere,
                secret=TOKEN.partition(":")[2],
            )
        finally:
            await adapter.close()
            await nowhere.close()


@asynccontextmanager
async def _webhook(folder: Path, *, idempotent: bool) -> AsyncGenerator[Setting]:
    with FakeWebhooks(idempotent=idempotent) as hooks:
        adapter = WebhookAdapter(WebhookSettings(url=hooks.url, idempotent=idempotent), secrets=[KEY])
        nowhere = WebhookAdapter(WebhookSettings(url=NOWHERE), secrets=[KEY])
        last = ""

        def say(chat: str, text: str) -> None:
            nonlocal last
            last = hooks.say(chat, text)

        def junk() -> None:
            hooks.push(f"junk_{last}_1", b"{")
            hooks.push(f"junk_{last}_2", b'{"chat": 3}')

        def edit(chat: str, text: str) -> None:
            hooks.say(chat, text, edits=last)

        def alias(chat: str, text: str, other: str) -> None:
            hooks.say(chat, text, alias=other)

        def spoil(faults: PlatformFaults) -> None:
            hooks.faults = faults

        try:
            yield Setting(
                adapter=adapter,
                seen=hooks.texts,
                say=say,
                edit=edit,
                alias=alias,
                junk=junk,
                post=lambda: hooks.post(adapter.hook.handle),
                spoil=spoil,
                unreachable=nowhere,
                secret=KEY.decode(),
            )
        finally:
            await adapter.close()
            await nowhere.close()


class _Said:
    """What a person does on Telegram; every message has a field of the future."""

    def __init__(self, telegram: FakeTelegram) -> None:
        self._telegram = telegram
        self._last = 0

    def say(self, chat: str, text: str) -> None:
        self._last = self._telegram.say(text, chat=int(chat), hologram={"depth": 3})

    def edit(self, chat: str, text: str) -> None:
        self._telegram.rewrite(text, message=self._last, chat=int(chat))

    def attach(self, chat: str, text: str, attachment: Attachment) -> None:
        self._telegram.files[attachment.name] = attachment.body
        document = {"file_id": attachment.name, "file_name": attachment.name, "mime_type": attachment.mime}
        self._telegram.say(None, chat=int(chat), caption=text, document=document)

    def junk(self) -> None:
        self._telegram.push("message", {"message_id": "three", "chat": 5})
        self._telegram.push("message", {})
        self._telegram.push("poll", {"id": "1", "question": "?"})
        self._telegram.push("hologram", {"depth": 3})


@asynccontextmanager
async def _matrix(folder: Path) -> AsyncGenerator[Setting]:
    with FakeMatrix(anywhere=True) as matrix:
        adapter = MatrixAdapter(Homeserver(matrix.url, matrix.token), matrix.user, sleep=_soon)
        nowhere = MatrixAdapter(Homeserver(NOWHERE, matrix.token), matrix.user, sleep=_soon)
        said = _Written(matrix)

        def spoil(faults: PlatformFaults) -> None:
            matrix.faults = faults

        def rank(role: str) -> Source:
            matrix.open("!one:fake.test", PERSON)
            matrix.powers["!one:fake.test"] = {PERSON: {"admin": 100, "moderator": 50}.get(role, 49)}
            return Source(platform="matrix", chat="!one:fake.test", chat_type=ChatType.GROUP, user=PERSON)

        def files(chat: str) -> list[bytes]:
            return [matrix.files[str(c["url"]).rpartition("/")[2]] for c in matrix.shown(chat) if "url" in c]

        try:
            yield Setting(
                adapter=adapter,
                chats=("!one:fake.test", "!two:fake.test"),
                seen=lambda chat: [str(c["body"]) for c in matrix.shown(chat) if "url" not in c],
                files=files,
                typed=lambda: len(matrix.typing),
                say=said.say,
                edit=said.edit,
                attach=said.attach,
                rank=rank,
                junk=said.junk,
                spoil=spoil,
                unreachable=nowhere,
                secret=matrix.token,
                start="s0",
            )
        finally:
            await adapter.close()
            await nowhere.close()


class _Written:
    """What a person does on Matrix; every event has a field of the future."""

    def __init__(self, matrix: FakeMatrix) -> None:
        self._matrix = matrix
        self._last = ""

    def say(self, chat: str, text: str) -> None:
        self._last = self._matrix.say(chat, text, hologram={"depth": 3})

    def edit(self, chat: str, text: str) -> None:
        relation = {"rel_type": "m.replace", "event_id": self._last}
        new = {"msgtype": "m.text", "body": text}
        edit = {"msgtype": "m.text", "body": f"* {text}", "m.new_content": new, "m.relates_to": relation}
        self._matrix.push(chat, edit)

    def attach(self, chat: str, text: str, attachment: Attachment) -> None:
        self._matrix.files[attachment.name] = attachment.body
        content = {"msgtype": "m.file", "body": text, "filename": attachment.name}
        info = {"mimetype": attachment.mime, "size": len(attachment.body)}
        self._matrix.push(chat, {**content, "url": f"mxc://fake.test/{attachment.name}", "info": info})

    def junk(self) -> None:
        broken: tuple[object, ...] = ({"msgtype": "m.text", "body": 3}, {}, list[str](), "words", None)
        for content in broken:
            self._matrix.push("!one:fake.test", content)
        self._matrix.push("!one:fake.test", {"msgtype": "m.text", "body": "x"}, event_id=["$odd"])
        self._matrix.push("!one:fake.test", {"depth": 3}, kind="org.example.hologram")


async def _soon(seconds: float) -> None:
    """Pauses of the adapter, without their length."""
    await asyncio.sleep(0)


CASES = (
    Case(name=LOCAL, make=_local),
    Case(name="recording", make=_recording),
    Case(name="platform", make=lambda folder: _platform(folder, native=False)),
    Case(name="native", make=lambda folder: _platform(folder, native=True)),
    Case(name="matrix", make=_matrix),
    Case(name="telegram", make=_telegram),
    Case(name="webhook", make=lambda folder: _webhook(folder, idempotent=False)),
    Case(name="idempotent webhook", make=lambda folder: _webhook(folder, idempotent=True)),
)
