"""The adapter for one Discord bot, by the gateway websocket and the REST API, and its settings."""

import asyncio
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import anyio
import msgspec

from keryx.core import codec
from keryx.core.deliveries import Idempotency, Target
from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.media import Attachment, RemoteFile
from keryx.core.ports.adapter import (
    AdapterContext,
    AttachmentLimits,
    Capabilities,
    LengthUnit,
    OutgoingPart,
    RenderedPart,
    Streaming,
)
from keryx.core.source import ChatType, Source
from keryx.core.texts import Phrase
from keryx.secrets import Secret
from keryx.surfaces.gateway import http_clients, websocket
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.discord import message_sender, slash_commands
from keryx.surfaces.gateway.discord.channels import NameDirectory
from keryx.surfaces.gateway.discord.event_parser import IDS, PLATFORM, DiscordIdentity, parse_file_reference
from keryx.surfaces.gateway.discord.event_receiver import EventReceiver
from keryx.surfaces.gateway.discord.gateway_position import load_position
from keryx.surfaces.gateway.discord.gateway_session import INTENTS, MESSAGE_CONTENT, GatewaySession
from keryx.surfaces.gateway.discord.message_sender import MessageSender
from keryx.surfaces.gateway.discord.rest_api import DEFAULT_URL, DiscordApi
from keryx.timing import Sleep

_TOKEN_PATTERN = re.compile(r"([\w-]{18,64})\.[\w-]{4,12}\.[\w-]{20,80}\Z", re.ASCII)
ARCHIVE_MINUTES = (60, 1440, 4320, 10080)
# What a bot may upload where the server has no boosts.
_MAX_UPLOAD_BYTES = 10_485_760
_MAX_DOWNLOAD_BYTES = 20_000_000
# A bot may send 50 requests per second in all.
_ACCOUNT_INTERVAL = timedelta(milliseconds=20)
_MAX_FRAME_BYTES = 32_000_000
_CLOSE_SECONDS = 2.0


class DiscordSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    token: Secret = Secret()
    base_url: str = DEFAULT_URL
    # The address of the gateway; empty to ask Discord for it.
    gateway_url: str = ""
    # Read all messages of channels. Needs a switch in the developer portal. Otherwise direct messages and mentions only.
    message_content: bool = True
    # Begin a thread for each conversation in a channel, named after its title and archived at its end.
    threads: bool = False
    # After how many minutes of silence Discord archives such a thread.
    archive: int = 1440
    # An answer in a channel notifies the person who asked.
    notify: bool = True
    # The largest file that is fetched, and that is sent, in bytes.
    download: int = _MAX_DOWNLOAD_BYTES
    upload: int = _MAX_UPLOAD_BYTES


def check_token(text: str) -> str:
    """Return the bot's id, which is the first part of a token. Raise `Invalid` for anything else."""
    found = _TOKEN_PATTERN.match(text)
    try:
        id_ = codec.decode_base64url(found[1]).decode() if found else ""
    except ValueError:
        id_ = ""
    if not (id_.isascii() and id_.isdigit()):
        raise Invalid(
            "this does not look like the token of a Discord bot: the page Bot of the developer portal shows one, in three parts "
            "with dots between them, after Reset Token. It is neither the client secret nor the public key"
        )
    return id_


def check_url(name: str, url: str) -> str:
    """Return the address in a setting without its trailing slash."""
    return http_clients.check_url(
        url, f"discord.{name}: write a web address such as https://discord.com/api/v10"
    )


def make(setup: AdapterSetup) -> "DiscordAdapter | None":
    """Build the adapter, or return None without settings. `Invalid` says what is missing."""
    settings = setup.read(DiscordSettings)
    if settings is None:
        return None
    setup.require(token=settings.token)
    if settings.archive not in ARCHIVE_MINUTES:
        choice = ", ".join(map(str, ARCHIVE_MINUTES))
        raise Invalid(f"{setup.label}.archive: Discord archives threads after one of {choice} minutes")
    return DiscordAdapter(settings.token.reveal(setup.environ), settings)


