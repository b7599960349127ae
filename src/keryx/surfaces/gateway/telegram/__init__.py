"""The adapter for one Telegram bot, by long polling or by a webhook, and its settings."""

import asyncio
import hmac
import json
import logging
import re
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from urllib.parse import urlsplit

import anyio
import msgspec

from keryx.core.deliveries import Target
from keryx.core.errors import Forbidden, Invalid, Retryable, Throttled, Unavailable
from keryx.core.media import Attachment, RemoteFile
from keryx.core.ports.adapter import (
    AdapterContext,
    AttachmentLimits,
    Capabilities,
    LengthUnit,
    OutgoingPart,
    RenderedPart,
    Streaming,
    Webhook,
    WebhookRequest,
    WebhookResponse,
)
from keryx.core.source import ChatType, Source
from keryx.core.texts import Phrase
from keryx.secrets import Secret
from keryx.surfaces.gateway import http_clients
from keryx.surfaces.gateway.adapter_settings import AdapterSetup, build_interval
from keryx.surfaces.gateway.telegram import message_sender
from keryx.surfaces.gateway.telegram.bot_api import (
    BAD_TOKEN,
    DEFAULT_URL,
    MAX_FILE_BYTES,
    WEBHOOK_IN_USE,
    FloodDetector,
    RetryingApi,
    TelegramApi,
    TelegramApiError,
    TelegramNoResponse,
    TelegramUnreachable,
)
from keryx.surfaces.gateway.telegram.event_parser import IDS, PLATFORM, ROLES, BotIdentity, parse_roles
from keryx.surfaces.gateway.telegram.event_receiver import UpdateReceiver
from keryx.surfaces.gateway.telegram.payloads import UPDATE_KINDS, TelegramUser
from keryx.timing import Sleep

TOKEN_PATTERN = re.compile(r"(\d{1,20}):[\w-]{3,200}\Z", re.ASCII)
_SECRET_PATTERN = re.compile(r"[\w-]{1,256}\Z", re.ASCII)
log = logging.getLogger(__name__)
_POLL_SECONDS = 50
_MAX_HELP_LENGTH = 256
_MAX_COMMANDS = 100
_DIRECT_CHATS = {"type": "all_private_chats"}
_CLOSE_SECONDS = 2.0
# What a bot may upload.
_MAX_UPLOAD_BYTES = 50_000_000


class UpdateMode(StrEnum):
    POLLING = "polling"
    WEBHOOK = "webhook"


class TelegramSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    token: Secret = Secret()
    base_url: str = DEFAULT_URL
    mode: UpdateMode = UpdateMode.POLLING
    # For a webhook: the public address of Keryx.
    url: str = ""
    # For a webhook: the secret that Telegram sends with each post.
    secret: Secret = Secret()
    # Messages per second, to one chat and in all. 0 means no limit but Telegram's own.
    per_chat: float = 0
    per_second: float = 0


def check_token(text: str) -> str:
    """Return the bot's id, with which a token begins. Raise `Invalid` for anything else."""
    found = TOKEN_PATTERN.match(text)
    if found is None:
        raise Invalid("this does not look like a Telegram token: @BotFather gives one like 123456789:AAE1x…")
    return found[1]


def check_url(name: str, url: str) -> str:
    """Return the address in a setting without its trailing slash."""
    return http_clients.check_url(
        url, f"telegram.{name}: write a web address such as https://example.org", username=True
    )


def check_secret(text: str) -> str:
    if not _SECRET_PATTERN.match(text):
        raise Invalid("telegram.secret: use 1 to 256 letters, digits, _ and -, as Telegram wants it")
    return text


