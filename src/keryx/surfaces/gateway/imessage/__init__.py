"""The adapters for iMessage and their settings: through the program `imsg`, on a Mac or by ssh, and through a BlueBubbles server."""

import asyncio
import hmac
import json
import logging
import shlex
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated

import anyio
import msgspec

from keryx.core.deliveries import Idempotency, Target
from keryx.core.durations import Backoff
from keryx.core.errors import Forbidden, Invalid, KeryxError
from keryx.core.media import Attachment, RemoteFile
from keryx.core.ports.adapter import (
    AdapterContext,
    AttachmentLimits,
    Capabilities,
    LinkState,
    OutgoingPart,
    RenderedPart,
    Webhook,
    WebhookRequest,
    WebhookResponse,
)
from keryx.core.texts import Phrase
from keryx.jsonrpc import as_object
from keryx.secrets import Secret
from keryx.surfaces.gateway import http_clients
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.imessage import bluebubbles_api, imsg_client, message_sender
from keryx.surfaces.gateway.imessage.bluebubbles_api import (
    BlueBubblesApi,
    BlueBubblesError,
    BlueBubblesNoResponse,
    BlueBubblesUnreachable,
)
from keryx.surfaces.gateway.imessage.event_parser import IDS, PLATFORM, IMessageIdentity, normalize_handle
from keryx.surfaces.gateway.imessage.event_receiver import (
    BlueBubblesReader,
    RowPosition,
    RowReceiver,
    find_newest_row,
    parse_position,
)
from keryx.surfaces.gateway.imessage.imsg_client import (
    ImsgClient,
    ImsgError,
    ImsgNoResponse,
    ImsgUnavailable,
)
from keryx.surfaces.gateway.imessage.message_sender import BlueBubblesSender, ImsgSender, convert_or_none
from keryx.surfaces.gateway.imessage.payloads import BlueBubblesWebhook, ImsgChat, ImsgMessage

log = logging.getLogger(__name__)
BAD_PASSWORD = Phrase("connect.imessage_bad_password")
NO_DISK_ACCESS = Phrase("connect.imessage_no_disk_access")
NOTES = (
    "People read this in Messages, as short bubbles of plain text: write as in a chat, in short paragraphs, without headings, tables or markup."
    " A longer answer is shown as one bubble for every few paragraphs.",
    "Messages that were sent cannot be edited or deleted.",
)
NO_HOOK = "without `url`, it asks for new messages at intervals"
SECRET_HEADER = "x-keryx-secret"
_CHANGES = ("updated-message", "message-send-error")
_EVENTS = ("new-message", *_CHANGES)
_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=60))
_CLOSE_SECONDS = 8.0
_MAX_POST_BYTES = 4_000_000
_NEWEST_ROWS = 50
_CONNECTION_ERRORS = (
    BlueBubblesError,
    BlueBubblesNoResponse,
    BlueBubblesUnreachable,
    ImsgError,
    ImsgNoResponse,
    ImsgUnavailable,
)

Sleep = Callable[[float], Awaitable[None]]


class IMessageTransport(StrEnum):
    IMSG = "imsg"
    BLUEBUBBLES = "bluebubbles"


class IMessageService(StrEnum):
    AUTO = "auto"
    IMESSAGE = "imessage"
    SMS = "sms"


class IMessageSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [imessage]. A misspelt name is an error."""

    # What connects Keryx with the Mac.
    transport: IMessageTransport = IMessageTransport.IMSG
    # imsg: the program and its command `rpc`. A command before them runs them on the Mac, such as ssh.
    command: tuple[str, ...] | str = ("imsg", "rpc")
    # BlueBubbles: the address of the server, and its password.
    base_url: str = ""
    password: Secret = Secret()
    # BlueBubbles: the address of Keryx as the Mac reaches it, and the secret at the end of the address of its hook. With
    # them, Keryx is told at once that there is something new.
    url: str = ""
    secret: Secret = Secret()
    # BlueBubbles: how often Keryx polls, besides the posts.
    poll: timedelta = timedelta(seconds=15)
    # BlueBubbles: answers in groups quote the message. Needs the private API.
    quote: bool = False
    # How a message goes to a person who has not written.
    service: IMessageService = IMessageService.AUTO
    # In groups, a message with one of these names is meant for the agent. With commas between them, or a list.
    names: tuple[str, ...] | str = ()
    # Each entry has the handles of one person.
    aliases: tuple[tuple[str, ...], ...] = ()
    # The largest file that is sent, in bytes.
    upload: Annotated[int, msgspec.Meta(ge=0)] = 100_000_000

    def __post_init__(self) -> None:
        if self.poll < timedelta(seconds=0.1):
            raise ValueError("poll: give at least 0.1s")


def check_url(name: str, url: str) -> str:
    """Return the address in a setting without its trailing slash."""
    return http_clients.check_url(url, f"imessage.{name}: write a web address such as http://mac.local:1234")


def parse_command(command: tuple[str, ...] | str) -> tuple[str, ...]:
    """Return the words of a command, which may be written as one text."""
    try:
        return tuple(shlex.split(command)) if isinstance(command, str) else command
    except ValueError as exc:
        raise Invalid(f"imessage.command is no command: {exc}") from None


def make(setup: AdapterSetup) -> "ImsgAdapter | BlueBubblesAdapter | None":
    """Build the adapter, or return None without settings. `Invalid` says what is missing."""
    settings = setup.read(IMessageSettings)
    if settings is None:
        return None
    if settings.transport is IMessageTransport.IMSG:
        return ImsgAdapter(settings, account=setup.name)
    if not settings.base_url or not settings.password:
        raise Invalid(
            f"{setup.label}.transport = bluebubbles needs `base_url` and `password`: run `keryx gateway setup imessage`"
        )
    if settings.url and not settings.secret:
        raise Invalid(f"{setup.label}.url needs a `secret`: without it anybody could post to the hook")
    return BlueBubblesAdapter(
        settings,
        password=settings.password.reveal(setup.environ),
        secret=settings.secret.reveal(setup.environ) if settings.secret else "",
        account=setup.name,
        hook_path=setup.hook_path,
    )


class _RowAdapter(ABC):
    """The Messages of one Mac, read row by row behind a position."""

    platform = PLATFORM

    def __init__(
        self,
        settings: IMessageSettings,
        sender: ImsgSender | BlueBubblesSender,
        *,
        account: str,
        sleep: Sleep,
        now: Callable[[], datetime],
        known_guids: dict[str, str],
    ) -> None:
        self.account = account
        self.capabilities = Capabilities(
            idempotency=Idempotency.RECONCILE,
            typing=True,
            attachments=AttachmentLimits(max_bytes=settings.upload),
            separate_files=True,
            markup="plain text",
            limit=message_sender.LIMIT.size,
            unit=message_sender.LIMIT.unit,
            pii_safe=True,
            ids=IDS,
            notes=NOTES,
        )
        self._settings = settings
        self._sender = sender
        self._sleep = sleep
        self._now = now
        # The last chat of each person who has written.
        self._known_guids = known_guids
        self._receiver: RowReceiver | None = None
        # In a row.
        self._failures = 0

    async def listen(self, context: AdapterContext) -> None:
        try:
            await self._receive(context)
        except asyncio.CancelledError:
            await self.close()
            raise

    @abstractmethod
    async def close(self) -> None: ...

    async def typing(self, target: Target) -> None:
        await self._sender.send_typing(target)

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return message_sender.render_parts(text)

    def create_send_key(self, part: OutgoingPart) -> str:
        read = self._receiver.position.row if self._receiver else 0
        return message_sender.create_send_key(max(read, self._sender.newest_row), self._now())

    async def send(self, part: OutgoingPart) -> str:
        return await self._sender.send(part)

    async def find_sent(self, part: OutgoingPart) -> str | None:
        return await self._sender.find_sent(part)

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        body = await self._read_file(file.reference, limit=limit)
        return Attachment(name=file.name, mime=file.mime, body=body)

    async def _receive(self, context: AdapterContext) -> None:
        """Receive rows in their order from the stored position on, and connect again after each failure."""
        position = parse_position(context.cursor)
        receiver: RowReceiver | None = None
        while True:
            try:
                if position is None:
                    position = await self._find_newest_row()
                    await context.init_cursor(str(position))
                if receiver is None:
                    listed = self._settings.names
                    listed = listed.split(",") if isinstance(listed, str) else listed
                    names = tuple(filter(None, (name.strip() for name in listed)))
                    receiver = self._receiver = RowReceiver(
                        context,
                        IMessageIdentity(account=self.account, names=names),
                        position,
                        aliases=self._settings.aliases,
                        known_guids=self._known_guids,
                    )
                await self._receive_until_broken(context, receiver)
            except _CONNECTION_ERRORS as exc:
                if refusal := self._find_refusal(exc):
                    raise Forbidden(refusal) from None
                context.report(LinkState.CONNECTING, str(exc))
            self._failures += 1
            await self._sleep(_BACKOFF.seconds(self._failures))

    @abstractmethod
    async def _receive_until_broken(self, context: AdapterContext, receiver: RowReceiver) -> None:
        """Hand rows to the receiver until the connection breaks."""

    @abstractmethod
    async def _find_newest_row(self) -> RowPosition:
        """Return the position behind what is there now: what came before Keryx is not answered."""

    @abstractmethod
    async def _read_file(self, reference: str, *, limit: int) -> bytes:
        """Return the bytes of a file. Raise `Invalid` or `Unavailable` if that fails."""

    @abstractmethod
    def _find_refusal(self, error: KeryxError) -> str:
        """Return what a person has to do if no attempt can succeed before; empty after a failure that may pass."""


class ImsgAdapter(_RowAdapter):
    """Through `imsg`."""

    hook = None

    def __init__(
        self,
        settings: IMessageSettings,
        *,
        account: str = "",
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = ImsgClient(parse_command(settings.command))
        sender = ImsgSender(self._client, service=settings.service)
        super().__init__(settings, sender, account=account, sleep=sleep, now=now, known_guids={})
        self._shows_typing = True

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._client.close()

    async def typing(self, target: Target) -> None:
        """Show typing. If `imsg` cannot, it is not asked again before the next connection."""
        if self._shows_typing:
            self._shows_typing = False
            await super().typing(target)
            self._shows_typing = True

    async def _receive_until_broken(self, context: AdapterContext, receiver: RowReceiver) -> None:
        # A program is used only after it has answered.
        await self._client.request("chats.list", {"limit": 1})
        context.report(LinkState.CONNECTED)
        self._shows_typing = True
        self._failures = 0
        async for row in self._client.watch(receiver.position.row):
            await receiver.receive_imsg(row)

    async def _find_newest_row(self) -> RowPosition:
        """Return the position behind the rows of the chat that was used last: what came before Keryx is not answered."""
        listed = await self._client.request("chats.list", {"limit": 1})
        newest = RowPosition(0)
        for payload in imsg_client.read_list(listed, "chats"):
            chat = convert_or_none(payload, ImsgChat)
            if chat is None:
                continue
            found = await self._client.request(
                "messages.history", {"chat_id": chat.id, "limit": _NEWEST_ROWS}
            )
            rows = (convert_or_none(row, ImsgMessage) for row in imsg_client.read_list(found, "messages"))
            newest = RowPosition(max((row.id for row in rows if row is not None), default=0))
        return newest

    async def _read_file(self, reference: str, *, limit: int) -> bytes:
        return await self._client.read_file(reference, limit=limit)

    def _find_refusal(self, error: KeryxError) -> str:
        denied = any(text in str(error) for text in ("Full Disk Access", "authorization denied"))
        return NO_DISK_ACCESS if denied else ""


class BlueBubblesAdapter(_RowAdapter):
    """Through a BlueBubbles server."""

    def __init__(
        self,
        settings: IMessageSettings,
        *,
        password: str,
        secret: str = "",
        account: str = "",
        hook_path: str = PLATFORM,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._secret = secret
        self._hook_path = hook_path
        self._api = BlueBubblesApi(check_url("base_url", settings.base_url), password)
        prefix = "SMS" if settings.service is IMessageService.SMS else "iMessage"
        self._server_sender = sender = BlueBubblesSender(self._api, service=prefix, quote=settings.quote)
        super().__init__(
            settings, sender, account=account, sleep=sleep, now=now, known_guids=sender.known_guids
        )
        self._reader: BlueBubblesReader | None = None
        self.hook = (
            Webhook(path=hook_path, handle=self._handle_request, limit=_MAX_POST_BYTES) if secret else None
        )

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._api.close()

    async def _receive_until_broken(self, context: AdapterContext, receiver: RowReceiver) -> None:
        """Ask for what is new again and again: after each pause, and whenever the server posts."""
        try:
            await self._poll(context, receiver)
        finally:
            self._reader = None

    async def _poll(self, context: AdapterContext, receiver: RowReceiver) -> None:
        info = await self._api.get_info()
        self._server_sender.private_api = info.private_api and info.helper_connected
        own = frozenset(map(normalize_handle, filter(None, (info.detected_imessage,))))
        receiver.me = msgspec.structs.replace(receiver.me, handles=own)
        if self._settings.url:
            await self._register_hook(check_url("url", self._settings.url))
        reader = BlueBubblesReader(self._api, receiver)
        await reader.load_names()
        self._reader = reader
        await reader.catch_up()
        context.report(LinkState.CONNECTED, "" if self._settings.url else NO_HOOK)
        self._failures = 0
        while True:
            await self._sleep(self._settings.poll.total_seconds())
            # Without posts, nothing else tells what was changed.
            await reader.catch_up(updates=not self._settings.url)

    async def _register_hook(self, url: str) -> None:
        """Register the hook of this adapter at the server, once. Remove hooks of ours with an older secret, or with fewer events."""
        prefix = f"{url}/hooks/{self._hook_path}/"
        wanted = f"{prefix}{self._secret}"
        registered = bluebubbles_api.convert(await self._api.get("webhook") or [], list[BlueBubblesWebhook])
        current = [
            hook
            for hook in registered
            if hook.url == wanted and ("*" in hook.events or set(_EVENTS) <= set(map(str, hook.events)))
        ]
        for hook in registered:
            if hook.url.startswith(prefix) and hook not in current:
                await self._api.delete(f"webhook/{hook.id}")
        if not current:
            await self._api.post("webhook", {"url": wanted, "events": list(_EVENTS)})

    async def _handle_request(self, request: WebhookRequest) -> WebhookResponse:
        """Answer a post: 401 without the secret, 503 if what is new could not be read, and 200 when it is stored. Nothing
        in the body is believed: it says only what to ask for."""
        given = request.path or request.headers.get(SECRET_HEADER, "")
        if not hmac.compare_digest(given.encode(errors="replace"), self._secret.encode()):
            return WebhookResponse(status=401)
        reader = self._reader
        if reader is None:
            return WebhookResponse(status=503)
        try:
            event = as_object(json.loads(request.body)).get("type")
        except (ValueError, RecursionError):
            return WebhookResponse(status=400)
        if event not in _EVENTS:
            return WebhookResponse()
        try:
            await reader.catch_up(updates=event in _CHANGES)
        except KeryxError as exc:
            log.info("what a post of BlueBubbles is about could not be read yet: %s", exc)
            return WebhookResponse(status=503)
        return WebhookResponse()

    async def _find_newest_row(self) -> RowPosition:
        return await find_newest_row(self._api)

    async def _read_file(self, reference: str, *, limit: int) -> bytes:
        return await self._api.download(reference, limit=limit)

    def _find_refusal(self, error: KeryxError) -> str:
        return BAD_PASSWORD if isinstance(error, BlueBubblesError) and error.status in (401, 403) else ""