class DiscordAdapter:
    platform = PLATFORM
    hook = None

    def __init__(
        self,
        token: str,
        settings: DiscordSettings = DiscordSettings(),
        *,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.account = check_token(token)
        self._token = token
        self._settings = settings
        self._sleep = sleep
        self._names = NameDirectory()
        self._api = DiscordApi(token, check_url("base_url", settings.base_url), sleep=sleep, now=now)
        self._sender = MessageSender(self._api, self.account, names=self._names, notify=settings.notify)
        self.capabilities = Capabilities(
            idempotency=Idempotency.NATIVE,
            edit=True,
            threads=True,
            thread_titles=settings.threads,
            typing=True,
            streaming=Streaming.EDIT,
            attachments=AttachmentLimits(max_bytes=settings.upload),
            buttons=True,
            button_label=message_sender.MAX_LABEL_LENGTH,
            limit=message_sender.LIMIT.size,
            unit=LengthUnit.CHARACTERS,
            account_interval=_ACCOUNT_INTERVAL,
            pii_safe=True,
            ids=IDS,
            roles=("*",),
            notes=(
                "Write @name to mention a person who has written in this chat.",
                "Tables are shown as text in columns.",
            ),
        )

    async def listen(self, context: AdapterContext) -> None:
        self._api.retry_token()
        try:
            await self._listen(context)
        except asyncio.CancelledError:
            await self.close()
            raise

    def convert_source(self, source: Source) -> Source | None:
        # A thread is a channel of its own, and other programs name it as the chat.
        thread = source.thread or (source.chat if source.chat_type is ChatType.THREAD else None)
        if thread is None or source.chat_type is ChatType.DM:
            kind = source.chat_type if source.chat_type is ChatType.DM else ChatType.GROUP
            return msgspec.structs.replace(source, chat_type=kind, parent_chat=None)
        parent = source.parent_chat or (source.chat if source.chat != thread else None)
        if parent is None:
            return None
        return msgspec.structs.replace(
            source, chat=parent, thread=thread, chat_type=ChatType.THREAD, parent_chat=None
        )

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._api.close()

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return message_sender.render_parts(text)

    def create_send_key(self, part: OutgoingPart) -> str:
        return self._sender.create_send_key(part)

    async def send(self, part: OutgoingPart) -> str:
        return await self._sender.send(part)

    async def typing(self, target: Target) -> None:
        await self._sender.show_typing(target)

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        most = min(limit, self._settings.download)
        if file.size > most:
            raise Invalid(Phrase("file.too_large", limit=most))
        try:
            found = await self._api.find_file(*parse_file_reference(file.reference))
        except Forbidden as exc:
            # A file is fetched when the token is replaced.
            raise Unavailable(str(exc)) from None
        body = await self._api.download(found.url, limit=most)
        return Attachment(name=file.name, mime=file.mime, body=body)

    async def remove(self, target: Target, message: str) -> None:
        await self._sender.remove(target, message)

    async def rename_thread(self, target: Target, title: str) -> None:
        await self._sender.rename_thread(target, title)

    async def archive_thread(self, target: Target) -> None:
        await self._sender.archive_thread(target)

    async def _listen(self, context: AdapterContext) -> None:
        """Receive events from the gateway in one task, and store them in another, so that heartbeats are answered in time."""
        settings = self._settings
        await slash_commands.register(self._api, context)
        position = await load_position(context)
        receiver = EventReceiver(
            self._api,
            context,
            DiscordIdentity(
                id=self.account,
                commands=frozenset(item.name for item in context.menu),
                thread_name=context.texts.speak().say("thread.unnamed"),
            ),
            position,
            archive=settings.archive if settings.threads else 0,
            names=self._names,
        )
        session = GatewaySession(
            self._api,
            self._token,
            intents=INTENTS | (MESSAGE_CONTENT if settings.message_content else 0),
            position=position,
            dispatch=receiver.put,
            gateway_url=settings.gateway_url,
        )
        connection = websocket.listen(
            session,
            report=context.report,
            sleep=self._sleep,
            max_frame_bytes=_MAX_FRAME_BYTES,
            close_code=websocket.DEAD_CODE,
        )
        tasks = [asyncio.create_task(connection), asyncio.create_task(receiver.run())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            # The connection closes before the adapter does.
            with anyio.CancelScope(shield=True):
                await asyncio.wait(tasks)