def make(setup: AdapterSetup) -> "TelegramAdapter | None":
    """Build the adapter, or return None without settings. `Invalid` says what is missing."""
    settings = setup.read(TelegramSettings)
    if settings is None:
        return None
    setup.require(token=settings.token)
    secret = ""
    if settings.mode is UpdateMode.WEBHOOK:
        if not settings.secret or not settings.url:
            raise Invalid(
                f"{setup.label}.mode = webhook needs `url`, the public address of Keryx, and a `secret`"
            )
        secret = check_secret(settings.secret.reveal(setup.environ))
    token = settings.token.reveal(setup.environ)
    return TelegramAdapter(token, settings, secret=secret, hook_path=setup.hook_path)


class TelegramAdapter:
    platform = PLATFORM

    def __init__(
        self,
        token: str,
        settings: TelegramSettings = TelegramSettings(),
        *,
        secret: str = "",
        hook_path: str = PLATFORM,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.account = check_token(token)
        self._hook_path = hook_path
        self._settings = settings
        self._secret = secret
        self._sleep = sleep
        self._api = TelegramApi(token, check_url("base_url", settings.base_url))
        self._flood_detector = FloodDetector()
        self._receiver: UpdateReceiver | None = None
        self.capabilities = Capabilities(
            edit=True,
            threads=True,
            topics=True,
            typing=True,
            streaming=Streaming.EDIT,
            attachments=AttachmentLimits(max_bytes=_MAX_UPLOAD_BYTES),
            buttons=True,
            limit=message_sender.LIMIT.size,
            unit=LengthUnit.UTF16,
            chat_interval=build_interval(settings.per_chat),
            account_interval=build_interval(settings.per_second),
            pii_safe=True,
            ids=IDS,
            roles=ROLES,
        )

    @property
    def hook(self) -> Webhook | None:
        if self._settings.mode is not UpdateMode.WEBHOOK:
            return None
        return Webhook(
            path=self._hook_path,
            handle=self._handle_post,
            required_headers=("x-telegram-bot-api-secret-token",),
        )

    async def listen(self, context: AdapterContext) -> None:
        api = RetryingApi(self._api, context, self._sleep)
        try:
            bot = await self._start(api, context)
            self._receiver = UpdateReceiver(self._api, context, bot)
            if self._settings.mode is UpdateMode.WEBHOOK:
                await self._run_webhook(api)
            else:
                await self._poll(api, context, self._receiver)
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            self._receiver = None

    def convert_source(self, source: Source) -> Source:
        in_topic = source.thread and source.chat_type in (ChatType.GROUP, ChatType.THREAD)
        kind = ChatType.THREAD if in_topic else source.chat_type
        return msgspec.structs.replace(source, chat_type=kind, scope=None, parent_chat=None)

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._api.close()

    async def typing(self, target: Target) -> None:
        await message_sender.send_typing(self._api, target)

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return message_sender.render_parts(text)

    async def send(self, part: OutgoingPart) -> str:
        try:
            return await message_sender.send(self._api, part)
        except Throttled as exc:
            raise self._flood_detector.classify(exc, part.target.chat) from None

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        if file.size > MAX_FILE_BYTES:
            raise Invalid(Phrase("file.too_large", limit=MAX_FILE_BYTES))
        try:
            body = await self._api.fetch_file(file.reference, limit=limit)
        except TelegramApiError as exc:
            if exc.code == 429 or exc.code >= 500:
                raise Retryable(str(exc), after=timedelta(seconds=exc.retry_after)) from None
            if exc.code == 413 or "file is too big" in exc.description.lower():
                raise Invalid(Phrase("file.too_large", limit=min(limit, MAX_FILE_BYTES))) from None
            raise Invalid(Phrase("file.platform_says", platform="Telegram", reason=exc.description)) from None
        except (TelegramUnreachable, TelegramNoResponse) as exc:
            raise Unavailable(str(exc)) from None
        return Attachment(name=file.name, mime=file.mime, body=body)

    async def remove(self, target: Target, message: str) -> None:
        await message_sender.remove(self._api, target, message)

    async def roles(self, source: Source) -> Sequence[str]:
        """Return the roles in a group or channel. Who writes as the chat itself is an administrator."""
        if source.user == source.chat:
            return ROLES[1:]
        try:
            found = await self._api.call("getChatMember", chat_id=source.chat, user_id=source.user)
        except TelegramApiError as exc:
            if exc.code in (400, 403):
                return ()
            raise Unavailable(str(exc)) from None
        except (TelegramUnreachable, TelegramNoResponse) as exc:
            raise Unavailable(str(exc)) from None
        return parse_roles(found)

    async def _start(self, api: RetryingApi, context: AdapterContext) -> BotIdentity:
        """Look up the bot's identity, and set the menu of commands."""
        try:
            bot = msgspec.convert(await api.call("getMe"), TelegramUser)
        except (TelegramApiError, msgspec.ValidationError):
            raise Forbidden(BAD_TOKEN) from None
        try:
            for language, menu in (("", context.menu), *context.menus.items()):
                everywhere = [item for item in menu if not item.direct]
                for scope, items in (({"type": "default"}, everywhere), (_DIRECT_CHATS, menu)):
                    commands = [
                        {"command": item.name.replace("-", "_"), "description": item.help[:_MAX_HELP_LENGTH]}
                        for item in items[:_MAX_COMMANDS]
                    ]
                    await api.call("setMyCommands", commands=commands, scope=scope, language_code=language)
        except TelegramApiError as exc:
            log.warning("the menu of commands is not shown: %s", exc)
        names = frozenset(item.name for item in context.menu) | {"start"}
        return BotIdentity(id=bot.id, username=bot.username, commands=names)

    async def _poll(self, api: RetryingApi, context: AdapterContext, receiver: UpdateReceiver) -> None:
        await self._drop_own_webhook(api)
        offset = int(context.cursor) if context.cursor else None
        while True:
            batch = await api.call(
                "getUpdates",
                seconds=_POLL_SECONDS + 10,
                offset=offset,
                timeout=_POLL_SECONDS,
                allowed_updates=UPDATE_KINDS,
            )
            next_offset = await receiver.receive_batch(batch)
            if batch and next_offset is None:
                await self._sleep(_POLL_SECONDS)
            offset = next_offset if next_offset is not None else offset

    async def _drop_own_webhook(self, api: RetryingApi) -> None:
        """Remove a webhook of Keryx, because Telegram refuses polling while one is set. Raise `Forbidden` for another program's."""
        found = await api.call("getWebhookInfo")
        url = str(found.get("url") or "") if isinstance(found, dict) else ""  # pyright: ignore
        if not url:
            return
        if urlsplit(url).path != f"/hooks/{self._hook_path}":
            raise Forbidden(WEBHOOK_IN_USE)
        await api.call("deleteWebhook", drop_pending_updates=False)

    async def _run_webhook(self, api: RetryingApi) -> None:
        # One connection at a time, so that messages arrive in order.
        await api.call(
            "setWebhook",
            url=f"{check_url('url', self._settings.url)}/hooks/{self._hook_path}",
            secret_token=self._secret,
            max_connections=1,
            allowed_updates=UPDATE_KINDS,
            drop_pending_updates=False,
        )
        await asyncio.Event().wait()

    async def _handle_post(self, request: WebhookRequest) -> WebhookResponse:
        """Receive one update. Answer 200 only after it is stored, so that Telegram repeats it otherwise."""
        secret = request.headers.get("x-telegram-bot-api-secret-token", "")
        if not hmac.compare_digest(secret.encode(), self._secret.encode()):
            return WebhookResponse(status=401)
        if self._receiver is None:
            return WebhookResponse(status=503)
        try:
            update = json.loads(request.body)
        except (ValueError, RecursionError):
            return WebhookResponse(status=400)
        if not isinstance(update, dict):
            return WebhookResponse(status=400)
        try:
            await self._receiver.receive_one(update)  # pyright: ignore[reportUnknownArgumentType]
        except Unavailable:
            return WebhookResponse(status=503)
        return WebhookResponse()
